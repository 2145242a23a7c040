//! Taking in what was read: records, rows, sandboxes, snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::steps::touches_backend;
use super::tracked::Tracked;
use super::{Engine, NoticeKind, QUEUE_GAP};
use crate::decide::{Evidence, Reading, Sight};
use crate::model::{Boot, Owner, Record, Sandbox, Session, SessionId, Snapshot};
use crate::ports::{Error, Inventory, Listing, Stored, WatchEvent};

impl Engine {
    pub(super) fn records_read(&mut self, now: Timestamp, result: Result<Vec<(SessionId, Stored)>, Error>) {
        match result {
            Ok(records) => {
                self.readable("the records", self.records.error.is_some());
                self.records.succeeded(now, self.policy.list_interval, Duration::ZERO);
                for (session, stored) in records {
                    self.tracked(&session).record.set(Some(stored));
                }
                // An inventory may have come before the records.
                for tracked in self.sessions.values_mut() {
                    tracked.rebuild(now);
                }
                self.dirty.extend(self.sessions.keys().cloned());
            }
            Err(error) => {
                self.unreadable("the records", self.records.error.is_none(), &error);
                self.records.failed(now, self.policy.list_interval, &error);
            }
        }
    }

    pub(super) fn record_read(
        &mut self,
        now: Timestamp,
        session: &SessionId,
        result: Result<Option<Stored>, Error>,
    ) {
        let tracked = self.tracked(session);
        tracked.record.reading = false;
        match result {
            Ok(stored) => tracked.record.set(stored),
            Err(error) => tracked.hold_back(now, error.retry_after()),
        }
        self.touch(session);
    }

    pub(super) fn sessions_listed(&mut self, now: Timestamp, result: Result<Listing, Error>) {
        let began = self.queue.running.unwrap_or(now);
        let listing = match result {
            Ok(listing) => listing,
            Err(error) => {
                self.unreadable("the queue", self.queue.error.is_none(), &error);
                self.queue.failed(now, self.policy.list_interval, &error);
                return;
            }
        };
        self.readable("the queue", self.queue.error.is_some());
        self.queue.succeeded(now, self.policy.list_interval, QUEUE_GAP);
        self.counters.lists += 1;
        let mut present = BTreeSet::new();
        for session in listing.sessions {
            present.insert(session.id.clone());
            self.row_read(now, session, Reading::List, began);
        }
        let absent: Vec<SessionId> =
            self.sessions.keys().filter(|session| !present.contains(*session)).cloned().collect();
        for session in absent {
            self.absent(now, &session, began);
        }
    }

    fn absent(&mut self, now: Timestamp, session: &SessionId, began: Timestamp) {
        let tracked = self.tracked(session);
        // A row that came after the list was begun is newer than the list.
        if tracked.row_at.is_some_and(|at| at > began) {
            return;
        }
        tracked.evidence.missed(now);
        tracked.sight = match std::mem::take(&mut tracked.sight) {
            Sight::Listed(row) => Sight::Missing { last: Some(row) },
            Sight::Unseen => Sight::Missing { last: None },
            known @ (Sight::Missing { .. } | Sight::Gone { .. }) => known,
        };
        if tracked.is_empty() {
            self.forget(session);
        } else {
            self.touch(session);
        }
    }

    pub(super) fn watched(&mut self, now: Timestamp, event: WatchEvent) {
        match event {
            WatchEvent::Changed(session) => self.row_read(now, *session, Reading::Single, now),
            // Neither proves anything; a list does.
            WatchEvent::Deleted(_) | WatchEvent::ListAgain => self.queue.ask(now, QUEUE_GAP),
            WatchEvent::Disrupted(error) => {
                self.notice(None, NoticeKind::Unreadable, format!("the watch is renewed: {error}"));
            }
        }
    }

    /// Takes in a row whose reading was begun at `began`.
    pub(super) fn row_read(&mut self, now: Timestamp, session: Session, reading: Reading, began: Timestamp) {
        if session.outpost != self.policy.outpost {
            self.counters.foreign_rows += 1;
            return;
        }
        let id = session.id.clone();
        let ours = self.policy.acceptor(&id);
        let tracked = self.tracked(&id);
        if !tracked.accepts(&session, reading, began) {
            return;
        }
        let changed = tracked.sight != Sight::Listed(session.clone());
        let matters = changed || tracked.is_here();
        tracked.first_seen.get_or_insert(now);
        tracked.row_at = Some(now);
        tracked.evidence.read(now, &session, reading, &ours);
        tracked.sight = Sight::Listed(session);
        if matters {
            self.touch(&id);
        }
    }

