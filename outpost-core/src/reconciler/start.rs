//! Starting a sandbox: one step from the re-read row to the running worker, which leaves nothing behind when it fails.
//!
//! The order matters: what is slow (the executable) comes before the claim; the claim comes right before the start; the
//! boot is in the record before it can exist; the claim is released only when nothing of the boot is left.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use jiff::Timestamp;
use secrecy::ExposeSecret;

use super::Context;
use super::calls::{Ledger, limited, remove_wholly, within};
use super::execute::failed;
use crate::decide::StartPlan;
use crate::engine::{ClaimChange, Performed, StepEnd};
use crate::model::{
    Owner, Phase, Record, SandboxId, Session, SessionId, SessionStatus, WorkerCredentials, WorkerMode,
    WorkerProgram, WorkerSpec,
};
use crate::ports::{Claimed, Error, ErrorKind, StartSpec, Started};

/// While a sandbox is being started its claim is renewed so often.
const RENEW_EVERY: Duration = Duration::from_secs(60);

/// A start may restore a large disk; its claim is renewed all the while.
const START_LIMIT: Duration = Duration::from_secs(60 * 60);

/// A row that keeps changing the version that it pins is not waited for any longer.
const PIN_CHANGES: u32 = 3;

/// Why a start did not come about.
enum Abandoned {
    /// It is not wanted any more.
    NotWanted,
    /// Another has the session.
    Lost,
    /// It failed before anything was started.
    Failed(Error),
}

impl From<Error> for Abandoned {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

pub(super) async fn start(
    context: &Context,
    session: &SessionId,
    plan: StartPlan,
    row: Option<Session>,
    jitter: f64,
    ledger: &mut Ledger<'_>,
) -> Performed {
    let mut performed = Performed::new(StepEnd::Done);
    let (row, program) = match prepare(context, session, row, &mut performed).await {
        Ok(prepared) => prepared,
        Err(abandoned) => return abandon(performed, abandoned),
    };
    let claimed = match claim(context, session, &mut performed).await {
        Ok(claimed) => claimed,
        Err(abandoned) => return abandon(performed, abandoned),
    };
    let worker = worker(context, session, &row, program, claimed.as_ref());
    let claimed_at = context.ports.clock.now();
    let started = begin(context, session, &plan, row, worker, claimed_at, ledger).await;
    let id = SandboxId::new(session.clone(), plan.boot);
    match started {
        Ok(Started::Sandbox(_)) => performed,
        Ok(Started::SnapshotUnusable { why }) => {
            let now = context.ports.clock.now();
            let mut record = ledger.record.with_pinned(why.clone(), now);
            record.closed_boot = record.closed_boot.max(plan.boot);
            performed.end = match ledger.put(record).await {
                Ok(()) => StepEnd::SnapshotUnusable,
                Err(error) => StepEnd::Failed(error),
            };
            performed.remark = Some(format!("a restore failed for good: {why}"));
            // The claim stays: the session starts from the image right away.
            performed
        }
        Err(abandoned) => clean_up(context, &id, ledger, jitter, abandoned, performed).await,
    }
}

/// Re-reads the row and finds the executable that it asks for.
async fn prepare(
    context: &Context,
    session: &SessionId,
    row: Option<Session>,
    performed: &mut Performed,
) -> Result<(Session, WorkerProgram), Abandoned> {
    let ports = &context.ports;
    let clock = &*ports.clock;
    let mut pinned = row.and_then(|row| row.remote_binary_sha);
    for _ in 0..PIN_CHANGES {
        let programs = ports.programs.resolve(pinned.as_deref());
        let program = limited(clock, "worker", "resolve", programs).await?;
        let row = limited(clock, "devin", "get", ports.source.get(session)).await?;
        performed.row = Some(row.clone());
        let Some(row) = row else { return Err(Abandoned::NotWanted) };
        if !is_wanted(context, session, &row) {
            return Err(Abandoned::NotWanted);
        }
        if row.remote_binary_sha == pinned {
            return Ok((row, program));
        }
        pinned = row.remote_binary_sha;
    }
    Err(Abandoned::NotWanted)
}

fn is_wanted(context: &Context, session: &SessionId, row: &Session) -> bool {
    let policy = &context.policy;
    let free_or_ours = row.owner(&policy.acceptor(session)) != Owner::Another;
    row.id == *session
        && row.outpost == policy.outpost
        && row.platform.as_ref().is_none_or(|platform| *platform == policy.platform)
        && matches!(row.status, SessionStatus::Pending | SessionStatus::Running)
        && matches!(row.phase, Phase::Pending | Phase::Claimed)
        && free_or_ours
}

/// Claims the session, where we claim.
async fn claim(
    context: &Context,
    session: &SessionId,
    performed: &mut Performed,
) -> Result<Option<Claimed>, Abandoned> {
    if context.is_stopping() {
        return Err(Abandoned::NotWanted);
    }
    if !context.policy.worker_mode.claims() {
        return Ok(None);
    }
    let ports = &context.ports;
    let acceptor = context.policy.acceptor(session);
    let claim = ports.source.claim(session, &acceptor);
    let claimed = match limited(&*ports.clock, "devin", "claim", claim).await {
        Ok(claimed) => claimed,
        Err(error) if error.kind() == ErrorKind::Conflict => return Err(Abandoned::Lost),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            performed.row = Some(None);
            return Err(Abandoned::NotWanted);
        }
        Err(error) => {
            // The claim may be ours all the same, and nothing is there to serve it.
            release_quietly(context, session).await;
            return Err(Abandoned::Failed(error));
        }
    };
    let fault = echo_fault(context, session, &claimed);
    if fault.is_none() && is_wanted(context, session, &claimed.session) {
        performed.claim = ClaimChange::Held(claimed.deadline);
        performed.row = Some(Some(claimed.session.clone()));
        return Ok(Some(claimed));
    }
    release_quietly(context, session).await;
    performed.claim = ClaimChange::Released;
    Err(fault.map_or(Abandoned::NotWanted, |fault| {
        Abandoned::Failed(Error::new(ErrorKind::Invalid, "devin", "claim", fault))
    }))
}

