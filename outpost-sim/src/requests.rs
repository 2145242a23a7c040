//! What was asked of a simulator, for tests that count calls.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::fault::Endpoint;

/// One call. Headers and bodies are not kept, so no token is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RequestSeen {
    /// When it came.
    pub at: Timestamp,
    /// What kind of call it was.
    pub endpoint: Endpoint,
    /// The HTTP method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The status that was answered; `None` while it is not, or when the caller left before.
    pub status: Option<u16>,
}

/// Requests kept; the counts go on.
const KEPT: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    seen: VecDeque<RequestSeen>,
    dropped: u64,
    counts: BTreeMap<Endpoint, u64>,
}

impl RequestLog {
    /// Notes a call that came; its number is for [`answered`](Self::answered).
    pub(crate) fn came(&mut self, request: RequestSeen) -> u64 {
        *self.counts.entry(request.endpoint).or_default() += 1;
        self.seen.push_back(request);
        if self.seen.len() > KEPT {
            self.seen.pop_front();
            self.dropped += 1;
        }
        self.dropped + self.seen.len() as u64 - 1
    }

    pub(crate) fn answered(&mut self, number: u64, status: u16) {
        let place = number.checked_sub(self.dropped).and_then(|place| usize::try_from(place).ok());
        if let Some(request) = place.and_then(|place| self.seen.get_mut(place)) {
            request.status = Some(status);
        }
    }

    pub(crate) fn seen(&self) -> &VecDeque<RequestSeen> {
        &self.seen
    }

    pub(crate) fn counts(&self) -> &BTreeMap<Endpoint, u64> {
        &self.counts
    }
}
