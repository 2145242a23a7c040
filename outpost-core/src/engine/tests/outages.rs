//! Hours in which something does not answer.

use super::fake::{Fake, HOUR, secs};
use crate::decide::{Step, StopReason};
use crate::model::{SandboxState, SessionStatus};
use crate::ports::{Capabilities, ErrorKind};

fn calls_since(world: &Fake, before: usize, names: &[&str]) -> usize {
    world.calls[before..].iter().filter(|call| names.contains(&call.name)).count()
}

const DESTRUCTIVE: [&str; 4] = ["stop_worker", "remove", "delete_snapshot", "forget"];
const QUEUE: [&str; 4] = ["list", "renew", "look", "release"];

// lessons 48 and 54
#[test]
fn an_hour_without_the_queue_ends_nothing_and_costs_few_calls() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Unauthorized, ErrorKind::RateLimited] {
        let mut world = Fake::new();
        for name in ["a", "b", "c"] {
            world.serve(name);
        }
        world.set("waits", SessionStatus::Pending);
        let before = world.calls.len();
        world.faults.queue = Some(kind);
        world.run_for(HOUR);
        assert_eq!(calls_since(&world, before, &DESTRUCTIVE), 0, "{kind:?}");
        assert!(calls_since(&world, before, &["list"]) <= 70, "{kind:?}");
        assert!(calls_since(&world, before, &QUEUE) <= 4 * 361, "{kind:?}");
        assert_eq!(calls_since(&world, before, &["start"]), 0, "{kind:?}");
        let report = world.engine.report(world.now);
        assert_eq!(report.queue.error.map(|(kind, _)| kind), Some(kind));
        world.faults.queue = None;
        world.run_for(secs(70));
        assert!(["a", "b", "c", "waits"].iter().all(|name| world.is_live(name)), "{kind:?}");
    }
}

// lesson 29
#[test]
fn one_reading_of_suspended_before_an_outage_ends_nothing() {
    let mut world = Fake::new();
    world.serve("a");
    world.set("a", SessionStatus::Suspended);
    world.run_for(secs(10));
    world.faults.queue = Some(ErrorKind::Unavailable);
    world.run_for(HOUR);
    assert_eq!(world.steps("a"), ["start"]);
}

// lesson 48
#[test]
fn a_list_that_fails_on_its_second_page_ends_nothing() {
    let mut world = Fake::new();
    world.serve("a");
    let before = world.calls.len();
    world.faults.list = Some(ErrorKind::Unavailable);
    world.run_for(HOUR);
    assert_eq!(calls_since(&world, before, &DESTRUCTIVE), 0);
    assert!(world.is_live("a"));
    assert!(calls_since(&world, before, &["renew"]) >= 30, "its claim is kept");
}

// lesson 48
#[test]
fn a_restart_without_the_queue_ends_nothing() {
    let mut world = Fake::new();
    world.serve("a");
    world.faults.queue = Some(ErrorKind::Unauthorized);
    world.restart();
    let before = world.calls.len();
    world.run_for(HOUR);
    assert_eq!(calls_since(&world, before, &DESTRUCTIVE), 0);
    assert!(world.is_live("a"));
}

fn limited(lifetime: std::time::Duration) -> Fake {
    let capabilities = Capabilities { lifetime_limit: Some(lifetime), ..Capabilities::default() };
    Fake::with(super::fake::policy(), capabilities)
}

// lesson 48
#[test]
fn a_sandbox_is_extended_in_time_and_rolled_over_with_its_disk_before_the_limit() {
    let mut world = limited(HOUR * 2);
    world.serve("a");
    // The world ends whatever outlives its time, unsaved, and fails.
    world.run_for(HOUR * 5);
    let rolled = world
        .calls
        .iter()
        .filter(|call| matches!(call.step, Some(Step::StopWorker { reason: StopReason::Lifetime, .. })));
    assert_eq!(rolled.count(), 2);
    let sandbox = world.of("a").next().unwrap();
    assert_eq!(sandbox.state, SandboxState::Running);
    assert!(sandbox.restored_from.is_some());
    assert!(world.count("extend") <= 40, "{}", world.count("extend"));
}

// lesson 48
#[test]
fn a_sandbox_is_saved_before_its_limit_though_the_queue_is_down() {
    let mut world = limited(HOUR);
    world.serve("a");
    world.faults.queue = Some(ErrorKind::Unavailable);
    world.run_for(HOUR - secs(70));
    assert_eq!(world.snapshots_of("a").len(), 1);
}

// lesson 54
#[test]
fn an_extension_that_fails_is_asked_for_seldom() {
    let mut world = limited(HOUR * 2);
    world.serve("a");
    world.faults.extend = true;
    world.run_for(HOUR / 2 - secs(70));
    assert!(world.count("extend") <= 20, "{}", world.count("extend"));
}
