//! What the queue promises, by example.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

pub(super) const START: Timestamp = Timestamp::constant(1_781_050_000, 0);

fn at(secs: u64) -> Timestamp {
    START + Duration::from_secs(secs)
}

pub(super) fn fleet(rows: impl IntoIterator<Item = NewRow>) -> Fleet {
    let mut fleet = Fleet::new(FleetOptions::default());
    for row in rows {
        fleet.create(START, row);
    }
    fleet
}

pub(super) fn ids(items: &[Value]) -> Vec<&str> {
    items.iter().map(|row| row["metadata"]["session_id"].as_str().unwrap()).collect()
}

pub(super) fn everything() -> ListQuery {
    ListQuery::outpost(DEFAULT_OUTPOST)
}

#[test]
fn row_has_the_documented_shape() {
    let mut fleet = fleet([NewRow::new("devin-1")]);
    let expected = json!({
        "metadata": {"session_id": "devin-1", "outpost_id": DEFAULT_OUTPOST,
                     "created_at": 1_781_050_000, "updated_at": 1_781_050_000},
        "spec": {"kind": "new", "platform": "linux", "remote_binary_sha": null},
        "status": {"phase": "pending", "acceptor_id": null, "claim_deadline": null, "session_status": "pending",
                   "connect_token": null, "gateway_url": null},
    });
    assert_eq!(fleet.get(START, "devin-1").unwrap(), expected);
}

#[test]
fn token_and_gateway_come_with_a_claim_and_never_again() {
    let mut fleet = fleet([NewRow::new("devin-1")]);
    let claimed = fleet.claim(START, "devin-1", "me").unwrap();
    assert!(claimed["status"]["connect_token"].is_string());
    assert!(claimed["status"]["gateway_url"].is_string());
    assert_eq!(claimed["status"]["claim_deadline"], START.as_second() + 300);

    let listed = fleet.list(START, &everything()).unwrap().items.remove(0);
    let (events, _) = fleet.events(START, None, Position(0));
    for seen in [fleet.get(START, "devin-1").unwrap(), listed, (*events.last().unwrap().object).clone()] {
        assert_eq!(seen["status"]["phase"], "claimed");
        assert_eq!(seen["status"]["connect_token"], Value::Null);
        assert_eq!(seen["status"]["gateway_url"], Value::Null);
    }
}

#[test]
fn same_acceptor_renews_with_a_new_token_and_the_old_one_still_works() {
    let mut fleet = fleet([NewRow::new("devin-1")]);
    let token = |entry: Value| entry["status"]["connect_token"].as_str().unwrap().to_owned();
    let first = token(fleet.claim(START, "devin-1", "me").unwrap());
    let renewed = fleet.claim(at(100), "devin-1", "me").unwrap();
    assert_eq!(renewed["status"]["claim_deadline"], START.as_second() + 400);
    let second = token(renewed);
    assert_eq!(fleet.check_token("devin-1", &first), Some(Freshness::Older));
    assert_eq!(fleet.check_token("devin-1", &second), Some(Freshness::Newest));
    assert_eq!(fleet.check_token("devin-2", &second), None);
}

#[test]
fn expired_claim_returns_to_the_queue_only_when_its_row_is_touched() {
    let mut fleet = fleet([NewRow::new("devin-1")]);
    fleet.claim(START, "devin-1", "me").unwrap();
    let (_, position) = fleet.events(at(301), None, Position(0));
    assert_eq!(fleet.row("devin-1").unwrap().phase(), "claimed");
    assert_eq!(fleet.list(at(301), &everything()).unwrap().items[0]["status"]["phase"], "pending");
    let (events, _) = fleet.events(at(301), None, position);
    assert_eq!(events.len(), 1);
    assert_eq!(fleet.release(at(301), "devin-1", "me").unwrap_err().status(), 409);
    fleet.claim(at(301), "devin-1", "rival").unwrap();
}

