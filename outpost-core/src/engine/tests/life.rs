//! A session's life: sleeping, waking, ending, leaving.

use super::fake::{Fake, HOUR, id, secs};
use crate::decide::{Step, StopReason};
use crate::engine::NoticeKind;
use crate::model::{Owner, Phase, SessionStatus};
use crate::ports::{Capabilities, ErrorKind, WatchEvent};

fn stop_reason(world: &Fake) -> Option<StopReason> {
    world.calls.iter().rev().find_map(|call| match &call.step {
        Some(Step::StopWorker { reason, .. }) => Some(*reason),
        _ => None,
    })
}

// lesson 29
#[test]
fn a_blip_of_suspended_touches_nothing() {
    let mut world = Fake::new();
    world.serve("a");
    for _ in 0..60 {
        world.set("a", SessionStatus::Suspended);
        world.run_for(secs(20));
        world.set("a", SessionStatus::Running);
        world.run_for(secs(20));
    }
    assert_eq!(world.steps("a"), ["start"]);
}

// lessons 29, 36 and 37
#[test]
fn a_worker_that_hangs_while_its_session_sleeps_is_ended_saved_removed_and_released_last() {
    let mut world = Fake::new();
    world.serve("a");
    world.set("a", SessionStatus::Suspended);
    world.run_for(secs(55));
    assert_eq!(world.steps("a"), ["start"], "it has its grace");
    world.run_for(secs(60));
    assert_eq!(world.steps("a"), ["start", "stop_worker", "save", "remove", "release"]);
    assert_eq!(stop_reason(&world), Some(StopReason::Suspended));
    assert_eq!((world.snapshots_of("a").len(), world.owner("a")), (1, Owner::Nobody));
}

// lesson 30
#[test]
fn a_status_that_lags_behind_a_clean_exit_is_waited_for() {
    let mut world = Fake::new();
    world.serve("a");
    world.exit("a", 0);
    world.run_for(secs(6));
    world.set("a", SessionStatus::Suspended);
    world.run_for(secs(60));
    let steps: Vec<_> = world.steps("a").into_iter().filter(|step| *step != "look").collect();
    assert_eq!(steps, ["start", "save", "remove", "release"]);
    assert_eq!(world.told(NoticeKind::WorkerEnded), 0, "it is no failure");
}

// lesson 30
#[test]
fn when_no_look_after_an_exit_succeeds_the_disk_is_kept() {
    let mut world = Fake::new();
    world.serve("a");
    world.faults.queue = Some(ErrorKind::Unavailable);
    world.exit("a", 0);
    world.run_for(HOUR);
    assert_eq!(world.snapshots_of("a").len(), 1);
    assert_eq!(world.count("start"), 1, "and nothing is started blindly");
}

// lesson 30
#[test]
fn a_nonzero_exit_is_a_failure_without_looking_again() {
    let mut world = Fake::new();
    world.serve("a");
    world.exit("a", 1);
    world.run_for(secs(30));
    assert_eq!(world.steps("a")[..4], ["start", "save", "remove", "start"]);
}

// lesson 31
#[test]
fn a_row_that_vanishes_while_its_worker_runs_costs_no_work() {
    let mut world = Fake::new();
    world.serve("a");
    let row = world.rows.remove(&id("a")).unwrap();
    world.watch(WatchEvent::Deleted(id("a")));
    world.run_for(secs(50));
    assert!(world.is_live("a"), "a vanished row ends nothing by itself");
    world.run_for(HOUR);
    assert_eq!(stop_reason(&world), Some(StopReason::Gone));
    assert!(world.sandboxes.is_empty());
    let saved = world.snapshots_of("a")[0].reference.clone();
    world.rows.insert(id("a"), row);
    world.row("a").phase = Phase::Pending;
    world.wake("a");
    world.run_for(secs(30));
    let restored = world.of("a").next().and_then(|sandbox| sandbox.restored_from.clone());
    assert_eq!(restored, Some(saved), "it resumes with the same disk");
}

// lesson 31
#[test]
fn a_session_that_is_gone_after_a_restart_is_saved() {
    let mut world = Fake::new();
    world.serve("a");
    world.rows.clear();
    world.restart();
    world.run_for(HOUR);
    assert_eq!((world.sandboxes.len(), world.snapshots_of("a").len()), (0, 1));
}

