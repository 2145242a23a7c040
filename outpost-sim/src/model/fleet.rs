use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::claim::{ClaimRecord, not_found};
use super::event::{Event, EventKind};
use super::options::{DEFAULT_OUTPOST, FleetOptions, Spelling};
use super::outposts::{NewOutpost, OutpostEntry};
use super::refusal::Refusal;
use super::row::{NewRow, Row};

/// The queue of one account: rows, outposts, claims, and the log that the watch reads.
///
/// Every method that Devin's API has takes `now`; time never goes backwards in the log, whatever comes in.
///
/// ```
/// use outpost_sim::model::{DEFAULT_OUTPOST, Fleet, FleetOptions, ListQuery, NewRow};
///
/// let now = jiff::Timestamp::UNIX_EPOCH;
/// let mut fleet = Fleet::new(FleetOptions::default());
/// fleet.create(now, NewRow::new("devin-1"));
/// let claimed = fleet.claim(now, "devin-1", "me").unwrap();
/// assert!(claimed["status"]["connect_token"].is_string());
/// assert_eq!(fleet.claim(now, "devin-1", "you").unwrap_err().status(), 409);
/// let page = fleet.list(now, &ListQuery::outpost(DEFAULT_OUTPOST)).unwrap();
/// assert_eq!(page.items[0]["status"]["acceptor_id"], "me");
/// ```
#[derive(Debug)]
pub struct Fleet {
    /// How it behaves.
    pub options: FleetOptions,
    pub(crate) rows: BTreeMap<String, Row>,
    /// `(updated_at in µs, session id)`: the order of the list.
    pub(crate) order: BTreeSet<(i64, String)>,
    /// The last form of tombstoned rows, so that a session that left the queue can come back.
    graves: BTreeMap<String, Row>,
    pub(crate) outposts: BTreeMap<String, OutpostEntry>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) first_event: u64,
    pub(crate) forgotten: Option<Timestamp>,
    pub(crate) claims: Vec<ClaimRecord>,
    pub(crate) tokens: BTreeMap<String, Vec<SecretString>>,
    pub(crate) issued: u64,
    /// Status changes that are to come: a status that lags behind its worker's exit.
    due: Vec<(Timestamp, String, String)>,
    latest: Timestamp,
}

/// How a sleeping session comes back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waking {
    /// As `pending`.
    #[default]
    Pending,
    /// As `running` from the start, which was observed.
    Running,
}

impl Fleet {
    /// An empty queue with the outpost [`DEFAULT_OUTPOST`].
    #[must_use]
    pub fn new(options: FleetOptions) -> Self {
        let mut fleet = Self {
            options,
            rows: BTreeMap::new(),
            order: BTreeSet::new(),
            graves: BTreeMap::new(),
            outposts: BTreeMap::new(),
            events: VecDeque::new(),
            first_event: 0,
            forgotten: None,
            claims: Vec::new(),
            tokens: BTreeMap::new(),
            issued: 0,
            due: Vec::new(),
            latest: Timestamp::UNIX_EPOCH,
        };
        fleet.ensure_outpost(Timestamp::UNIX_EPOCH, DEFAULT_OUTPOST);
        fleet
    }

    /// Puts a row into the queue, or replaces the one with its id. An outpost that does not exist is made.
    pub fn create(&mut self, now: Timestamp, spec: NewRow) {
        let at = self.tick(now);
        self.ensure_outpost(at, &spec.outpost_id.clone());
        let session_id = spec.session_id.clone();
        if let Some(old) = self.rows.remove(&session_id) {
            self.order.remove(&(old.updated_at.as_microsecond(), session_id.clone()));
        }
        self.graves.remove(&session_id);
        let updated_at = spec.updated_at.unwrap_or(at);
        let row = Row { created_at: spec.created_at.unwrap_or(at), updated_at, claim: None, spec };
        self.order.insert((updated_at.as_microsecond(), session_id.clone()));
        self.announce(at, EventKind::Modified, &row);
        self.rows.insert(session_id, row);
    }

    /// Sets the session status; also of a tombstoned session, so that its worker learns of it.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotFound`] when there never was such a session.
    pub fn set_status(&mut self, now: Timestamp, session_id: &str, status: &str) -> Result<(), Refusal> {
        if self.rows.contains_key(session_id) {
            self.change(now, session_id, EventKind::Modified, |row| {
                status.clone_into(&mut row.spec.session_status)
            });
            return Ok(());
        }
        let grave = self.graves.get_mut(session_id).ok_or_else(|| not_found(session_id))?;
        status.clone_into(&mut grave.spec.session_status);
        Ok(())
    }

    /// Sets the session status at a later time.
    pub fn set_status_at(&mut self, at: Timestamp, session_id: &str, status: &str) {
        self.due.push((at, session_id.to_owned(), status.to_owned()));
        self.due.sort_by_key(|(at, ..)| *at);
    }

    /// Applies what is due by now. Every call of the API does this too.
    pub fn settle(&mut self, now: Timestamp) {
        self.settle_due(now);
    }

