use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cursor::Cursor;
use super::fleet::Fleet;
use super::options::LastCursor;
use super::refusal::Refusal;
use super::row::Row;

/// What a list asks for. The defaults ask for everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ListQuery {
    /// Only this outpost's rows.
    pub outpost: Option<String>,
    /// Only rows in this phase.
    pub phase: Option<String>,
    /// Only rows claimed by this acceptor.
    pub acceptor_id: Option<String>,
    /// Rows on a page, 1 to 200; 100 unless said.
    pub first: Option<u32>,
    /// Only rows changed at or after this place.
    pub cursor: Option<String>,
}

impl ListQuery {
    /// All rows of one outpost, 200 on a page.
    pub fn outpost(outpost: impl Into<String>) -> Self {
        Self { outpost: Some(outpost.into()), first: Some(200), ..Self::default() }
    }

    /// The same from a cursor on.
    #[must_use]
    pub fn from_cursor(mut self, cursor: impl Into<String>) -> Self {
        self.cursor = Some(cursor.into());
        self
    }

    /// The same with other pages.
    #[must_use]
    pub fn first(mut self, first: u32) -> Self {
        self.first = Some(first);
        self
    }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Page {
    /// The rows as served, oldest change first.
    pub items: Vec<Value>,
    /// Where the next page or the watch starts. Every page has one.
    pub cursor: String,
    /// Set by a full page, whether or not rows follow it.
    pub has_next_page: bool,
    /// How many rows match, on all pages.
    pub total: usize,
}

impl Page {
    /// The answer's body.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "items": self.items,
            "cursor": self.cursor,
            "has_next_page": self.has_next_page,
            "total": self.total,
        })
    }
}

impl Fleet {
    /// A page of the queue, ordered by last change. The row at a page's boundary comes twice, because a
    /// cursor means "at or after"; so with `first=1` paging never ends, as in the public mock.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`] for an unknown phase or a page size out of range, [`Refusal::BadCursor`],
    /// [`Refusal::NotFound`] for an unknown outpost.
    pub fn list(&mut self, now: Timestamp, query: &ListQuery) -> Result<Page, Refusal> {
        self.settle_due(now);
        let first = query.first.unwrap_or(100);
        if !(1..=200).contains(&first) {
            return Err(Refusal::invalid("first", "must be between 1 and 200"));
        }
        if let Some(phase) = &query.phase
            && !matches!(&**phase, "pending" | "claimed")
        {
            return Err(Refusal::invalid("phase", "must be pending or claimed"));
        }
        if let Some(outpost) = &query.outpost
            && !self.outposts.contains_key(outpost)
        {
            return Err(Refusal::NotFound(format!("outpost {outpost}")));
        }
        let from = query.cursor.as_deref().map(Cursor::parse).transpose()?;
        self.expire_all(now);

        let size = first.min(self.options.page_cap.max(1)) as usize;
        let field = self.outpost_field();
        let mut page: Vec<&Row> = Vec::with_capacity(size);
        for (_, session_id) in
            self.order.range((from.map_or(i64::MIN, |Cursor(at)| at.as_microsecond()), String::new())..)
        {
            let row = &self.rows[session_id];
            if query.matches(row) {
                page.push(row);
                if page.len() == size {
                    break;
                }
            }
        }
        let has_next_page = page.len() == size;
        let last_row = page.last().map(|row| row.updated_at);
        let end = match self.options.last_cursor {
            LastCursor::ServerClock if !has_next_page => now,
            _ => last_row.or(from.map(|Cursor(at)| at)).unwrap_or(now),
        };
        // A list heals a watch whose history is gone, so its last cursor is never one that is refused.
        let end = match self.forgotten {
            Some(forgotten) if !has_next_page => end.max(forgotten),
            _ => end,
        };
        let total = match (&query.outpost, &query.phase, &query.acceptor_id) {
            (None, None, None) => self.rows.len(),
            _ => self.rows.values().filter(|row| query.matches(row)).count(),
        };
        Ok(Page {
            items: page.iter().map(|row| row.render(field)).collect(),
            cursor: Cursor::at(end).to_string(),
            has_next_page,
            total,
        })
    }

    /// One row as served.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotFound`] when unknown or tombstoned.
    pub fn get(&mut self, now: Timestamp, session_id: &str) -> Result<Value, Refusal> {
        self.settle_due(now);
        self.expire(now, session_id);
        let row = self.rows.get(session_id).ok_or_else(|| super::claim::not_found(session_id))?;
        Ok(row.render(self.outpost_field()))
    }

    fn expire_all(&mut self, now: Timestamp) {
        let expired: Vec<String> = self
            .rows
            .iter()
            .filter(|(_, row)| row.claim.as_ref().is_some_and(|claim| claim.deadline <= now))
            .map(|(session_id, _)| session_id.clone())
            .collect();
        for session_id in expired {
            self.expire(now, &session_id);
        }
    }
}

impl ListQuery {
    fn matches(&self, row: &Row) -> bool {
        let here = self.outpost.as_ref().is_none_or(|outpost| row.spec.outpost_id == *outpost);
        let holder = || row.claim.as_ref().map(|claim| &claim.acceptor_id);
        (here || row.is_stray())
            && self.phase.as_ref().is_none_or(|phase| row.phase() == phase)
            && self.acceptor_id.as_ref().is_none_or(|acceptor| holder() == Some(acceptor))
    }
}