    pub(super) fn inventoried(&mut self, now: Timestamp, result: Result<Inventory, Error>) {
        let inventory = match result {
            Ok(inventory) => inventory,
            Err(error) => {
                self.unreadable("the backend", self.inventory.error.is_none(), &error);
                self.inventory.failed(now, self.policy.inventory_interval, &error);
                return;
            }
        };
        self.readable("the backend", self.inventory.error.is_some());
        self.inventory.succeeded(now, self.policy.inventory_interval, Duration::ZERO);
        let clock_before = std::mem::replace(&mut self.inventory_clock, self.inventory.began_clock);
        let mut here: BTreeMap<SessionId, (Vec<Sandbox>, Vec<Snapshot>)> = BTreeMap::new();
        for sandbox in inventory.sandboxes {
            here.entry(sandbox.id.session.clone()).or_default().0.push(sandbox);
        }
        for snapshot in inventory.snapshots {
            here.entry(snapshot.session.clone()).or_default().1.push(snapshot);
        }
        for session in here.keys() {
            self.tracked(session);
        }
        let rebuild = self.records.last_success.is_some();
        let policy = &self.policy;
        let clock = self.inventory_clock;
        let mut emptied = Vec::new();
        for (session, tracked) in &mut self.sessions {
            let (sandboxes, snapshots) = here.remove(session).unwrap_or_default();
            // What was listed before its last step ended says nothing any more.
            if tracked.needs_clock > clock {
                continue;
            }
            let matters = tracked.needs_clock > clock_before
                || tracked.sandboxes != sandboxes
                || tracked.snapshots != snapshots
                || tracked.is_here()
                || !sandboxes.is_empty();
            tracked.sandboxes = sandboxes;
            tracked.snapshots = snapshots;
            if rebuild {
                tracked.rebuild(now);
            }
            if matters {
                let owner =
                    tracked.sight.row().map_or(Owner::Nobody, |row| row.owner(&policy.acceptor(session)));
                // While a step changes the backend, a listing tells of neither before nor after.
                if !tracked.busy.as_ref().is_some_and(touches_backend) {
                    tracked.take_evidence(now, owner);
                }
                self.dirty.insert(session.clone());
            } else if tracked.is_empty() && !matches!(tracked.sight, Sight::Listed(_)) {
                emptied.push(session.clone());
            }
        }
        for session in emptied {
            self.forget(&session);
        }
    }

    fn unreadable(&mut self, what: &str, first: bool, error: &Error) {
        if first {
            self.notice(None, NoticeKind::Unreadable, format!("{what} cannot be read: {error}"));
        }
    }

    fn readable(&mut self, what: &str, again: bool) {
        if again {
            self.notice(None, NoticeKind::Readable, format!("{what} can be read again"));
        }
    }
}

impl Tracked {
    /// Whether a row is newer than what is known: its reading was begun after that, or the queue itself says so.
    fn accepts(&self, session: &Session, reading: Reading, began: Timestamp) -> bool {
        let (Some(known), Some(at)) = (self.sight.row(), self.row_at) else { return true };
        match (reading, session.updated_at, known.updated_at) {
            (Reading::List, _, _) if at <= began => true,
            (Reading::List, Some(new), Some(old)) => new > old,
            (Reading::List, _, _) => false,
            (Reading::Single, Some(new), Some(old)) => new >= old,
            (Reading::Single, _, _) => true,
        }
    }

    /// Where no record is stored although something exists, it was lost: it is made again from what is listed.
    fn rebuild(&mut self, now: Timestamp) {
        let known = &mut self.record;
        let boots = self.sandboxes.iter().map(|sandbox| sandbox.id.boot);
        if known.version.is_none() && known.record == Record::default() && self.busy.is_none() && !known.lost
        {
            if !self.sandboxes.is_empty() || !self.snapshots.is_empty() {
                known.record = Record::rebuilt(boots, &self.snapshots, now);
            }
            return;
        }
        let newest = boots.max().unwrap_or(Boot::NONE);
        known.record.newest_boot = known.record.newest_boot.max(newest);
    }

    fn take_evidence(&mut self, now: Timestamp, owner: Owner) {
        let record = &self.record.record;
        let newest = record.newest_boot;
        let sandbox = self.sandboxes.iter().find(|sandbox| sandbox.id.boot == newest);
        let evidence: &mut Evidence = &mut self.evidence;
        if newest > record.closed_boot || sandbox.is_some() {
            evidence.inventoried(now, newest, sandbox, owner);
        }
    }
}
