//! Every way in which a worker ends badly, as real processes do.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use outpost_sim::control::ControlExt;
use outpost_sim::model::NewRow;
use outpost_sim::script::{Script, Step};

use crate::world::{Worker, World};

const ID: &str = "devin-1";

async fn scripted(script: Script) -> (World, Worker) {
    let world = World::start().await;
    world.sim().create_scripted(NewRow::new(ID), script).unwrap();
    let worker = world.remote(ID);
    (world, worker)
}

fn status(world: &World) -> String {
    world.sim().status(ID).unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_that_crashes_leaves_its_session_running_and_its_command_is_given_to_the_next() {
    let (world, mut worker) =
        scripted(vec![Step::Crash { code: 9 }, Step::run("echo hi"), Step::Terminate]).await;
    assert_eq!(worker.exit_code().await, Some(9));
    assert_eq!(status(&world), "running");
    assert_eq!(world.remote(ID).exit_code().await, Some(0));
    assert_eq!(world.sim().results(ID).unwrap()[0].output, "hi\n");
    let overlaps: Vec<_> = world.sim().workers().unwrap().iter().map(|worker| worker.overlaps).collect();
    assert_eq!(overlaps, [None, None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_that_is_killed_in_the_middle_of_a_command_has_it_run_again_by_the_next() {
    let (world, mut worker) = scripted(vec![Step::run("echo x >> tries; exec sleep 600")]).await;
    world.until("the command runs", |_| world.directory().join("tries").exists()).await;
    worker.signal("KILL");
    assert_eq!(worker.exit_status().await.signal(), Some(9));
    let _next = world.remote(ID);
    let tries = || std::fs::read_to_string(world.directory().join("tries")).unwrap();
    world.until("it runs again", |_| tries() == "x\nx\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_kills_itself() {
    let (world, mut worker) = scripted(vec![Step::KillSelf]).await;
    assert_eq!(worker.exit_status().await.signal(), Some(9));
    assert_eq!(status(&world), "running");
}

// lesson 36
#[tokio::test(flavor = "multi_thread")]
async fn worker_hangs_when_its_session_sleeps_and_dies_of_term() {
    let (world, mut worker) = scripted(vec![Step::Hang, Step::Suspend]).await;
    world.until("the session sleeps", |_| status(&world) == "suspended").await;
    assert!(worker.is_alive());
    assert_eq!(world.sim().workers().unwrap()[0].left_with, None);
    worker.signal("TERM");
    assert_eq!(worker.exit_status().await.signal(), Some(15));
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_that_ignores_term_dies_of_kill_only() {
    let script = vec![Step::IgnoreTerm, Step::run("true"), Step::wait("more"), Step::run("echo alive")];
    let (world, mut worker) = scripted(script).await;
    world.until("it ignores TERM", |sim| sim.results(ID).unwrap().len() == 1).await;
    worker.signal("TERM");
    world.sim().go(ID, "more").unwrap();
    world.until("it works on", |sim| sim.results(ID).unwrap().len() == 2).await;
    worker.signal("KILL");
    assert_eq!(worker.exit_status().await.signal(), Some(9));
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_leaves_late() {
    let (world, mut worker) = scripted(vec![Step::ExitLate { ms: 700 }, Step::Suspend]).await;
    world.until("the session sleeps", |_| status(&world) == "suspended").await;
    assert!(worker.is_alive());
    assert_eq!(worker.exit_code().await, Some(0));
}

// lesson 30
#[tokio::test(flavor = "multi_thread")]
async fn status_lags_behind_the_exit() {
    let (world, mut worker) = scripted(vec![Step::StatusLag { ms: 3_600_000 }, Step::Suspend]).await;
    assert_eq!(worker.exit_code().await, Some(0));
    assert_eq!(status(&world), "running");
    world.sim().advance(Duration::from_secs(3601)).unwrap();
    assert_eq!(status(&world), "suspended");
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_leaves_badly_although_its_session_ends_well() {
    let (world, mut worker) = scripted(vec![Step::ExitWith { code: 3 }, Step::Terminate]).await;
    assert_eq!(worker.exit_code().await, Some(3));
    assert_eq!(status(&world), "terminated");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_live_workers_of_one_session_are_noticed_and_the_older_one_leaves() {
    let (world, mut first) = scripted(vec![]).await;
    world.until("the first connects", |sim| sim.workers().unwrap().len() == 1).await;
    let _second = world.remote(ID);
    world.until("the second connects", |sim| sim.workers().unwrap().len() == 2).await;
    assert_eq!(world.sim().workers().unwrap()[1].overlaps, Some(1));
    assert_ne!(first.exit_code().await, Some(0));
}