// lesson 22
#[test]
fn expired_claim_of_a_running_session_is_still_held() {
    let mut fleet = fleet([NewRow::new("devin-1").status("running")]);
    fleet.claim(START, "devin-1", "me").unwrap();
    assert_eq!(fleet.claim(at(9000), "devin-1", "rival").unwrap_err().status(), 409);
    assert_eq!(fleet.list(at(9000), &everything()).unwrap().items[0]["status"]["phase"], "claimed");
    fleet.claim(at(9000), "devin-1", "me").unwrap();
}

#[test]
fn release_answers_409_when_not_held_by_this_acceptor_and_404_when_tombstoned() {
    let mut fleet = fleet([NewRow::new("devin-1")]);
    assert_eq!(fleet.release(START, "devin-1", "me").unwrap_err().status(), 409);
    fleet.claim(START, "devin-1", "me").unwrap();
    assert_eq!(fleet.release(START, "devin-1", "rival").unwrap_err().status(), 409);
    fleet.release(START, "devin-1", "me").unwrap();
    assert_eq!(fleet.release(START, "devin-1", "me").unwrap_err().status(), 409);
    fleet.tombstone(START, "devin-1").unwrap();
    assert_eq!(fleet.release(START, "devin-1", "me").unwrap_err().status(), 404);
    assert_eq!(fleet.claim(START, "devin-1", "me").unwrap_err().status(), 404);
    assert_eq!(fleet.get(START, "devin-1").unwrap_err().status(), 404);
}

// lesson 12
#[test]
fn released_row_that_is_suspended_stays_pending_until_it_is_swept() {
    let mut fleet = fleet([NewRow::new("devin-1"), NewRow::new("devin-2")]);
    fleet.claim(START, "devin-1", "me").unwrap();
    fleet.set_status(START, "devin-1", "suspended").unwrap();
    fleet.release(START, "devin-1", "me").unwrap();
    let row = fleet.get(at(100_000), "devin-1").unwrap();
    assert_eq!(row["status"]["phase"], "pending");
    assert_eq!(row["status"]["session_status"], "suspended");
    assert_eq!(fleet.sweep(at(100_000)), 1);
    assert_eq!(fleet.get(at(100_000), "devin-1").unwrap_err().status(), 404);
    fleet.get(at(100_000), "devin-2").unwrap();
}

#[test]
fn sweeper_runs_by_itself_when_it_has_an_interval() {
    let mut fleet = fleet([NewRow::new("devin-1").status("terminated")]);
    fleet.options.sweep_after = Some(Duration::from_secs(60));
    fleet.get(at(59), "devin-1").unwrap();
    assert_eq!(fleet.get(at(60), "devin-1").unwrap_err().status(), 404);
}

#[test]
fn tombstoned_session_comes_back_as_resume_under_its_id() {
    let mut fleet = fleet([NewRow::new("devin-1").pinned("abc")]);
    fleet.claim(START, "devin-1", "me").unwrap();
    fleet.tombstone(START, "devin-1").unwrap();
    let (events, position) = fleet.events(START, None, Position(0));
    assert_eq!(events.last().unwrap().to_json()["type"], "DELETED");
    fleet.wake(at(5), "devin-1", Waking::Running).unwrap();
    let row = fleet.get(at(5), "devin-1").unwrap();
    assert_eq!(row["spec"]["kind"], "resume");
    assert_eq!(row["spec"]["remote_binary_sha"], "abc");
    assert_eq!(row["status"]["session_status"], "running");
    assert_eq!(row["status"]["phase"], "pending");
    let (events, _) = fleet.events(at(5), None, position);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].to_json()["type"], "MODIFIED");
}

#[test]
fn lagging_status_changes_at_its_time_and_not_before() {
    let mut fleet = fleet([NewRow::new("devin-1").status("running")]);
    fleet.set_status_at(at(5), "devin-1", "suspended");
    assert_eq!(fleet.next_due(), Some(at(5)));
    assert_eq!(fleet.get(at(4), "devin-1").unwrap()["status"]["session_status"], "running");
    assert_eq!(fleet.get(at(5), "devin-1").unwrap()["status"]["session_status"], "suspended");
    assert_eq!(fleet.next_due(), None);
}

