//! What code in a session can do to Outpost's files, which belong to the same user: it harms that session only.
#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::time::Duration;

use outpost_core::model::SandboxState;
use outpost_core::ports::{SandboxProvider as _, Started};
use support::{Desk, exited, id, remove, restored, save, snapshots, start, state_of, stop, until};

const GRACE: Duration = Duration::from_secs(10);
const IDLE: &str = "echo ready; while :; do sleep 0.1; done";

async fn ready(desk: &Desk, session: &str) {
    let log = desk.run(session).join("log");
    until("the worker", async || fs::read_to_string(&log).is_ok_and(|text| text.contains("ready"))).await;
}

/// What code in a session can do to a file.
const DAMAGES: &[&str] = &["printf '{' >F", "printf '\\377' >F", "rm F; mkdir F", "rm F; mkfifo F", "rm F"];

#[tokio::test]
async fn a_session_that_damages_its_own_notes_harms_no_other() {
    for damage in DAMAGES {
        let desk = Desk::new();
        let provider = desk.provider();
        let (damaged, other) = (id("devin-1", 1), id("devin-2", 1));
        start(&provider, desk.spec("devin-1", 1, "exit 0")).await;
        exited(&provider, &damaged).await;
        let snapshot = save(&provider, &damaged).await;
        remove(&provider, &damaged).await;
        let worker = format!("cd ../..; {}; cd -; echo work >work; {IDLE}", damage.replace('F', "meta.json"));
        start(&provider, restored(desk.spec("devin-1", 2, &worker), &snapshot)).await;
        ready(&desk, "devin-1").await;
        start(&provider, desk.spec("devin-2", 1, IDLE)).await;
        let listed = async |provider: &outpost_provider_process::ProcessProvider| {
            let inventory = provider.list().await.unwrap();
            inventory.sandboxes.into_iter().map(|sandbox| sandbox.id).collect::<Vec<_>>()
        };
        assert_eq!(listed(&provider).await, std::slice::from_ref(&other), "{damage}");
        drop(provider);
        let provider = desk.provider();
        assert_eq!(listed(&provider).await, std::slice::from_ref(&other), "{damage}");
        assert_eq!(state_of(&provider, &other).await, Some(SandboxState::Running));
        assert!(desk.workspace("devin-1").join("work").exists(), "{damage}: it was touched");

        // It starts again, and what it had is moved aside, without its processes.
        let before = desk.pid("devin-1", "worker");
        let again = id("devin-1", 3);
        start(&provider, restored(desk.spec("devin-1", 3, IDLE), &snapshot)).await;
        assert_eq!(state_of(&provider, &again).await, Some(SandboxState::Running));
        assert_eq!(support::command_line(before), [] as [&str; 0], "{damage}: it lives");
        let aside: Vec<_> = fs::read_dir(desk.state().join("sandboxes"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.join("disk/workspace/work").exists())
            .collect();
        assert_eq!(aside.len(), 1, "{damage}: {aside:?}");
        drop(provider);
        let provider = desk.provider();
        assert!(aside[0].exists(), "{damage}: it was deleted");
        for boot in [&again, &other] {
            remove(&provider, boot).await;
        }
        assert_eq!(desk.processes(), [] as [i32; 0]);
    }
}

#[tokio::test]
async fn a_session_that_damages_what_its_supervisor_wrote_harms_no_other() {
    for damage in DAMAGES {
        let desk = Desk::new();
        let provider = desk.provider();
        let boot = id("devin-1", 1);
        let exit = damage.replace('F', "exit").replace("rm ", "rm -f ");
        let worker = damage.replace('F', "worker");
        let script = format!(
            "until [ -e go ]; do sleep 0.01; done; cd ../../run; {exit}; {worker}; echo ready; {}",
            "while :; do sleep 0.1; done"
        );
        start(&provider, desk.spec("devin-1", 1, &script)).await;
        fs::write(desk.workspace("devin-1").join("go"), "").unwrap();
        ready(&desk, "devin-1").await;
        provider.list().await.unwrap();
        drop(provider);
        let provider = desk.provider();
        provider.list().await.unwrap();
        stop(&provider, &boot, GRACE).await;
        save(&provider, &boot).await;
        remove(&provider, &boot).await;
        assert_eq!(desk.processes(), [] as [i32; 0]);
    }
}

#[tokio::test]
async fn a_note_that_speaks_of_another_sandbox_is_not_believed() {
    let desk = Desk::new();
    let provider = desk.provider();
    for session in ["devin-1", "devin-2"] {
        start(&provider, desk.spec(session, 1, IDLE)).await;
    }
    let meta = |session: &str| desk.run(session).with_file_name("meta.json");
    fs::copy(meta("devin-2"), meta("devin-1")).unwrap();
    let listed = provider.list().await.unwrap().sandboxes;
    assert_eq!(listed.iter().map(|sandbox| &sandbox.id).collect::<Vec<_>>(), [&id("devin-2", 1)]);
    remove(&provider, &id("devin-2", 1)).await;
    assert!(meta("devin-1").exists());
}

#[tokio::test]
async fn a_snapshot_whose_note_is_damaged_hides_no_other_and_is_unusable() {
    let desk = Desk::new();
    let provider = desk.provider();
    let mut taken = Vec::new();
    for session in ["devin-1", "devin-2"] {
        start(&provider, desk.spec(session, 1, "exit 0")).await;
        exited(&provider, &id(session, 1)).await;
        taken.push(save(&provider, &id(session, 1)).await);
        remove(&provider, &id(session, 1)).await;
    }
    fs::write(desk.state().join(format!("snapshots/{}.json", taken[0].reference)), "{").unwrap();
    assert_eq!(snapshots(&provider).await, std::slice::from_ref(&taken[1].reference));
    let answer = provider.start(restored(desk.spec("devin-1", 2, "exit 0"), &taken[0])).await.unwrap();
    assert!(matches!(answer, Started::SnapshotUnusable { .. }), "{answer:?}");
}

#[tokio::test]
async fn a_session_that_writes_into_its_program_changes_it_for_no_later_one() {
    let desk = Desk::new();
    let provider = desk.provider();
    let worker = "chmod u+w \"$0\"; echo 'echo changed' >>\"$0\"; echo ready";
    let first = desk.spec("devin-1", 1, worker);
    let mut second = first.clone();
    second.id = id("devin-2", 1);
    second.worker.session = second.id.session.clone();
    for spec in [first, second] {
        let boot = spec.id.clone();
        start(&provider, spec).await;
        assert_eq!(exited(&provider, &boot).await, Some(0));
    }
    let log = |session: &str| fs::read_to_string(desk.run(session).join("log")).unwrap();
    assert!(log("devin-1").contains("ready\nchanged"), "it did change its own: {}", log("devin-1"));
    assert_eq!(log("devin-2").matches("changed").count(), 1, "{}", log("devin-2"));
    for session in ["devin-1", "devin-2"] {
        remove(&provider, &id(session, 1)).await;
    }
}
