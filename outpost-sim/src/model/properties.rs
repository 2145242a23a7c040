//! What the queue promises, for every sequence of calls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::{START, everything, fleet, ids};
use super::*;

#[derive(Debug, Clone)]
enum Act {
    Claim(usize, usize),
    Release(usize, usize),
    Status(usize, &'static str),
    Wake(usize),
    Tombstone(usize),
    Sweep,
    List,
    Pass(u64),
}

const SESSIONS: [&str; 3] = ["devin-1", "devin-2", "devin-3"];
const ACCEPTORS: [&str; 3] = ["x", "y", "z"];
const STATUSES: [&str; 5] = ["pending", "running", "suspended", "terminated", "odd"];

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let session = || 0..SESSIONS.len();
    let acceptor = || 0..ACCEPTORS.len();
    let act = prop_oneof![
        6 => (session(), acceptor()).prop_map(|(s, a)| Act::Claim(s, a)),
        3 => (session(), acceptor()).prop_map(|(s, a)| Act::Release(s, a)),
        3 => (session(), prop::sample::select(&STATUSES[..])).prop_map(|(s, status)| Act::Status(s, status)),
        1 => session().prop_map(Act::Wake),
        1 => session().prop_map(Act::Tombstone),
        1 => Just(Act::Sweep),
        2 => Just(Act::List),
        3 => (0..400u64).prop_map(Act::Pass),
    ];
    prop::collection::vec(act, 1..60)
}

/// What a reader of the documentation would expect, kept beside the model.
#[derive(Debug, Clone)]
struct Expected {
    holder: Option<(usize, Timestamp)>,
    status: String,
}

