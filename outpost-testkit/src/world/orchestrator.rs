use std::collections::BTreeSet;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use outpost_core::invariants::{Checker, Fact, Violation};
use outpost_core::model::{InstanceId, OutpostId, Platform, Policy, SandboxId, WorkerMode};
use outpost_core::ports::{Clock, FixedProgram};
use outpost_core::reconciler::{Observer, Ports, Reconciler, Workers};
use secrecy::SecretString;

use super::log::EventLog;
use super::queue::Queue;
use super::scenario::Scenario;
use super::source::ModelSource;
use super::witness::{WitnessObserver, WitnessSource};
use crate::clock::{TaskId, VirtualClock};
use crate::fault::{Faults, Faulty, FaultySource, FaultyStore};
use crate::journal::Journal;
use crate::memory::{MemoryBackend, MemoryStore};

/// What an orchestrator is made from, every time that its process starts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Parts {
    /// What it goes by.
    pub policy: Policy,
    /// What it works with.
    pub ports: Ports,
    /// What workers are given.
    pub workers: Workers,
    /// Who hears what it tells people.
    pub observer: Arc<dyn Observer>,
}

/// Makes the future that an orchestrator's process is. It is dropped where the process crashes, and made anew where it is
/// started again.
pub type Assemble = Arc<dyn Fn(Parts) -> BoxFuture<'static, ()> + Send + Sync>;

/// The orchestrator of `outpost-core`.
#[must_use]
pub fn reconciler() -> Assemble {
    Arc::new(|parts| {
        Box::pin(async move {
            let reconciler = Reconciler::new(parts.policy, parts.ports, parts.workers);
            match reconciler {
                Ok(reconciler) => drop(reconciler.with_observer(parts.observer).run(pending()).await),
                Err(why) => panic!("the scenario does not fit together: {why}"),
            }
        })
    })
}

/// One orchestrator of a world, across its restarts.
pub(super) struct Orchestrator {
    pub(super) instance: InstanceId,
    pub(super) checker: Checker,
    pub(super) faults: Faults,
    pub(super) store: MemoryStore,
    pub(super) observer: WitnessObserver,
    pub(super) task: Option<TaskId>,
    parts: Parts,
    assemble: Assemble,
}

impl Orchestrator {
    pub(super) fn new(
        number: usize,
        scenario: &Scenario,
        (queue, backend): (&Queue, &MemoryBackend),
        (clock, journal, log): (&VirtualClock, &Journal, &EventLog),
        assemble: Assemble,
    ) -> Self {
        let instance = InstanceId::new(format!("host-{number}")).expect("a valid name");
        let outpost = OutpostId::new(outpost_sim::model::DEFAULT_OUTPOST).expect("a valid id");
        let mut policy = Policy::new(outpost.clone(), instance.clone());
        policy.worker_mode = scenario.mode;
        policy.platform = Platform::Linux;
        policy.limit = scenario.limit;
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let seed = scenario.seed.wrapping_mul(31).wrapping_add(number as u64);
        let faults = Faults::seeded(seed, scenario.faults.clone(), shared.clone()).answering_next_turn();
        let store = MemoryStore::with_journal(instance.clone(), journal.clone());
        let model = ModelSource::new(queue.clone(), outpost);
        let observer = WitnessObserver {
            instance: instance.clone(),
            journal: journal.clone(),
            log: log.clone(),
            untold: Arc::new(Mutex::new(BTreeSet::new())),
        };
        let source = WitnessSource {
            inner: FaultySource::new(model, faults.clone()),
            instance: instance.clone(),
            journal: journal.clone(),
        };
        let ports = Ports {
            source: Arc::new(source),
            provider: Arc::new(Faulty::new(backend.provider(instance.clone()), faults.clone())),
            store: Arc::new(FaultyStore::new(store.clone(), faults.clone())),
            programs: Arc::new(FixedProgram(MemoryBackend::puppet())),
            clock: shared,
        };
        let mut workers = Workers::default();
        if scenario.mode == WorkerMode::Cli {
            workers.fleet_token = Some(SecretString::from("cog_simulated".to_owned()));
        }
        let checker = Checker::new(instance.clone(), policy.limit, policy.snapshot_ttl);
        let parts = Parts { policy, ports, workers, observer: Arc::new(observer.clone()) };
        Self { instance, checker, faults, store, observer, task: None, parts, assemble }
    }

    /// Checks a fact about it. Where its record of a session was lost, the snapshots that the backend lists stand for the
    /// record: it is made again from them.
    pub(super) fn hear(
        &mut self,
        now: Timestamp,
        fact: &Fact,
        backend: &MemoryBackend,
    ) -> Result<(), Violation> {
        match fact {
            Fact::SandboxStarted { id, .. } => {
                self.observer.untold().insert(id.session.clone());
            }
            Fact::SandboxRemoved(SandboxId { session, .. }) | Fact::ReleaseAsked { session, .. }
                if !self.store.true_records().contains_key(session) =>
            {
                for saved in backend.true_snapshots() {
                    if saved.instance == self.instance && saved.snapshot.session == *session {
                        let (session, reference) = (session.clone(), saved.snapshot.reference);
                        self.checker.hear(now, &Fact::SnapshotRecorded { session, reference })?;
                    }
                }
            }
            _ => {}
        }
        self.checker.hear(now, fact)
    }

    /// Its process, starting after `pause`.
    pub(super) fn process(&self, pause: Duration) -> BoxFuture<'static, ()> {
        let (assemble, parts) = (Arc::clone(&self.assemble), self.parts.clone());
        Box::pin(async move {
            parts.ports.clock.sleep(pause).await;
            assemble(parts).await;
        })
    }
}

impl fmt::Debug for Orchestrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orchestrator").field("instance", &self.instance).finish_non_exhaustive()
    }
}
