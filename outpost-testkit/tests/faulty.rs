//! The fault wrappers: with faults off they are what they wrap; with faults on, what the plan says happens.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use outpost_core::model::{InstanceId, Record, SandboxId, SessionId, SnapshotRef, WorkerProgram};
use outpost_core::ports::{Clock, Effect, ErrorKind, SandboxProvider, SnapshotStore};
use outpost_testkit::clock::VirtualClock;
use outpost_testkit::conformance::provider::{Damage, Hindrance, ProviderFixture};
use outpost_testkit::conformance::store::StoreFixture;
use outpost_testkit::conformance::{Skip, Task};
use outpost_testkit::fault::{FaultPlan, Faults, Faulty, FaultyStore, Switch};
use outpost_testkit::memory::{
    BackendOptions, MemoryBackend, MemoryFixture, MemoryStore, MemoryStoreFixture,
};

fn switched_off(clock: Arc<dyn Clock>) -> Faults {
    let mut plan = FaultPlan::rough();
    (plan.fail_before, plan.fail_after, plan.stale, plan.crash) = (1.0, 1.0, 1.0, 1.0);
    let faults = Faults::seeded(1, plan, clock);
    faults.switch(Switch::Off);
    faults
}

struct FaultyFixture(MemoryFixture);

#[async_trait]
impl ProviderFixture for FaultyFixture {
    async fn open(&self) -> Arc<dyn SandboxProvider> {
        let inner = self.0.backend.provider(MemoryFixture::instance());
        Arc::new(Faulty::new(inner, switched_off(Arc::new(self.0.clock.clone()))))
    }
    async fn open_neighbour(&self) -> Result<Arc<dyn SandboxProvider>, Skip> {
        self.0.open_neighbour().await
    }
    async fn program(&self, task: &Task) -> WorkerProgram {
        self.0.program(task).await
    }
    async fn pause(&self) {
        self.0.pause().await;
    }
    async fn processes(&self, mark: &str) -> Result<usize, Skip> {
        self.0.processes(mark).await
    }
    async fn search(&self, needle: &str) -> Result<Vec<String>, Skip> {
        self.0.search(needle).await
    }
    async fn leftovers(&self, id: &SandboxId) -> Result<Vec<String>, Skip> {
        self.0.leftovers(id).await
    }
    async fn damage(&self, snapshot: &SnapshotRef, damage: Damage) -> Result<(), Skip> {
        self.0.damage(snapshot, damage).await
    }
    async fn hinder(&self, what: Hindrance) -> Result<(), Skip> {
        self.0.hinder(what).await
    }
    async fn heal(&self) {
        self.0.heal().await;
    }
    fn network_probe(&self) -> Result<String, Skip> {
        self.0.network_probe()
    }
}

mod provider {
    use super::{FaultyFixture, MemoryFixture};
    outpost_testkit::provider_conformance!(FaultyFixture(MemoryFixture::new()));
}

struct FaultyStoreFixture(MemoryStoreFixture);

#[async_trait]
impl StoreFixture for FaultyStoreFixture {
    async fn open(&self) -> Arc<dyn SnapshotStore> {
        Arc::new(FaultyStore::new(self.0.store.clone(), switched_off(Arc::new(VirtualClock::new()))))
    }
    async fn spoil(&self, session: &SessionId) -> Result<(), Skip> {
        self.0.spoil(session).await
    }
    async fn hinder_writes(&self) -> Result<(), Skip> {
        self.0.hinder_writes().await
    }
    async fn heal(&self) {
        self.0.heal().await;
    }
}

mod store {
    use super::{FaultyStoreFixture, MemoryStoreFixture};
    outpost_testkit::store_conformance!(FaultyStoreFixture(MemoryStoreFixture::new()));
}

fn session() -> SessionId {
    SessionId::new("devin-1").unwrap()
}

fn store_with(change: impl FnOnce(&mut FaultPlan)) -> (FaultyStore<MemoryStore>, Faults, VirtualClock) {
    let clock = VirtualClock::new();
    let mut plan = FaultPlan::none();
    plan.kinds = vec![ErrorKind::RateLimited];
    change(&mut plan);
    let faults = Faults::seeded(7, plan, Arc::new(clock.clone()));
    (FaultyStore::new(MemoryStore::new(), faults.clone()), faults, clock)
}