proptest! {
    /// The model against the documentation: exactly one acceptor wins, a renewal never gets 409, an
    /// expired claim is free unless the session runs, and nothing but a wake ends a sleep.
    #[test]
    fn claims_are_compare_and_swap(acts in acts()) {
        let mut fleet = fleet(SESSIONS.map(NewRow::new));
        let fresh = Expected { holder: None, status: "pending".to_owned() };
        let mut rows: BTreeMap<usize, Expected> = (0..SESSIONS.len()).map(|s| (s, fresh.clone())).collect();
        let mut now = START;
        for act in acts {
            now += Duration::from_millis(1);
            match act {
                Act::Claim(s, a) => {
                    let answer = fleet.claim(now, SESSIONS[s], ACCEPTORS[a]).map_err(|refusal| refusal.status());
                    let Some(row) = rows.get_mut(&s) else { prop_assert_eq!(answer, Err(404)); continue };
                    let free = row.holder.is_none_or(|(holder, deadline)| {
                        holder == a || (deadline <= now && row.status != "running")
                    });
                    prop_assert_eq!(answer.is_ok(), free, "{:?} {:?}", row, answer);
                    if free {
                        row.holder = Some((a, now + Duration::from_secs(300)));
                    } else {
                        prop_assert_eq!(answer, Err(409));
                    }
                }
                Act::Release(s, a) => {
                    let answer = fleet.release(now, SESSIONS[s], ACCEPTORS[a]).map_err(|refusal| refusal.status());
                    let Some(row) = rows.get_mut(&s) else { prop_assert_eq!(answer, Err(404)); continue };
                    let held = row.holder.is_some_and(|(holder, deadline)| {
                        holder == a && (deadline > now || row.status == "running")
                    });
                    prop_assert_eq!(answer.is_ok(), held);
                    // A refused release of an expired claim has put it back; either way it is free.
                    let expired = row.holder.is_some_and(|(_, deadline)| deadline <= now && row.status != "running");
                    if held || expired {
                        row.holder = None;
                    }
                }
                Act::Status(s, status) => {
                    if let Some(row) = rows.get_mut(&s) {
                        fleet.set_status(now, SESSIONS[s], status).unwrap();
                        status.clone_into(&mut row.status);
                    }
                }
                Act::Wake(s) => {
                    fleet.wake(now, SESSIONS[s], Waking::Pending).unwrap();
                    rows.insert(s, fresh.clone());
                }
                Act::Tombstone(s) => {
                    prop_assert_eq!(fleet.tombstone(now, SESSIONS[s]).is_ok(), rows.remove(&s).is_some());
                }
                Act::Sweep => {
                    fleet.sweep(now);
                    rows.retain(|_, row| row.holder.is_some() || !matches!(&*row.status, "suspended" | "terminated"));
                }
                Act::List => {
                    let page = fleet.list(now, &everything()).unwrap();
                    let listed: BTreeSet<_> = ids(&page.items).into_iter().map(str::to_owned).collect();
                    let expected: BTreeSet<_> = rows.keys().map(|s| SESSIONS[*s].to_owned()).collect();
                    prop_assert_eq!(listed, expected);
                    for item in &page.items {
                        let s = SESSIONS.iter().position(|id| item["metadata"]["session_id"] == *id).unwrap();
                        let row = rows.get_mut(&s).unwrap();
                        if row.holder.is_some_and(|(_, deadline)| deadline <= now && row.status != "running") {
                            row.holder = None;
                        }
                        prop_assert_eq!(&item["status"]["session_status"], &json!(row.status));
                        prop_assert_eq!(&item["status"]["acceptor_id"], &json!(row.holder.map(|(a, _)| ACCEPTORS[a])));
                        prop_assert_eq!(&item["status"]["phase"], if row.holder.is_some() { "claimed" } else { "pending" });
                    }
                }
                Act::Pass(secs) => now += Duration::from_secs(secs),
            }
        }
    }

    /// Whoever lists and then watches from the last cursor knows the queue as it is, whatever happens
    /// and however small the pages are.
    #[test]
    fn list_and_watch_together_miss_nothing(
        before in acts(), after in acts(), size in 2u32..5, clock in any::<bool>(), cut in 0usize..40,
    ) {
        let mut fleet = fleet(SESSIONS.map(NewRow::new));
        if clock {
            fleet.options.last_cursor = LastCursor::ServerClock;
        }
        let mut now = play(&mut fleet, START, &before);
        let mut known: BTreeMap<String, Value> = BTreeMap::new();
        let mut query = everything().first(size);
        let mut end = None;
        for _ in 0..10 {
            let page = fleet.list(now, &query).unwrap();
            for item in &page.items {
                known.insert(ids(std::slice::from_ref(item))[0].to_owned(), item.clone());
            }
            if !page.has_next_page {
                end = Some(page.cursor);
                break;
            }
            query = query.from_cursor(page.cursor);
        }
        let cursor = end.expect("paging never ends");
        let (between, later) = after.split_at(cut.min(after.len()));
        now = play(&mut fleet, now, between);
        let mut position = fleet.watch_from(now, Some(&cursor)).unwrap();
        for part in [&[][..], later] {
            now = play(&mut fleet, now, part);
            let (events, next) = fleet.events(now, Some(DEFAULT_OUTPOST), position);
            position = next;
            for event in events {
                let id = event.object["metadata"]["session_id"].as_str().unwrap().to_owned();
                match event.kind {
                    EventKind::Modified => known.insert(id, (*event.object).clone()),
                    EventKind::Deleted => known.remove(&id),
                };
            }
        }
        let actual: BTreeMap<String, Value> =
            fleet.rows().map(|row| (row.spec.session_id.clone(), row.render("outpost_id"))).collect();
        prop_assert_eq!(known, actual);
    }
}

/// Plays acts without a look at the answers.
fn play(fleet: &mut Fleet, mut now: Timestamp, acts: &[Act]) -> Timestamp {
    for act in acts {
        // Half of the acts share their instant with the one before.
        now += Duration::from_millis(u64::from(matches!(act, Act::Pass(_))));
        match *act {
            Act::Claim(s, a) => drop(fleet.claim(now, SESSIONS[s], ACCEPTORS[a])),
            Act::Release(s, a) => drop(fleet.release(now, SESSIONS[s], ACCEPTORS[a])),
            Act::Status(s, status) => drop(fleet.set_status(now, SESSIONS[s], status)),
            Act::Wake(s) => drop(fleet.wake(now, SESSIONS[s], Waking::Running)),
            Act::Tombstone(s) => drop(fleet.tombstone(now, SESSIONS[s])),
            Act::Sweep => drop(fleet.sweep(now)),
            Act::List => drop(fleet.list(now, &everything())),
            Act::Pass(secs) => now += Duration::from_secs(secs),
        }
    }
    now
}
