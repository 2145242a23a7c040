use std::collections::{BTreeMap, VecDeque};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use outpost_core::model::{AcceptorId, OutpostId, Session, SessionId};
use outpost_core::ports::{Claimed, Cursor, Error, ErrorKind, Listing, SessionSource, WatchEvent};
use outpost_sim::model::{EventKind, ListQuery, Position, Refusal};
use secrecy::SecretString;
use serde_json::Value;

use super::decode;
use super::queue::Queue;

/// A [`SessionSource`] over a [`Queue`], without a wire between.
#[derive(Debug, Clone)]
pub struct ModelSource {
    queue: Queue,
    outpost: OutpostId,
}

impl ModelSource {
    /// The sessions of `outpost` in `queue`.
    #[must_use]
    pub const fn new(queue: Queue, outpost: OutpostId) -> Self {
        Self { queue, outpost }
    }

    fn claimed(
        &self,
        session: &SessionId,
        acceptor: &AcceptorId,
        operation: &'static str,
    ) -> Result<Value, Error> {
        self.queue
            .with(|fleet, now| fleet.claim(now, session.as_str(), acceptor.as_str()))
            .map_err(|refusal| error(&refusal, operation))
    }
}

fn error(refusal: &Refusal, operation: &'static str) -> Error {
    let kind = match refusal.status() {
        404 => ErrorKind::NotFound,
        409 => ErrorKind::Conflict,
        _ => ErrorKind::Invalid,
    };
    Error::new(kind, "devin", operation, refusal.to_string())
}

fn row(value: &Value, operation: &'static str) -> Result<Session, Error> {
    decode::session(value)
        .ok_or_else(|| Error::new(ErrorKind::Invalid, "devin", operation, "the row makes no sense"))
}

#[async_trait]
impl SessionSource for ModelSource {
    async fn list(&self) -> Result<Listing, Error> {
        let mut sessions = BTreeMap::new();
        let mut query = ListQuery::outpost(self.outpost.as_str());
        loop {
            let page = self
                .queue
                .with(|fleet, now| fleet.list(now, &query))
                .map_err(|refusal| error(&refusal, "list"))?;
            for item in &page.items {
                let session = row(item, "list")?;
                sessions.insert(session.id.clone(), session);
            }
            if !page.has_next_page {
                let cursor = Some(Cursor(page.cursor));
                return Ok(Listing::new(sessions.into_values().collect(), cursor));
            }
            if query.cursor.as_ref() == Some(&page.cursor) {
                return Err(Error::new(ErrorKind::Invalid, "devin", "list", "the cursor repeats"));
            }
            query = query.from_cursor(page.cursor);
        }
    }

    fn watch(&self, from: Option<Cursor>) -> BoxStream<'_, WatchEvent> {
        let start = Watch { from: Some(from), place: None, ready: VecDeque::new() };
        unfold(start, |mut watch| async {
            loop {
                if let Some(event) = watch.ready.pop_front() {
                    return Some((event, watch));
                }
                let version = self.queue.watchers.version();
                self.advance(&mut watch);
                if watch.ready.is_empty() {
                    self.queue.watchers.newer(version).await;
                }
            }
        })
        .boxed()
    }

    async fn get(&self, session: &SessionId) -> Result<Option<Session>, Error> {
        match self.queue.with(|fleet, now| fleet.get(now, session.as_str())) {
            Ok(value) => row(&value, "get").map(Some),
            Err(Refusal::NotFound(_)) => Ok(None),
            Err(refusal) => Err(error(&refusal, "get")),
        }
    }

    async fn claim(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<Claimed, Error> {
        let answer = self.claimed(session, acceptor, "claim")?;
        let text =
            |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let session = row(&answer, "claim")?;
        Ok(Claimed {
            deadline: session.claim.as_ref().and_then(|claim| claim.deadline),
            session,
            connect_token: SecretString::from(text("/status/connect_token")),
            gateway_url: text("/status/gateway_url"),
        })
    }

    async fn renew(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<Session, Error> {
        row(&self.claimed(session, acceptor, "renew")?, "renew")
    }

    async fn release(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<(), Error> {
        let answer = self.queue.with(|fleet, now| fleet.release(now, session.as_str(), acceptor.as_str()));
        match answer {
            Ok(_) | Err(Refusal::Conflict(_) | Refusal::NotFound(_)) => Ok(()),
            Err(refusal) => Err(error(&refusal, "release")),
        }
    }
}

struct Watch {
    /// Where it begins, until it has begun.
    from: Option<Option<Cursor>>,
    place: Option<Position>,
    ready: VecDeque<WatchEvent>,
}

impl ModelSource {
    /// Takes what is new.
    fn advance(&self, watch: &mut Watch) {
        let look = |fleet: &mut outpost_sim::model::Fleet, now| {
            if let Some(from) = watch.from.take() {
                match fleet.watch_from(now, from.as_ref().map(|cursor| cursor.0.as_str())) {
                    Ok(place) => watch.place = Some(place),
                    Err(_) => watch.ready.push_back(WatchEvent::ListAgain),
                }
            }
            let place = match watch.place {
                Some(place) => place,
                None => fleet.watch_from(now, Some(&outpost_sim::model::Cursor::at(now).to_string())).ok()?,
            };
            let (events, after) = fleet.events(now, Some(self.outpost.as_str()), place);
            watch.place = Some(after);
            Some(events)
        };
        for event in self.queue.peek_with(look).unwrap_or_default() {
            let Some(session) = decode::session(&event.object) else { continue };
            watch.ready.push_back(match event.kind {
                EventKind::Modified => WatchEvent::Changed(Box::new(session)),
                EventKind::Deleted => WatchEvent::Deleted(session.id),
            });
        }
    }
}
