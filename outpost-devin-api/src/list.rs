//! Every session of an outpost, page by page: complete, or an error.

use std::collections::{BTreeMap, HashSet};
use std::sync::PoisonError;

use http::Method;
use outpost_core::model::{Session, SessionId};
use outpost_core::ports::{Cursor, Error, Listing};
use serde::Deserialize;
use serde_json::Value;

use crate::client::Call;
use crate::fault::{self, Nature};
use crate::queue::{Shared, json};
use crate::url::query;

const OPERATION: &str = "list";
/// The most rows that a page can have, and so the fewest calls.
const PAGE: &str = "200";
/// More pages than any queue has: two million rows.
const PAGES: usize = 10_000;
/// The largest page that is taken.
const PAGE_BODY: usize = 32 << 20;

/// One page, its rows still to be understood.
#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    pub(crate) items: Vec<Value>,
    #[serde(default)]
    pub(crate) cursor: Value,
    has_next_page: bool,
}

impl Page {
    pub(crate) fn cursor(&self) -> Option<String> {
        match &self.cursor {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

/// Decodes one page's body.
pub(crate) fn page(body: &[u8]) -> Result<Page, Error> {
    let value = json(OPERATION, body)?;
    Page::deserialize(value).map_err(|_| fault::nonsense(OPERATION, "the answer is not a page of a list"))
}

pub(crate) async fn list(shared: &Shared) -> Result<Listing, Error> {
    let mut sessions: BTreeMap<SessionId, Session> = BTreeMap::new();
    let mut cursors = HashSet::new();
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES {
        let page = fetch(shared, cursor.as_deref()).await?;
        // A row at a page's edge can come twice: the later copy is the newer one.
        for session in page.items.iter().filter_map(|row| shared.ours(row)) {
            sessions.insert(session.id.clone(), session);
        }
        let next = page.cursor();
        if !page.has_next_page {
            let cursor = next.map(Cursor);
            let mut listed = shared.listed.lock().unwrap_or_else(PoisonError::into_inner);
            *listed = (listed.0 + 1, cursor.clone());
            return Ok(Listing::new(sessions.into_values().collect(), cursor));
        }
        let Some(next) = next else {
            return Err(fault::nonsense(OPERATION, "a page that is not the last has no cursor"));
        };
        if !cursors.insert(next.clone()) {
            return Err(fault::nonsense(OPERATION, "a cursor came twice: the list would never end"));
        }
        cursor = Some(next);
    }
    Err(fault::nonsense(OPERATION, format!("the list has more than {PAGES} pages")))
}

async fn fetch(shared: &Shared, cursor: Option<&str>) -> Result<Page, Error> {
    let mut pairs = vec![("outpost", shared.outpost.as_str()), ("first", PAGE)];
    pairs.extend(cursor.map(|cursor| ("cursor", cursor)));
    let answer = shared.client.succeed(Call {
        operation: OPERATION,
        nature: Nature::Reads,
        method: Method::GET,
        url: format!("{}{}", shared.url(OPERATION, &[])?, query(&pairs)),
        body: None,
        cap: PAGE_BODY,
    });
    page(&answer.await?.body)
}
