//! What has been seen of one session over time: the counters behind "three in a row" and "since when".
//!
//! All of it is memory of this process. Losing it (a restart) delays a decision, and never makes a wrong one.

use std::time::Duration;

use jiff::Timestamp;

use super::time::{after, since};
use crate::model::{AcceptorId, Boot, Owner, Sandbox, SandboxState, Session, SessionStatus};

/// How long a worker must have lived, its session seen claimed by us, before its boot counts as one that served.
pub const SERVED_AFTER: Duration = Duration::from_secs(30);

/// Where snapshots can be deleted, a disk is saved already after so much of that: it costs little, and it may be work.
pub const SAVED_AFTER: Duration = Duration::from_secs(5);

/// What is known of a session's row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Sight {
    /// Never seen by this process.
    #[default]
    Unseen,
    /// The row as it was last read.
    Listed(Session),
    /// Absent from complete lists, but that does not yet prove that it is gone.
    Missing {
        /// The row as it was before.
        last: Option<Session>,
    },
    /// Gone from the queue: absent for long enough, and a single look answered that it does not exist.
    Gone {
        /// Since when that is known.
        since: Timestamp,
    },
}

impl Sight {
    /// The row as it was last read, if it was.
    pub const fn row(&self) -> Option<&Session> {
        match self {
            Self::Listed(session) => Some(session),
            Self::Missing { last } => last.as_ref(),
            Self::Unseen | Self::Gone { .. } => None,
        }
    }
}

/// How a row came to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reading {
    /// In a complete list.
    List,
    /// By itself: a look, an event, the answer to a claim.
    Single,
}

/// What has been seen of one session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// When the row was last read.
    pub read_at: Option<Timestamp>,
    /// Readings in a row that said `suspended`, and when the first of them was.
    pub suspended: Streak,
    /// Complete lists in a row in which another held the session.
    pub foreign: Streak,
    /// The queue answered a claim or a renewal of ours with "another has it", and no row has shown otherwise since.
    pub claim_lost: bool,
    /// Complete lists in a row that did not have the session.
    pub absent: Streak,
    /// Since when nobody has held the session, as far as it was seen.
    pub free_since: Option<Timestamp>,
    /// Not before this is our claim renewed again.
    pub renew_at: Option<Timestamp>,
    /// The last removal that was asked for or first seen to go on, and when.
    pub removal_asked: Option<(Boot, Timestamp)>,
    /// What has been seen of the newest boot.
    pub boot: BootEvidence,
}

/// Something that was seen several times in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Streak {
    /// How many times.
    pub count: u32,
    /// When the first of them was.
    pub since: Option<Timestamp>,
}

impl Streak {
    fn add(&mut self, now: Timestamp) {
        self.count = self.count.saturating_add(1);
        self.since.get_or_insert(now);
    }

    fn set(&mut self, now: Timestamp, holds: Option<()>) {
        match holds {
            Some(()) => self.add(now),
            None => *self = Self::default(),
        }
    }

    /// For how long; zero when it was never seen.
    pub fn lasting(&self, now: Timestamp) -> Duration {
        self.since.map_or(Duration::ZERO, |first| since(now, first))
    }
}

/// Where a boot came from, as far as this process knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It was there before this process.
    #[default]
    Before,
    /// This process started it.
    Here,
}

/// What has been seen of one boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootEvidence {
    /// Which boot.
    pub boot: Boot,
    /// Where it came from.
    pub origin: Origin,
    /// When it was first listed.
    pub first_seen: Option<Timestamp>,
    /// When it was last known not to serve: its start had just been carried out, its worker did not run yet, or its session
    /// was not ours.
    pub idle_at: Option<Timestamp>,
    /// Since when its worker has been seen alive while its session was ours, or may have been.
    pub serving_since: Option<Timestamp>,
    /// For how long that was, until it was last seen so.
    pub served_for: Duration,
    /// It has done work, for certain.
    pub served: bool,
    /// When its worker was first seen to have ended.
    pub ended_at: Option<Timestamp>,
    /// How often, and when last, the row was looked at since its worker ended.
    pub rereads: u32,
    /// When that was last.
    pub reread_at: Option<Timestamp>,
    /// When saving it was first asked for.
    pub saving_since: Option<Timestamp>,
    /// Inventories in a row that did not have it although it is not known to be over.
    pub unlisted: Streak,
}

impl BootEvidence {
    /// The evidence of a boot that this process starts now.
    pub fn started_here(boot: Boot, now: Timestamp) -> Self {
        Self { boot, origin: Origin::Here, idle_at: Some(now), ..Self::default() }
    }

    /// Takes in that it serves: since it was last known not to, as far as can be told.
    fn seen_serving(&mut self, now: Timestamp) {
        let first = *self.serving_since.get_or_insert(self.idle_at.unwrap_or(now));
        self.served_for = since(now, first);
        self.served |= self.served_for >= SERVED_AFTER;
    }

