//! Changes as they happen: a stream of Server-Sent Events that is renewed for ever.
//!
//! # Expected flow
//! A connection begins at a cursor; each event carries the next one, which counts only when the consumer has taken the item after
//! it. The server ends a connection after five minutes, and the next begins where it ended.
//!
//! # Guarantees
//! * A connection that is silent for a minute, that sends an event of more than 4 MiB, or that breaks is renewed; the server
//!   sends a comment every few seconds otherwise.
//! * Connections that live shorter than five seconds, and failures, are followed by ever longer pauses, from one second to two minutes.
//! * A cursor that the server refuses is dropped, and so is one behind which something stands that cannot be read: the consumer is told to
//!   list again, and the watch goes on from that list.
//!
//! # Caveats
//! A stream can stay open, send comments, and deliver nothing (observed): whoever depends on completeness lists as well.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use http::Method;
use jiff::Timestamp;
use outpost_core::ports::{Clock, Cursor, Error, ErrorKind, WatchEvent};
use serde_json::Value;
use sse_stream::SseByteStream;

use crate::client::{Answer, Call, SMALL_BODY};
use crate::fault::{Nature, WHO};
use crate::queue::Shared;
use crate::transport::{Body, TransportError};
use crate::url::query;
use crate::wire;

const OPERATION: &str = "watch";
/// The server sends a comment when it is idle; silence means that the connection is dead.
const IDLE: Duration = Duration::from_secs(60);
/// A connection that lives as long is healthy.
const HEALTHY: Duration = Duration::from_secs(5);
const EVENT_BODY: usize = 4 << 20;
/// How often a watch that waits for a list looks for one.
const LOOK_FOR_LIST: Duration = Duration::from_millis(250);

pub(crate) fn watch(shared: &Arc<Shared>, from: Option<Cursor>) -> BoxStream<'_, WatchEvent> {
    let watch = Watch::new(Arc::clone(shared), from);
    stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await;
        Some((event, watch))
    })
    .boxed()
}

#[derive(Debug)]
struct Watch {
    shared: Arc<Shared>,
    /// Where the next connection begins.
    cursor: Option<Cursor>,
    /// The cursor of the item that the consumer has in hand.
    in_hand: Option<Cursor>,
    connection: Option<Connection>,
    pauses: ExponentialBackoff,
    pause: Duration,
    /// There is no cursor to begin at: the watch goes on from a list after this many.
    wants_list_after: Option<u64>,
    /// The consumer is still to be told that it must list again.
    list_again: bool,
}

type Events = SseByteStream<Pin<Box<Bounded>>>;

struct Connection {
    events: Events,
    opened_at: Timestamp,
    /// Bytes since the last event.
    pending: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("opened_at", &self.opened_at).finish_non_exhaustive()
    }
}

impl Watch {
    fn new(shared: Arc<Shared>, from: Option<Cursor>) -> Self {
        // Without a cursor the stream would begin with the whole history.
        let wants_list_after = from.is_none().then(|| shared.listed().0);
        let pauses = pauses(seed(&shared));
        Self {
            shared,
            cursor: from,
            in_hand: None,
            connection: None,
            pauses,
            pause: Duration::ZERO,
            wants_list_after,
            list_again: false,
        }
    }

    async fn next(&mut self) -> WatchEvent {
        // The item before was handled.
        if let Some(cursor) = self.in_hand.take() {
            self.cursor = Some(cursor);
        }
        if mem::take(&mut self.list_again) {
            return WatchEvent::ListAgain;
        }
        loop {
            let Some(connection) = &mut self.connection else {
                if let Some(event) = self.connect().await {
                    return event;
                }
                continue;
            };
            match connection.events.next().await {
                Some(Ok(event)) => {
                    connection.pending.store(0, Ordering::Relaxed);
                    if let Some(event) = event.data.and_then(|data| self.take(&data)) {
                        return event;
                    }
                }
                Some(Err(error)) => {
                    let fault = StreamFault::of(&error);
                    self.disconnect(true);
                    if fault.comes_again() {
                        self.forget_cursor();
                        self.list_again = true;
                    }
                    let what = fault.to_string();
                    return WatchEvent::Disrupted(Error::new(ErrorKind::Unavailable, WHO, OPERATION, what));
                }
                // Streams end by design.
                None => self.disconnect(false),
            }
        }
    }