fn echo_fault(context: &Context, session: &SessionId, claimed: &Claimed) -> Option<&'static str> {
    let acceptor = context.policy.acceptor(session);
    let holder = claimed.session.claim.as_ref().map(|claim| &claim.acceptor);
    if claimed.session.id != *session {
        Some("the answer is about another session")
    } else if claimed.session.outpost != context.policy.outpost {
        Some("the answer is about another outpost")
    } else if holder.is_some_and(|holder| *holder != acceptor) {
        Some("the answer names another acceptor")
    } else if claimed.connect_token.expose_secret().is_empty() {
        Some("the answer has no connect token")
    } else if claimed.gateway_url.is_empty() {
        Some("the answer has no gateway")
    } else {
        None
    }
}

fn worker(
    context: &Context,
    session: &SessionId,
    row: &Session,
    program: WorkerProgram,
    claimed: Option<&Claimed>,
) -> WorkerSpec {
    let mode = context.policy.worker_mode;
    let credentials = match claimed {
        Some(claimed) => WorkerCredentials::Connect {
            gateway_url: claimed.gateway_url.clone(),
            token: claimed.connect_token.clone(),
        },
        None => WorkerCredentials::Fleet { token: context.workers.fleet_token.clone().unwrap_or_default() },
    };
    debug_assert!(mode != WorkerMode::Cli || claimed.is_none());
    WorkerSpec {
        mode,
        program,
        session: session.clone(),
        outpost: context.policy.outpost.clone(),
        acceptor: context.policy.acceptor(session),
        credentials,
        remote_sha: row.remote_binary_sha.clone(),
        settings: context.workers.settings.clone(),
    }
}