    /// When the next change comes by itself, if any does.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// Brings a sleeping session back with `kind: resume`, also one that left the queue. Its claim is gone.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotFound`] when there never was such a session.
    pub fn wake(&mut self, now: Timestamp, session_id: &str, waking: Waking) -> Result<(), Refusal> {
        self.settle_due(now);
        if let Some(grave) = self.graves.remove(session_id) {
            self.order.insert((grave.updated_at.as_microsecond(), session_id.to_owned()));
            self.rows.insert(session_id.to_owned(), grave);
        }
        if !self.rows.contains_key(session_id) {
            return Err(not_found(session_id));
        }
        self.due.retain(|(_, waiting, _)| waiting != session_id);
        let status = match waking {
            Waking::Pending => "pending",
            Waking::Running => "running",
        };
        self.change(now, session_id, EventKind::Modified, |row| {
            "resume".clone_into(&mut row.spec.kind);
            status.clone_into(&mut row.spec.session_status);
            row.claim = None;
        });
        Ok(())
    }

    /// Takes a row out of the queue: DELETED in the watch, 404 everywhere else.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotFound`] when it is not there.
    pub fn tombstone(&mut self, now: Timestamp, session_id: &str) -> Result<(), Refusal> {
        if !self.rows.contains_key(session_id) {
            return Err(not_found(session_id));
        }
        self.change(now, session_id, EventKind::Deleted, |_| {});
        if let Some(mut row) = self.rows.remove(session_id) {
            self.order.remove(&(row.updated_at.as_microsecond(), session_id.to_owned()));
            row.claim = None;
            self.graves.insert(session_id.to_owned(), row);
        }
        Ok(())
    }

    /// Tombstones every released row that is suspended or terminated; answers how many.
    pub fn sweep(&mut self, now: Timestamp) -> usize {
        self.sweep_those(now, |_| true)
    }

    /// Changes a row's claim by hand: takes it away, or gives it to another acceptor.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotFound`] when it is not there.
    pub fn seize(
        &mut self,
        now: Timestamp,
        session_id: &str,
        acceptor_id: Option<&str>,
    ) -> Result<(), Refusal> {
        if !self.rows.contains_key(session_id) {
            return Err(not_found(session_id));
        }
        let deadline = now + self.options.claim_ttl;
        let claim = acceptor_id.map(|acceptor| super::Claim { acceptor_id: acceptor.to_owned(), deadline });
        self.change(now, session_id, EventKind::Modified, |row| row.claim = claim);
        Ok(())
    }

    /// The rows, by session id.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// One row; `None` when unknown or tombstoned.
    #[must_use]
    pub fn row(&self, session_id: &str) -> Option<&Row> {
        self.rows.get(session_id)
    }

    /// The session's status, also after it left the queue.
    #[must_use]
    pub fn status(&self, session_id: &str) -> Option<&str> {
        let row = self.rows.get(session_id).or_else(|| self.graves.get(session_id))?;
        Some(&row.spec.session_status)
    }

    /// A time that is later than everything in the log, so that a cursor can tell two changes apart.
    pub(crate) fn tick(&mut self, now: Timestamp) -> Timestamp {
        let next = self.latest + std::time::Duration::from_micros(1);
        // Cursors hold microseconds; what they cannot hold must not decide.
        let now = Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now);
        self.latest = now.max(next);
        self.latest
    }

    pub(crate) fn change(
        &mut self,
        now: Timestamp,
        session_id: &str,
        kind: EventKind,
        change: impl FnOnce(&mut Row),
    ) {
        let at = self.tick(now);
        let Some(mut row) = self.rows.remove(session_id) else { return };
        self.order.remove(&(row.updated_at.as_microsecond(), session_id.to_owned()));
        change(&mut row);
        row.updated_at = at;
        self.order.insert((at.as_microsecond(), session_id.to_owned()));
        self.announce(at, kind, &row);
        self.rows.insert(session_id.to_owned(), row);
    }

    /// Applies what is due by now: lagging statuses, and the sweeper when it runs by itself.
    pub(crate) fn settle_due(&mut self, now: Timestamp) {
        while self.due.first().is_some_and(|(at, ..)| *at <= now) {
            let (at, session_id, status) = self.due.remove(0);
            // A session that is gone for good has no status to change.
            let _ = self.set_status(at, &session_id, &status);
        }
        if let Some(after) = self.options.sweep_after {
            self.sweep_those(now, |row| row.updated_at + after <= now);
        }
    }

    /// Rows name their outpost `pool_id` only on deployments that know nothing newer.
    pub(crate) fn outpost_field(&self) -> &'static str {
        if self.options.spellings == [Spelling::Pools] { "pool_id" } else { "outpost_id" }
    }

    fn sweep_those(&mut self, now: Timestamp, old_enough: impl Fn(&Row) -> bool) -> usize {
        let swept: Vec<String> = self
            .rows
            .values()
            .filter(|row| row.is_finished() && old_enough(row))
            .map(|row| row.spec.session_id.clone())
            .collect();
        for session_id in &swept {
            let _ = self.tombstone(now, session_id);
        }
        swept.len()
    }

    fn announce(&mut self, at: Timestamp, kind: EventKind, row: &Row) {
        let object = Arc::new(row.render(self.outpost_field()));
        let outpost_id = row.spec.outpost_id.clone();
        self.log(Event { at, kind, outpost_id, object, stray: row.is_stray() });
    }

    fn ensure_outpost(&mut self, now: Timestamp, outpost_id: &str) {
        if !self.outposts.contains_key(outpost_id) {
            let spec = NewOutpost::new(outpost_id, "linux");
            let entry = OutpostEntry { outpost_id: outpost_id.to_owned(), created_at: now, spec };
            self.outposts.insert(outpost_id.to_owned(), entry);
        }
    }
}
