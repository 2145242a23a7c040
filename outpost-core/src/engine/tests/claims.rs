//! Claiming.

use super::fake::{Fake, HOUR, Worker, id, secs};
use crate::decide::Step;
use crate::engine::NoticeKind;
use crate::model::{Owner, SandboxState, SessionStatus, SnapshotPurpose};

// lesson 12
#[test]
fn a_pending_row_that_sleeps_or_has_ended_is_not_claimed_for_a_hundred_passes() {
    for status in [SessionStatus::Suspended, SessionStatus::Terminated] {
        let mut world = Fake::new();
        world.set("a", status);
        world.run_for(secs(1000));
        assert!(world.count("list") >= 100);
        assert!(world.steps("a").is_empty() && world.count("renew") == 0);
    }
}

// lesson 13
#[test]
fn a_pending_row_is_claimed_also_when_its_session_already_runs() {
    for status in [SessionStatus::Pending, SessionStatus::Running] {
        let mut world = Fake::new();
        world.set("a", status);
        world.run_for(secs(1));
        assert_eq!((world.owner("a"), world.is_live("a")), (Owner::Us, true));
    }
}

// lesson 13
#[test]
fn a_row_that_another_has_claimed_is_left_alone() {
    let mut world = Fake::new();
    world.set("a", SessionStatus::Running);
    world.take_over("a");
    world.run_for(HOUR);
    assert!(world.steps("a").is_empty() && world.count("renew") == 0);
}

// lesson 14
#[test]
fn two_triggers_for_one_row_are_one_start() {
    let mut world = Fake::new();
    world.run_for(secs(1));
    world.hold = Some("start");
    world.set("a", SessionStatus::Pending);
    world.watch_row("a");
    world.watch_row("a");
    world.run_for(secs(30));
    world.watch_row("a");
    world.run_for(secs(30));
    assert_eq!(world.count("start"), 1);
    world.let_go();
    world.run_for(secs(30));
    assert_eq!((world.count("start"), world.sandboxes.len()), (1, 1));
}

// lessons 15, 22 and 23
#[test]
fn a_restart_leaves_a_live_worker_alone_and_renews_first() {
    let mut world = Fake::new();
    world.serve("a");
    world.calls.clear();
    world.restart();
    world.run_for(secs(0));
    let after_reading = world.calls.iter().find(|call| call.session.is_some()).map(|call| call.name);
    assert_eq!(after_reading, Some("renew"));
    world.run_for(HOUR);
    assert!(world.steps("a").is_empty(), "{:?}", world.steps("a"));
    assert!(world.is_live("a"));
}

// lesson 22
#[test]
fn a_claim_that_has_lapsed_is_taken_back_while_its_worker_lives() {
    let mut world = Fake::new();
    world.serve("a");
    world.row("a").phase = crate::model::Phase::Pending;
    world.row("a").claim = None;
    world.restart();
    world.run_for(secs(1));
    assert_eq!((world.owner("a"), world.steps("a")), (Owner::Us, vec!["start"]));
}

// lesson 22
#[test]
fn a_session_that_another_took_is_kept_for_people_and_not_released() {
    let mut world = Fake::new();
    world.serve("a");
    world.take_over("a");
    world.restart();
    world.run_for(HOUR);
    assert_eq!(world.steps("a"), ["start", "stop_worker", "save", "remove"]);
    assert_eq!(world.snapshots_of("a")[0].purpose, SnapshotPurpose::Detached);
    assert_eq!(world.owner("a"), Owner::Another);
}

// lesson 22
#[test]
fn a_conflict_at_a_renewal_ends_the_worker_without_waiting_for_lists() {
    let mut world = Fake::new();
    world.serve("a");
    world.take_over("a");
    // The list goes on showing what it showed.
    world.hold = Some("list");
    world.run_for(secs(120));
    assert_eq!(world.steps("a"), ["start", "stop_worker", "save", "remove"]);
    assert_eq!(world.told(NoticeKind::ClaimLost), 1);
}

// lesson 23
#[test]
fn a_restart_saves_a_dead_worker_and_starts_its_session_again() {
    let mut world = Fake::new();
    world.serve("a");
    world.exit("a", 1);
    world.restart();
    world.run_for(secs(60));
    assert_eq!(world.steps("a")[..4], ["start", "save", "remove", "start"]);
    let restored = world.of("a").next().and_then(|sandbox| sandbox.restored_from.clone());
    assert_eq!(restored.as_ref(), Some(&world.snapshots_of("a")[0].reference));
}

