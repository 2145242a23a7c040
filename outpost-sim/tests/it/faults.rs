//! Every fault, as a client of the fleet API sees it.

use std::time::Duration;

use axum::http::header;
use futures::StreamExt;
use outpost_sim::control::ControlExt;
use outpost_sim::fault::{Effect, Endpoint, ErrorBody, Fault, FaultRule, Times};
use outpost_sim::model::NewRow;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::client::{Client, bearer};

const LIST: &str = "/opbeta/outposts/devins?outpost=outpost_env-sim";
const WATCH: &str = "/opbeta/outposts/devins?outpost=outpost_env-sim&watch=true";
const CLAIM: &str = "/opbeta/outposts/devins/devin-1/claim";

fn with(rule: FaultRule) -> Client {
    let client = Client::start();
    client.sim.create(NewRow::new("devin-1")).unwrap();
    client.sim.create(NewRow::new("devin-2")).unwrap();
    client.sim.add_fault(rule).unwrap();
    client
}

fn me() -> Value {
    json!({ "acceptor_id": "me" })
}

#[tokio::test(start_paused = true)]
async fn statuses_strike_once_and_change_nothing() {
    for status in [401, 403, 409, 429, 500, 503] {
        let client = with(FaultRule::once(Endpoint::Claim, Fault::status(status)));
        let answer = client.post(CLAIM, me()).await;
        assert_eq!((answer.status, answer.json()), (status, json!({ "detail": "simulated fault" })));
        assert_eq!(client.sim.row("devin-1").unwrap().unwrap().acceptor_id, None);
        assert_eq!(client.post(CLAIM, me()).await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn rate_limit_says_when_to_come_back() {
    let client = with(FaultRule::once(Endpoint::List, Fault::rate_limited(Duration::from_secs(7))));
    let answer = client.get(LIST).await;
    assert_eq!((answer.status, &answer.headers[header::RETRY_AFTER]), (429, &"7".parse().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn error_bodies_can_be_empty_or_no_json() {
    for (body, expected) in [(ErrorBody::Empty, ""), (ErrorBody::Text("<html>".into()), "<html>")] {
        let fault = Fault::Answer { status: 502, retry_after: None, body, effect: Effect::None };
        let client = with(FaultRule::once(Endpoint::List, fault));
        let answer = client.get(LIST).await;
        assert_eq!((answer.status, answer.body.as_deref()), (502, Some(expected.as_bytes())));
    }
}

#[tokio::test(start_paused = true)]
async fn claim_can_be_applied_although_its_answer_is_an_error_or_lost() {
    for fault in [Fault::status_after_effect(500), Fault::LoseReply] {
        let client = with(FaultRule::once(Endpoint::Claim, fault));
        let answer = client.post(CLAIM, me()).await;
        assert!(answer.status == 500 || answer.body.is_none());
        assert_eq!(client.sim.row("devin-1").unwrap().unwrap().acceptor_id.as_deref(), Some("me"));
    }
    let client = with(FaultRule::once(Endpoint::Claim, Fault::Refuse));
    assert!(client.post(CLAIM, me()).await.body.is_none());
    assert_eq!(client.sim.row("devin-1").unwrap().unwrap().acceptor_id, None);
}

#[tokio::test(start_paused = true)]
async fn answer_comes_late() {
    let client = with(FaultRule::once(Endpoint::List, Fault::Delay { ms: 9000 }));
    let start = Instant::now();
    assert_eq!(client.get(LIST).await.status, 200);
    assert_eq!(start.elapsed(), Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn body_is_cut_or_stalls_or_ends_early() {
    let client = with(FaultRule::once(Endpoint::List, Fault::CutBody { after_bytes: 20 }));
    let cut = client.get(LIST).await;
    assert_eq!((cut.status, cut.body), (200, None));

    client.sim.add_fault(FaultRule::once(Endpoint::List, Fault::StallBody { after_bytes: 20 })).unwrap();
    assert!(timeout(Duration::from_secs(3600), client.get(LIST)).await.is_err());
    let requests = client.sim.requests().unwrap();
    assert_eq!(requests.last().unwrap().status, Some(200));

    client.sim.add_fault(FaultRule::once(Endpoint::List, Fault::EndBody { after_bytes: 20 })).unwrap();
    assert_eq!(client.get(LIST).await.body.unwrap().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn watch_breaks_or_ends_in_the_middle_of_an_event() {
    let client = with(FaultRule::once(Endpoint::Watch, Fault::CutBody { after_bytes: 600 }));
    let mut watch = client.watch(WATCH).await;
    watch.event().await.unwrap();
    assert!(watch.try_event().await.is_err());

    client.sim.add_fault(FaultRule::once(Endpoint::Watch, Fault::EndBody { after_bytes: 0 })).unwrap();
    assert_eq!(client.watch(WATCH).await.event().await, None);
}

// lesson 5
#[tokio::test(start_paused = true)]
async fn silent_watch_is_open_and_says_nothing_at_all() {
    let client = with(FaultRule::once(Endpoint::Watch, Fault::Silence));
    let response = client.open("GET", WATCH, bearer(), None).await;
    assert_eq!(response.status(), 200);
    let body = axum::body::to_bytes(response.into_body(), usize::MAX);
    assert!(timeout(Duration::from_secs(3600), body).await.is_err());
}

// lesson 2
#[tokio::test(start_paused = true)]
async fn list_repeats_or_lacks_its_cursor_while_more_follows() {
    let client = with(FaultRule::always(Endpoint::List, Fault::RepeatCursor));
    let first = client.get(LIST).await.json();
    assert_eq!(first["has_next_page"], true);
    let path = format!("{LIST}&cursor=c1abc");
    assert_eq!(client.get(&path).await.json()["cursor"], "c1abc");

    client.sim.clear_faults().unwrap();
    client.sim.add_fault(FaultRule::once(Endpoint::List, Fault::MissingCursor)).unwrap();
    let page = client.get(LIST).await.json();
    assert_eq!((&page["has_next_page"], &page["cursor"]), (&json!(true), &Value::Null));
}

// lesson 4
#[tokio::test(start_paused = true)]
async fn list_loses_rows_and_gains_what_is_no_row() {
    let client = with(FaultRule::once(Endpoint::List, Fault::LoseRows { count: 1 }));
    let page = client.get(LIST).await.json();
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    assert_eq!(page["items"][0]["metadata"]["session_id"], "devin-2");

    client.sim.add_fault(FaultRule::once(Endpoint::List, Fault::MalformedRow)).unwrap();
    let page = client.get(LIST).await.json();
    assert_eq!(page["items"].as_array().unwrap().len(), 3);
    assert!(page["items"][0].is_string());
}

#[tokio::test(start_paused = true)]
async fn list_is_answered_as_it_was_before() {
    let client = with(FaultRule::once(Endpoint::List, Fault::StaleList).after(1));
    let before = client.get(LIST).await.json();
    client.sim.set_status("devin-1", "terminated").unwrap();
    assert_eq!(client.get(LIST).await.json(), before);
    assert_ne!(client.get(LIST).await.json(), before);
}

#[tokio::test(start_paused = true)]
async fn body_comes_in_pieces_and_is_whole() {
    let client = with(FaultRule::always(Endpoint::Watch, Fault::SplitBody { chunk_bytes: 7 }));
    let body = client.open("GET", WATCH, bearer(), None).await.into_body();
    let first = body.into_data_stream().next().await.unwrap().unwrap();
    assert_eq!(first.len(), 7);
    let mut watch = client.watch(WATCH).await;
    assert_eq!(watch.event().await.unwrap()["object"]["metadata"]["session_id"], "devin-1");
}

#[tokio::test(start_paused = true)]
async fn bodies_can_be_huge_and_deadlines_skewed() {
    let client = with(FaultRule::once(Endpoint::List, Fault::HugeBody { bytes: 5_000_000 }));
    assert!(client.get(LIST).await.body.unwrap().len() > 5_000_000);

    let right = client.post(CLAIM, me()).await.json()["status"]["claim_deadline"].as_i64().unwrap();
    client.sim.add_fault(FaultRule::always(Endpoint::Claim, Fault::SkewDeadline { secs: -200 })).unwrap();
    let skewed = client.post(CLAIM, me()).await.json()["status"]["claim_deadline"].as_i64().unwrap();
    assert!(skewed < right - 100);
}

#[tokio::test(start_paused = true)]
async fn rules_wait_their_turn_and_concern_their_session_only() {
    let rule = FaultRule::once(Endpoint::Claim, Fault::status(500))
        .times(Times::Count(2))
        .after(1)
        .session("devin-1");
    let client = with(rule);
    let other = "/opbeta/outposts/devins/devin-2/claim";
    let mut statuses = Vec::new();
    for path in [other, CLAIM, CLAIM, other, CLAIM, CLAIM] {
        statuses.push(client.post(path, me()).await.status);
    }
    assert_eq!(statuses, [200, 200, 500, 200, 500, 200]);
}

#[tokio::test(start_paused = true)]
async fn faults_by_chance_are_the_same_for_the_same_seed() {
    let run = async || {
        let client = with(FaultRule::always(Endpoint::List, Fault::status(500)).times(Times::PerMille(300)));
        let mut statuses = Vec::new();
        for _ in 0..100 {
            statuses.push(client.get(LIST).await.status);
        }
        statuses
    };
    let statuses = run().await;
    assert_eq!(statuses, run().await);
    let struck = statuses.iter().filter(|status| **status == 500).count();
    assert!((10..60).contains(&struck), "{struck}");
}

#[tokio::test(start_paused = true)]
async fn fault_everywhere_is_an_outage_until_it_is_cleared() {
    let client = with(FaultRule::everywhere(Fault::status(503)));
    for path in [LIST, WATCH, "/opbeta/outposts/devins/devin-1", "/opbeta/outposts"] {
        assert_eq!(client.get(path).await.status, 503, "{path}");
    }
    client.sim.clear_faults().unwrap();
    assert_eq!(client.get(LIST).await.status, 200);
}
