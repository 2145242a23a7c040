//! What an orchestrator was told, and what it told people.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use outpost_core::engine::{Notice, NoticeKind, Report};
use outpost_core::invariants::Fact;
use outpost_core::model::{AcceptorId, InstanceId, Session, SessionId};
use outpost_core::ports::{Claimed, Cursor, Error, Listing, SessionSource, WatchEvent};
use outpost_core::reconciler::Observer;

use super::log::EventLog;
use crate::journal::Journal;

/// The outermost layer around an orchestrator's queue: writes down what comes through.
#[derive(Debug)]
pub(super) struct WitnessSource<S> {
    pub(super) inner: S,
    pub(super) instance: InstanceId,
    pub(super) journal: Journal,
}

impl<S> WitnessSource<S> {
    fn saw(&self, session: &Session) {
        let fact = Fact::StatusSeen { session: session.id.clone(), status: session.status.clone() };
        self.journal.note(&self.instance, fact);
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: SessionSource> SessionSource for WitnessSource<S> {
    async fn list(&self) -> Result<Listing, Error> {
        let listing = self.inner.list().await?;
        listing.sessions.iter().for_each(|session| self.saw(session));
        Ok(listing)
    }

    fn watch(&self, from: Option<Cursor>) -> BoxStream<'_, WatchEvent> {
        let look = |event: &WatchEvent| {
            if let WatchEvent::Changed(session) = event {
                self.saw(session);
            }
        };
        self.inner.watch(from).inspect(look).boxed()
    }

    async fn get(&self, session: &SessionId) -> Result<Option<Session>, Error> {
        let row = self.inner.get(session).await?;
        row.iter().for_each(|session| self.saw(session));
        Ok(row)
    }

    async fn claim(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<Claimed, Error> {
        // What counts is what was known when it was asked for: the row may change while the call is on its way.
        let fact = Fact::Claimed { session: session.clone(), acceptor: acceptor.clone() };
        self.journal.note(&self.instance, fact);
        let claimed = self.inner.claim(session, acceptor).await?;
        self.saw(&claimed.session);
        Ok(claimed)
    }

    async fn renew(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<Session, Error> {
        let row = self.inner.renew(session, acceptor).await?;
        self.saw(&row);
        Ok(row)
    }

    async fn release(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<(), Error> {
        let fact = Fact::ReleaseAsked { session: session.clone(), acceptor: acceptor.clone() };
        self.journal.note(&self.instance, fact);
        self.inner.release(session, acceptor).await
    }
}

/// Hears what an orchestrator tells people.
#[derive(Debug, Clone)]
pub(super) struct WitnessObserver {
    pub(super) instance: InstanceId,
    pub(super) journal: Journal,
    pub(super) log: EventLog,
    /// Sessions that were started and of whose start nobody has been told yet.
    pub(super) untold: Arc<Mutex<BTreeSet<SessionId>>>,
}

impl WitnessObserver {
    pub(super) fn untold(&self) -> std::sync::MutexGuard<'_, BTreeSet<SessionId>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for WitnessObserver {
    fn report(&self, _: &Report) {}

    fn notice(&self, notice: &Notice) {
        match &notice.session {
            Some(session) => {
                self.log.line(&self.instance, format_args!("says of {session}: {}", notice.text));
                let warns = matches!(
                    notice.kind,
                    NoticeKind::Caveat | NoticeKind::SnapshotUnusable | NoticeKind::SandboxLost
                );
                if warns {
                    self.journal.note(&self.instance, Fact::Reported(session.clone()));
                }
                if notice.kind == NoticeKind::Started {
                    self.untold().remove(session);
                }
            }
            None => self.log.line(&self.instance, format_args!("says: {}", notice.text)),
        }
    }
}