    /// Takes in that its worker has ended: it may have served until just now, also when it was never seen to.
    fn seen_ended(&mut self, now: Timestamp) {
        if self.serving_since.is_some() {
            self.seen_serving(now);
        } else if let Some(idle) = self.idle_at {
            self.served |= since(now, idle) >= SERVED_AFTER;
        }
    }

    /// Whether it was begun before this process, and this process has never seen it.
    pub(crate) fn is_from_before_and_unseen(&self) -> bool {
        self.origin == Origin::Before && self.first_seen.is_none()
    }

    /// Whether the boot may have done work that its snapshot or image does not hold. When that cannot be known, yes.
    pub fn may_have_served(&self) -> bool {
        self.served || self.origin == Origin::Before
    }
}

impl Evidence {
    /// Takes in a row that was just read.
    pub fn read(&mut self, now: Timestamp, session: &Session, reading: Reading, ours: &AcceptorId) {
        self.read_at = Some(now);
        self.absent = Streak::default();
        self.suspended.set(now, (session.status == SessionStatus::Suspended).then_some(()));
        match (session.owner(ours), reading) {
            (Owner::Another, Reading::List) => self.foreign.add(now),
            (Owner::Another, Reading::Single) => {}
            (Owner::Us | Owner::Nobody, _) => {
                self.foreign = Streak::default();
                self.claim_lost = false;
            }
        }
        if session.owner(ours) == Owner::Nobody {
            self.free_since.get_or_insert(now);
        } else {
            self.free_since = None;
        }
        // A worker that its session sent to sleep has worked, however short that was.
        let asleep = session.status == SessionStatus::Suspended && session.owner(ours) != Owner::Another;
        self.boot.served |= asleep && self.boot.serving_since.is_some();
    }

    /// Takes in a complete list that did not have the session.
    pub fn missed(&mut self, now: Timestamp) {
        self.absent.add(now);
        self.suspended = Streak::default();
        self.foreign = Streak::default();
        self.free_since = None;
    }

    /// Takes in a complete inventory: `newest` is the session's newest open boot, `sandbox` what was listed of it, `owner`
    /// whose the session is.
    pub fn inventoried(&mut self, now: Timestamp, newest: Boot, sandbox: Option<&Sandbox>, owner: Owner) {
        if self.boot.boot != newest {
            self.boot = BootEvidence { boot: newest, ..BootEvidence::default() };
        }
        let boot = &mut self.boot;
        let Some(sandbox) = sandbox else {
            boot.unlisted.add(now);
            return;
        };
        boot.unlisted = Streak::default();
        boot.first_seen.get_or_insert(now);
        match sandbox.state {
            SandboxState::Starting => boot.idle_at = Some(now),
            SandboxState::Running if owner == Owner::Us => boot.seen_serving(now),
            SandboxState::Running if !boot.served => {
                boot.serving_since = None;
                boot.idle_at = Some(now);
            }
            SandboxState::Running => {}
            SandboxState::Exited { .. } | SandboxState::Failed { .. } => {
                if boot.ended_at.is_none() && owner != Owner::Another {
                    boot.seen_ended(now);
                }
                boot.ended_at.get_or_insert(now);
            }
            SandboxState::Stopping if self.removal_asked.is_none_or(|(asked, _)| asked != newest) => {
                self.removal_asked = Some((newest, now));
            }
            SandboxState::Stopping => {}
        }
    }

    /// Takes in that a look at the row was made, whatever it answered.
    pub fn looked(&mut self, now: Timestamp) {
        if self.boot.ended_at.is_some() {
            self.boot.rereads = self.boot.rereads.saturating_add(1);
            self.boot.reread_at = Some(now);
        }
    }

    /// Takes in that our claim holds until `deadline` (`None` when the queue does not say), and puts the next renewal half
    /// way there: never more than 100 s away, and never less than 10 s, also when the clocks disagree.
    pub fn claim_held(&mut self, now: Timestamp, deadline: Option<Timestamp>) {
        const UNKNOWN: Duration = Duration::from_secs(60);
        let left = deadline.map(|deadline| since(deadline, now)).filter(|left| !left.is_zero());
        let pause = left.map_or(UNKNOWN, |left| left / 2);
        self.renew_at = Some(after(now, pause.clamp(Duration::from_secs(10), Duration::from_secs(100))));
        self.claim_lost = false;
    }

    /// Takes in that a renewal failed without saying that another has the session.
    pub fn renewal_failed(&mut self, now: Timestamp, retry_after: Option<Duration>) {
        let pause = retry_after.unwrap_or_default().clamp(Duration::from_secs(10), Duration::from_secs(60));
        self.renew_at = Some(after(now, pause));
    }
}
