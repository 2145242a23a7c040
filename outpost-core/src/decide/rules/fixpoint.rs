//! Decisions carried out, again and again, until nothing is left to do.

use std::fmt::Write as _;

use super::cases::Case;
use super::world::{World, secs};
use crate::decide::time::after;
use crate::decide::{Origin, SAVED_AFTER, Sight, Step};
use crate::model::{Owner, SandboxState, SessionStatus, WorkerMode};

/// More steps than any way through the table needs.
const STEPS: usize = 14;
/// So many decisions in a row without a step are an end: half an hour of renewals.
const QUIET: usize = 30;

/// Carries out decisions until there is nothing to do.
fn settle(world: &mut World) -> Result<(), String> {
    let mut story = String::new();
    let (mut steps, mut quiet) = (0, 0);
    while quiet < QUIET {
        let decision = world.decide();
        if decision.upkeep.renew {
            world.renew();
        }
        if let Some(boot) = decision.upkeep.extend {
            let limit = world.capabilities.lifetime_limit;
            for sandbox in world.sandboxes.iter_mut().filter(|sandbox| sandbox.id.boot == boot) {
                let asked = after(world.now, secs(3600));
                let most = limit.map_or(asked, |limit| after(sandbox.started_at, limit));
                sandbox.expires_at = Some(asked.min(most));
            }
        }
        let Some(step) = decision.step else {
            quiet += 1;
            let next = decision.look_again.unwrap_or(after(world.now, secs(10)));
            if next <= world.now {
                return Err(format!("{story}  it is to be looked at again in the past: {}\n", decision.why));
            }
            // Not too far, or what is noted once a day never ends.
            world.now = next.min(after(world.now, secs(60)));
            world.observe();
            continue;
        };
        let _ = writeln!(story, "  {}: {step:?} ({})", world.now, decision.why);
        check(world, &step).map_err(|broken| format!("{story}  {broken}\n"))?;
        (steps, quiet) = (steps + 1, 0);
        if steps > STEPS {
            return Err(format!("{story}  it never ends\n"));
        }
        world.now = after(world.now, secs(1));
        world.apply(&step);
        if let Step::Start(_) = step {
            // Or it would be rolled over for ever.
            world.capabilities.lifetime_limit = None;
        }
    }
    settled(world).map_err(|wrong| format!("{story}  {wrong}\n"))
}

/// What no step may ever do.
fn check(world: &World, step: &Step) -> Result<(), &'static str> {
    let status = world.sight.row().map(|row| &row.status);
    let ended = status == Some(&SessionStatus::Terminated);
    let sandbox = |boot| world.sandboxes.iter().find(|sandbox| sandbox.id.boot == boot);
    let saved = |boot| world.snapshots.iter().any(|snapshot| snapshot.boot == boot);
    match step {
        Step::Start(plan) => {
            let wanted = matches!(status, Some(SessionStatus::Pending | SessionStatus::Running));
            holds(wanted, "a session that wants no machine is started")?;
            holds(world.sandboxes.is_empty(), "a second sandbox is started")?;
            holds(plan.boot > world.record.newest_boot, "a boot is started twice")?;
            holds(plan.restore == world.record.newest_snapshot, "not the newest snapshot is restored")
        }
        Step::StopWorker { boot, .. } => {
            holds(sandbox(*boot).is_some_and(|sandbox| sandbox.state.is_live()), "what is not alive is ended")
        }
        Step::Save { boot, .. } => {
            holds(sandbox(*boot).is_some_and(|sandbox| !sandbox.state.is_live()), "a live worker is saved")
        }
        Step::Remove { boot, .. } => {
            let Some(sandbox) = sandbox(*boot) else { return Ok(()) };
            holds(!sandbox.state.is_live(), "a live sandbox is removed")?;
            let evidence = &world.evidence.boot;
            let worked = evidence.boot != *boot || evidence.served || evidence.origin == Origin::Before;
            let worked = worked || evidence.served_for >= SAVED_AFTER;
            let has_disk = matches!(sandbox.state, SandboxState::Exited { .. });
            let over = *boot <= world.record.closed_boot;
            holds(!worked || !has_disk || ended || over || saved(*boot), "work is removed before it is saved")
        }
        Step::Release => {
            let ours = world.sight.row().map(|row| row.owner(&world.acceptor())) == Some(Owner::Us);
            holds(ours, "a claim that is not ours is released")?;
            holds(world.policy.worker_mode.claims(), "what the CLI claimed is released")?;
            holds(world.sandboxes.is_empty(), "something comes after the release")
        }
        Step::DeleteSnapshot { reference } => {
            let newest = world.record.newest_snapshot.as_ref().map(|newest| &newest.reference);
            holds(ended || newest != Some(reference), "the newest snapshot is deleted")
        }
        Step::Look | Step::Write(_) | Step::Forget => Ok(()),
    }
}

