use async_trait::async_trait;
use futures::stream::BoxStream;
use outpost_core::model::{AcceptorId, Session, SessionId};
use outpost_core::ports::{Claimed, Cursor, Error, ErrorKind, Listing, SessionSource, WatchEvent};

use super::faults::{Call, Faults};
use super::provider::Older;
use super::watch::disturbed;

/// A queue whose calls fail as the plan says.
#[derive(Debug)]
pub struct FaultySource<S> {
    inner: S,
    faults: Faults,
    older: Older<Listing>,
}

impl<S> FaultySource<S> {
    /// Around `inner`.
    pub fn new(inner: S, faults: Faults) -> Self {
        Self { inner, faults, older: Older::default() }
    }

    /// What is inside.
    pub const fn inner(&self) -> &S {
        &self.inner
    }
}

const fn call(operation: &'static str) -> Call {
    Call { who: "devin", operation, never: &[] }
}

/// That another has the session, or that there is none, is for the queue alone to say.
const fn claiming(operation: &'static str) -> Call {
    Call { who: "devin", operation, never: &[ErrorKind::Conflict, ErrorKind::NotFound] }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: SessionSource> SessionSource for FaultySource<S> {
    async fn list(&self) -> Result<Listing, Error> {
        let call = call("list");
        let work = async {
            self.older.or(self.faults.staleness(call), self.faults.clock().now(), self.inner.list().await)
        };
        self.faults.around(call, work).await
    }

    fn watch(&self, from: Option<Cursor>) -> BoxStream<'_, WatchEvent> {
        disturbed(self.inner.watch(from), self.faults.clone())
    }

    async fn get(&self, session: &SessionId) -> Result<Option<Session>, Error> {
        self.faults.around(call("get"), self.inner.get(session)).await
    }

    async fn claim(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<Claimed, Error> {
        self.faults.around(claiming("claim"), self.inner.claim(session, acceptor)).await
    }

    async fn renew(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<Session, Error> {
        self.faults.around(claiming("renew"), self.inner.renew(session, acceptor)).await
    }

    async fn release(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<(), Error> {
        self.faults.around(call("release"), self.inner.release(session, acceptor)).await
    }
}
