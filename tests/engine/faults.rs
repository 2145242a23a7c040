//! An engine that fails, and things that happen behind Outpost's back.

use std::time::Duration;

use bollard::query_parameters::RemoveContainerOptionsBuilder;
use outpost::sim::control::ControlExt as _;
use outpost::sim::script::Step;

use crate::proxy::{Fault, Proxy};
use crate::stage::{World, until};

/// Works, sleeps, reads what it wrote, and ends.
fn sleeper() -> Vec<Step> {
    vec![
        Step::run("mkdir -p repos && echo kept >repos/note"),
        Step::Suspend,
        Step::run("cat repos/note"),
        Step::Terminate,
    ]
}

/// Waits until a session sleeps and is released, and wakes it.
async fn wake_when_it_sleeps(world: &World, session: &str) {
    until(&format!("{session} sleeps and is released"), || {
        world.status(session).as_deref() == Some("suspended")
            && world.sim().row(session).unwrap().is_none_or(|row| row.acceptor_id.is_none())
    })
    .await;
    world.sim().wake(session).unwrap();
}

async fn ends_with_its_work(world: &World, session: &str) {
    until(&format!("{session} has ended"), || world.status(session).as_deref() == Some("terminated")).await;
    let results = world.sim().results(session).unwrap();
    assert_eq!(results.last().unwrap().output.trim(), "kept", "{results:#?}");
}

/// Calls that fail once each, in groups: a session whose starts keep failing waits longer and longer.
const CALLS: [&[(&str, &str)]; 6] = [
    &[("POST", "/volumes/create"), ("POST", "/commit"), ("DELETE", "/images/")],
    &[("POST", "/networks/create"), ("POST", "/tag"), ("DELETE", "/containers/")],
    &[("POST", "/containers/create"), ("GET", "/export")],
    &[("PUT", "/archive"), ("GET", "/containers/json")],
    &[("POST", "/start"), ("GET", "/images/json")],
    &[("POST", "/attach"), ("DELETE", "/networks/")],
];

async fn gets_through(calls: &[(&'static str, &'static str)], fault: Fault) {
    let world = World::new().await;
    let proxy = Proxy::start(world.dir.path(), crate::stage::engine().trim_start_matches("unix://").into());
    let mut orchestrator = world.orchestrator();
    orchestrator.engine = proxy.address();
    let running = orchestrator.start();
    // By its end the provider is open.
    world.create("devin-first", vec![Step::run("true"), Step::Terminate]);
    until("the first session has ended", || world.status("devin-first").as_deref() == Some("terminated"))
        .await;
    for (method, path) in calls {
        proxy.rule(method, *path, fault, Some(1));
    }
    world.create("devin-1", sleeper());
    wake_when_it_sleeps(&world, "devin-1").await;
    ends_with_its_work(&world, "devin-1").await;
    world.until_nothing_is_left().await;
    running.stop().await;
}

async fn gets_through_all(fault: Fault) {
    futures::future::join_all(CALLS.map(|calls| gets_through(calls, fault))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_gets_through_calls_that_are_answered_with_500() {
    gets_through_all(Fault::Instead(500)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_gets_through_calls_that_are_answered_with_409() {
    gets_through_all(Fault::Instead(409)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_gets_through_calls_that_are_done_and_answered_with_500() {
    gets_through_all(Fault::After(500)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_gets_through_calls_that_are_done_and_never_answered() {
    gets_through_all(Fault::Lost).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_engine_loses_nothing() {
    let world = World::new().await;
    let proxy = Proxy::start(world.dir.path(), crate::stage::engine().trim_start_matches("unix://").into());
    for method in ["GET", "POST", "PUT", "DELETE"] {
        proxy.rule(method, "/", Fault::Delay(Duration::from_millis(300)), None);
    }
    let mut orchestrator = world.orchestrator();
    orchestrator.engine = proxy.address();
    let running = orchestrator.start();
    world.create("devin-1", sleeper());
    wake_when_it_sleeps(&world, "devin-1").await;
    ends_with_its_work(&world, "devin-1").await;
    world.until_nothing_is_left().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_somebody_removes_is_noticed_and_its_session_starts_again() {
    let world = World::new().await;
    world.create(
        "devin-1",
        vec![Step::run("true"), Step::wait("removed"), Step::run("echo back"), Step::Terminate],
    );
    world.create(
        "devin-2",
        vec![Step::run("true"), Step::wait("removed"), Step::run("echo here"), Step::Terminate],
    );
    let running = world.orchestrator().start();
    for session in ["devin-1", "devin-2"] {
        until("both work", || world.sim().results(session).unwrap().len() == 1).await;
    }
    let first = outpost::core::model::SessionId::new("devin-1").unwrap().stable_hash();
    let name = world.containers().await.into_iter().find(|name| name.contains(&first)).unwrap();
    let options = RemoveContainerOptionsBuilder::default().force(true).build();
    world.docker.remove_container(name.trim_start_matches('/'), Some(options)).await.unwrap();
    for session in ["devin-1", "devin-2"] {
        world.sim().go(session, "removed").unwrap();
        until(&format!("{session} has ended"), || world.status(session).as_deref() == Some("terminated"))
            .await;
    }
    let workers = world.sim().workers().unwrap();
    let of = |session: &str| workers.iter().filter(|worker| worker.session_id == session).count();
    assert_eq!((of("devin-1"), of("devin-2")), (2, 1), "only the one that was removed starts again");
    world.until_nothing_is_left().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_eats_all_memory_ends_and_its_session_goes_on() {
    let world = World::new().await;
    world.create(
        "devin-1",
        vec![Step::run("tail /dev/zero; echo code $?"), Step::run("echo kept"), Step::Terminate],
    );
    let running = world.orchestrator().start();
    ends_with_its_work(&world, "devin-1").await;
    let results = world.sim().results("devin-1").unwrap();
    assert!(results[0].output.contains("code 137"), "it was killed for memory: {results:#?}");
    world.until_nothing_is_left().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_supervisor_is_started_again_with_its_disk() {
    let world = World::new().await;
    world.create(
        "devin-1",
        vec![
            Step::run("mkdir -p repos && echo kept >repos/note; sleep 6"),
            Step::wait("killed"),
            Step::run("cat repos/note"),
            Step::Terminate,
        ],
    );
    let running = world.orchestrator().start();
    until("it has written", || world.sim().results("devin-1").unwrap().len() == 1).await;
    let name = world.containers().await.remove(0);
    world.docker.kill_container(name.trim_start_matches('/'), None).await.unwrap();
    until("it has a second worker", || world.sim().workers().unwrap().len() == 2).await;
    world.sim().go("devin-1", "killed").unwrap();
    ends_with_its_work(&world, "devin-1").await;
    world.until_nothing_is_left().await;
    running.stop().await;
}
