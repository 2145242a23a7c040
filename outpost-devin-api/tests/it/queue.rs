//! Looking, claiming, renewing, releasing.

use std::time::Duration;

use outpost_core::model::Owner;
use outpost_core::ports::{Effect, ErrorKind, SessionSource as _};
use outpost_devin_api::Reach;
use outpost_sim::control::ControlExt as _;
use outpost_sim::fault::{Endpoint, Fault, FaultRule};
use outpost_sim::model::NewRow;
use serde_json::{Value, json};

use crate::script::{Reply, Scripted, row};
use crate::simulated::{acceptor, session, simulated};

#[tokio::test(start_paused = true)]
async fn a_session_is_claimed_renewed_and_released() {
    let at = simulated();
    at.sim.create(NewRow::new("devin-1")).unwrap();
    let (id, us) = (session("devin-1"), acceptor("us"));
    let claimed = at.queue.claim(&id, &us).await.unwrap();
    assert_eq!(claimed.session.owner(&us), Owner::Us);
    tokio::time::advance(Duration::from_secs(60)).await;
    let renewed = at.queue.renew(&id, &us).await.unwrap();
    assert!(renewed.claim.unwrap().deadline > claimed.deadline);
    assert_eq!(at.queue.get(&id).await.unwrap().unwrap().owner(&us), Owner::Us);
    at.queue.release(&id, &us).await.unwrap();
    assert_eq!(at.queue.get(&id).await.unwrap().unwrap().owner(&us), Owner::Nobody);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_does_not_exist_is_none_and_a_fault_is_not() {
    let at = simulated();
    assert_eq!(at.queue.get(&session("devin-none")).await.unwrap(), None);
    for status in [401, 429, 500] {
        at.sim.add_fault(FaultRule::once(Endpoint::Get, Fault::status(status))).unwrap();
        assert!(at.queue.get(&session("devin-none")).await.is_err(), "{status}");
    }
}

// lesson 14
#[tokio::test(start_paused = true)]
async fn a_claim_that_another_has_is_a_conflict() {
    let at = simulated();
    at.sim.create(NewRow::new("devin-1")).unwrap();
    at.queue.claim(&session("devin-1"), &acceptor("them")).await.unwrap();
    let error = at.queue.claim(&session("devin-1"), &acceptor("us")).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Conflict, Effect::None));
    let error = at.queue.renew(&session("devin-1"), &acceptor("us")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_is_lost_may_have_been_applied() {
    for fault in [Fault::LoseReply, Fault::status_after_effect(503)] {
        let at = simulated();
        at.sim.create(NewRow::new("devin-1")).unwrap();
        at.sim.add_fault(FaultRule::once(Endpoint::Claim, fault.clone())).unwrap();
        let error = at.queue.claim(&session("devin-1"), &acceptor("us")).await.unwrap_err();
        assert_eq!(error.effect(), Effect::Possible, "{fault:?}: {error}");
    }
    let refused = Scripted::new([Reply::Nothing(Reach::NotSent)]);
    let error = refused.queue().renew(&session("devin-1"), &acceptor("us")).await.unwrap_err();
    assert_eq!(error.effect(), Effect::None, "it was never sent");
}

fn claimed(change: impl FnOnce(&mut Value)) -> String {
    let mut row = row("devin-1", "running");
    row["status"] = json!({
        "phase": "claimed", "session_status": "running", "acceptor_id": "us", "claim_deadline": 1_800_000_300,
        "connect_token": "connect-sentinel", "gateway_url": "https://gateway.devin.ai/x",
    });
    change(&mut row);
    row.to_string()
}

// lessons 8 and 9
#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_cannot_be_used_is_given_back() {
    type Change = (&'static str, fn(&mut Value));
    let faults: [Change; 9] = [
        ("another session", |row| row["metadata"]["session_id"] = json!("devin-2")),
        ("another outpost", |row| row["metadata"]["outpost_id"] = json!("outpost_env-2")),
        ("another acceptor", |row| row["status"]["acceptor_id"] = json!("them")),
        ("connect_token", |row| row["status"]["connect_token"] = Value::Null),
        ("connect_token", |row| row["status"]["connect_token"] = json!("")),
        ("connect_token", |row| row["status"]["connect_token"] = json!("a\nb")),
        ("gateway_url", |row| row["status"]["gateway_url"] = json!("http://gateway.devin.ai")),
        ("claim_deadline", |row| row["status"]["claim_deadline"] = json!("soon")),
        ("which session", |row| row["metadata"] = Value::Null),
    ];
    for (what, change) in faults {
        let server = Scripted::new([Reply::Whole(200, claimed(change)), Reply::Whole(200, "{}".into())]);
        let error = server.queue().claim(&session("devin-1"), &acceptor("us")).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(what), "{what}: {error}");
        assert!(!format!("{error} {error:?}").contains("sentinel"), "{error:?}");
        assert_eq!(server.asked()[1], "POST /opbeta/outposts/devins/devin-1/release", "{what}");
    }
    let server = Scripted::new([Reply::Whole(200, claimed(|_| {}))]);
    let good = server.queue().claim(&session("devin-1"), &acceptor("us")).await.unwrap();
    assert!(!format!("{good:?}").contains("connect-sentinel"), "{good:?}");
}

