//! The reconciler without I/O: inputs go in with the time, effects come out.
//!
//! # Expected flow
//! [`Engine::handle`] takes in what was read or done, [`Engine::poll`] answers what to do now, [`Engine::wake_at`] when to poll
//! again at the latest. The shell ([`Reconciler`](crate::reconciler::Reconciler)) carries the effects out, all at the same time,
//! and feeds back what came of them.
//!
//! # Guarantees
//! * One step per session at a time; a session is decided upon only from an inventory that was begun after its last step
//!   had ended.
//! * Renewals come before everything else, and never run beside a start or a release of the same session.
//! * A session whose step is slow or fails delays no other.
//! * Only a complete list makes a session absent.
//!
//! # Caveats
//! It stores nothing: after a restart the records, the inventory and the list are read again before anything is decided.

mod input;
mod listings;
mod plan;
mod report;
mod steps;
mod tracked;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

pub use input::{ClaimChange, Effect, Input, Performed, RecordLost, StepEnd, Work};
pub use report::{Counters, Health, Notice, NoticeKind, Report, SandboxCounts, SessionLine};

use crate::decide::time::after;
use crate::model::{Policy, SessionId};
use crate::ports::{Capabilities, Error};
use tracked::Tracked;

/// The state of one orchestrator.
#[derive(Debug)]
pub struct Engine {
    policy: Policy,
    capabilities: Capabilities,
    sessions: BTreeMap<SessionId, Tracked>,
    /// Sessions about which something has changed since they were last decided upon.
    dirty: BTreeSet<SessionId>,
    /// When which session is decided upon again at the latest.
    agenda: BTreeSet<(Timestamp, SessionId)>,
    /// Sessions that want to be started and wait for room.
    candidates: BTreeSet<SessionId>,
    records: Poller,
    queue: Poller,
    inventory: Poller,
    /// Counts ends of steps; an inventory knows of those that had ended when it was begun.
    clock: u64,
    /// What `clock` was when the newest inventory was begun.
    inventory_clock: u64,
    stopping: bool,
    notices: Vec<Notice>,
    counters: Counters,
}

/// However many events ask for it, the queue is not listed more often.
const QUEUE_GAP: Duration = Duration::from_secs(1);

/// Something that is read again and again: when it is due, and how it went.
#[derive(Debug, Default)]
struct Poller {
    /// `None` = now.
    due: Option<Timestamp>,
    /// When the reading that is under way began.
    running: Option<Timestamp>,
    /// Asked for again while one was under way.
    again: bool,
    /// What the engine's clock was when the newest reading began.
    began_clock: u64,
    failures: u32,
    last_success: Option<Timestamp>,
    error: Option<(crate::ports::ErrorKind, String)>,
}

impl Poller {
    fn begin(&mut self, now: Timestamp) -> bool {
        let begins = self.running.is_none() && self.due.is_none_or(|due| due <= now);
        if begins {
            self.running = Some(now);
        }
        begins
    }

    /// Asks for a reading before its time, but not within `gap` of the last one, and not while readings fail.
    fn ask(&mut self, now: Timestamp, gap: Duration) {
        if self.running.is_some() {
            self.again = true;
        } else if self.failures == 0 {
            let soonest = self.last_success.map_or(now, |last| after(last, gap).max(now));
            self.due = Some(self.due.map_or(soonest, |due| due.min(soonest)));
        }
    }

    fn succeeded(&mut self, now: Timestamp, interval: Duration, gap: Duration) {
        self.running = None;
        self.failures = 0;
        self.error = None;
        self.last_success = Some(now);
        let pause = if std::mem::take(&mut self.again) { gap } else { interval };
        self.due = Some(after(now, pause));
    }

    /// Asks again after the interval, doubled with every failure up to a minute, or what the other side asked for.
    fn failed(&mut self, now: Timestamp, interval: Duration, error: &Error) {
        self.running = None;
        self.again = false;
        self.failures = self.failures.saturating_add(1);
        self.error = Some((error.kind(), error.to_string()));
        let doubled = interval.max(Duration::from_secs(1)) * 2u32.saturating_pow(self.failures.min(10) - 1);
        let pause = doubled.min(Duration::from_secs(60)).max(error.retry_after().unwrap_or_default());
        self.due = Some(after(now, pause.min(Duration::from_secs(15 * 60))));
    }

    const fn wake_at(&self) -> Option<Timestamp> {
        if self.running.is_some() { None } else { self.due }
    }

    fn health(&self) -> Health {
        Health { last_success: self.last_success, error: self.error.clone() }
    }
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(policy: Policy, capabilities: Capabilities) -> Self {
        Self {
            policy,
            capabilities,
            sessions: BTreeMap::new(),
            dirty: BTreeSet::new(),
            agenda: BTreeSet::new(),
            candidates: BTreeSet::new(),
            records: Poller::default(),
            queue: Poller::default(),
            inventory: Poller::default(),
            clock: 0,
            inventory_clock: 0,
            stopping: false,
            notices: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// The policy it goes by.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// From now on nothing new is begun: live workers and their claims stay for the next process.
    pub const fn stop(&mut self) {
        self.stopping = true;
    }

    /// Takes in what was read or done.
    pub fn handle(&mut self, now: Timestamp, input: Input) {
        match input {
            Input::Records(result) => self.records_read(now, result),
            Input::Record { session, result } => self.record_read(now, &session, result),
            Input::Sessions(result) => self.sessions_listed(now, result),
            Input::Watched(event) => self.watched(now, event),
            Input::Inventory(result) => self.inventoried(now, result),
            Input::Performed { session, performed } => self.performed(now, &session, *performed),
            Input::Renewed { session, result } => self.renewed(now, &session, result),
            Input::Extended { session, boot, result } => self.extended(now, &session, boot, result),
        }
    }

    /// What people should be told since this was last asked.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    fn tracked(&mut self, session: &SessionId) -> &mut Tracked {
        if !self.sessions.contains_key(session) {
            self.sessions.insert(session.clone(), Tracked::default());
        }
        self.sessions.get_mut(session).expect("just inserted")
    }

    fn touch(&mut self, session: &SessionId) {
        self.dirty.insert(session.clone());
    }

    fn put_on_agenda(&mut self, session: &SessionId, at: Option<Timestamp>) {
        let Some(tracked) = self.sessions.get_mut(session) else { return };
        if tracked.agenda_at == at {
            return;
        }
        if let Some(old) = tracked.agenda_at.take() {
            self.agenda.remove(&(old, session.clone()));
        }
        if let Some(new) = at {
            tracked.agenda_at = Some(new);
            self.agenda.insert((new, session.clone()));
        }
    }

    fn forget(&mut self, session: &SessionId) {
        self.put_on_agenda(session, None);
        self.dirty.remove(session);
        self.candidates.remove(session);
        self.sessions.remove(session);
    }

    fn notice(&mut self, session: Option<&SessionId>, kind: NoticeKind, text: impl Into<String>) {
        self.notices.push(Notice { session: session.cloned(), kind, text: text.into() });
    }
}
