//! One outpost's queue, as a [`SessionSource`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::stream::BoxStream;
use http::Method;
use outpost_core::model::{AcceptorId, OutpostId, Session, SessionId};
use outpost_core::ports::{Claimed, Clock, Cursor, Error, ErrorKind, Listing, SessionSource, WatchEvent};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::client::{Call, Client, SMALL_BODY};
use crate::fault::{self, Nature, WHO};
use crate::transport::Transport;
use crate::url::BaseUrl;
use crate::{claim, list, watch, wire};

/// One outpost's queue. Cheap to clone; clones are the same queue.
#[derive(Debug, Clone)]
pub struct DevinQueue {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) base: BaseUrl,
    pub(crate) outpost: OutpostId,
    pub(crate) counts: Counts,
    /// Where the newest complete list ended, and how many there were.
    pub(crate) listed: Mutex<(u64, Option<Cursor>)>,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) skipped: AtomicU64,
    pub(crate) foreign: AtomicU64,
}

/// What has been seen since the queue was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls that were made.
    pub calls: u64,
    /// Rows that did not say which session or outpost they are about.
    pub skipped_rows: u64,
    /// Rows of other outposts.
    pub foreign_rows: u64,
}

impl DevinQueue {
    /// The queue of `outpost`, called over `transport` with a service user's token.
    pub fn new(
        base: BaseUrl,
        token: &SecretString,
        outpost: OutpostId,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let client = Client::new(transport, clock, Some(token));
        let base = base.into_fleet();
        Self {
            shared: Arc::new(Shared {
                client,
                base,
                outpost,
                counts: Counts::default(),
                listed: Mutex::default(),
            }),
        }
    }

    /// What has been seen since the queue was made.
    pub fn stats(&self) -> Stats {
        Stats {
            calls: self.shared.client.calls(),
            skipped_rows: self.shared.counts.skipped.load(Ordering::Relaxed),
            foreign_rows: self.shared.counts.foreign.load(Ordering::Relaxed),
        }
    }
}

impl Shared {
    /// The address of the queue (`segments` empty) or of something below it.
    pub(crate) fn url(&self, operation: &'static str, segments: &[&str]) -> Result<String, Error> {
        let path: Vec<&str> = ["outposts", "devins"].iter().chain(segments).copied().collect();
        let refused = || Error::new(ErrorKind::NotFound, WHO, operation, "no session can have such an id");
        self.base.join(&path).ok_or_else(refused)
    }

    /// The row, if it is one of this outpost's; else it is counted.
    pub(crate) fn ours(&self, row: &Value) -> Option<Session> {
        let Some(session) = wire::session(row) else {
            self.counts.skipped.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        if session.outpost != self.outpost {
            self.counts.foreign.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(session)
    }

    pub(crate) fn listed(&self) -> (u64, Option<Cursor>) {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Posts to a session what its acceptor wants, and answers the row.
    pub(crate) async fn post(
        &self,
        operation: &'static str,
        session: &SessionId,
        verb: &str,
        acceptor: &AcceptorId,
    ) -> Result<bytes::Bytes, Error> {
        let body = json!({"acceptor_id": acceptor.as_str()});
        let answer = self.client.succeed(Call {
            operation,
            nature: Nature::Changes,
            method: Method::POST,
            url: self.url(operation, &[session.as_str(), verb])?,
            body: Some(&body),
            cap: SMALL_BODY,
        });
        Ok(answer.await?.body)
    }
}

/// The JSON of an answer.
pub(crate) fn json(operation: &'static str, body: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(body).map_err(|error| {
        // Its text would show parts of the answer.
        fault::nonsense(
            operation,
            format!("the answer is not JSON (line {}, column {})", error.line(), error.column()),
        )
    })
}

#[async_trait]
impl SessionSource for DevinQueue {
    async fn list(&self) -> Result<Listing, Error> {
        list::list(&self.shared).await
    }

    fn watch(&self, from: Option<Cursor>) -> BoxStream<'_, WatchEvent> {
        watch::watch(&self.shared, from)
    }

    async fn get(&self, session: &SessionId) -> Result<Option<Session>, Error> {
        const OPERATION: &str = "get";
        let shared = &self.shared;
        let answer = shared.client.succeed(Call {
            operation: OPERATION,
            nature: Nature::Reads,
            method: Method::GET,
            url: shared.url(OPERATION, &[session.as_str()])?,
            body: None,
            cap: SMALL_BODY,
        });
        let row = match answer.await {
            Ok(answer) => json(OPERATION, &answer.body)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match wire::session(&row) {
            Some(found) if found.id == *session && found.outpost == shared.outpost => Ok(Some(found)),
            Some(_) => {
                shared.counts.foreign.fetch_add(1, Ordering::Relaxed);
                Err(fault::nonsense(OPERATION, "the answer is about another session or outpost"))
            }
            None => Err(fault::nonsense(OPERATION, "the answer does not say which session it is about")),
        }
    }

    async fn claim(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<Claimed, Error> {
        claim::claim(&self.shared, session, acceptor).await
    }

    async fn renew(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<Session, Error> {
        claim::renew(&self.shared, session, acceptor).await
    }

    async fn release(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<(), Error> {
        claim::release(&self.shared, session, acceptor).await
    }
}
