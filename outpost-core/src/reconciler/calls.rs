//! Calls with a limit, and the little things that steps do over and over.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};

use super::Context;
use crate::engine::RecordLost;
use crate::model::{Record, SandboxId, SessionId};
use crate::ports::{Clock, Error, ErrorKind, Removed, Stored, Version};

/// No port's call is waited for longer, but a start.
const CALL_LIMIT: Duration = Duration::from_secs(5 * 60);

/// The answer of `call`, or an error when it does not come within five minutes.
pub(super) async fn limited<T>(
    clock: &dyn Clock,
    who: &'static str,
    operation: &'static str,
    call: impl Future<Output = Result<T, Error>> + Send,
) -> Result<T, Error> {
    within(clock, CALL_LIMIT, who, operation, call).await
}

/// The answer of `call`, or an error when it does not come within `limit`.
pub(super) async fn within<T>(
    clock: &dyn Clock,
    limit: Duration,
    who: &'static str,
    operation: &'static str,
    call: impl Future<Output = Result<T, Error>> + Send,
) -> Result<T, Error> {
    match select(pin!(call), clock.sleep(limit)).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => {
            let what = format!("no answer within {} minutes", limit.as_secs() / 60);
            Err(Error::new(ErrorKind::Unavailable, who, operation, what).may_have_been_applied())
        }
    }
}

/// A record in the hand of the one step that may write it.
#[derive(Debug)]
pub(super) struct Ledger<'a> {
    context: &'a Context,
    session: &'a SessionId,
    pub(super) record: Record,
    version: Option<Version>,
    touched: bool,
    lost: bool,
}

impl<'a> Ledger<'a> {
    pub(super) const fn new(
        context: &'a Context,
        session: &'a SessionId,
        record: Record,
        version: Option<Version>,
    ) -> Self {
        Self { context, session, record, version, touched: false, lost: false }
    }

    /// Writes `record`. When the answer is an error, what is stored decides: a write that was applied all the same counts.
    pub(super) async fn put(&mut self, record: Record) -> Result<(), Error> {
        let ports = &self.context.ports;
        self.touched = true;
        let put = ports.store.put(self.session, &record, self.version);
        let error = match limited(&*ports.clock, "store", "put", put).await {
            Ok(version) => {
                self.record = record;
                self.version = Some(version);
                return Ok(());
            }
            Err(error) => error,
        };
        let get = ports.store.get(self.session);
        match limited(&*ports.clock, "store", "get", get).await {
            Ok(Some(stored)) => {
                let applied = stored.record == record;
                self.record = stored.record;
                self.version = Some(stored.version);
                if applied { Ok(()) } else { Err(error) }
            }
            Ok(None) => {
                self.version = None;
                Err(error)
            }
            Err(_) => {
                self.lost = true;
                Err(error)
            }
        }
    }

    /// Deletes the record.
    pub(super) async fn delete(&mut self) -> Result<(), Error> {
        let ports = &self.context.ports;
        let Some(version) = self.version else { return Ok(()) };
        self.touched = true;
        let delete = ports.store.delete(self.session, version);
        match limited(&*ports.clock, "store", "delete", delete).await {
            Ok(()) => {
                self.version = None;
                self.record = Record::default();
                Ok(())
            }
            Err(error) => {
                self.lost = true;
                Err(error)
            }
        }
    }

    /// What is stored now, if this step touched it.
    pub(super) fn into_stored(self) -> Option<Result<Option<Stored>, RecordLost>> {
        if !self.touched {
            return None;
        }
        if self.lost {
            return Some(Err(RecordLost));
        }
        let record = self.record;
        Some(Ok(self.version.map(|version| Stored { record, version })))
    }
}

/// Removes a sandbox and waits, for a minute at the most, until nothing of it is left.
pub(super) async fn remove_wholly(context: &Context, id: &SandboxId) -> Result<(), Error> {
    const TRIES: u32 = 60;
    let ports = &context.ports;
    let who = ports.provider.name();
    for _ in 0..TRIES {
        match limited(&*ports.clock, who, "remove", ports.provider.remove(id)).await? {
            Removed::Done => return Ok(()),
            Removed::InProgress => ports.clock.sleep(Duration::from_secs(1)).await,
        }
    }
    Err(Error::new(ErrorKind::Unavailable, who, "remove", "it still goes on after a minute"))
}