// lesson 1
#[test]
fn row_at_a_page_boundary_comes_twice() {
    let mut fleet = fleet((1..=5).map(|n| NewRow::new(format!("devin-{n}"))));
    let first = fleet.list(START, &everything().first(3)).unwrap();
    assert_eq!(ids(&first.items), ["devin-1", "devin-2", "devin-3"]);
    assert!(first.has_next_page);
    let second = fleet.list(START, &everything().first(3).from_cursor(&first.cursor)).unwrap();
    assert_eq!(ids(&second.items), ["devin-3", "devin-4", "devin-5"]);
    assert!(second.has_next_page, "a full page says that more follows");
    let third = fleet.list(START, &everything().first(3).from_cursor(&second.cursor)).unwrap();
    assert_eq!(ids(&third.items), ["devin-5"]);
    assert!(!third.has_next_page);
    assert_eq!(third.cursor, second.cursor, "the last page has a cursor too");
    assert_eq!(third.total, 5);
}

// lesson 2
#[test]
fn paging_wedges_on_a_full_page_that_shares_one_instant() {
    let mut fleet = fleet((1..=4).map(|n| NewRow::new(format!("devin-{n}")).updated_at(START)));
    let first = fleet.list(START, &everything().first(2)).unwrap();
    let second = fleet.list(START, &everything().first(2).from_cursor(&first.cursor)).unwrap();
    assert!(second.has_next_page);
    assert_eq!(first.cursor, second.cursor);
}

// lesson 3
#[test]
fn last_cursor_can_be_the_servers_clock_and_misses_nothing_that_comes_after() {
    let mut fleet = fleet([NewRow::new("devin-1")]);
    fleet.options.last_cursor = LastCursor::ServerClock;
    let page = fleet.list(at(60), &everything()).unwrap();
    let position = fleet.watch_from(at(60), Some(&page.cursor)).unwrap();
    assert!(fleet.events(at(60), None, position).0.is_empty());
    fleet.set_status(at(60), "devin-1", "running").unwrap();
    assert_eq!(fleet.events(at(60), None, position).0.len(), 1);
}

// lesson 6
#[test]
fn cursor_from_before_the_kept_history_is_410_and_a_list_gives_one_that_works() {
    let mut fleet = fleet([NewRow::new("devin-1")]);
    let old = fleet.list(START, &everything()).unwrap().cursor;
    fleet.forget_history(at(10));
    assert_eq!(fleet.watch_from(at(10), Some(&old)).unwrap_err().status(), 410);
    let new = fleet.list(at(10), &everything()).unwrap().cursor;
    fleet.watch_from(at(10), Some(&new)).unwrap();
    assert_eq!(fleet.watch_from(at(10), Some("nonsense")).unwrap_err().status(), 400);
}

#[test]
fn history_is_bounded_and_what_falls_out_expires() {
    let mut fleet = fleet([NewRow::new("devin-1")]);
    fleet.options.history = 3;
    let old = fleet.list(START, &everything()).unwrap().cursor;
    for n in 1..10 {
        fleet.set_status(at(n), "devin-1", "running").unwrap();
    }
    assert_eq!(fleet.watch_from(at(10), Some(&old)).unwrap_err().status(), 410);
    let position = fleet.watch_from(at(10), None).unwrap();
    assert_eq!(fleet.events(at(10), None, position).0.len(), 3);
}

#[test]
fn filters_select_outpost_phase_and_acceptor() {
    let mut fleet =
        fleet(["a", "b"].map(NewRow::new).into_iter().chain([NewRow::new("c").outpost("elsewhere")]));
    fleet.claim(START, "a", "me").unwrap();
    let mut list = |change: &dyn Fn(&mut ListQuery)| {
        let mut query = everything();
        change(&mut query);
        fleet.list(START, &query).map(|page| ids(&page.items).join(" "))
    };
    assert_eq!(list(&|_| {}).unwrap(), "b a");
    assert_eq!(list(&|query| query.phase = Some("claimed".into())).unwrap(), "a");
    assert_eq!(list(&|query| query.acceptor_id = Some("me".into())).unwrap(), "a");
    assert_eq!(list(&|query| query.acceptor_id = Some("you".into())).unwrap(), "");
    assert_eq!(list(&|query| query.outpost = Some("elsewhere".into())).unwrap(), "c");
    assert_eq!(list(&|query| query.outpost = None).unwrap(), "b c a");
    assert_eq!(list(&|query| query.outpost = Some("nowhere".into())).unwrap_err().status(), 404);
    assert_eq!(list(&|query| query.phase = Some("odd".into())).unwrap_err().status(), 422);
    assert_eq!(list(&|query| query.first = Some(0)).unwrap_err().status(), 422);
    assert_eq!(list(&|query| query.first = Some(201)).unwrap_err().status(), 422);
}

