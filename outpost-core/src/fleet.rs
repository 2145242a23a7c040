//! The fleet plan: which of the sessions that want a machine get one now.
//!
//! A pure function: it neither knows how many there will be nor how long a start takes.

use jiff::Timestamp;

use crate::model::SessionId;

/// A session that is to be started, as soon as there is room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Which session.
    pub session: &'a SessionId,
    /// What kind of start it is.
    pub class: StartClass,
    /// Since when it has waited: when its row was made, else when it was first seen.
    pub waiting_since: Timestamp,
}

/// What kind of start it is, the first served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StartClass {
    /// Its sandbox ended although the session goes on; it has kept its slot.
    Restart,
    /// It wakes up.
    Resume,
    /// It has never run.
    New,
}

/// The room there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The most sandboxes that may exist at once.
    pub limit: usize,
    /// Sessions that have a sandbox, or whose start is under way: starting, saving and stopping ones count.
    pub occupied: usize,
    /// Sessions that have none now but keep their slot, because they are started again after a pause.
    pub reserved: usize,
}

/// Which candidates start now: restarts, resumes, new ones, each by age; never more than there is room for. The result does
/// not depend on the order of the candidates.
pub fn admit<'a>(mut candidates: Vec<Candidate<'a>>, room: Room) -> Vec<&'a SessionId> {
    candidates
        .sort_by(|a, b| (a.class, a.waiting_since, a.session).cmp(&(b.class, b.waiting_since, b.session)));
    let free = room.limit.saturating_sub(room.occupied);
    let mut unreserved = free.saturating_sub(room.reserved);
    let mut admitted = Vec::new();
    for candidate in candidates {
        if admitted.len() == free {
            break;
        }
        // A restart takes the slot that it kept, which is not among the reserved ones any more.
        if candidate.class != StartClass::Restart && unreserved == 0 {
            break;
        }
        unreserved = unreserved.saturating_sub(1);
        admitted.push(candidate.session);
    }
    admitted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SessionId {
        SessionId::new(text).unwrap()
    }

    fn candidate(session: &SessionId, class: StartClass, second: i64) -> Candidate<'_> {
        Candidate { session, class, waiting_since: Timestamp::from_second(second).unwrap() }
    }

    #[test]
    fn restarts_come_before_resumes_and_those_before_new_ones_by_age() {
        let (a, b, c, d) = (id("a"), id("b"), id("c"), id("d"));
        let candidates = vec![
            candidate(&a, StartClass::New, 1),
            candidate(&b, StartClass::Resume, 9),
            candidate(&c, StartClass::New, 0),
            candidate(&d, StartClass::Restart, 10),
        ];
        let mut reversed = candidates.clone();
        reversed.reverse();
        let room = Room { limit: 5, occupied: 2, reserved: 0 };
        assert_eq!(admit(candidates, room), [&d, &b, &c]);
        assert_eq!(admit(reversed, room), [&d, &b, &c], "the order of the candidates does not matter");
    }

    #[test]
    fn a_slot_that_is_kept_for_a_restart_is_given_to_nobody_else() {
        let (a, b) = (id("a"), id("b"));
        let room = Room { limit: 2, occupied: 1, reserved: 1 };
        assert!(admit(vec![candidate(&a, StartClass::New, 0)], room).is_empty());
        assert_eq!(admit(vec![candidate(&b, StartClass::Restart, 0)], room), [&b]);
    }

    #[test]
    fn nothing_starts_at_the_limit_or_above() {
        let a = id("a");
        for occupied in [2, 3] {
            let room = Room { limit: 2, occupied, reserved: 0 };
            assert!(admit(vec![candidate(&a, StartClass::Restart, 0)], room).is_empty());
        }
    }
}
