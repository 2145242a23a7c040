//! One change of a session at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use outpost_core::model::SessionId;

/// Whoever changes something of a session holds its turn meanwhile. Sessions do not wait for each other.
#[derive(Debug, Default)]
pub struct Turns {
    turns: Mutex<HashMap<SessionId, Weak<tokio::sync::Mutex<()>>>>,
}

/// A session's turn; dropping it lets the next one go on.
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "held, not read")] tokio::sync::OwnedMutexGuard<()>);

impl Turns {
    /// Waits for the session's turn, and takes it. Dropping the future gives up the place in the queue.
    pub async fn take(&self, session: &SessionId) -> Turn {
        let turn = self.of(session);
        Turn(turn.lock_owned().await)
    }

    fn of(&self, session: &SessionId) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(session).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        turns.insert(session.clone(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_session_waits_for_its_turn_and_another_does_not() {
        let turns = Turns::default();
        let (one, other) = (SessionId::new("devin-1").unwrap(), SessionId::new("devin-2").unwrap());
        let held = turns.take(&one).await;
        assert!(turns.take(&one).now_or_never().is_none());
        assert!(turns.take(&other).now_or_never().is_some());
        drop(held);
        assert!(turns.take(&one).now_or_never().is_some());
    }
}