    /// Ends the connection. After a failure, or when it was short-lived, the next one waits.
    fn disconnect(&mut self, failed: bool) {
        let Some(connection) = self.connection.take() else { return };
        let now = self.shared.client.clock().now();
        let lived = Duration::try_from(now.duration_since(connection.opened_at)).unwrap_or_default();
        if lived >= HEALTHY {
            self.pauses = pauses(seed(&self.shared));
            self.pause = Duration::ZERO;
        }
        if failed || lived < HEALTHY {
            self.hold_back(None);
        }
    }

    fn hold_back(&mut self, asked: Option<Duration>) {
        let next = self.pauses.next().unwrap_or(Duration::from_secs(60));
        self.pause = next.max(asked.unwrap_or_default()).min(Duration::from_secs(15 * 60));
    }

    /// Opens a connection; an event when that failed.
    async fn connect(&mut self) -> Option<WatchEvent> {
        let clock = self.shared.client.clock();
        while let Some(before) = self.wants_list_after {
            let (lists, cursor) = self.shared.listed();
            if lists > before && cursor.is_some() {
                self.cursor = cursor;
                self.wants_list_after = None;
            } else {
                clock.sleep(LOOK_FOR_LIST).await;
            }
        }
        if !self.pause.is_zero() {
            clock.sleep(mem::take(&mut self.pause)).await;
        }
        match open(&self.shared, self.cursor.as_ref()).await {
            Ok(connection) => {
                self.connection = Some(connection);
                None
            }
            Err(error) if is_refusal(&error) => {
                self.forget_cursor();
                self.hold_back(None);
                Some(WatchEvent::ListAgain)
            }
            Err(error) => {
                self.hold_back(error.retry_after());
                Some(WatchEvent::Disrupted(error))
            }
        }
    }

    /// The list that is asked for now is a later one.
    fn forget_cursor(&mut self) {
        self.wants_list_after = Some(self.shared.listed().0);
        self.cursor = None;
    }

    /// What an event's data says; `None` when it says nothing that concerns this outpost.
    fn take(&mut self, data: &str) -> Option<WatchEvent> {
        let Ok(event) = serde_json::from_str::<Value>(data) else {
            self.shared.counts.skipped.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let cursor = match &event["cursor"] {
            Value::String(text) if !text.is_empty() => Some(Cursor(text.clone())),
            Value::Number(number) => Some(Cursor(number.to_string())),
            _ => None,
        };
        let row = &event["object"];
        let said = match event["type"].as_str() {
            Some("DELETED") => self.deleted(row),
            Some("MODIFIED") => self.shared.ours(row).map(|session| WatchEvent::Changed(Box::new(session))),
            // A new kind of event: the list knows what it meant.
            _ => Some(WatchEvent::ListAgain),
        };
        match said {
            Some(_) => self.in_hand = cursor.or(self.in_hand.take()),
            // There is nothing to handle.
            None => self.cursor = cursor.or(self.cursor.take()),
        }
        said
    }

    fn deleted(&self, row: &Value) -> Option<WatchEvent> {
        match wire::session(row) {
            Some(session) if session.outpost != self.shared.outpost => {
                self.shared.counts.foreign.fetch_add(1, Ordering::Relaxed);
                None
            }
            _ => wire::session_id(row).map(WatchEvent::Deleted),
        }
    }
}

async fn open(shared: &Shared, cursor: Option<&Cursor>) -> Result<Connection, Error> {
    let mut pairs = vec![("outpost", shared.outpost.as_str()), ("watch", "true")];
    pairs.extend(cursor.map(|cursor| ("cursor", cursor.0.as_str())));
    let call = Call {
        operation: OPERATION,
        nature: Nature::Reads,
        method: Method::GET,
        url: format!("{}{}", shared.url(OPERATION, &[])?, query(&pairs)),
        body: None,
        cap: SMALL_BODY,
    };
    let response = shared.client.open(&call, "text/event-stream").await?;
    let (head, body) = response.into_parts();
    let clock = shared.client.clock_arc();
    if !head.status.is_success() {
        let answer = Answer { status: head.status, headers: head.headers, body: Bytes::new() };
        return Err(shared.client.refused(OPERATION, Nature::Reads, &answer));
    }
    let pending = Arc::new(AtomicUsize::new(0));
    let opened_at = clock.now();
    let bounded = Bounded { body, idle: idle(&clock), clock, pending: Arc::clone(&pending) };
    Ok(Connection { events: SseByteStream::new(Box::pin(bounded)), opened_at, pending })
}

/// There are no random numbers without an operating system: the outpost and the instant tell watches apart well enough.
fn seed(shared: &Shared) -> u64 {
    let mut hash = DefaultHasher::new();
    (shared.outpost.as_str(), shared.client.clock().now().as_nanosecond()).hash(&mut hash);
    hash.finish()
}

/// Pauses that grow to between one minute and two. Without a seed they would be the same everywhere.
fn pauses(seed: u64) -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_secs(1))
        .with_max_delay(Duration::from_secs(60))
        .without_max_times()
        .with_jitter()
        .with_jitter_seed(seed)
        .build()
}

