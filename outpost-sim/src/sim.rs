use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use secrecy::SecretString;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::control::WorkerView;
use crate::fault::FaultTable;
use crate::model::{Fleet, FleetOptions};
use crate::publish::Publication;
use crate::requests::RequestLog;
use crate::script::{Playback, StatusChange};

/// How a simulator is set up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SimOptions {
    /// The queue.
    pub fleet: FleetOptions,
    /// The bearer token that the fleet API accepts.
    pub token: SecretString,
    /// How long a watch lives at most; the real one ends after five minutes.
    pub stream_length: Duration,
    /// How long a watch is quiet before it says so.
    pub keep_alive: Duration,
    /// What faults by probability are drawn from.
    pub seed: u64,
    /// What the static host publishes.
    pub publication: Publication,
}

/// The bearer token that a simulator accepts unless told otherwise.
pub const DEFAULT_TOKEN: &str = "cog_simulated";

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            fleet: FleetOptions::default(),
            token: DEFAULT_TOKEN.into(),
            stream_length: Duration::from_secs(300),
            keep_alive: Duration::from_secs(15),
            seed: 0,
            publication: Publication::default(),
        }
    }
}

/// A simulated control plane: the queue, scripted sessions, their workers, faults and a log of requests.
///
/// A cheap handle; clones are the same simulator. Its operations are those of
/// [`Control`](crate::control::Control) and [`ControlExt`](crate::control::ControlExt), the same in
/// process and over HTTP.
#[derive(Debug, Clone)]
pub struct Sim {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) fleet: Fleet,
    pub(crate) playbacks: BTreeMap<String, Playback>,
    pub(crate) workers: Vec<WorkerView>,
    /// Workers that wait for an order right now.
    pub(crate) polling: BTreeSet<u64>,
    pub(crate) faults: FaultTable,
    pub(crate) requests: RequestLog,
    pub(crate) publication: Publication,
    pub(crate) token: SecretString,
    pub(crate) stream_length: Duration,
    pub(crate) keep_alive: Duration,
    pub(crate) advanced: Duration,
}

impl Sim {
    /// A simulator at `clock`'s time.
    #[must_use]
    pub fn new(options: SimOptions, clock: Clock) -> Self {
        let state = State {
            fleet: Fleet::new(options.fleet),
            playbacks: BTreeMap::new(),
            workers: Vec::new(),
            polling: BTreeSet::new(),
            faults: FaultTable::new(options.seed),
            requests: RequestLog::default(),
            publication: options.publication,
            token: options.token,
            stream_length: options.stream_length,
            keep_alive: options.keep_alive,
            advanced: Duration::ZERO,
        };
        let changed = watch::Sender::new(0);
        Self { shared: Arc::new(Shared { clock, state: Mutex::new(state), changed }) }
    }

    /// The simulator's time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now() + self.lock().advanced
    }

    /// Looks at or changes the queue itself, with the simulator's time.
    pub fn fleet<T>(&self, act: impl FnOnce(&mut Fleet, Timestamp) -> T) -> T {
        self.with(|state, now| act(&mut state.fleet, now))
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let mut state = self.lock();
        let now = self.shared.clock.now() + state.advanced;
        let before = state.fleet.version();
        let result = act(&mut state, now);
        let news = state.fleet.version() != before;
        drop(state);
        if news {
            self.announce();
        }
        result
    }

    /// Wakes whoever waits for something to happen.
    pub(crate) fn announce(&self) {
        self.shared.changed.send_modify(|version| *version += 1);
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(crate) fn apply_changes(&mut self, now: Timestamp, session_id: &str, changes: Vec<StatusChange>) {
        for change in changes {
            if change.at <= now {
                // The session may have been taken away meanwhile; then it has no status.
                let _ = self.fleet.set_status(now, session_id, &change.status);
            } else {
                self.fleet.set_status_at(change.at, session_id, &change.status);
            }
        }
    }
}
