//! The state machine: what to do for one session, now.
//!
//! [`decide`] is a pure function of a [`Situation`]: the time, the session's row or its absence, its sandboxes and
//! snapshots, its record, what has been seen of it before ([`Evidence`]) and the policy. It answers one [`Step`] at the most,
//! what has to be kept up beside it, when to look again at the latest, and why, in words for people. The step leaves its
//! executor no choices: it names the boot, the snapshot, the record to write.
//!
//! # Guarantees
//! * A sandbox that may have served is removed only when a snapshot of its boot is recorded, or Devin said `terminated`.
//! * Starting needs that no sandbox of the session is listed, and that the newest boot is known to be over.
//! * Releasing comes after everything else.
//! * Steps do not depend on the order of sandboxes and snapshots.
//!
//! # Assumptions
//! The situation was listed after the session's last step had ended; [`Engine`](crate::engine::Engine) sees to that.

mod backoff;
mod evidence;
mod expiry;
mod rows;
mod step;
pub(crate) mod time;
mod view;

#[cfg(test)]
mod rules;

pub use backoff::{BootEnd, GIVE_UP_AFTER, jitter};
pub use evidence::{BootEvidence, Evidence, Origin, Reading, SAVED_AFTER, SERVED_AFTER, Sight, Streak};
pub use rows::decide;
pub use step::{Caveat, Decision, StartPlan, Step, StopReason, Upkeep};
pub use view::{Column, Situation, Wish};