/// Writes the boot to the record and starts it, renewing the claim meanwhile.
async fn begin(
    context: &Context,
    session: &SessionId,
    plan: &StartPlan,
    row: Session,
    worker: WorkerSpec,
    claimed_at: Timestamp,
    ledger: &mut Ledger<'_>,
) -> Result<Started, Abandoned> {
    let ports = &context.ports;
    let record = Record { newest_boot: plan.boot, ..ledger.record.clone() };
    ledger.put(record).await?;
    if crate::decide::time::since(ports.clock.now(), claimed_at) >= RENEW_EVERY {
        renew(context, session).await?;
    }
    let spec = StartSpec {
        id: SandboxId::new(session.clone(), plan.boot),
        restore: plan.restore.as_ref().map(|snapshot| snapshot.reference.clone()),
        worker,
        network_policy: row.network_policy,
    };
    let mut starting =
        pin!(within(&*ports.clock, START_LIMIT, ports.provider.name(), "start", ports.provider.start(spec)));
    loop {
        match select(starting.as_mut(), ports.clock.sleep(RENEW_EVERY)).await {
            Either::Left((started, _)) => return Ok(started?),
            Either::Right(_) => renew(context, session).await?,
        }
    }
}

/// Renews the claim. Only that another has the session ends the start; any other fault may pass.
async fn renew(context: &Context, session: &SessionId) -> Result<(), Abandoned> {
    if !context.policy.worker_mode.claims() {
        return Ok(());
    }
    let ports = &context.ports;
    let acceptor = context.policy.acceptor(session);
    match limited(&*ports.clock, "devin", "renew", ports.source.renew(session, &acceptor)).await {
        Err(error) if error.kind() == ErrorKind::Conflict => Err(Abandoned::Lost),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A start that did not come about: what was started is removed, and then the claim is released.
async fn clean_up(
    context: &Context,
    id: &SandboxId,
    ledger: &mut Ledger<'_>,
    jitter: f64,
    abandoned: Abandoned,
    performed: Performed,
) -> Performed {
    if let Err(error) = remove_wholly(context, id).await {
        // It may still be there, with our claim: the next pass looks.
        return Performed { end: StepEnd::Failed(error), ..performed };
    }
    let now = context.ports.clock.now();
    let mut record = ledger.record.clone();
    if record.newest_boot >= id.boot {
        record.closed_boot = record.closed_boot.max(id.boot);
    }
    if matches!(abandoned, Abandoned::Failed(_)) {
        record.failed(now, jitter);
    }
    let written = ledger.put(record).await;
    let lost = matches!(abandoned, Abandoned::Lost);
    let mut performed = abandon(performed, abandoned);
    if let Err(error) = written {
        performed.end = StepEnd::Failed(error);
    }
    if lost { performed } else { release(context, &id.session, performed).await }
}

fn abandon(mut performed: Performed, abandoned: Abandoned) -> Performed {
    match abandoned {
        Abandoned::NotWanted => performed.end = StepEnd::NotWanted,
        Abandoned::Lost => {
            performed.end = StepEnd::NotWanted;
            performed.claim = ClaimChange::Lost;
        }
        Abandoned::Failed(error) => {
            return Performed { row: performed.row, claim: performed.claim, ..failed(error) };
        }
    }
    performed
}

async fn release(context: &Context, session: &SessionId, mut performed: Performed) -> Performed {
    if context.policy.worker_mode.claims() && release_quietly(context, session).await {
        performed.claim = ClaimChange::Released;
    }
    performed
}

/// Gives the claim back; whether that is certain.
async fn release_quietly(context: &Context, session: &SessionId) -> bool {
    let ports = &context.ports;
    let acceptor = context.policy.acceptor(session);
    limited(&*ports.clock, "devin", "release", ports.source.release(session, &acceptor)).await.is_ok()
}
