//! The pure model of Devin's fleet queue: time comes in, answers go out as JSON.
//!
//! Nothing here reads a clock, waits or speaks HTTP, so a simulated world can drive a [`Fleet`]
//! with virtual time, and the [server](crate::server) is a thin layer over the same value.
//!
//! Answers are [`serde_json::Value`]s and not types, because the point of a simulator is that it can
//! serve what no type admits: see [`Oddity`].

mod claim;
mod cursor;
mod event;
mod fleet;
mod list;
mod options;
mod outposts;
#[cfg(test)]
mod properties;
mod refusal;
mod row;
#[cfg(test)]
mod tests;

pub use claim::{Claim, ClaimOutcome, ClaimRecord, Freshness};
pub use cursor::Cursor;
pub use event::{Event, EventKind, Position};
pub use fleet::{Fleet, Waking};
pub use list::{ListQuery, Page};
pub use options::{DEFAULT_OUTPOST, FleetOptions, LastCursor, Spelling};
pub use outposts::{NewOutpost, OutpostEntry, OutpostPage};
pub use refusal::Refusal;
pub use row::{NewRow, Oddity, Row};
