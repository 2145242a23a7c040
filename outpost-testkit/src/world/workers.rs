//! The workers' part: they connect, work, sleep when their session sleeps, crash and hang.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use outpost_core::invariants::Fact;
use outpost_core::model::{InstanceId, SandboxId, SandboxState, WorkerMode};
use outpost_core::ports::Clock;

use super::log::EventLog;
use super::queue::Queue;
use crate::clock::VirtualClock;
use crate::journal::Journal;
use crate::memory::{MemoryBackend, TrueSandbox};

/// How often workers are looked after.
const TICK: Duration = Duration::from_secs(3);
/// A worker that was connected for so long has done work. An orchestrator that lists at its intervals has seen it live for
/// 30 s by then.
const WORKS_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// How often the CLI renews its own claim.
const RENEWS_EVERY: SignedDuration = SignedDuration::from_secs(100);

pub(super) struct Workers {
    pub(super) clock: VirtualClock,
    pub(super) queue: Queue,
    pub(super) backend: MemoryBackend,
    pub(super) journal: Journal,
    pub(super) log: EventLog,
    pub(super) mode: WorkerMode,
    pub(super) chance: Rng,
    /// From now on workers behave.
    pub(super) behave: Arc<AtomicBool>,
}

struct Life {
    temper: Temper,
    connected: Option<Timestamp>,
    renewed: Option<Timestamp>,
    worked: bool,
    /// When it leaves, once its session sent it away.
    leaves: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Temper {
    Good,
    /// It never leaves by itself, and does nothing about TERM.
    Hangs,
    /// It ends at this time, with this code.
    Ends(Timestamp, i32),
}

type Key = (InstanceId, SandboxId);

impl Workers {
    pub(super) async fn live(mut self) {
        let mut lives: BTreeMap<Key, Life> = BTreeMap::new();
        loop {
            let running: Vec<TrueSandbox> = self
                .backend
                .true_sandboxes()
                .into_iter()
                .filter(|found| found.sandbox.state == SandboxState::Running)
                .collect();
            lives.retain(|(instance, id), _| {
                running.iter().any(|found| found.instance == *instance && found.sandbox.id == *id)
            });
            for found in running {
                let key = (found.instance, found.sandbox.id);
                let mut life = match lives.remove(&key) {
                    Some(life) => life,
                    None => self.born(&key),
                };
                self.look_after(&key, &mut life);
                lives.insert(key, life);
            }
            self.clock.sleep(TICK).await;
        }
    }

    fn born(&mut self, (instance, id): &Key) -> Life {
        let in_secs = |secs: u64| crate::clock::later(self.clock.now(), Duration::from_secs(secs));
        let temper = match self.chance.u8(..10) {
            _ if self.behave.load(Ordering::Relaxed) => Temper::Good,
            0 => Temper::Hangs,
            1 => Temper::Ends(in_secs(self.chance.u64(0..600)), 1),
            2 => Temper::Ends(in_secs(0), self.chance.i32(0..=1)),
            3 => Temper::Ends(in_secs(self.chance.u64(0..600)), 0),
            _ => Temper::Good,
        };
        if temper != Temper::Good {
            self.log.line(format_args!("worker of {id} at {instance}"), format_args!("{temper:?}"));
        }
        if temper == Temper::Hangs {
            self.backend.make_worker_stubborn(instance, id);
        }
        Life { temper, connected: None, renewed: None, worked: false, leaves: None }
    }

    fn look_after(&mut self, key: &Key, life: &mut Life) {
        let (instance, id) = key;
        let (now, session) = (self.clock.now(), id.session.as_str());
        if let Temper::Ends(at, code) = life.temper
            && at <= now
        {
            self.backend.exit_worker(instance, id, code);
            return;
        }
        let acceptor = instance.acceptor(&id.session);
        if self.mode == WorkerMode::Cli && !self.claims(life, session, acceptor.as_str(), now) {
            self.backend.exit_worker(instance, id, 1);
            return;
        }
        let ours = self.queue.holder(session).as_deref() == Some(acceptor.as_str());
        let status = self.queue.status(session);
        match status.as_deref() {
            Some("suspended" | "terminated") | None => return self.leave(key, life, now),
            Some("pending") if ours => {
                let _ = self.queue.with(|fleet, now| fleet.set_status(now, session, "running"));
            }
            _ => {}
        }
        life.leaves = None;
        if !ours {
            life.connected = None;
            return;
        }
        let connected = *life.connected.get_or_insert(now);
        if now.duration_since(connected) >= WORKS_AFTER {
            if !std::mem::replace(&mut life.worked, true) {
                self.journal.note(instance, Fact::SandboxServed(id.clone()));
            }
            self.backend.work(instance, id);
        }
    }

    /// The CLI claims by itself; whether it may go on.
    fn claims(&self, life: &mut Life, session: &str, acceptor: &str, now: Timestamp) -> bool {
        let due = life.renewed.is_none_or(|at| now.duration_since(at) >= RENEWS_EVERY);
        let live = matches!(self.queue.status(session).as_deref(), Some("pending" | "running"));
        if !due || !live {
            return true;
        }
        life.renewed = Some(now);
        self.queue.with(|fleet, now| fleet.claim(now, session, acceptor)).is_ok()
    }

    fn leave(&mut self, (instance, id): &Key, life: &mut Life, now: Timestamp) {
        if life.temper == Temper::Hangs {
            return;
        }
        let soon = Duration::from_secs(self.chance.u64(0..8));
        let at = *life.leaves.get_or_insert_with(|| crate::clock::later(now, soon));
        if at <= now {
            self.backend.exit_worker(instance, id, 0);
        }
    }
}
