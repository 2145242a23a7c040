//! Claiming, renewing, releasing. Claiming again with the same acceptor renews.

use outpost_core::model::{AcceptorId, Session, SessionId};
use outpost_core::ports::{Claimed, Error, ErrorKind};
use secrecy::SecretString;
use serde_json::Value;

use crate::fault;
use crate::queue::{Shared, json};
use crate::wire;

/// Claims, and checks that the answer is about what was asked for. A claim whose answer cannot be used is given back at once.
pub(crate) async fn claim(
    shared: &Shared,
    session: &SessionId,
    acceptor: &AcceptorId,
) -> Result<Claimed, Error> {
    const OPERATION: &str = "claim";
    let body = shared.post(OPERATION, session, "claim", acceptor).await?;
    let checked = json(OPERATION, &body).and_then(|row| {
        let found = echo(OPERATION, shared, &row, session, acceptor)?;
        claimed(shared, found, &row["status"])
    });
    let Err(error) = checked else { return checked };
    // That the claim stays can be said no better than by the error that is answered anyway.
    match release(shared, session, acceptor).await {
        Ok(()) => Err(error),
        Err(release) => {
            tracing::warn!(%session, "a claim with an unusable answer could not be given back: {release}");
            Err(error.may_have_been_applied())
        }
    }
}

fn claimed(shared: &Shared, session: Session, status: &Value) -> Result<Claimed, Error> {
    const OPERATION: &str = "claim";
    let deadline = wire::time(&status["claim_deadline"])
        .map_err(|_| fault::nonsense(OPERATION, "the answer's claim_deadline is no time"))?;
    let token = status["connect_token"].as_str().filter(|token| is_one_line(token));
    let token = token.ok_or_else(|| fault::nonsense(OPERATION, "the answer has no usable connect_token"))?;
    let may_be_used = |url: &&str| is_one_line(url) && shared.base.may_name_gateway(url);
    let gateway = status["gateway_url"].as_str().filter(may_be_used);
    let gateway =
        gateway.ok_or_else(|| fault::nonsense(OPERATION, "the answer has no usable gateway_url"))?;
    Ok(Claimed {
        session,
        deadline,
        connect_token: SecretString::from(token.to_owned()),
        gateway_url: gateway.to_owned(),
    })
}

fn is_one_line(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

pub(crate) async fn renew(
    shared: &Shared,
    session: &SessionId,
    acceptor: &AcceptorId,
) -> Result<Session, Error> {
    const OPERATION: &str = "renew";
    let body = shared.post(OPERATION, session, "claim", acceptor).await?;
    echo(OPERATION, shared, &json(OPERATION, &body)?, session, acceptor)
}

/// The answer's row, if it names what was asked for.
fn echo(
    operation: &'static str,
    shared: &Shared,
    row: &Value,
    session: &SessionId,
    acceptor: &AcceptorId,
) -> Result<Session, Error> {
    let found = wire::session(row)
        .ok_or_else(|| fault::nonsense(operation, "the answer does not say which session it is about"))?;
    let holder = found.claim.as_ref().map(|claim| &claim.acceptor);
    let fault = if found.id != *session {
        "another session"
    } else if found.outpost != shared.outpost {
        "another outpost"
    } else if holder != Some(acceptor) {
        "another acceptor"
    } else {
        return Ok(found);
    };
    Err(fault::nonsense(operation, format!("the answer is about {fault}")))
}

/// 409 (not ours any more) and 404 (the row is gone) are released too.
pub(crate) async fn release(
    shared: &Shared,
    session: &SessionId,
    acceptor: &AcceptorId,
) -> Result<(), Error> {
    match shared.post("release", session, "release", acceptor).await {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}