// lesson 7
#[test]
fn rows_can_have_any_shape() {
    let odd = |id: &str, oddity| NewRow::new(id).odd(oddity);
    let set = |pointer: &str, value| Oddity::Set { pointer: pointer.into(), value };
    let mut fleet = fleet([
        odd("kind", set("/spec/kind", Value::Null)),
        NewRow::new("status").status("constructor"),
        odd("times", Oddity::FloatTimes),
        odd("millis", Oddity::DeadlineMillis),
        odd("iso", Oddity::DeadlineIso),
        odd("bare", Oddity::Remove { pointer: "/spec/platform".into() }),
        odd("deep", set("/status/new/field", json!([1]))),
        odd("text", Oddity::Replace { value: json!("not a row") }),
        odd("stray", Oddity::Stray).outpost("elsewhere"),
    ]);
    let mut get = |id: &str, pointer: &str| {
        fleet.claim(START, id, "me").unwrap();
        fleet.get(START, id).unwrap().pointer(pointer).cloned()
    };
    assert_eq!(get("kind", "/spec/kind"), Some(Value::Null));
    assert_eq!(get("status", "/status/session_status"), Some(json!("constructor")));
    assert_eq!(get("times", "/metadata/updated_at"), Some(json!(1_781_050_000.5)));
    assert_eq!(get("millis", "/status/claim_deadline"), Some(json!(1_781_050_300_000_i64)));
    assert_eq!(
        get("iso", "/status/claim_deadline").unwrap().as_str().unwrap().get(..19),
        Some("2026-06-10T00:11:40")
    );
    assert_eq!(get("bare", "/spec/platform"), None);
    assert_eq!(get("deep", "/status/new/field/0"), Some(json!(1)));
    let items = fleet.list(START, &everything()).unwrap().items;
    assert!(items.contains(&json!("not a row")));
    assert!(items.iter().any(|row| row["metadata"]["outpost_id"] == "elsewhere"));
}

#[test]
fn outposts_can_be_made_read_and_removed_in_every_spelling() {
    let mut fleet = fleet([NewRow::new("a"), NewRow::new("b")]);
    fleet.claim(START, "a", "me").unwrap();
    let entry = fleet.get_outpost(DEFAULT_OUTPOST, Spelling::Outposts).unwrap();
    assert_eq!(entry["status"], json!({"queue_depth": 1, "active_claims": 1}));
    let old = fleet.get_outpost(DEFAULT_OUTPOST, Spelling::Pools).unwrap();
    assert_eq!(old["metadata"]["pool_id"], DEFAULT_OUTPOST);
    let made = fleet.create_outpost(START, NewOutpost::new("mine", "macos"), Spelling::Bare).unwrap();
    let taken = fleet.create_outpost(START, NewOutpost::new("mine", "linux"), Spelling::Bare);
    assert_eq!(taken.unwrap_err().status(), 409);
    let odd = fleet.create_outpost(START, NewOutpost::new("odd", "beos"), Spelling::Bare);
    assert_eq!(odd.unwrap_err().status(), 422);
    let id = made["metadata"]["outpost_id"].as_str().unwrap();
    let page = fleet.list_outposts(Some(1), None, Spelling::Bare).unwrap();
    assert!(page.has_next_page);
    let rest = fleet.list_outposts(Some(1), page.end_cursor.as_deref(), Spelling::Bare).unwrap();
    assert!(!rest.has_next_page);
    assert_ne!(page.items, rest.items);
    fleet.delete_outpost(id).unwrap();
    assert_eq!(fleet.delete_outpost(id).unwrap_err().status(), 404);
}