// lesson 21
#[tokio::test(start_paused = true)]
async fn a_release_of_what_is_not_ours_any_more_is_success() {
    for (status, released) in [(200, true), (204, true), (404, true), (409, true), (500, false), (429, false)]
    {
        let server = Scripted::new([Reply::Whole(status, String::new())]);
        let done = server.queue().release(&session("devin-1"), &acceptor("us")).await;
        assert_eq!(done.is_ok(), released, "{status}: {done:?}");
    }
    let lost = Scripted::new([Reply::Nothing(Reach::Unknown)]);
    let error = lost.queue().release(&session("devin-1"), &acceptor("us")).await.unwrap_err();
    assert_eq!(error.effect(), Effect::Possible);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_is_given_up() {
    let at = simulated();
    at.sim.add_fault(FaultRule::always(Endpoint::Get, Fault::Delay { ms: 3_600_000 })).unwrap();
    let error = at.queue.get(&session("devin-1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_pause_that_the_queue_asks_for_is_told() {
    let at = simulated();
    at.sim.add_fault(FaultRule::once(Endpoint::List, Fault::rate_limited(Duration::from_secs(7)))).unwrap();
    let error = at.queue.list().await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (ErrorKind::RateLimited, Some(Duration::from_secs(7))));
}

#[tokio::test(start_paused = true)]
async fn a_hostile_id_reaches_nothing_but_its_own_row() {
    let at = simulated();
    for id in ["../outposts", "a/claim", "x?watch=true", "..", ".", "%2e%2e"] {
        let answer = at.queue.get(&session(id)).await;
        assert!(
            matches!(&answer, Ok(None)) || answer.is_err_and(|error| error.kind() == ErrorKind::NotFound),
            "{id}"
        );
    }
    let asked: Vec<String> = at.sim.requests().unwrap().into_iter().map(|request| request.path).collect();
    assert!(
        asked
            .iter()
            .all(|path| path.starts_with("/opbeta/outposts/devins/") && path.matches('/').count() == 4),
        "{asked:?}"
    );
}

// lesson 54: no secret in Debug either
#[tokio::test(start_paused = true)]
async fn no_token_shows_in_debug_or_errors() {
    for token in ["cog_sentinel", "eyJ.sentinel/+="] {
        let detail = json!({"detail": format!("{token} is unknown")}).to_string();
        let server = Scripted::new([Reply::Whole(401, detail)]);
        let queue = server.queue_with(token);
        let error = queue.list().await.unwrap_err();
        let shown = format!("{queue:?} {error} {error:?}");
        assert!(!shown.contains("sentinel") && shown.contains("is unknown"), "{shown}");
    }
}
