use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use outpost_core::ports::Clock;
use outpost_sim::model::{Fleet, FleetOptions};

use super::watchers::Watchers;
use crate::clock::VirtualClock;

/// Devin's queue under virtual time: the model of `outpost-sim`, shared. Clones are the same queue.
#[derive(Clone)]
pub struct Queue {
    fleet: Arc<Mutex<Fleet>>,
    clock: VirtualClock,
    pub(super) watchers: Watchers,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(clock: VirtualClock, options: FleetOptions) -> Self {
        Self { fleet: Arc::new(Mutex::new(Fleet::new(options))), clock, watchers: Watchers::default() }
    }

    /// Does something with the queue, now. Watches look again afterwards.
    pub fn with<T>(&self, change: impl FnOnce(&mut Fleet, Timestamp) -> T) -> T {
        let answer = self.peek_with(change);
        self.watchers.wake();
        answer
    }

    /// The same for what changes nothing that a watch shows.
    pub(super) fn peek_with<T>(&self, look: impl FnOnce(&mut Fleet, Timestamp) -> T) -> T {
        let now = self.clock.now();
        look(&mut self.fleet.lock().unwrap_or_else(PoisonError::into_inner), now)
    }

    /// Reads the queue. Nothing changes by that.
    pub fn look<T>(&self, look: impl FnOnce(&Fleet) -> T) -> T {
        look(&self.fleet.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who holds a session.
    #[must_use]
    pub fn holder(&self, session: &str) -> Option<String> {
        self.look(|fleet| Some(fleet.row(session)?.claim.as_ref()?.acceptor_id.clone()))
    }

    /// A session's status, also after it left the queue.
    #[must_use]
    pub fn status(&self, session: &str) -> Option<String> {
        self.look(|fleet| fleet.status(session).map(str::to_owned))
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}
