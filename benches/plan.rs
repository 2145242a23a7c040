//! One pass over 10,000 listed sessions of which 200 are live: taking in the list and the inventory, deciding, planning. Prints
//! the memory that the process holds afterwards.

use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use jiff::{SignedDuration, Timestamp};
use outpost_core::engine::{Effect, Engine, Input};
use outpost_core::model::{
    Boot, Claim, InstanceId, OutpostId, Phase, Policy, Record, Sandbox, SandboxId, SandboxState, Session,
    SessionId, SessionStatus,
};
use outpost_core::ports::{Capabilities, Inventory, Listing, Stored, Version};

const LISTED: usize = 10_000;
const LIVE: usize = 200;

fn session(number: usize, policy: &Policy, now: Timestamp) -> Session {
    let id = SessionId::new(format!("devin-{number:032x}")).expect("an id");
    let mut session = Session::pending(id.clone(), policy.outpost.clone());
    session.created_at = Some(now);
    session.updated_at = Some(now);
    if number < LIVE {
        session.status = SessionStatus::Running;
        session.phase = Phase::Claimed;
        session.claim = Some(Claim { acceptor: policy.acceptor(&id), deadline: Some(now) });
    } else if number.is_multiple_of(2) {
        session.status = SessionStatus::Suspended;
    }
    session
}

fn sandbox(session: &Session, now: Timestamp) -> Sandbox {
    Sandbox {
        id: SandboxId::new(session.id.clone(), Boot::new(1)),
        state: SandboxState::Running,
        started_at: now,
        expires_at: None,
        restored_from: None,
    }
}

/// Lets the engine do one pass, and answers everything but the two listings with silence.
fn pass(engine: &mut Engine, now: Timestamp, sessions: Vec<Session>, sandboxes: Vec<Sandbox>) -> usize {
    let effects = engine.poll(now);
    assert!(effects.contains(&Effect::ListSessions), "a pass begins with a list");
    engine.handle(now, Input::Inventory(Ok(Inventory { sandboxes, snapshots: Vec::new() })));
    engine.handle(now, Input::Sessions(Ok(Listing::new(sessions, None))));
    engine.poll(now).len()
}

fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn bench(criterion: &mut Criterion) {
    let mut policy = Policy::new(
        OutpostId::new("outpost_env-bench").expect("an id"),
        InstanceId::new("bench").expect("an id"),
    );
    policy.limit = LIVE;
    let mut now = Timestamp::from_second(1_800_000_000).expect("a time");
    let sessions: Vec<Session> = (0..LISTED).map(|number| session(number, &policy, now)).collect();
    let sandboxes: Vec<Sandbox> = sessions[..LIVE].iter().map(|session| sandbox(session, now)).collect();
    let records = sessions[..LIVE].iter().map(|session| {
        let record = Record { newest_boot: Boot::new(1), ..Record::default() };
        (session.id.clone(), Stored { record, version: Version(1) })
    });
    let before = resident_kib();
    let mut engine = Engine::new(policy, Capabilities::default());
    engine.poll(now);
    engine.handle(now, Input::Records(Ok(records.collect())));
    engine.handle(now, Input::Inventory(Ok(Inventory::default())));
    engine.handle(now, Input::Sessions(Ok(Listing::default())));
    let mut group = criterion.benchmark_group("plan");
    group.sample_size(20).measurement_time(Duration::from_secs(5));
    group.bench_function("one pass over 10,000 sessions, 200 live", |bencher| {
        bencher.iter_batched(
            || (sessions.clone(), sandboxes.clone()),
            |(sessions, sandboxes)| {
                now += SignedDuration::from_secs(60);
                pass(&mut engine, now, sessions, sandboxes)
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
    let report = engine.report(now);
    assert_eq!((report.listed, report.sandboxes.running), (LISTED, LIVE), "the pass was a real one");
    if let (Some(before), Some(after)) = (before, resident_kib()) {
        println!("memory: {} KiB resident, of which the list itself {} KiB", after, before);
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