// lesson 19
#[test]
fn a_session_that_cannot_be_started_is_released_each_time_and_tried_ever_more_seldom() {
    let mut world = Fake::new();
    world.faults.start.insert(id("bad"));
    world.set("bad", SessionStatus::Pending);
    world.set("good", SessionStatus::Pending);
    world.run_for(HOUR);
    assert_eq!(world.owner("bad"), Owner::Nobody);
    assert!(world.is_live("good"));
    let starts = world.starts_of("bad");
    assert!((5..=10).contains(&starts.len()), "{starts:?}");
    let pauses: Vec<_> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[..4].windows(2).all(|pair| pair[0] < pair[1]), "{pauses:?}");
}

// lesson 20
#[test]
fn a_session_that_was_taken_while_its_start_was_slow_gets_no_second_machine() {
    let mut world = Fake::new();
    world.run_for(secs(1));
    world.hold = Some("start");
    world.set("a", SessionStatus::Pending);
    world.run_for(secs(300));
    world.take_over("a");
    world.let_go();
    world.run_for(secs(1000));
    assert!(world.sandboxes.is_empty());
    assert_eq!((world.count("start"), world.owner("a")), (1, Owner::Another));
}

// lesson 20
#[test]
fn a_worker_that_does_not_come_up_in_time_is_ended_and_its_claim_kept_meanwhile() {
    let mut world = Fake::new();
    world.workers.insert(id("a"), Worker::Starts);
    world.set("a", SessionStatus::Pending);
    world.run_for(secs(235));
    assert_eq!(world.steps("a"), ["start"]);
    assert!(world.count("renew") >= 2, "it is renewed while it starts");
    world.run_for(secs(10));
    assert_eq!(world.steps("a")[..3], ["start", "stop_worker", "remove"]);
}

/// An hour of workers that end at once.
fn crash_loop(code: i32) -> Fake {
    let mut world = Fake::new();
    world.workers.insert(id("bad"), Worker::Exits(code));
    world.set("bad", SessionStatus::Running);
    world.set("good", SessionStatus::Running);
    for _ in 0..3600 {
        world.run_for(secs(1));
        let kept = world.snapshots_of("bad").len();
        assert!(kept <= 2, "{kept} snapshots");
    }
    world
}

// lesson 24
#[test]
fn a_worker_that_crashes_at_once_for_an_hour_is_tried_seldom_and_leaves_no_snapshot() {
    let world = crash_loop(1);
    let starts = world.starts_of("bad").len();
    assert!((5..=12).contains(&starts), "{starts}");
    assert!(world.snapshots_of("bad").is_empty());
    assert!(world.is_live("good"));
    assert_eq!(world.steps("good"), ["start"]);
    assert!(world.told(NoticeKind::GivenUp) >= 1);
}

// lessons 34 and 45
#[test]
fn a_worker_that_leaves_content_at_once_for_an_hour_is_tried_seldom_and_leaves_one_snapshot() {
    let world = crash_loop(0);
    let starts = world.starts_of("bad").len();
    assert!((5..=12).contains(&starts), "{starts}");
    assert!(world.snapshots_of("bad").len() <= 1, "{:?}", world.snapshots_of("bad"));
    assert_eq!(world.steps("good"), ["start"]);
}

// lesson 24
#[test]
fn a_back_off_survives_a_restart_and_a_release() {
    let mut world = Fake::new();
    world.workers.insert(id("bad"), Worker::Exits(1));
    world.set("bad", SessionStatus::Running);
    for _ in 0..360 {
        world.run_for(secs(10));
        world.restart();
    }
    // A boot that was there before the process may have served, so that a restart in between forgives one failure.
    let starts = world.starts_of("bad").len();
    assert!((5..=12).contains(&starts), "{starts}");
}

// lesson 24
#[test]
fn a_boot_that_served_is_forgiven_what_failed_before() {
    let mut world = Fake::new();
    world.workers.insert(id("a"), Worker::Exits(1));
    world.set("a", SessionStatus::Running);
    world.run_for(secs(20));
    assert!(world.records[&id("a")].record.failures >= 2);
    world.workers.insert(id("a"), Worker::Lives);
    world.run_for(secs(120));
    world.exit("a", 1);
    world.run_for(secs(20));
    assert_eq!(world.records[&id("a")].record.failures, 0);
    let restarted = world.calls.iter().rev().find_map(|call| match &call.step {
        Some(Step::Start(plan)) => Some(plan.restore.is_some()),
        _ => None,
    });
    assert_eq!(restarted, Some(true), "what it did is restored");
    assert!(world.of("a").all(|sandbox| sandbox.state == SandboxState::Running));
}