// lesson 32
#[test]
fn what_a_vanished_session_left_is_deleted_after_its_time_to_live_and_not_before() {
    let mut world = Fake::forgetful();
    for name in ["a", "b"] {
        world.serve(name);
        world.set(name, SessionStatus::Suspended);
    }
    world.run_for(HOUR);
    world.rows.remove(&id("a"));
    world.run_for(HOUR * 47);
    assert_eq!(world.snapshots_of("a").len(), 1);
    world.run_for(HOUR * 48);
    assert!(world.snapshots_of("a").is_empty() && !world.records.contains_key(&id("a")));
    assert_eq!(world.snapshots_of("b").len(), 1, "what is still in the queue is kept");
}

// lesson 32, invariant 4
#[test]
fn a_session_that_slept_for_long_before_it_vanished_is_kept_for_its_whole_time_to_live() {
    let mut world = Fake::forgetful();
    world.serve("a");
    world.set("a", SessionStatus::Suspended);
    world.run_for(HOUR * 24 * 5);
    world.rows.clear();
    world.run_for(HOUR * 47);
    assert_eq!(world.snapshots_of("a").len(), 1);
    world.run_for(HOUR * 26);
    assert!(world.snapshots_of("a").is_empty());
}

// lesson 33
#[test]
fn a_sandbox_whose_claim_has_lapsed_while_it_sleeps_is_saved_without_a_claim() {
    let mut world = Fake::new();
    world.serve("a");
    world.set("a", SessionStatus::Suspended);
    world.row("a").phase = Phase::Pending;
    world.row("a").claim = None;
    let renewals = world.count("renew");
    world.run_for(secs(300));
    assert_eq!(world.steps("a"), ["start", "stop_worker", "save", "remove"]);
    assert_eq!(world.count("renew"), renewals);
}

// lesson 37
#[test]
fn a_session_that_wakes_between_any_two_steps_starts_from_the_finished_snapshot() {
    for step in ["stop_worker", "save", "remove", "release"] {
        let mut world = Fake::new();
        world.serve("a");
        world.set("a", SessionStatus::Suspended);
        world.hold = Some(step);
        world.run_for(secs(120));
        world.wake("a");
        world.run_for(secs(60));
        assert_eq!(world.count("start"), 1, "{step}: nothing starts on a disk that is being saved");
        world.let_go();
        world.run_for(secs(60));
        let sandboxes: Vec<_> = world.of("a").collect();
        assert_eq!(sandboxes.len(), 1, "{step}");
        let restored = sandboxes[0].restored_from.as_ref();
        assert_eq!(restored, world.snapshots_of("a").last().map(|s| &s.reference), "{step}");
        assert!(restored.is_some(), "{step}");
    }
}

// lesson 40
#[test]
fn every_end_takes_the_same_path() {
    let limited = Capabilities { lifetime_limit: Some(HOUR), ..Capabilities::default() };
    type End = fn(&mut Fake);
    let ends: [(&str, End); 5] = [
        ("it exits", |world| world.exit("a", 1)),
        ("it sleeps", |world| world.set("a", SessionStatus::Suspended)),
        ("it is gone", |world| world.rows.clear()),
        ("its life is over", |world| world.run_for(HOUR - secs(60))),
        ("another takes it", |world| world.take_over("a")),
    ];
    for (end, happens) in ends {
        let mut world = Fake::with(super::fake::policy(), limited.clone());
        world.serve("a");
        happens(&mut world);
        world.run_for(secs(300));
        let steps = world.steps("a");
        let saved = steps.iter().position(|step| *step == "save");
        let removed = steps.iter().position(|step| *step == "remove");
        assert!(saved.is_some() && saved < removed, "{end}: {steps:?}");
    }
}

// lesson 40
#[test]
fn a_session_that_ends_while_its_worker_runs_leaves_nothing_and_is_released_last() {
    let mut world = Fake::new();
    world.serve("a");
    world.set("a", SessionStatus::Suspended);
    world.run_for(secs(300));
    world.wake("a");
    world.run_for(secs(60));
    assert!(world.is_live("a"));
    world.calls.clear();
    world.set("a", SessionStatus::Terminated);
    world.run_for(secs(60));
    assert_eq!(world.steps("a"), ["stop_worker", "remove", "delete_snapshot", "forget", "release"]);
    assert!(world.sandboxes.is_empty() && world.snapshots.is_empty() && world.records.is_empty());
}
