//! A stream that is renewed for ever.

use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use outpost_core::ports::{Clock as _, Cursor, ErrorKind, SessionSource, WatchEvent};
use outpost_sim::SimOptions;
use outpost_sim::control::ControlExt as _;
use outpost_sim::fault::{Endpoint, Fault, FaultRule};
use outpost_sim::model::NewRow;
use serde_json::json;

use crate::script::{Reply, Scripted, row};
use crate::simulated::{Simulated, simulated, simulated_with};

/// How many times the watch was opened.
fn opened(at: &Simulated) -> u64 {
    at.sim.count(Endpoint::Watch).unwrap()
}

async fn listed(at: &Simulated) -> Option<Cursor> {
    at.queue.list().await.unwrap().cursor
}

/// The next change; disruptions before it are passed over.
async fn change(events: &mut (impl futures::Stream<Item = WatchEvent> + Unpin)) -> String {
    let look = async {
        loop {
            match events.next().await {
                Some(WatchEvent::Changed(session)) => return session.id.to_string(),
                Some(_) => {}
                None => panic!("the watch never ends"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(3600), look).await.expect("a change within an hour")
}

#[tokio::test(start_paused = true)]
async fn changes_arrive_over_hours_although_every_stream_ends_after_five_minutes() {
    let at = simulated();
    let mut events = at.queue.watch(listed(&at).await);
    for number in 0..24 {
        tokio::time::sleep(Duration::from_secs(450)).await;
        let session = format!("devin-{number}");
        at.sim.create(NewRow::new(&session)).unwrap();
        // What was delivered before may come again.
        while change(&mut events).await != session {}
    }
    let opened = opened(&at);
    assert!((24..=60).contains(&opened), "three hours of five minutes each: {opened}");
}

#[tokio::test(start_paused = true)]
async fn a_row_that_leaves_is_told_by_its_id() {
    let at = simulated();
    at.sim.create(NewRow::new("devin-1")).unwrap();
    let mut events = at.queue.watch(listed(&at).await);
    at.sim.tombstone("devin-1").unwrap();
    loop {
        match events.next().await.unwrap() {
            WatchEvent::Deleted(session) => break assert_eq!(session.as_str(), "devin-1"),
            WatchEvent::Changed(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

// lesson 5
#[tokio::test(start_paused = true)]
async fn a_silent_stream_is_renewed() {
    let at = simulated();
    at.sim.add_fault(FaultRule::once(Endpoint::Watch, Fault::Silence)).unwrap();
    let cursor = listed(&at).await;
    let mut events = at.queue.watch(cursor);
    at.sim.create(NewRow::new("devin-1")).unwrap();
    match events.next().await.unwrap() {
        WatchEvent::Disrupted(error) => assert!(error.to_string().contains("silent"), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(change(&mut events).await, "devin-1");
}

// lesson 5
#[tokio::test(start_paused = true)]
async fn streams_that_close_at_once_are_opened_ever_more_seldom() {
    let at = simulated();
    at.sim.add_fault(FaultRule::always(Endpoint::Watch, Fault::EndBody { after_bytes: 0 })).unwrap();
    let mut events = at.queue.watch(listed(&at).await);
    let hour = tokio::time::timeout(Duration::from_secs(3600), events.next()).await;
    assert!(hour.is_err(), "an end is no event: {hour:?}");
    let opened = opened(&at);
    assert!((40..=80).contains(&opened), "about once a minute: {opened}");
}

// lesson 5
#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_after_five_minutes_is_reopened_at_once() {
    let at = simulated();
    let mut events = at.queue.watch(listed(&at).await);
    let began = at.clock.now();
    let _ = tokio::time::timeout(Duration::from_secs(301), events.next()).await;
    assert_eq!(opened(&at), 2, "since {began}");
}

// lesson 6
#[tokio::test(start_paused = true)]
async fn a_cursor_that_is_refused_asks_for_a_list_and_goes_on_from_it() {
    let at = simulated();
    at.sim.create(NewRow::new("devin-0")).unwrap();
    let old = listed(&at).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    at.sim.create(NewRow::new("devin-1")).unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    at.sim.forget_history().unwrap();
    let mut events = at.queue.watch(old);
    assert!(matches!(events.next().await.unwrap(), WatchEvent::ListAgain));
    listed(&at).await;
    at.sim.create(NewRow::new("devin-2")).unwrap();
    loop {
        if change(&mut events).await == "devin-2" {
            break;
        }
    }
}

// lesson 6
#[tokio::test(start_paused = true)]
async fn an_event_counts_only_when_the_next_one_is_taken() {
    let event = |session: &str, cursor: &str| {
        format!(
            "data: {}\n\n",
            json!({"type": "MODIFIED", "object": row(session, "running"), "cursor": cursor})
        )
    };
    let server = Scripted::new([
        Reply::Pieces(vec![event("devin-1", "one").into_bytes(), event("devin-2", "two").into_bytes()]),
        Reply::Pieces(vec![]),
    ]);
    let queue = server.queue();
    let mut events = queue.watch(Some(Cursor("zero".into())));
    assert_eq!(change(&mut events).await, "devin-1");
    assert_eq!(change(&mut events).await, "devin-2");
    // The stream has ended; the next connection begins after what was handled, which is both.
    let _ = tokio::time::timeout(Duration::from_millis(1_900), events.next()).await;
    drop(events);
    let asked = server.asked();
    assert!(asked[0].ends_with("cursor=zero") && asked[1].ends_with("cursor=two"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_is_understood_however_it_is_cut_and_written() {
    let data = json!({"type": "MODIFIED", "object": row("devin-ü", "running"), "cursor": "c"});
    let lines = serde_json::to_string_pretty(&data).unwrap();
    let mut text = String::from(": keepalive\n\n\u{feff}:\nretry: 5\nid: 7\nevent: x\n");
    for line in lines.lines() {
        text.push_str(&format!("data: {line}\r\n"));
    }
    text.push_str("\r\n: keepalive\n\n");
    let one_by_one: Vec<Vec<u8>> = text.bytes().map(|byte| vec![byte]).collect();
    for pieces in [one_by_one, vec![text.clone().into_bytes()]] {
        let server = Scripted::new([Reply::Pieces(pieces)]);
        let queue = server.queue();
        let mut events = queue.watch(Some(Cursor("zero".into())));
        assert_eq!(change(&mut events).await, "devin-ü");
    }
}

#[tokio::test(start_paused = true)]
async fn odd_and_foreign_events_are_passed_over() {
    let mut foreign = row("devin-2", "running");
    foreign["metadata"]["outpost_id"] = json!("outpost_env-other");
    let odd = [
        "data: not json\n\n".to_owned(),
        format!("data: {}\n\n", json!({"type": "MODIFIED", "object": foreign, "cursor": "a"})),
        format!("data: {}\n\n", json!({"type": "DELETED", "object": foreign, "cursor": "b"})),
        format!("data: {}\n\n", json!({"type": "MODIFIED", "object": 7})),
        format!(
            "data: {}\n\n",
            json!({"type": "MODIFIED", "object": row("devin-1", "running"), "cursor": "c"})
        ),
    ];
    let server = Scripted::new([Reply::Pieces(odd.into_iter().map(String::into_bytes).collect())]);
    let queue = server.queue();
    let mut events = queue.watch(Some(Cursor("zero".into())));
    match events.next().await.unwrap() {
        WatchEvent::Changed(session) => assert_eq!(session.id.as_str(), "devin-1"),
        other => panic!("{other:?}"),
    }
    assert_eq!((queue.stats().foreign_rows, queue.stats().skipped_rows), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn an_event_without_end_is_given_up() {
    let endless = (0..6).map(|_| [b"data: ".as_slice(), &[b'x'; 1 << 20], b"\n"].concat()).collect();
    let server = Scripted::new([Reply::Pieces(endless)]);
    let queue = server.queue();
    match queue.watch(Some(Cursor("zero".into()))).next().await.unwrap() {
        WatchEvent::Disrupted(error) => assert!(error.to_string().contains("4 MiB"), "{error}"),
        other => panic!("{other:?}"),
    }
}

// lesson 6
#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_passed_over_by_a_list() {
    let endless = (0..6).map(|_| [b"data: ".as_slice(), &[b'x'; 1 << 20], b"\n"].concat()).collect();
    let no_text = vec![b"data: \xff\xfe\n\n".to_vec()];
    for poison in [endless, no_text] {
        let page = json!({"items": [], "cursor": "after", "has_next_page": false}).to_string();
        let later = json!({"type": "MODIFIED", "object": row("devin-9", "running"), "cursor": "c"});
        let server = Scripted::new([
            Reply::Pieces(poison),
            Reply::Whole(200, page),
            Reply::Pieces(vec![format!("data: {later}\n\n").into_bytes()]),
        ]);
        let queue = server.queue();
        let mut events = queue.watch(Some(Cursor("zero".into())));
        assert!(matches!(events.next().await.unwrap(), WatchEvent::Disrupted(_)));
        let told = tokio::time::timeout(Duration::from_secs(3600), events.next()).await;
        assert!(matches!(told, Ok(Some(WatchEvent::ListAgain))), "{told:?}");
        let early = tokio::time::timeout(Duration::from_secs(3600), events.next()).await;
        assert!(early.is_err() && server.asked().len() == 1, "it waits for a list: {early:?}");
        queue.list().await.unwrap();
        assert_eq!(change(&mut events).await, "devin-9");
        assert!(server.asked()[2].ends_with("cursor=after"), "{:?}", server.asked());
    }
}

// lesson 54
#[tokio::test(start_paused = true)]
async fn a_token_that_is_refused_for_an_hour_is_tried_about_once_a_minute() {
    let mut options = SimOptions::default();
    options.token = "another".into();
    let at = simulated_with(options);
    let mut events = at.queue.watch(Some(Cursor("zero".into())));
    let end: Timestamp = at.clock.now() + Duration::from_secs(3600);
    let mut refusals = 0_u32;
    while at.clock.now() < end {
        match events.next().await.unwrap() {
            WatchEvent::Disrupted(error) => assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}"),
            other => panic!("{other:?}"),
        }
        refusals += 1;
    }
    assert!(refusals < 90, "{refusals}");
}

#[tokio::test(start_paused = true)]
async fn without_a_cursor_the_watch_waits_for_a_list() {
    let at = simulated();
    at.sim.create(NewRow::new("devin-old")).unwrap();
    let mut events = at.queue.watch(None);
    let early = tokio::time::timeout(Duration::from_secs(60), events.next()).await;
    assert!(early.is_err() && opened(&at) == 0, "the whole history is not asked for: {early:?}");
    tokio::time::advance(Duration::from_secs(1)).await;
    listed(&at).await;
    at.sim.create(NewRow::new("devin-new")).unwrap();
    loop {
        if change(&mut events).await == "devin-new" {
            break;
        }
    }
}
