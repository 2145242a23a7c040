//! Snapshots.

use super::fake::{Fake, HOUR, Worker, id, secs};
use crate::decide::{Caveat, Step};
use crate::engine::NoticeKind;
use crate::model::{Boot, SandboxState, SessionStatus};

fn sleep(world: &mut Fake, name: &str) {
    world.set(name, SessionStatus::Suspended);
    world.exit(name, 0);
    world.run_for(secs(60));
    assert!(world.sandboxes.is_empty());
}

fn last_start(world: &Fake) -> (Option<Boot>, Option<Caveat>) {
    let start = world.calls.iter().rev().find_map(|call| match &call.step {
        Some(Step::Start(plan)) => Some((plan.restore.as_ref().map(|from| from.boot), plan.caveat)),
        _ => None,
    });
    start.expect("something was started")
}

// lesson 41
#[test]
fn what_a_sandbox_was_restored_from_does_not_stand_for_what_it_did_since() {
    let mut world = Fake::new();
    world.serve("a");
    sleep(&mut world, "a");
    world.wake("a");
    world.run_for(secs(60));
    sleep(&mut world, "a");
    let boots: Vec<_> = world.snapshots_of("a").iter().map(|snapshot| snapshot.boot).collect();
    assert_eq!(boots, [Boot::new(2)], "the newest is kept, and the older one deleted after it");
    let saved = world.steps("a").iter().rposition(|step| *step == "save");
    let deleted = world.steps("a").iter().position(|step| *step == "delete_snapshot");
    assert!(saved < deleted);
}

// lesson 42
#[test]
fn a_save_that_is_cut_off_again_and_again_makes_one_snapshot() {
    let mut world = Fake::new();
    world.serve("a");
    world.set("a", SessionStatus::Suspended);
    world.exit("a", 0);
    for _ in 0..20 {
        world.hold = Some("save");
        world.run_for(secs(30));
        world.restart();
    }
    world.hold = None;
    world.run_for(secs(60));
    assert_eq!(world.snapshots_of("a").len(), 1);
    assert!(world.sandboxes.is_empty());
}

// lesson 42
#[test]
fn a_save_that_never_ends_is_told_asked_for_seldom_and_costs_no_sandbox() {
    let mut world = Fake::new();
    world.serve("a");
    world.set("a", SessionStatus::Suspended);
    world.exit("a", 0);
    world.faults.endless_saves = true;
    world.run_for(HOUR);
    assert_eq!(world.told(NoticeKind::SaveOverdue), 1);
    assert_eq!(world.of("a").count(), 1);
    let before = world.count("save");
    world.run_for(HOUR);
    assert!(world.count("save") - before <= 61, "{}", world.count("save") - before);
    world.faults.endless_saves = false;
    world.run_for(secs(180));
    assert_eq!((world.of("a").count(), world.snapshots_of("a").len()), (0, 1));
}

// lesson 42
#[test]
fn a_snapshot_that_was_finished_before_a_crash_is_taken_up_and_not_made_again() {
    let mut world = Fake::new();
    world.serve("a");
    let record = world.records[&id("a")].clone();
    sleep(&mut world, "a");
    let snapshots = world.snapshots.clone();
    // As if the process had been killed between the save and the writing of the record.
    world.wake("a");
    world.run_for(secs(60));
    sleep(&mut world, "a");
    world.snapshots = snapshots;
    world.records.insert(id("a"), record);
    world.calls.clear();
    world.restart();
    world.run_for(secs(60));
    assert_eq!(world.count("save"), 0);
    let newest = world.records[&id("a")].record.newest_snapshot.clone();
    assert_eq!(newest.map(|newest| newest.boot), Some(Boot::new(1)));
}

// lesson 44
#[test]
fn a_snapshot_that_cannot_be_restored_is_kept_and_the_session_starts_cold() {
    let mut world = Fake::forgetful();
    world.serve("a");
    sleep(&mut world, "a");
    world.faults.unusable = true;
    world.wake("a");
    world.run_for(secs(60));
    assert!(world.is_live("a"));
    assert_eq!(last_start(&world).0, None);
    assert_eq!(world.starts_of("a").len(), 3, "one that served, one that could not be restored, one cold");
    assert_eq!(world.told(NoticeKind::SnapshotUnusable), 1);
    sleep(&mut world, "a");
    world.run_for(HOUR * 46);
    let kept =
        |world: &Fake| world.snapshots_of("a").iter().map(|kept| kept.boot.number()).collect::<Vec<_>>();
    assert_eq!(kept(&world), [1, 3], "people can still look at it, also when there is a newer one");
    world.run_for(HOUR * 3);
    assert_eq!(kept(&world), [3]);
}

// lesson 44
#[test]
fn a_start_that_fails_for_a_while_restores_all_the_same() {
    let mut world = Fake::new();
    world.serve("a");
    sleep(&mut world, "a");
    world.faults.flaky_starts = 2;
    world.wake("a");
    world.run_for(secs(60));
    assert!(world.is_live("a"));
    assert_eq!(last_start(&world), (Some(Boot::new(1)), None));
}

// lesson 46, invariant 3
#[test]
fn work_that_was_lost_with_its_sandbox_is_told() {
    for restarted in [false, true] {
        let mut world = Fake::new();
        world.serve("a");
        sleep(&mut world, "a");
        world.wake("a");
        world.run_for(secs(120));
        world.sandboxes.clear();
        if restarted {
            world.restart();
        }
        world.run_for(secs(60));
        assert!(world.is_live("a"));
        assert_eq!(world.told(NoticeKind::SandboxLost), 1, "restarted: {restarted}");
    }
}

// lesson 45
#[test]
fn a_hundred_instant_exits_leave_one_snapshot() {
    let mut world = Fake::new();
    world.serve("a");
    world.workers.insert(id("a"), Worker::Exits(0));
    world.run_for(HOUR * 30);
    assert!(world.starts_of("a").len() >= 100);
    assert_eq!(world.snapshots_of("a").len(), 1);
}

// lesson 46
#[test]
fn a_recorded_snapshot_that_is_not_there_is_told_and_the_session_starts_cold() {
    let mut world = Fake::new();
    world.serve("a");
    sleep(&mut world, "a");
    world.snapshots.clear();
    world.wake("a");
    world.run_for(secs(60));
    assert!(world.is_live("a"));
    assert_eq!(world.told(NoticeKind::SnapshotUnusable), 1);
    assert_eq!(last_start(&world), (None, Some(Caveat::ColdResume)));
}

// lesson 46
#[test]
fn a_record_that_is_lost_is_made_again_and_its_restore_told_as_unverified() {
    let mut world = Fake::new();
    world.serve("a");
    sleep(&mut world, "a");
    world.records.clear();
    world.restart();
    world.run_for(secs(60));
    world.wake("a");
    world.run_for(secs(60));
    assert_eq!(last_start(&world), (Some(Boot::new(1)), Some(Caveat::Unverified)));
    let boots: Vec<_> = world.of("a").map(|sandbox| sandbox.id.boot).collect();
    assert_eq!(boots, [Boot::new(2)], "no boot is used twice");
}

// lesson 46
#[test]
fn a_record_that_is_lost_while_a_worker_lives_costs_nothing() {
    let mut world = Fake::new();
    world.serve("a");
    world.records.clear();
    world.restart();
    world.run_for(HOUR);
    assert!(world.of("a").all(|sandbox| sandbox.state == SandboxState::Running));
    sleep(&mut world, "a");
    assert_eq!(world.snapshots_of("a").len(), 1);
}
