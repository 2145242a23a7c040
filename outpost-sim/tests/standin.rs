//! The stand-in as a real process against a real simulator, in every mode and with every bad end.

mod common;

use common::World;
use outpost_sim::control::{ControlExt, Settings};
use outpost_sim::fault::Endpoint;
use outpost_sim::model::{Freshness, NewRow};
use outpost_sim::script::Step;

#[tokio::test(flavor = "multi_thread")]
async fn remote_worker_runs_its_commands_and_leaves_with_0_when_its_session_sleeps() {
    let world = World::start().await;
    let script = vec![Step::run("echo hello > note; cat note"), Step::run("exit 7"), Step::Suspend];
    world.sim().create_scripted(NewRow::new("devin-1"), script).unwrap();
    let mut worker = world.remote("devin-1");

    assert_eq!(worker.exit_code().await, Some(0));
    let results = world.sim().results("devin-1").unwrap();
    assert_eq!(results.len(), 2);
    assert_eq!((results[0].code, &*results[0].output), (Some(0), "hello\n"));
    assert_eq!(results[1].code, Some(7));
    assert_eq!(world.sim().status("devin-1").unwrap().as_deref(), Some("suspended"));
    assert_eq!(std::fs::read_to_string(world.directory().join("note")).unwrap(), "hello\n");
    let seen = &world.sim().workers().unwrap()[0];
    assert_eq!(seen.mode, "devin-remote");
    assert_eq!(seen.token, Freshness::Newest);
    assert!(seen.unexpected_env.is_empty(), "{:?}", seen.unexpected_env);
    assert!(seen.fleet_token_in.is_empty());
    assert_eq!(seen.left_with, Some(0));
}
