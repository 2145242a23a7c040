//! Faults on request: a small table of rules that the servers consult for every call.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A group of endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Endpoint {
    /// `GET /outposts/devins`
    List,
    /// `GET /outposts/devins?watch=true`
    Watch,
    /// `GET /outposts/devins/{session_id}`
    Get,
    /// `POST …/claim`
    Claim,
    /// `POST …/release`
    Release,
    /// Everything about outposts.
    Outposts,
    /// Published binaries and their checksums.
    Static,
    /// What workers call.
    Gateway,
    /// Paths that do not exist.
    Other,
}

/// When a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Times {
    /// So many calls.
    Count(u32),
    /// Every call until the rule is taken away.
    Always,
    /// So many of a thousand calls, by the table's seed.
    PerMille(u32),
}

/// A fault, where and when it strikes. The first rule that matches a call decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FaultRule {
    /// Where; `None`: everywhere in the fleet API.
    #[serde(default)]
    pub endpoint: Option<Endpoint>,
    /// Only calls whose path holds this session id.
    #[serde(default)]
    pub session_id: Option<String>,
    /// Calls that pass before the first one is struck.
    #[serde(default)]
    pub skip: u32,
    /// How often.
    #[serde(default = "once")]
    pub times: Times,
    /// What.
    pub fault: Fault,
}

fn once() -> Times {
    Times::Count(1)
}

impl FaultRule {
    /// Once, at one endpoint.
    #[must_use]
    pub fn once(endpoint: Endpoint, fault: Fault) -> Self {
        Self { endpoint: Some(endpoint), session_id: None, skip: 0, times: Times::Count(1), fault }
    }

    /// At every call of one endpoint.
    #[must_use]
    pub fn always(endpoint: Endpoint, fault: Fault) -> Self {
        Self { times: Times::Always, ..Self::once(endpoint, fault) }
    }

    /// At every call of the fleet API.
    #[must_use]
    pub fn everywhere(fault: Fault) -> Self {
        Self { endpoint: None, session_id: None, skip: 0, times: Times::Always, fault }
    }

    /// As often as this.
    #[must_use]
    pub fn times(mut self, times: Times) -> Self {
        self.times = times;
        self
    }

    /// After so many calls.
    #[must_use]
    pub fn after(mut self, skip: u32) -> Self {
        self.skip = skip;
        self
    }

    /// Only for one session.
    #[must_use]
    pub fn session(mut self, session_id: impl Into<String>) -> Self {
        self.session_id = Some(session_id.into());
        self
    }
}

/// Something that goes wrong with a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fault {
    /// The answer comes later.
    Delay {
        /// How much.
        ms: u64,
    },
    /// Another answer, before or after the call had its effect.
    Answer {
        /// The status.
        status: u16,
        /// The `Retry-After` header: seconds or an HTTP date.
        #[serde(default)]
        retry_after: Option<String>,
        /// The body.
        #[serde(default)]
        body: ErrorBody,
        /// Whether the call is carried out all the same.
        #[serde(default)]
        effect: Effect,
    },
    /// The call is carried out, and the connection breaks before the answer.
    LoseReply,
    /// The connection breaks before the call is carried out.
    Refuse,
    /// The connection breaks in the middle of the body.
    CutBody {
        /// After so many bytes.
        after_bytes: usize,
    },
    /// The body stops without an end.
    StallBody {
        /// After so many bytes.
        after_bytes: usize,
    },
    /// The body ends early, as if it were whole; a watch just ends.
    EndBody {
        /// After so many bytes.
        after_bytes: usize,
    },
    /// The body comes in pieces of this size.
    SplitBody {
        /// At least 1.
        chunk_bytes: usize,
    },
    /// A list is answered as the same list was the last time; only once there was one since this rule came.
    StaleList,
    /// A watch that is open and says nothing, not even keep-alives.
    Silence,
    /// A list says that more follows and repeats the cursor that it was asked with.
    RepeatCursor,
    /// A list says that more follows and has no cursor.
    MissingCursor,
    /// A list leaves out so many of its rows, from the front.
    LoseRows {
        /// How many.
        count: usize,
    },
    /// A list has a row more that is no row.
    MalformedRow,
    /// A list has a field more, of this length.
    HugeBody {
        /// How long.
        bytes: usize,
    },
    /// Claim deadlines are off by this much.
    SkewDeadline {
        /// How much; negative is earlier.
        secs: i64,
    },
}

impl Fault {
    /// Another answer instead of the effect.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::Answer { status, retry_after: None, body: ErrorBody::default(), effect: Effect::None }
    }

    /// 429 with `Retry-After` in seconds.
    #[must_use]
    pub fn rate_limited(after: Duration) -> Self {
        let retry_after = Some(after.as_secs().to_string());
        Self::Answer { status: 429, retry_after, body: ErrorBody::default(), effect: Effect::None }
    }

    /// Another answer although the call had its effect.
    #[must_use]
    pub fn status_after_effect(status: u16) -> Self {
        Self::Answer { status, retry_after: None, body: ErrorBody::default(), effect: Effect::Applied }
    }
}

/// Whether a failing call is carried out all the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It is not.
    #[default]
    None,
    /// It is.
    Applied,
}

/// An error's body.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorBody {
    /// `{"detail": "simulated fault"}`
    #[default]
    Detail,
    /// Nothing.
    Empty,
    /// Anything.
    Text(String),
}

/// The rules in force.
#[derive(Debug)]
pub struct FaultTable {
    rules: Vec<FaultRule>,
    random: fastrand::Rng,
    /// The last answers of lists by path, kept only while a rule can want them.
    answers: BTreeMap<String, Bytes>,
}

impl FaultTable {
    /// No rules; probabilities are drawn from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { rules: Vec::new(), random: fastrand::Rng::with_seed(seed), answers: BTreeMap::new() }
    }

    /// Adds a rule behind the others.
    pub fn add(&mut self, rule: FaultRule) {
        self.rules.push(rule);
    }

    /// Takes all rules away.
    pub fn clear(&mut self) {
        self.rules.clear();
        self.answers.clear();
    }

    pub(crate) fn wants_answers(&self) -> bool {
        self.rules.iter().any(|rule| rule.fault == Fault::StaleList)
    }

    pub(crate) fn remember(&mut self, path: String, answer: Bytes) {
        self.answers.insert(path, answer);
    }

    pub(crate) fn remembered(&self, path: &str) -> Option<Bytes> {
        self.answers.get(path).cloned()
    }

    /// The fault that strikes this call, if any. A rule that is used up is gone.
    pub fn strike(&mut self, endpoint: Endpoint, path: &str) -> Option<Fault> {
        let everywhere = !matches!(endpoint, Endpoint::Static | Endpoint::Gateway);
        let mut struck = None;
        for (index, rule) in self.rules.iter_mut().enumerate() {
            let here = rule.endpoint.map_or(everywhere, |wanted| wanted == endpoint);
            let about = |id: &String| path.split('/').any(|part| part == id);
            if !here || !rule.session_id.as_ref().is_none_or(about) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            let strikes = match &mut rule.times {
                Times::Always => true,
                Times::PerMille(chance) => self.random.u32(0..1000) < *chance,
                Times::Count(0) => false,
                Times::Count(left) => {
                    *left -= 1;
                    true
                }
            };
            if strikes {
                struck = Some((index, rule.fault.clone()));
                break;
            }
        }
        let (index, fault) = struck?;
        if self.rules[index].times == Times::Count(0) {
            self.rules.remove(index);
        }
        Some(fault)
    }
}