/// What must be true in the end.
fn settled(world: &World) -> Result<(), &'static str> {
    let row = match &world.sight {
        Sight::Listed(row) => row,
        Sight::Gone { .. } => {
            return holds(world.sandboxes.is_empty(), "a session that is gone has a sandbox");
        }
        Sight::Missing { .. } | Sight::Unseen => return Ok(()),
    };
    let platform = row.platform.as_ref().is_none_or(|platform| *platform == world.policy.platform);
    match (&row.status, row.owner(&world.acceptor())) {
        (SessionStatus::Pending | SessionStatus::Running, Owner::Us | Owner::Nobody) if platform => {
            let live = world.sandboxes.iter().filter(|sandbox| sandbox.state.is_live()).count();
            holds(live == 1, "a session that works has no sandbox")
        }
        (SessionStatus::Suspended | SessionStatus::Terminated, owner) => {
            holds(world.sandboxes.is_empty(), "a session that needs no sandbox has one")?;
            let released = owner != Owner::Us || !world.policy.worker_mode.claims();
            holds(released, "a claim that nobody needs is not given back")
        }
        _ => Ok(()),
    }
}

fn holds(condition: bool, broken: &'static str) -> Result<(), &'static str> {
    if condition { Ok(()) } else { Err(broken) }
}

/// One of `stride` combinations of each mode. With a prime, every value of every dimension is met.
fn some_cases(stride: usize, mut visit: impl FnMut(&Case, &World)) {
    for mode in WorkerMode::ALL {
        let mut number = 0;
        Case::walk(mode, |case, world| {
            number += 1;
            if number % stride == 0 {
                visit(case, world);
            }
        });
    }
}

#[test]
fn what_was_decided_is_done_and_then_nothing_more_happens() {
    let mut count = 0;
    some_cases(997, |case, world| {
        let mut world = world.clone();
        if let Err(story) = settle(&mut world) {
            panic!("{case:?}\n{story}");
        }
        count += 1;
    });
    println!("{count} combinations were carried out to their end");
}

#[test]
fn a_decision_does_not_depend_on_the_order_of_what_is_listed() {
    use super::world::{OLDER, THIS, exited};
    use crate::model::SnapshotPurpose::{Detached, Resume};
    let mut differing = 0;
    some_cases(2003, |case, world| {
        let evidence = world.evidence.clone();
        let mut world = world.clone();
        for (boot, state) in [(OLDER, exited(1)), (THIS, SandboxState::Running), (THIS.next(), exited(0))] {
            if world.sandboxes.iter().all(|sandbox| sandbox.id.boot != boot) {
                world = world.sandbox(boot, state);
            }
        }
        let mut world = world.listed(OLDER, Detached).listed(THIS, Detached).listed(OLDER, Resume);
        world.evidence = evidence;
        let decision = world.decide();
        let sandboxes = world.sandboxes.len();
        for turn in 0..sandboxes.max(world.snapshots.len()) {
            world.sandboxes.rotate_left(1);
            world.snapshots.rotate_left(1);
            if turn % 2 == 1 {
                world.sandboxes.reverse();
                world.snapshots.reverse();
            }
            assert_eq!(decision.step.as_ref(), world.decide().step.as_ref(), "{case:?}");
            assert_eq!(decision.look_again, world.decide().look_again, "{case:?}");
        }
        differing += usize::from(decision.step.is_some());
    });
    assert!(differing > 0, "the situations lead to steps");
}
