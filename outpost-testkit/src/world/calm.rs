//! What must be so once faults have stopped: every live session has its sandbox, and every finished one has none.

use std::collections::BTreeMap;

use outpost_core::model::SandboxState;

use super::people::RIVAL;
use super::queue::Queue;
use super::scenario::Scenario;
use crate::memory::MemoryBackend;

/// Ends what people would have to end: rivals give back, and statuses become ones that are known.
pub(super) fn tidy(queue: &Queue) {
    let rows: Vec<(String, String, bool)> = queue.look(|fleet| {
        let row = |row: &outpost_sim::model::Row| {
            let rival = row.claim.as_ref().is_some_and(|claim| claim.acceptor_id == RIVAL);
            (row.spec.session_id.clone(), row.spec.session_status.clone(), rival)
        };
        fleet.rows().map(row).collect()
    });
    for (id, status, rival) in rows {
        if rival {
            let _ = queue.with(|fleet, now| fleet.seize(now, &id, None));
        }
        if status == "hibernating" {
            let _ = queue.with(|fleet, now| fleet.set_status(now, &id, "suspended"));
        }
    }
}

/// Says what is not at rest; `None` when everything is.
pub(super) fn unrest(scenario: &Scenario, queue: &Queue, backend: &MemoryBackend) -> Option<String> {
    let wanted: Vec<String> = queue.look(|fleet| {
        let rows = fleet.rows().filter(|row| {
            matches!(&*row.spec.session_status, "pending" | "running")
                && row.spec.platform.as_deref() == Some("linux")
        });
        rows.map(|row| row.spec.session_id.clone()).collect()
    });
    let mut served: BTreeMap<String, String> = BTreeMap::new();
    for found in backend.true_sandboxes() {
        let (id, state) = (&found.sandbox.id, &found.sandbox.state);
        let session = id.session.as_str().to_owned();
        if !wanted.contains(&session) {
            return Some(format!("{id} at {} is {state:?} although its session is over", found.instance));
        }
        if *state != SandboxState::Running {
            return Some(format!("{id} at {} is {state:?} and not running", found.instance));
        }
        let acceptor = found.instance.acceptor(&id.session);
        let holder = queue.holder(&session);
        if holder.as_deref() != Some(acceptor.as_str()) {
            return Some(format!("{id} runs at {} and its session is held by {holder:?}", found.instance));
        }
        if let Some(other) = served.insert(session, found.instance.to_string()) {
            return Some(format!("{id} runs at {} and at {other}", found.instance));
        }
    }
    let room = scenario.limit * scenario.orchestrators;
    if served.len() < wanted.len().min(room) {
        let waiting: Vec<_> = wanted.iter().filter(|id| !served.contains_key(*id)).collect();
        return Some(format!("{} of {room} sandboxes run, and {waiting:?} wait", served.len()));
    }
    None
}
