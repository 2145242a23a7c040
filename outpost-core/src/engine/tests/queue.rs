//! Listing and watching.

use jiff::SignedDuration;

use super::fake::{Fake, HOUR, Worker, id, secs};
use crate::engine::{Input, NoticeKind};
use crate::model::{OutpostId, Owner, Phase, Session, SessionStatus};
use crate::ports::{ErrorKind, Listing, WatchEvent};

// lesson 1
#[test]
fn a_row_that_comes_twice_counts_as_it_came_last() {
    let mut world = Fake::new();
    world.run_for(secs(1));
    world.set("a", SessionStatus::Suspended);
    let suspended = world.row("a").clone();
    let updated_at = suspended.updated_at.map(|at| at - SignedDuration::from_secs(1));
    let running = Session { status: SessionStatus::Running, updated_at, ..suspended.clone() };
    world.hold = Some("list");
    world.run_for(secs(30));
    world.engine.handle(world.now, Input::Sessions(Ok(Listing::new(vec![running, suspended], None))));
    world.run_for(secs(1));
    assert!(world.steps("a").is_empty(), "{:?}", world.steps("a"));
}

// lesson 4
#[test]
fn an_empty_list_and_a_failed_list_end_nothing() {
    let mut world = Fake::new();
    world.serve("a");
    let rows = std::mem::take(&mut world.rows);
    world.run_for(secs(55));
    assert!(world.is_live("a"), "absent for less than a minute");
    world.rows = rows;
    world.run_for(secs(60));
    world.faults.list = Some(ErrorKind::Invalid);
    world.run_for(HOUR);
    assert!(world.is_live("a"));
    assert_eq!(world.steps("a"), ["start"]);
}

// lesson 4
#[test]
fn absence_from_lists_is_no_end_while_the_session_still_answers_by_itself() {
    let mut world = Fake::new();
    world.serve("a");
    let row = world.row("a").clone();
    for _ in 0..60 {
        // The list has lost the row; a look finds it.
        world.hold = Some("list");
        world.run_for(secs(10));
        world.hold = None;
        world.engine.handle(world.now, Input::Sessions(Ok(Listing::new(vec![], None))));
    }
    assert!(world.count("look") > 0, "it is looked at");
    assert_eq!(world.rows[&id("a")].status, row.status);
    assert!(world.is_live("a"));
}

// lesson 5
#[test]
fn a_session_starts_within_one_list_interval_though_the_watch_is_silent() {
    let mut world = Fake::new();
    world.run_for(secs(3));
    world.set("a", SessionStatus::Pending);
    world.run_for(secs(10));
    assert!(world.is_live("a"));
}

// lesson 5
#[test]
fn a_session_that_the_watch_reports_starts_at_once() {
    let mut world = Fake::new();
    world.run_for(secs(3));
    world.set("a", SessionStatus::Pending);
    world.watch_row("a");
    world.run_for(secs(0));
    assert!(world.is_live("a"));
}

// lesson 7
#[test]
fn an_unknown_status_or_phase_is_left_as_it_is_and_told_once() {
    let mut world = Fake::new();
    for (name, text) in [("a", "constructor"), ("b", ""), ("c", "null"), ("d", "42")] {
        world.set(name, SessionStatus::Unknown(text.into()));
    }
    world.set("phase", SessionStatus::Pending);
    world.row("phase").phase = Phase::Unknown("reserved".into());
    world.set("served", SessionStatus::Pending);
    world.serve("odd");
    world.set("odd", SessionStatus::Unknown("dreaming".into()));
    world.run_for(HOUR);
    assert!(world.is_live("served") && world.is_live("odd"));
    assert_eq!(world.owner("odd"), Owner::Us, "it keeps its claim");
    assert_eq!(world.count("start"), 2);
    assert_eq!(world.told(NoticeKind::Unclear), 6);
}

// lesson 8
#[test]
fn a_row_of_another_outpost_is_ignored_and_counted() {
    let mut world = Fake::new();
    world.set("a", SessionStatus::Pending);
    world.row("a").outpost = OutpostId::new("outpost_env-2").unwrap();
    world.run_for(secs(15));
    world.watch_row("a");
    world.run_for(secs(1));
    assert_eq!(world.count("start"), 0);
    assert_eq!(world.engine.report(world.now).counters.foreign_rows, 3);
}

// lesson 54
#[test]
fn a_storm_of_triggers_queues_one_more_list() {
    let mut world = Fake::new();
    world.run_for(secs(2));
    let before = world.count("list");
    for _ in 0..1000 {
        world.watch(WatchEvent::ListAgain);
        world.watch(WatchEvent::Deleted(id("b")));
    }
    world.run_for(secs(5));
    assert!(world.count("list") <= before + 2, "{}", world.count("list") - before);
}

#[test]
fn ten_thousand_sessions_cost_no_call_but_the_list() {
    let mut policy = super::fake::policy();
    policy.limit = 200;
    let mut world = Fake::with(policy, crate::ports::Capabilities::default());
    for number in 0..10_000 {
        world.set(&format!("devin-{number:05}"), SessionStatus::Pending);
    }
    world.run_for(secs(65));
    assert_eq!(world.sandboxes.len(), 200, "as many as there is room for");
    let before = world.calls.len();
    world.run_for(secs(10));
    let calls: Vec<_> = world.calls[before..].iter().map(|call| call.name).collect();
    assert_eq!(calls.iter().filter(|name| **name == "list").count(), 1);
    assert!(calls.iter().all(|name| matches!(*name, "list" | "inventory")), "{calls:?}");
}

#[test]
fn a_burst_above_the_limit_never_has_more_sandboxes_than_the_limit() {
    let mut policy = super::fake::policy();
    policy.limit = 3;
    let mut world = Fake::with(policy, crate::ports::Capabilities::default());
    for number in 0..9 {
        let name = format!("devin-{number}");
        world.workers.insert(id(&name), if number % 3 == 0 { Worker::Exits(1) } else { Worker::Lives });
        world.set(&name, SessionStatus::Pending);
    }
    for _ in 0..600 {
        world.run_for(secs(1));
        assert!(world.sandboxes.len() <= 3);
    }
    let served = world.sandboxes.iter().filter(|sandbox| sandbox.state.is_live()).count();
    assert_eq!(served, 3, "what crashes gives its slot to what works");
    assert!(world.engine.report(world.now).waiting >= 3);
}
