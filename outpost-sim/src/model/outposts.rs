use std::ops::Bound;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fleet::Fleet;
use super::options::Spelling;
use super::refusal::Refusal;

/// The account that the simulated outposts belong to.
pub(crate) const ACCOUNT: &str = "account-sim";

/// What an outpost is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NewOutpost {
    /// Unique in the account.
    pub name: String,
    /// `linux`, `macos` or `windows`.
    pub platform: String,
    /// For people.
    #[serde(default)]
    pub description: Option<String>,
}

impl NewOutpost {
    /// Without a description.
    pub fn new(name: impl Into<String>, platform: impl Into<String>) -> Self {
        Self { name: name.into(), platform: platform.into(), description: None }
    }
}

/// An outpost of the account.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutpostEntry {
    /// Its id.
    pub outpost_id: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// What it was made from.
    pub spec: NewOutpost,
}

/// A page of outposts.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OutpostPage {
    /// The entries as served.
    pub items: Vec<Value>,
    /// The last id of the page.
    pub end_cursor: Option<String>,
    /// Whether more follow.
    pub has_next_page: bool,
}

impl OutpostPage {
    /// The answer's body.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({ "items": self.items, "end_cursor": self.end_cursor, "has_next_page": self.has_next_page })
    }
}

impl Fleet {
    /// Makes an outpost, or replaces the one with this id.
    pub fn put_outpost(&mut self, now: Timestamp, outpost_id: impl Into<String>, spec: NewOutpost) {
        let outpost_id = outpost_id.into();
        self.outposts.insert(outpost_id.clone(), OutpostEntry { outpost_id, created_at: now, spec });
    }

    /// Makes an outpost as the API does.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`] for an empty name or unknown platform, [`Refusal::Conflict`] for a name that
    /// is taken.
    pub fn create_outpost(
        &mut self,
        now: Timestamp,
        spec: NewOutpost,
        spelling: Spelling,
    ) -> Result<Value, Refusal> {
        if spec.name.trim().is_empty() {
            return Err(Refusal::invalid("name", "must not be empty"));
        }
        if !matches!(&*spec.platform, "linux" | "macos" | "windows") {
            return Err(Refusal::invalid("platform", "must be linux, macos or windows"));
        }
        if self.outposts.values().any(|entry| entry.spec.name == spec.name) {
            return Err(Refusal::Conflict("an outpost of this name exists".to_owned()));
        }
        self.issued += 1;
        let outpost_id = format!("outpost_env-{:06}", self.issued);
        self.put_outpost(now, outpost_id.clone(), spec);
        self.get_outpost(&outpost_id, spelling)
    }

    /// One outpost as served.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotFound`].
    pub fn get_outpost(&self, outpost_id: &str, spelling: Spelling) -> Result<Value, Refusal> {
        let entry = self.outposts.get(outpost_id).ok_or_else(|| no_outpost(outpost_id))?;
        Ok(self.render_outpost(entry, spelling))
    }

    /// Removes an outpost; its rows stay as they are.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotFound`].
    pub fn delete_outpost(&mut self, outpost_id: &str) -> Result<(), Refusal> {
        self.outposts.remove(outpost_id).map(drop).ok_or_else(|| no_outpost(outpost_id))
    }

    /// A page of outposts, by id, after the one named.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`] for a page size out of range.
    pub fn list_outposts(
        &self,
        first: Option<u32>,
        after: Option<&str>,
        spelling: Spelling,
    ) -> Result<OutpostPage, Refusal> {
        let first = first.unwrap_or(100);
        if !(1..=200).contains(&first) {
            return Err(Refusal::invalid("first", "must be between 1 and 200"));
        }
        let size = first.min(self.options.page_cap.max(1)) as usize;
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.outposts.range::<str, _>((start, Bound::Unbounded)).map(|(_, entry)| entry);
        let page: Vec<_> = rest.by_ref().take(size).collect();
        Ok(OutpostPage {
            items: page.iter().map(|entry| self.render_outpost(entry, spelling)).collect(),
            end_cursor: page.last().map(|entry| entry.outpost_id.clone()),
            has_next_page: rest.next().is_some(),
        })
    }

    fn render_outpost(&self, entry: &OutpostEntry, spelling: Spelling) -> Value {
        let id_field = match spelling {
            Spelling::Pools => "pool_id",
            Spelling::Outposts | Spelling::Bare => "outpost_id",
        };
        let here = || self.rows.values().filter(|row| row.spec.outpost_id == entry.outpost_id);
        json!({
            "metadata": {
                id_field: entry.outpost_id,
                "account_id": ACCOUNT,
                "created_at": entry.created_at.as_second(),
            },
            "spec": entry.spec,
            "status": {
                "queue_depth": here().filter(|row| row.claim.is_none()).count(),
                "active_claims": here().filter(|row| row.claim.is_some()).count(),
            },
        })
    }
}

fn no_outpost(outpost_id: &str) -> Refusal {
    Refusal::NotFound(format!("outpost {outpost_id}"))
}