/// The server does not want this cursor.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Conflict)
}

/// Why a stream of events broke off.
#[derive(Debug, Clone, thiserror::Error)]
enum StreamFault {
    #[error("an event is larger than 4 MiB")]
    TooLarge,
    #[error("the stream is not made of events")]
    NoEvents,
    #[error("it was silent for a minute")]
    Silent,
    #[error(transparent)]
    Broken(#[from] TransportError),
}

impl StreamFault {
    fn of(error: &sse_stream::Error) -> Self {
        match error {
            sse_stream::Error::Body(error) => error.downcast_ref::<Self>().cloned().unwrap_or(Self::NoEvents),
            _ => Self::NoEvents,
        }
    }

    /// Whether a connection that begins at the same cursor would meet it again.
    const fn comes_again(&self) -> bool {
        matches!(self, Self::TooLarge | Self::NoEvents)
    }
}

/// A body that must not be silent for long, nor send too much without completing an event.
struct Bounded {
    body: Body,
    clock: Arc<dyn Clock>,
    idle: BoxFuture<'static, ()>,
    pending: Arc<AtomicUsize>,
}

fn idle(clock: &Arc<dyn Clock>) -> BoxFuture<'static, ()> {
    let clock = Arc::clone(clock);
    Box::pin(async move { clock.sleep(IDLE).await })
}

impl Stream for Bounded {
    type Item = Result<Bytes, StreamFault>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.body.poll_next_unpin(context) {
            Poll::Ready(Some(Ok(chunk))) => {
                self.idle = idle(&self.clock);
                let pending = self.pending.fetch_add(chunk.len(), Ordering::Relaxed) + chunk.len();
                if pending > EVENT_BODY {
                    return Poll::Ready(Some(Err(StreamFault::TooLarge)));
                }
                Poll::Ready(Some(Ok(chunk)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => match self.idle.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Some(Err(StreamFault::Silent))),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use http::{Request, Response};
    use outpost_core::model::OutpostId;

    use crate::queue::DevinQueue;
    use crate::transport::{Reach, Transport};
    use crate::url::{BaseUrl, Hosts};

    #[derive(Debug)]
    struct At(u64);

    #[async_trait]
    impl Clock for At {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH + Duration::from_nanos(self.0)
        }

        async fn sleep(&self, _pause: Duration) {}
    }

    #[derive(Debug)]
    struct Nobody;

    #[async_trait]
    impl Transport for Nobody {
        async fn send(&self, _request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
            Err(TransportError::new("nobody is there", Reach::NotSent))
        }
    }

    /// How long a watch of `outpost` that began at `nanos` pauses before its first ten connections.
    fn paused(outpost: &str, nanos: u64) -> Vec<Duration> {
        let base = BaseUrl::parse("http://localhost", Hosts::Devin).unwrap();
        let outpost = OutpostId::new(outpost).unwrap();
        let queue = DevinQueue::new(base, &"token".into(), outpost, Arc::new(Nobody), Arc::new(At(nanos)));
        let mut watch = Watch::new(queue.shared, None);
        let mut pause = || {
            watch.hold_back(None);
            watch.pause
        };
        (0..10).map(|_| pause()).collect()
    }

    #[test]
    fn two_watches_do_not_pause_in_step() {
        let first = paused("outpost_env-1", 1);
        assert_ne!(first, paused("outpost_env-2", 1), "of two outposts");
        assert_ne!(first, paused("outpost_env-1", 2), "of two instants");
        assert!(first.iter().all(|pause| *pause <= Duration::from_secs(120)), "{first:?}");
    }
}
