//! Carrying out effects. Every step does just what it says; what to do next is decided elsewhere.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::calls::{Ledger, limited};
use super::{Context, start};
use crate::decide::Step;
use crate::engine::{ClaimChange, Effect, Input, Performed, StepEnd, Work};
use crate::model::{SandboxId, Snapshot, SnapshotPurpose, SnapshotRef};
use crate::ports::{Error, ErrorKind, Removed, Saving, Stopped};

/// The future that carries out `effect` and answers what came of it.
pub(super) fn carry_out(context: Arc<Context>, effect: Effect) -> BoxFuture<'static, Input> {
    Box::pin(async move {
        let ports = &context.ports;
        let clock = &*ports.clock;
        match effect {
            Effect::LoadRecords => Input::Records(limited(clock, "store", "list", ports.store.list()).await),
            Effect::LoadRecord(session) => {
                let result = limited(clock, "store", "get", ports.store.get(&session)).await;
                Input::Record { session, result }
            }
            Effect::ListSessions => {
                Input::Sessions(limited(clock, "devin", "list", ports.source.list()).await)
            }
            Effect::ListInventory => {
                Input::Inventory(limited(clock, ports.provider.name(), "list", ports.provider.list()).await)
            }
            Effect::Renew(session) => {
                let acceptor = context.policy.acceptor(&session);
                let renewal = ports.source.renew(&session, &acceptor);
                let result = limited(clock, "devin", "renew", renewal).await;
                Input::Renewed { session, result }
            }
            Effect::Extend(session, boot) => {
                let id = SandboxId::new(session, boot);
                let result =
                    limited(clock, ports.provider.name(), "extend", ports.provider.extend(&id)).await;
                Input::Extended { session: id.session, boot, result }
            }
            Effect::Perform(work) => {
                let session = work.session.clone();
                let performed = Box::new(perform(&context, *work).await);
                Input::Performed { session, performed }
            }
        }
    })
}

async fn perform(context: &Context, work: Work) -> Performed {
    let Work { session, step, record, version, row, jitter } = work;
    let mut ledger = Ledger::new(context, &session, record, version);
    let ports = &context.ports;
    let clock = &*ports.clock;
    let who = ports.provider.name();
    let mut performed = match step {
        Step::Start(plan) => start::start(context, &session, plan, row, jitter, &mut ledger).await,
        Step::Look => match limited(clock, "devin", "get", ports.source.get(&session)).await {
            Ok(row) => Performed { row: Some(row), ..Performed::new(StepEnd::Done) },
            Err(error) => failed(error),
        },
        Step::StopWorker { boot, grace, .. } => {
            let id = SandboxId::new(session.clone(), boot);
            match limited(clock, who, "stop_worker", ports.provider.stop_worker(&id, grace)).await {
                Ok(Stopped::Done { .. }) => Performed::new(StepEnd::Done),
                Ok(Stopped::InProgress) => Performed::new(StepEnd::InProgress),
                Err(error) => failed(error),
            }
        }
        Step::Save { boot, purpose } => {
            let id = SandboxId::new(session.clone(), boot);
            match save(context, &id, purpose, &mut ledger).await {
                Ok(end) => Performed::new(end),
                Err(error) => failed(error),
            }
        }
        Step::Remove { boot, record, .. } => {
            let id = SandboxId::new(session.clone(), boot);
            match limited(clock, who, "remove", ports.provider.remove(&id)).await {
                Ok(Removed::Done) => ended(ledger.put(record).await),
                Ok(Removed::InProgress) => Performed::new(StepEnd::InProgress),
                Err(error) => failed(error),
            }
        }
        Step::Write(record) => ended(ledger.put(record).await),
        Step::DeleteSnapshot { reference } => ended(delete(context, reference, &mut ledger).await),
        Step::Forget => ended(ledger.delete().await),
        Step::Release => {
            let acceptor = context.policy.acceptor(&session);
            match limited(clock, "devin", "release", ports.source.release(&session, &acceptor)).await {
                Ok(()) => Performed { claim: ClaimChange::Released, ..Performed::new(StepEnd::Done) },
                Err(error) => failed(error),
            }
        }
    };
    performed.stored = ledger.into_stored();
    performed
}

pub(super) const fn failed(error: Error) -> Performed {
    Performed::new(StepEnd::Failed(error))
}

fn ended(result: Result<(), Error>) -> Performed {
    match result {
        Ok(()) => Performed::new(StepEnd::Done),
        Err(error) => failed(error),
    }
}

/// Saves a disk; done means durable and recorded.
async fn save(
    context: &Context,
    id: &SandboxId,
    purpose: SnapshotPurpose,
    ledger: &mut Ledger<'_>,
) -> Result<StepEnd, Error> {
    let ports = &context.ports;
    let who = ports.provider.name();
    let saving = limited(&*ports.clock, who, "save", ports.provider.save(id, purpose)).await?;
    let Saving::Done(snapshot) = saving else { return Ok(StepEnd::InProgress) };
    check(&snapshot, id, purpose, who)?;
    if purpose == SnapshotPurpose::Resume {
        ledger.put(ledger.record.with_snapshot(&snapshot)).await?;
    }
    Ok(StepEnd::Done)
}

/// A snapshot of another boot must never stand for this one's work.
fn check(
    snapshot: &Snapshot,
    id: &SandboxId,
    purpose: SnapshotPurpose,
    who: &'static str,
) -> Result<(), Error> {
    let right = snapshot.session == id.session && snapshot.boot == id.boot && snapshot.purpose == purpose;
    if right && !snapshot.reference.as_str().is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, who, "save", "the answer is a snapshot of something else"))
}

async fn delete(context: &Context, reference: SnapshotRef, ledger: &mut Ledger<'_>) -> Result<(), Error> {
    let ports = &context.ports;
    let call = ports.provider.delete_snapshot(&reference);
    match limited(&*ports.clock, ports.provider.name(), "delete_snapshot", call).await {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            let mut record = ledger.record.clone();
            record.undeletable.push(reference);
            ledger.put(record).await
        }
        Err(error) => Err(error),
    }
}
