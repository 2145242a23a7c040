use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::{Freshness, Row};
use crate::script::Playback;

/// A row as control reads it back: what the queue knows, whatever oddities it is served with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RowView {
    /// The session.
    pub session_id: String,
    /// Its outpost.
    pub outpost_id: String,
    /// Its kind.
    pub kind: String,
    /// `pending` or `claimed`.
    pub phase: String,
    /// The session's status.
    pub session_status: String,
    /// Who holds it.
    pub acceptor_id: Option<String>,
    /// Until when.
    pub claim_deadline: Option<Timestamp>,
    /// When it changed.
    pub updated_at: Timestamp,
    /// Steps of its script that are still to come.
    pub steps_left: usize,
    /// Whether a command runs, as far as was reported.
    pub command_runs: bool,
}

impl RowView {
    pub(crate) fn new(row: &Row, playback: Option<&Playback>) -> Self {
        let claim = row.claim.as_ref();
        Self {
            session_id: row.spec.session_id.clone(),
            outpost_id: row.spec.outpost_id.clone(),
            kind: row.spec.kind.clone(),
            phase: row.phase().to_owned(),
            session_status: row.spec.session_status.clone(),
            acceptor_id: claim.map(|claim| claim.acceptor_id.clone()),
            claim_deadline: claim.map(|claim| claim.deadline),
            updated_at: row.updated_at,
            steps_left: playback.map_or(0, Playback::left),
            command_runs: playback.is_some_and(|playback| !playback.is_finished() && playback.left() == 0),
        }
    }
}

/// A worker that connected to the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkerView {
    /// Its number; later workers have greater ones.
    pub worker: u64,
    /// Whom it serves.
    pub session_id: String,
    /// `devin-remote`, `cli` or `cli-direct`.
    pub mode: String,
    /// Its process id on its machine.
    pub pid: u32,
    /// Its working directory.
    pub directory: String,
    /// Whether `repos` lay in it.
    pub repos_here: bool,
    /// When it came.
    pub connected_at: Timestamp,
    /// Whether its connect token was the newest one then.
    pub token: Freshness,
    /// An earlier worker of the session that was certainly alive when this one came.
    pub overlaps: Option<u64>,
    /// The names of its environment.
    pub env_names: Vec<String>,
    /// Names that the documented contract of `devin-remote serve` does not have.
    pub unexpected_env: Vec<String>,
    /// Names whose values look like a fleet token.
    pub fleet_token_in: Vec<String>,
    /// When it last said anything.
    pub last_seen: Timestamp,
    /// The exit code that it announced when it left in good order.
    pub left_with: Option<u8>,
}
