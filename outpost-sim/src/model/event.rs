use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cursor::Cursor;
use super::fleet::Fleet;
use super::refusal::Refusal;

/// Something that happened to a row. New rows are `Modified` too.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// When; also its cursor.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
    /// The row's outpost.
    pub outpost_id: String,
    /// The row as it was served then.
    pub object: Arc<Value>,
    pub(crate) stray: bool,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventKind {
    /// It was made or changed.
    Modified,
    /// It was tombstoned.
    Deleted,
}

impl Event {
    /// The event as the watch's `data` serves it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "type": self.kind,
            "object": *self.object,
            "cursor": Cursor::at(self.at).to_string(),
        })
    }
}

/// A watch's place in the log of events. Unlike a cursor it repeats nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub(crate) u64);

impl Fleet {
    /// Where a watch starts: at the first event at or after `cursor`, or at the beginning of history.
    ///
    /// # Errors
    ///
    /// [`Refusal::BadCursor`], or [`Refusal::ExpiredCursor`] when history no longer reaches back to it.
    pub fn watch_from(&mut self, now: Timestamp, cursor: Option<&str>) -> Result<Position, Refusal> {
        self.settle_due(now);
        let Some(cursor) = cursor else { return Ok(Position(self.first_event)) };
        let Cursor(from) = Cursor::parse(cursor)?;
        if self.forgotten.is_some_and(|forgotten| from < forgotten) {
            return Err(Refusal::ExpiredCursor);
        }
        let skipped = self.events.partition_point(|event| micros(event.at) < micros(from));
        Ok(Position(self.first_event + skipped as u64))
    }

    /// The events from `position` on that concern `outpost`, and the position after them.
    pub fn events(
        &mut self,
        now: Timestamp,
        outpost: Option<&str>,
        position: Position,
    ) -> (Vec<Event>, Position) {
        self.settle_due(now);
        let skipped = usize::try_from(position.0.saturating_sub(self.first_event)).unwrap_or(usize::MAX);
        let concerned =
            |event: &&Event| event.stray || outpost.is_none_or(|outpost| event.outpost_id == outpost);
        let events = self.events.iter().skip(skipped).filter(concerned).cloned().collect();
        (events, Position(self.version()))
    }

    /// Drops the whole history: every cursor that was handed out by now is refused by the watch with 410.
    pub fn forget_history(&mut self, now: Timestamp) {
        let now = self.tick(now + std::time::Duration::from_micros(1));
        self.first_event += self.events.len() as u64;
        self.events.clear();
        self.forgotten = Some(now);
    }

    /// A number that grows with every event.
    pub(crate) fn version(&self) -> u64 {
        self.first_event + self.events.len() as u64
    }

    pub(crate) fn log(&mut self, event: Event) {
        self.events.push_back(event);
        while self.events.len() > self.options.history.max(1) {
            if let Some(dropped) = self.events.pop_front() {
                self.first_event += 1;
                self.forgotten = Some(dropped.at + std::time::Duration::from_micros(1));
            }
        }
    }
}

fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}
