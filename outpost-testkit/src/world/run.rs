use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use outpost_core::invariants::{Fact, Violation};
use outpost_core::model::{InstanceId, SessionId};
use outpost_core::ports::Clock;
use outpost_sim::model::FleetOptions;

use super::calm;
use super::log::EventLog;
use super::orchestrator::{Assemble, Orchestrator, reconciler};
use super::people::People;
use super::queue::Queue;
use super::scenario::Scenario;
use super::workers::Workers;
use crate::clock::{Executor, Livelock, Turn, VirtualClock, later};
use crate::fault::Switch;
use crate::journal::Journal;
use crate::memory::MemoryBackend;

/// How a simulated run has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// What was played.
    pub scenario: Scenario,
    /// What happened.
    pub log: Vec<String>,
    /// How it ended.
    pub result: Result<(), Failure>,
}

/// What a simulated run has found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A promise was broken.
    #[error(transparent)]
    Broken(#[from] Violation),
    /// The orchestrators keep each other busy without time passing.
    #[error(transparent)]
    Livelock(#[from] Livelock),
    /// More live sandboxes than there may be.
    #[error("invariant {number} is broken: {what}")]
    Surplus {
        /// Which promise.
        number: u8,
        /// How.
        what: String,
    },
    /// With the faults gone, not everything came to rest.
    #[error("invariant 8 is broken: {0}")]
    Unrest(String),
}

/// Plays the scenario with the reconciler of `outpost-core`.
#[must_use]
pub fn simulate(scenario: Scenario) -> Outcome {
    simulate_with(scenario, reconciler())
}

/// Plays the scenario with any orchestrator.
#[must_use]
pub fn simulate_with(scenario: Scenario, assemble: Assemble) -> Outcome {
    let mut world = World::new(scenario, assemble);
    let result = world.play();
    if let Err(failure) = &result {
        world.log.line("world", format_args!("FAILED: {failure}"));
    }
    Outcome { scenario: world.scenario, log: world.log.lines(), result }
}

struct World {
    scenario: Scenario,
    executor: Executor,
    clock: VirtualClock,
    queue: Queue,
    backend: MemoryBackend,
    journal: Journal,
    log: EventLog,
    orchestrators: Vec<Orchestrator>,
    chance: Rng,
    behave: Arc<AtomicBool>,
    /// The probability that an orchestrator's process dies at an await.
    death: f64,
    /// What has changed anything since it was last emptied.
    changes: Vec<String>,
}

impl World {
    fn new(scenario: Scenario, assemble: Assemble) -> Self {
        let clock = VirtualClock::new();
        let (journal, log) = (Journal::kept(), EventLog::new(clock.clone()));
        log.line("world", &scenario);
        let mut options = FleetOptions::default();
        options.page_cap = 5;
        let queue = Queue::new(clock.clone(), options);
        let backend =
            MemoryBackend::new(clock.clone(), scenario.backend.clone()).with_journal(journal.clone());
        let orchestrators = (1..=scenario.orchestrators)
            .map(|number| {
                let context = (&clock, &journal, &log);
                Orchestrator::new(number, &scenario, (&queue, &backend), context, assemble.clone())
            })
            .collect();
        let executor = Executor::new(clock.clone());
        let chance = Rng::with_seed(scenario.seed.wrapping_add(0xC4A5_4ED0));
        Self {
            scenario,
            executor,
            clock,
            queue,
            backend,
            journal,
            log,
            orchestrators,
            chance,
            behave: Arc::default(),
            death: 0.0005,
            changes: Vec::new(),
        }
    }

    fn play(&mut self) -> Result<(), Failure> {
        let workers = Workers {
            clock: self.clock.clone(),
            queue: self.queue.clone(),
            backend: self.backend.clone(),
            journal: self.journal.clone(),
            log: self.log.clone(),
            mode: self.scenario.mode,
            chance: self.chance.fork(),
            behave: self.behave.clone(),
        };
        self.executor.spawn(workers.live());
        let people = People {
            clock: self.clock.clone(),
            queue: self.queue.clone(),
            backend: self.backend.clone(),
            log: self.log.clone(),
            chance: self.chance.fork(),
            most: self.scenario.sessions,
        };
        let people = self.executor.spawn(people.act());
        for place in 0..self.orchestrators.len() {
            self.start(place, Duration::ZERO);
        }
        self.drive(self.scenario.turmoil)?;

        self.log.line("world", "the faults stop");
        self.executor.drop_task(people);
        self.death = 0.0;
        self.behave.store(true, Ordering::Relaxed);
        for orchestrator in &self.orchestrators {
            orchestrator.faults.switch(Switch::Off);
        }
        calm::tidy(&self.queue);
        self.come_to_rest()?;
        for orchestrator in &self.orchestrators {
            orchestrator.checker.settle()?;
        }
        Ok(())
    }

    /// Within its time everything is as it should be, and then nothing more happens for a while.
    fn come_to_rest(&mut self) -> Result<(), Failure> {
        /// Lives of limited length never rest for long: it is enough that all was well twice.
        const QUIET_SLICES: usize = 5;
        let enough = if self.scenario.backend.lifetime_limit.is_some() { 2 } else { QUIET_SLICES };
        let deadline = later(self.clock.now(), self.scenario.calm);
        let mut quiet = 0;
        while quiet < enough {
            self.changes.clear();
            self.drive(Duration::from_secs(60))?;
            let unrest = calm::unrest(&self.scenario, &self.queue, &self.backend);
            let change = self.changes.first().filter(|_| self.scenario.backend.lifetime_limit.is_none());
            let fault = unrest.or_else(|| change.map(|change| format!("it goes on and on: {change}")));
            match fault {
                None => quiet += 1,
                Some(fault) if self.clock.now() >= deadline => return Err(Failure::Unrest(fault)),
                Some(_) => quiet = 0,
            }
        }
        self.log.line("world", "everything is at rest");
        Ok(())
    }

    fn drive(&mut self, pause: Duration) -> Result<(), Failure> {
        let until = later(self.clock.now(), pause);
        loop {
            match self.executor.turn()? {
                Turn::Stalled if self.clock.now() >= until => return Ok(()),
                Turn::Stalled => {
                    self.executor.jump(until);
                }
                turn => self.after(turn)?,
            }
        }
    }

    /// After every step: what happened is written down and checked, and processes die that are to die.
    fn after(&mut self, turn: Turn) -> Result<(), Failure> {
        let Turn::Polled(task) = turn else { return Ok(()) };
        self.hear()?;
        for place in 0..self.orchestrators.len() {
            let orchestrator = &self.orchestrators[place];
            for note in orchestrator.faults.take_notes() {
                self.log.line(format_args!("faults of {}", orchestrator.instance), note);
            }
            let dies = orchestrator.task == Some(task) && self.chance.f64() < self.death;
            if orchestrator.faults.take_crash() || dies {
                self.crash(place);
            }
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<(), Failure> {
        self.backend.settle();
        let facts = self.journal.take();
        if facts.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        for (instance, fact) in facts {
            if !matches!(fact, Fact::StatusSeen { .. } | Fact::Claimed { .. }) {
                let line = format!("{fact:?}");
                self.log.line(format_args!("truth at {instance}"), &line);
                if !matches!(fact, Fact::SandboxServed(_)) {
                    self.changes.push(line);
                }
            }
            let Some(orchestrator) = self.orchestrators.iter_mut().find(|known| known.instance == instance)
            else {
                continue;
            };
            orchestrator.hear(now, &fact, &self.backend)?;
        }
        self.count()
    }

    /// There are never more sandboxes than there may be.
    fn count(&self) -> Result<(), Failure> {
        let mut live: BTreeMap<(InstanceId, SessionId), usize> = BTreeMap::new();
        let mut all: BTreeMap<InstanceId, usize> = BTreeMap::new();
        for found in self.backend.true_sandboxes() {
            *all.entry(found.instance.clone()).or_default() += 1;
            if found.sandbox.state.is_live() {
                *live.entry((found.instance, found.sandbox.id.session)).or_default() += 1;
            }
        }
        if let Some(((instance, session), count)) = live.into_iter().find(|(_, count)| *count > 1) {
            let what = format!("{count} live sandboxes of {session} at {instance}");
            return Err(Failure::Surplus { number: 1, what });
        }
        let limit = self.scenario.limit;
        if let Some((instance, count)) = all.into_iter().find(|(_, count)| *count > limit) {
            let what = format!("{count} sandboxes at {instance}, {limit} allowed");
            return Err(Failure::Surplus { number: 6, what });
        }
        Ok(())
    }

    fn start(&mut self, place: usize, pause: Duration) {
        let process = self.orchestrators[place].process(pause);
        self.orchestrators[place].task = Some(self.executor.spawn(process));
    }

    fn crash(&mut self, place: usize) {
        let orchestrator = &mut self.orchestrators[place];
        let pause = Duration::from_secs_f64(self.chance.f64().powi(3) * 600.0);
        self.log.line(&orchestrator.instance, format_args!("CRASHES and is back in {pause:?}"));
        if let Some(task) = orchestrator.task.take() {
            self.executor.drop_task(task);
        }
        // A process that died between a start and the word about it can tell nobody.
        for session in std::mem::take(&mut *orchestrator.observer.untold()) {
            self.journal.note(&orchestrator.instance, Fact::Reported(session));
        }
        if self.chance.u8(..10) == 0 {
            self.log.line(&orchestrator.instance, "loses its records");
            orchestrator.store.wipe();
        }
        self.start(place, pause);
    }
}