#[test]
fn a_failure_before_the_effect_does_nothing_and_asks_for_a_pause() {
    let (store, ..) = store_with(|plan| {
        (plan.fail_before, plan.retry_after) = (1.0, 1.0);
        plan.longest_retry_after = Duration::from_secs(9);
    });
    let error = store.put(&session(), &Record::default(), None).now_or_never().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert!(error.retry_after().is_some_and(|pause| pause <= Duration::from_secs(9)));
    assert!(store.inner().true_records().is_empty());
}

#[test]
fn a_failure_after_the_effect_has_done_the_work_and_says_that_it_may_have() {
    let (store, ..) = store_with(|plan| plan.fail_after = 1.0);
    let error = store.put(&session(), &Record::default(), None).now_or_never().unwrap().unwrap_err();
    assert_eq!(error.effect(), Effect::Possible);
    assert_eq!(store.inner().true_records().len(), 1);
}

#[test]
fn a_crash_never_answers_and_is_told_once() {
    let (store, faults, _) = store_with(|plan| plan.crash = 1.0);
    assert!(store.put(&session(), &Record::default(), None).now_or_never().is_none());
    assert!(faults.take_crash());
    assert!(!faults.take_crash());
}

#[test]
fn crashes_come_both_before_and_after_the_effect() {
    let mut done = Vec::new();
    for seed in 0..20 {
        let clock = Arc::new(VirtualClock::new());
        let mut plan = FaultPlan::none();
        plan.crash = 1.0;
        let store = FaultyStore::new(MemoryStore::new(), Faults::seeded(seed, plan, clock));
        assert!(store.put(&session(), &Record::default(), None).now_or_never().is_none());
        done.push(store.inner().true_records().len());
    }
    assert!(done.contains(&0) && done.contains(&1), "{done:?}");
}

#[test]
fn a_delay_passes_on_the_virtual_clock() {
    let (store, _, clock) = store_with(|plan| {
        plan.delay = 1.0;
        plan.longest_delay = Duration::from_secs(60);
    });
    let id = session();
    let record = Record::default();
    let mut put = store.put(&id, &record, None).boxed();
    assert!((&mut put).now_or_never().is_none());
    clock.advance(Duration::from_secs(60));
    assert!((&mut put).now_or_never().unwrap().is_ok());
}

#[test]
fn an_outage_fails_every_call_until_it_ends() {
    let (store, faults, _) = store_with(|_| {});
    faults.outage(Some(ErrorKind::Unauthorized));
    for _ in 0..5 {
        assert_eq!(store.list().now_or_never().unwrap().unwrap_err().kind(), ErrorKind::Unauthorized);
    }
    faults.outage(None);
    assert!(store.list().now_or_never().unwrap().is_ok());
}

#[test]
fn every_kind_of_error_comes_and_the_same_seed_makes_the_same_faults() {
    let run = |seed| {
        let clock = Arc::new(VirtualClock::new());
        let mut plan = FaultPlan::rough();
        (plan.crash, plan.delay) = (0.0, 0.0);
        let faults = Faults::seeded(seed, plan, clock);
        let store = FaultyStore::new(MemoryStore::new(), faults.clone());
        for _ in 0..2000 {
            let _ = store.list().now_or_never().unwrap();
        }
        faults.take_notes()
    };
    let notes = run(3);
    for kind in ErrorKind::ALL {
        assert!(notes.iter().any(|note| note.ends_with(kind.as_str())), "{kind:?} never came");
    }
    assert_eq!(notes, run(3));
    assert_ne!(notes, run(4));
}

#[test]
fn a_stale_list_is_one_of_a_few_seconds_ago() {
    let clock = VirtualClock::new();
    let backend = MemoryBackend::new(clock.clone(), BackendOptions::default());
    let mut plan = FaultPlan::none();
    (plan.stale, plan.stale_for) = (1.0, Duration::from_secs(5));
    let faults = Faults::seeded(1, plan, Arc::new(clock.clone()));
    let instance = InstanceId::new("ours").unwrap();
    let provider = Faulty::new(backend.provider(instance.clone()), faults);
    let count = || provider.list().now_or_never().unwrap().unwrap().sandboxes.len();
    assert_eq!(count(), 0);
    let id = SandboxId::new(session(), outpost_core::model::Boot::new(1));
    backend.plant_session(&instance, &id);
    clock.advance(Duration::from_secs(4));
    assert_eq!(count(), 0, "stale");
    clock.advance(Duration::from_secs(2));
    assert_eq!(count(), 1, "the empty list is too old now");
}
