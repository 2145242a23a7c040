//! What was asked of a simulator, for tests that count calls.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::fault::Endpoint;

/// One call. Headers and bodies are not kept, so no token is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RequestSeen {
    /// When it was answered.
    pub at: Timestamp,
    /// What kind of call it was.
    pub endpoint: Endpoint,
    /// The HTTP method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The status that was answered.
    pub status: u16,
}

/// Requests kept; the counts go on.
const KEPT: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    seen: VecDeque<RequestSeen>,
    counts: BTreeMap<Endpoint, u64>,
}

impl RequestLog {
    pub(crate) fn record(&mut self, request: RequestSeen) {
        *self.counts.entry(request.endpoint).or_default() += 1;
        self.seen.push_back(request);
        if self.seen.len() > KEPT {
            self.seen.pop_front();
        }
    }

    pub(crate) fn seen(&self) -> &VecDeque<RequestSeen> {
        &self.seen
    }

    pub(crate) fn counts(&self) -> &BTreeMap<Endpoint, u64> {
        &self.counts
    }
}
