//! What really happens, in order, for the checker of the promises.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use outpost_core::invariants::Fact;
use outpost_core::model::InstanceId;

/// Facts, each with the orchestrator that it is about. Clones are the same journal. One that nobody reads keeps nothing.
#[derive(Clone, Default)]
pub struct Journal(Option<Arc<Mutex<Facts>>>);

type Facts = Vec<(InstanceId, Fact)>;

impl Journal {
    /// A journal that is read: it keeps what it hears until [`take`](Self::take).
    #[must_use]
    pub fn kept() -> Self {
        Self(Some(Arc::default()))
    }

    /// Writes a fact down.
    pub fn note(&self, instance: &InstanceId, fact: Fact) {
        if let Some(facts) = &self.0 {
            facts.lock().unwrap_or_else(PoisonError::into_inner).push((instance.clone(), fact));
        }
    }

    /// The facts since this was last asked, in the order in which they came about.
    #[must_use]
    pub fn take(&self) -> Vec<(InstanceId, Fact)> {
        let Some(facts) = &self.0 else { return Vec::new() };
        std::mem::take(&mut *facts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Journal(kept)" } else { "Journal(not kept)" })
    }
}
