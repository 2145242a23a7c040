//! The life of a sandbox, with real processes.

mod support;

use std::fs;
use std::time::Duration;

use outpost_core::model::{SandboxState, WorkerEnding};
use outpost_core::ports::SandboxProvider as _;
use support::{Desk, exited, id, remove, restored, save, snapshots, start, state_of, stop, until};

const GRACE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_session_works_sleeps_and_wakes_with_its_files() {
    let desk = Desk::new();
    let provider = desk.provider();
    let (first, second) = (id("devin-1", 1), id("devin-1", 2));

    let sandbox = start(&provider, desk.spec("devin-1", 1, "echo hello >repos/file; exec sleep 1000")).await;
    assert_eq!(sandbox.state, SandboxState::Running);
    let file = desk.workspace("devin-1").join("repos/file");
    until("the worker writes", async || fs::read_to_string(&file).is_ok_and(|text| text == "hello\n")).await;

    assert_eq!(stop(&provider, &first, GRACE).await, WorkerEnding::Clean);
    assert_eq!(state_of(&provider, &first).await, Some(SandboxState::Exited { code: Some(143) }));
    let snapshot = save(&provider, &first).await;
    assert_eq!((snapshot.boot, snapshot.ending), (first.boot, WorkerEnding::Clean));
    remove(&provider, &first).await;
    assert_eq!(state_of(&provider, &first).await, None);
    assert!(!file.exists());

    let spec = restored(desk.spec("devin-1", 2, "cat repos/file; exit 7"), &snapshot);
    let woken = start(&provider, spec).await;
    assert_eq!(woken.restored_from, Some(snapshot.reference.clone()));
    assert_eq!(exited(&provider, &second).await, Some(7));
    assert_eq!(fs::read_to_string(&file).unwrap(), "hello\n");

    remove(&provider, &second).await;
    assert_eq!(snapshots(&provider).await, std::slice::from_ref(&snapshot.reference));
    provider.delete_snapshot(&snapshot.reference).await.unwrap();
    assert!(snapshots(&provider).await.is_empty());
    assert_eq!(desk.processes(), [] as [i32; 0]);
}
