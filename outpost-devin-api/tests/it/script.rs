//! A server that answers what a test wants, and notes what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response};
use outpost_core::model::OutpostId;
use outpost_devin_api::{Body, DevinQueue, Reach, Transport, TransportError};

use crate::simulated::{Paused, base};

/// What is answered to one call.
pub(crate) enum Reply {
    /// A status and a whole body.
    Whole(u16, String),
    /// A success whose body comes in these pieces and then ends.
    Pieces(Vec<Vec<u8>>),
    /// No answer.
    Nothing(Reach),
}

#[derive(Default)]
pub(crate) struct Scripted {
    replies: Mutex<VecDeque<Reply>>,
    asked: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}

impl Scripted {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Arc<Self> {
        let scripted = Self::default();
        scripted.replies.lock().unwrap().extend(replies);
        Arc::new(scripted)
    }

    /// `METHOD path?query` of every call so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn queue(self: &Arc<Self>) -> DevinQueue {
        self.queue_with("cog_sentinel")
    }

    pub(crate) fn queue_with(self: &Arc<Self>, token: &str) -> DevinQueue {
        let outpost = OutpostId::new("outpost_env-1").unwrap();
        let clock = Arc::new(Paused::new());
        DevinQueue::new(base(), &token.into(), outpost, Arc::clone(self) as Arc<_>, clock)
    }
}

#[async_trait]
impl Transport for Scripted {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        let uri = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        self.asked.lock().unwrap().push(format!("{} {uri}", request.method()));
        let reply = self.replies.lock().unwrap().pop_front();
        let (status, pieces) = match reply {
            Some(Reply::Whole(status, body)) => (status, vec![body.into_bytes()]),
            Some(Reply::Pieces(pieces)) => (200, pieces),
            Some(Reply::Nothing(reach)) => return Err(TransportError::new("it broke", reach)),
            None => panic!("one call too many: {:?}", self.asked()),
        };
        let pieces = pieces.into_iter().map(|piece| Ok(Bytes::from(piece)));
        let body: Body = futures::stream::iter(pieces).boxed();
        Ok(Response::builder().status(status).body(body).unwrap())
    }
}

/// A row of this outpost as it stands on the wire.
pub(crate) fn row(session: &str, status: &str) -> serde_json::Value {
    serde_json::json!({
        "metadata": {"session_id": session, "outpost_id": "outpost_env-1", "updated_at": 1_800_000_000},
        "spec": {"kind": "new", "platform": "linux"},
        "status": {"phase": "pending", "session_status": status},
    })
}
