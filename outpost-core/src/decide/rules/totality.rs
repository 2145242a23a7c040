//! Whatever is listed, remembered and recorded: there is a decision, and it is never looked at again in the past.

use jiff::Timestamp;
use proptest::prelude::*;

use super::world::{World, exited, world};
use crate::decide::{BootEvidence, Origin, Sight, Step, Streak};
use crate::model::{Boot, Phase, SandboxState, SessionStatus, SnapshotPurpose, Standing};

fn time() -> impl Strategy<Value = Timestamp> {
    let near = (-2000..2000_i64).prop_map(|offset| Timestamp::from_second(2_000_000_000 + offset).unwrap());
    prop_oneof![8 => near, 1 => Just(Timestamp::MIN), 1 => Just(Timestamp::MAX)]
}

fn maybe_time() -> impl Strategy<Value = Option<Timestamp>> {
    proptest::option::of(time())
}

fn streak() -> impl Strategy<Value = Streak> {
    (0..5_u32, maybe_time()).prop_map(|(count, since)| Streak { count, since })
}

fn state() -> impl Strategy<Value = SandboxState> {
    prop_oneof![
        Just(SandboxState::Starting),
        Just(SandboxState::Running),
        Just(SandboxState::Stopping),
        Just(SandboxState::Failed { why: String::new() }),
        Just(SandboxState::Exited { code: None }),
        (0..2).prop_map(exited),
    ]
}

fn status() -> impl Strategy<Value = SessionStatus> {
    prop_oneof![
        Just(SessionStatus::Pending),
        Just(SessionStatus::Running),
        Just(SessionStatus::Suspended),
        Just(SessionStatus::Terminated),
        Just(SessionStatus::Unknown(String::new())),
    ]
}

prop_compose! {
    fn boot_evidence()(
        boot in 0..5_u64,
        here in any::<bool>(),
        times in proptest::array::uniform5(maybe_time()),
        served in any::<bool>(),
        rereads in 0..5_u32,
        unlisted in streak(),
    ) -> BootEvidence {
        let [first_seen, serving_since, ended_at, reread_at, saving_since] = times;
        let origin = if here { Origin::Here } else { Origin::Before };
        BootEvidence {
            boot: Boot::new(boot), origin, first_seen, idle_at: None, serving_since, served, ended_at, rereads, reread_at,
            saving_since, unlisted, ..BootEvidence::default()
        }
    }
}

prop_compose! {
    fn listed()(
        sandboxes in proptest::collection::vec((1..5_u64, state(), time(), maybe_time()), 0..4),
        snapshots in proptest::collection::vec((1..5_u64, any::<bool>(), any::<bool>()), 0..4),
    ) -> World {
        let mut world = world();
        for (boot, state, started_at, expires_at) in sandboxes {
            let boot = Boot::new(boot);
            if world.sandboxes.iter().any(|sandbox| sandbox.id.boot == boot) {
                continue;
            }
            world = world.sandbox(boot, state);
            let sandbox = world.sandboxes.last_mut().expect("just pushed");
            (sandbox.started_at, sandbox.expires_at) = (started_at, expires_at);
        }
        for (boot, resume, recorded) in snapshots {
            world = match (resume, recorded) {
                (true, true) => world.saved(Boot::new(boot), Standing::Verified),
                (true, false) => world.listed(Boot::new(boot), SnapshotPurpose::Resume),
                (false, _) => world.listed(Boot::new(boot), SnapshotPurpose::Detached),
            };
        }
        world
    }
}

prop_compose! {
    fn situations()(
        mut world in listed(),
        (status, sight, phase) in (status(), 0..4, 0..3),
        (now, gone_since) in (time(), time()),
        (newest, closed, failures) in (0..6_u64, 0..6_u64, 0..7_u32),
        record_times in proptest::array::uniform2(maybe_time()),
        streaks in proptest::array::uniform3(streak()),
        times in proptest::array::uniform3(maybe_time()),
        removal in proptest::option::of((1..5_u64, time())),
        claim_lost in any::<bool>(),
        boot in boot_evidence(),
        limit in proptest::option::of(0..5000_u64),
    ) -> World {
        world.now = now;
        world = world.row(status).ours().with_row(|row| match phase {
            0 => row.phase = Phase::Pending,
            1 => {}
            _ => row.phase = Phase::Unknown(String::new()),
        });
        let row = world.sight.row().cloned();
        world.sight = match (sight, row) {
            (0, Some(row)) => Sight::Listed(row),
            (1, last) => Sight::Missing { last },
            (2, _) => Sight::Gone { since: gone_since },
            _ => Sight::Unseen,
        };
        world.record.newest_boot = Boot::new(newest);
        world.record.closed_boot = Boot::new(closed);
        world.record.failures = failures;
        [world.record.retry_at, world.record.last_seen] = record_times;
        let evidence = &mut world.evidence;
        [evidence.suspended, evidence.foreign, evidence.absent] = streaks;
        [evidence.read_at, evidence.free_since, evidence.renew_at] = times;
        evidence.removal_asked = removal.map(|(boot, at)| (Boot::new(boot), at));
        evidence.claim_lost = claim_lost;
        evidence.boot = boot;
        world.capabilities.lifetime_limit = limit.map(super::world::secs);
        world
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

    #[test]
    fn there_is_a_decision_for_whatever_is_read_in_whatever_order(world in situations()) {
        let decision = world.decide();
        prop_assert!(decision.look_again.is_none_or(|at| at > world.now), "{decision:?}");
        if let Some(Step::StopWorker { boot, .. } | Step::Save { boot, .. }) = decision.step {
            prop_assert!(world.sandboxes.iter().any(|sandbox| sandbox.id.boot == boot));
        }
        if let Some(Step::Start(plan)) = &decision.step {
            prop_assert!(world.sandboxes.is_empty());
            prop_assert!(plan.boot > world.record.newest_boot);
        }
        let mut turned = world.clone();
        turned.sandboxes.reverse();
        turned.snapshots.reverse();
        prop_assert_eq!(decision, turned.decide());
    }
}
