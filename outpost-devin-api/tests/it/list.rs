//! Complete, or an error.

use outpost_core::model::SessionStatus;
use outpost_core::ports::{ErrorKind, SessionSource as _};
use outpost_sim::control::{ControlExt as _, Settings};
use outpost_sim::fault::{Endpoint, Fault, FaultRule};
use outpost_sim::model::NewRow;
use serde_json::{Value, json};

use crate::script::{Reply, Scripted, row};
use crate::simulated::simulated;

fn page(rows: &[Value], cursor: Value, more: bool) -> Reply {
    Reply::Whole(200, json!({"items": rows, "cursor": cursor, "has_next_page": more, "total": 0}).to_string())
}

// lesson 1
#[tokio::test(start_paused = true)]
async fn a_row_on_two_pages_comes_once_as_it_was_last() {
    let server = Scripted::new([
        page(&[row("devin-1", "running"), row("devin-2", "running")], json!("a"), true),
        page(&[row("devin-1", "suspended")], json!("b"), false),
    ]);
    let listing = server.queue().list().await.unwrap();
    let statuses: Vec<_> = listing.sessions.iter().map(|s| (s.id.as_str(), s.status.clone())).collect();
    assert_eq!(statuses, [("devin-1", SessionStatus::Suspended), ("devin-2", SessionStatus::Running)]);
}

// lesson 2
#[tokio::test(start_paused = true)]
async fn a_list_that_would_never_end_is_an_error() {
    let missing = Scripted::new([page(&[], Value::Null, true)]);
    let cycle = Scripted::new([
        page(&[], json!("a"), true),
        page(&[], json!("b"), true),
        page(&[], json!("a"), true),
    ]);
    for (server, calls) in [(missing, 1), (cycle, 3)] {
        let error = server.queue().list().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert_eq!(server.asked().len(), calls);
    }
    let endless = Scripted::new((0..10_001).map(|number| page(&[], json!(number.to_string()), true)));
    let error = endless.queue().list().await.unwrap_err();
    assert!(error.to_string().contains("pages") && endless.asked().len() == 10_000, "{error}");
}

// lesson 3
#[tokio::test(start_paused = true)]
async fn the_last_page_has_a_cursor_which_asks_for_no_further_page() {
    let server = Scripted::new([page(&[row("devin-1", "running")], json!("here"), false)]);
    let listing = server.queue().list().await.unwrap();
    assert_eq!(listing.cursor.unwrap().0, "here");
    assert_eq!(server.asked(), ["GET /opbeta/outposts/devins?outpost=outpost_env-1&first=200"]);
}

// lesson 4
#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_is_an_error_and_not_a_short_list() {
    for fault in
        [Fault::status(500), Fault::CutBody { after_bytes: 10 }, Fault::MissingCursor, Fault::RepeatCursor]
    {
        let at = simulated();
        at.sim.configure(page_cap(2)).unwrap();
        for number in 0..6 {
            at.sim.create(NewRow::new(format!("devin-{number}"))).unwrap();
            tokio::time::advance(std::time::Duration::from_secs(1)).await;
        }
        assert_eq!(at.queue.list().await.unwrap().sessions.len(), 6);
        at.sim.add_fault(FaultRule::always(Endpoint::List, fault.clone()).after(1)).unwrap();
        let listed = at.queue.list().await;
        assert!(listed.is_err(), "{fault:?}: {listed:?}");
    }
}

fn page_cap(rows: u32) -> Settings {
    let mut settings = Settings::default();
    settings.page_cap = Some(rows);
    settings
}

// lesson 7
#[tokio::test(start_paused = true)]
async fn one_odd_row_spoils_no_other() {
    let server = Scripted::new([page(
        &[row("devin-1", "running"), json!({"metadata": 7}), json!("row"), row("devin-2", "constructor")],
        json!("a"),
        false,
    )]);
    let queue = server.queue();
    let listing = queue.list().await.unwrap();
    let statuses: Vec<_> = listing.sessions.iter().map(|session| session.status.clone()).collect();
    assert_eq!(statuses, [SessionStatus::Running, SessionStatus::Unknown("constructor".into())]);
    assert_eq!(queue.stats().skipped_rows, 2);
}

// lesson 8
#[tokio::test(start_paused = true)]
async fn a_row_of_another_outpost_is_dropped_and_counted() {
    let mut foreign = row("devin-2", "running");
    foreign["metadata"]["outpost_id"] = json!("outpost_env-other");
    let server = Scripted::new([page(&[row("devin-1", "running"), foreign], json!("a"), false)]);
    let queue = server.queue();
    assert_eq!(queue.list().await.unwrap().sessions.len(), 1);
    assert_eq!(queue.stats().foreign_rows, 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_a_page_is_an_error() {
    for body in [
        "",
        "null",
        "[]",
        "{}",
        "<html>",
        r#"{"items": [], "cursor": "a"}"#,
        r#"{"items": {}, "has_next_page": false}"#,
    ] {
        let server = Scripted::new([Reply::Whole(200, body.into())]);
        let error = server.queue().list().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{body}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_without_end_is_given_up_when_it_is_too_large() {
    let at = simulated();
    at.sim.add_fault(FaultRule::once(Endpoint::List, Fault::HugeBody { bytes: 40 << 20 })).unwrap();
    let error = at.queue.list().await.unwrap_err();
    assert!(error.to_string().contains("larger than"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_stalls_is_given_up() {
    let at = simulated();
    at.sim.add_fault(FaultRule::once(Endpoint::List, Fault::StallBody { after_bytes: 5 })).unwrap();
    assert_eq!(at.queue.list().await.unwrap_err().kind(), ErrorKind::Unavailable);
}
