use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Claim, DEFAULT_OUTPOST};

/// A row to put into the queue.
///
/// ```
/// use outpost_sim::model::NewRow;
///
/// let row = NewRow::new("devin-1").status("running").platform("linux");
/// assert_eq!(row.kind, "new");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NewRow {
    /// The session's id.
    pub session_id: String,
    /// The outpost it waits in; [`DEFAULT_OUTPOST`] unless said.
    #[serde(default = "default_outpost")]
    pub outpost_id: String,
    /// `new`, `resume`, or anything.
    #[serde(default = "default_kind")]
    pub kind: String,
    /// `linux`, `macos`, `windows`, or anything; `None` is served as null.
    #[serde(default = "default_platform")]
    pub platform: Option<String>,
    /// The pinned `devin-remote`.
    #[serde(default)]
    pub remote_binary_sha: Option<String>,
    /// Served as it is; absent when `None`.
    #[serde(default)]
    pub network_policy: Option<Value>,
    /// `pending`, `running`, `suspended`, `terminated`, or anything.
    #[serde(default = "default_status")]
    pub session_status: String,
    /// When the session was made; now unless said.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    /// Its place in the list; now unless said. Saying it allows several rows at one instant, which the
    /// cursor cannot tell apart.
    #[serde(default)]
    pub updated_at: Option<Timestamp>,
    /// What is odd about how it is served.
    #[serde(default)]
    pub oddities: Vec<Oddity>,
}

fn default_outpost() -> String {
    DEFAULT_OUTPOST.to_owned()
}
fn default_kind() -> String {
    "new".to_owned()
}
fn default_platform() -> Option<String> {
    Some("linux".to_owned())
}
fn default_status() -> String {
    "pending".to_owned()
}

impl NewRow {
    /// A new Linux session that waits in [`DEFAULT_OUTPOST`].
    pub fn new(session_id: impl Into<String>) -> Self {
        Self {
            session_id: session_id.into(),
            outpost_id: default_outpost(),
            kind: default_kind(),
            platform: default_platform(),
            remote_binary_sha: None,
            network_policy: None,
            session_status: default_status(),
            created_at: None,
            updated_at: None,
            oddities: Vec::new(),
        }
    }

    /// In another outpost.
    #[must_use]
    pub fn outpost(mut self, outpost_id: impl Into<String>) -> Self {
        self.outpost_id = outpost_id.into();
        self
    }

    /// With another kind.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = kind.into();
        self
    }

    /// For another platform.
    #[must_use]
    pub fn platform(mut self, platform: impl Into<String>) -> Self {
        self.platform = Some(platform.into());
        self
    }

    /// In another session status.
    #[must_use]
    pub fn status(mut self, session_status: impl Into<String>) -> Self {
        self.session_status = session_status.into();
        self
    }

    /// With a pinned `devin-remote`.
    #[must_use]
    pub fn pinned(mut self, sha: impl Into<String>) -> Self {
        self.remote_binary_sha = Some(sha.into());
        self
    }

    /// At a place in the list of its own.
    #[must_use]
    pub fn updated_at(mut self, at: Timestamp) -> Self {
        self.updated_at = Some(at);
        self
    }

    /// With one more oddity.
    #[must_use]
    pub fn odd(mut self, oddity: Oddity) -> Self {
        self.oddities.push(oddity);
        self
    }
}

/// Something odd about how one row is served. Applied in order, after the row was rendered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Oddity {
    /// Puts a value at an RFC 6901 pointer such as `/spec/kind`, making objects on the way.
    Set {
        /// Where.
        pointer: String,
        /// What.
        value: Value,
    },
    /// Leaves a field out.
    Remove {
        /// Where.
        pointer: String,
    },
    /// Serves this instead of the row.
    Replace {
        /// Any JSON, objects or not.
        value: Value,
    },
    /// `claim_deadline` in milliseconds.
    DeadlineMillis,
    /// `claim_deadline` as ISO 8601 text.
    DeadlineIso,
    /// All times as floats.
    FloatTimes,
    /// Appears in the answers for every outpost.
    Stray,
}

/// A row of the queue.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Row {
    /// What it was made from; `kind` and `session_status` change with the session.
    pub spec: NewRow,
    /// When the session was made.
    pub created_at: Timestamp,
    /// Its place in the list.
    pub updated_at: Timestamp,
    /// Who holds it.
    pub claim: Option<Claim>,
}

impl Row {
    pub(crate) fn is_stray(&self) -> bool {
        self.spec.oddities.contains(&Oddity::Stray)
    }

    /// `claimed` or `pending`.
    #[must_use]
    pub fn phase(&self) -> &'static str {
        if self.claim.is_some() { "claimed" } else { "pending" }
    }

    /// Whether it waits for a sweeper: released, and suspended or terminated.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.claim.is_none() && matches!(&*self.spec.session_status, "suspended" | "terminated")
    }

    /// The row as list, get and watch serve it: without connect token and gateway.
    pub(crate) fn render(&self, outpost_field: &str) -> Value {
        self.render_with(outpost_field, None)
    }

    /// The row as a claim's answer serves it.
    pub(crate) fn render_with(&self, outpost_field: &str, grant: Option<(&str, &str)>) -> Value {
        let spec = &self.spec;
        let mut rendered_spec = Map::new();
        rendered_spec.insert("kind".into(), spec.kind.clone().into());
        rendered_spec.insert("platform".into(), spec.platform.clone().into());
        rendered_spec.insert("remote_binary_sha".into(), spec.remote_binary_sha.clone().into());
        if let Some(policy) = &spec.network_policy {
            rendered_spec.insert("network_policy".into(), policy.clone());
        }
        let claim = self.claim.as_ref();
        let mut entry = json!({
            "metadata": {
                "session_id": spec.session_id,
                outpost_field: spec.outpost_id,
                "created_at": self.created_at.as_second(),
                "updated_at": self.updated_at.as_second(),
            },
            "spec": rendered_spec,
            "status": {
                "phase": self.phase(),
                "acceptor_id": claim.map(|claim| &claim.acceptor_id),
                "claim_deadline": claim.map(|claim| claim.deadline.as_second()),
                "session_status": spec.session_status,
                "connect_token": grant.map(|(token, _)| token),
                "gateway_url": grant.map(|(_, url)| url),
            },
        });
        for oddity in &spec.oddities {
            self.apply(oddity, &mut entry);
        }
        entry
    }

    fn apply(&self, oddity: &Oddity, entry: &mut Value) {
        let deadline = self.claim.as_ref().map(|claim| claim.deadline);
        match oddity {
            Oddity::Set { pointer, value } => set(entry, pointer, value.clone()),
            Oddity::Remove { pointer } => remove(entry, pointer),
            Oddity::Replace { value } => *entry = value.clone(),
            Oddity::DeadlineMillis => {
                if let Some(deadline) = deadline {
                    set(entry, "/status/claim_deadline", deadline.as_millisecond().into());
                }
            }
            Oddity::DeadlineIso => {
                if let Some(deadline) = deadline {
                    set(entry, "/status/claim_deadline", deadline.to_string().into());
                }
            }
            Oddity::FloatTimes => {
                set(entry, "/metadata/created_at", seconds(self.created_at).into());
                set(entry, "/metadata/updated_at", seconds(self.updated_at).into());
                if let Some(deadline) = deadline {
                    set(entry, "/status/claim_deadline", seconds(deadline).into());
                }
            }
            Oddity::Stray => {}
        }
    }
}

/// Half a second is added so that the number never looks like an integer.
fn seconds(at: Timestamp) -> f64 {
    let whole = at.as_second() as f64;
    whole + 0.5
}

fn set(target: &mut Value, pointer: &str, value: Value) {
    let mut place = target;
    for key in keys(pointer) {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Some(object) = place.as_object_mut() else { return };
        place = object.entry(key).or_insert(Value::Null);
    }
    *place = value;
}

fn remove(target: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(object)) = target.pointer_mut(parent) {
        object.remove(last);
    }
}

fn keys(pointer: &str) -> impl Iterator<Item = String> + '_ {
    pointer.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~"))
}
