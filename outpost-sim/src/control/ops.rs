use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Control, ControlError, RowView};
use crate::fault::FaultRule;
use crate::model::{FleetOptions, LastCursor, NewOutpost, NewRow, Row, Spelling, Waking};
use crate::script::{Playback, Script, Step};
use crate::sim::{Sim, State};

/// An operation. As JSON: `{"op": "wake", "session_id": "devin-1"}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "op")]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are those of the methods of `ControlExt`")]
pub enum Op {
    /// Puts a row into the queue, with what its session does.
    CreateRow {
        row: NewRow,
        #[serde(default)]
        script: Script,
    },
    /// Adds steps to a session's script.
    PushSteps { session_id: String, steps: Vec<Step> },
    /// Lets a session pass a [`Step::Wait`].
    Go { session_id: String, name: String },
    /// Sets a session's status.
    SetStatus { session_id: String, status: String },
    /// Wakes a session with `kind: resume`.
    Wake {
        session_id: String,
        #[serde(default)]
        waking: Waking,
    },
    /// Takes a row out of the queue.
    Tombstone { session_id: String },
    /// Tombstones the released rows that are suspended or terminated.
    Sweep,
    /// Gives a row's claim to another acceptor, or to nobody.
    Seize { session_id: String, acceptor_id: Option<String> },
    /// Makes or replaces an outpost.
    PutOutpost { outpost_id: String, spec: NewOutpost },
    /// Removes an outpost.
    DeleteOutpost { outpost_id: String },
    /// Makes every cursor from before now expire for the watch.
    ForgetHistory,
    /// Moves the clock.
    Advance { ms: u64 },
    /// Changes settings.
    Configure { settings: Settings },
    /// Adds a fault.
    AddFault { rule: FaultRule },
    /// Takes all faults away.
    ClearFaults,
    /// Publishes right or wrong checksums.
    PublishChecksums { checksums: Checksums },
    /// Reads all rows.
    Rows,
    /// Reads one row; null when it is not in the queue.
    Row { session_id: String },
    /// Reads a session's status, also after its row left the queue.
    Status { session_id: String },
    /// Reads the results of a session's commands.
    Results { session_id: String },
    /// Reads the workers that connected.
    Workers,
    /// Reads the claims.
    Claims,
    /// Reads the requests.
    Requests,
    /// Reads the number of requests by endpoint.
    Counts,
    /// Reads the clock.
    Now,
}

/// Settings to change; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Settings {
    /// Rows on a page at most.
    pub page_cap: Option<u32>,
    /// How long a claim lives.
    pub claim_ttl_ms: Option<u64>,
    /// How long a watch lives.
    pub stream_length_ms: Option<u64>,
    /// How long a watch is quiet before it says so.
    pub keep_alive_ms: Option<u64>,
    /// How long a finished row stays.
    pub sweep_after_ms: Option<u64>,
    /// What the last page's cursor stands for.
    pub last_cursor: Option<LastCursor>,
    /// The spellings of the outposts endpoints that are served.
    pub spellings: Option<Vec<Spelling>>,
    /// Where workers connect to.
    pub gateway_url: Option<String>,
    /// The bearer token that the fleet API accepts.
    pub token: Option<String>,
}

/// Whether published checksums are those of what is published.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checksums {
    /// They are.
    #[default]
    Right,
    /// They are not.
    Wrong,
    /// There are none: 404, and none in the manifest.
    Absent,
}

impl Control for Sim {
    fn call(&self, op: Op) -> Result<Value, ControlError> {
        let answer = self.with(|state, now| state.carry_out(now, op));
        self.announce();
        answer
    }
}

impl State {
    fn carry_out(&mut self, now: jiff::Timestamp, op: Op) -> Result<Value, ControlError> {
        self.fleet.settle(now);
        match op {
            Op::CreateRow { row, script } => {
                self.playbacks.insert(row.session_id.clone(), Playback::new(script));
                self.fleet.create(now, row);
            }
            Op::PushSteps { session_id, steps } => self.playback(&session_id)?.push(steps),
            Op::Go { session_id, name } => self.playback(&session_id)?.go(name),
            Op::SetStatus { session_id, status } => self.fleet.set_status(now, &session_id, &status)?,
            Op::Wake { session_id, waking } => self.fleet.wake(now, &session_id, waking)?,
            Op::Tombstone { session_id } => self.fleet.tombstone(now, &session_id)?,
            Op::Sweep => return Ok(json!(self.fleet.sweep(now))),
            Op::Seize { session_id, acceptor_id } => {
                self.fleet.seize(now, &session_id, acceptor_id.as_deref())?
            }
            Op::PutOutpost { outpost_id, spec } => self.fleet.put_outpost(now, outpost_id, spec),
            Op::DeleteOutpost { outpost_id } => self.fleet.delete_outpost(&outpost_id)?,
            Op::ForgetHistory => self.fleet.forget_history(now),
            Op::Advance { ms } => {
                self.advanced += Duration::from_millis(ms);
                self.fleet.settle(now + Duration::from_millis(ms));
            }
            Op::Configure { settings } => self.configure(settings),
            Op::AddFault { rule } => self.faults.add(rule),
            Op::ClearFaults => self.faults.clear(),
            Op::PublishChecksums { checksums } => self.publication.checksums = checksums,
            Op::Rows => return to_json(self.fleet.rows().map(|row| self.view(row)).collect::<Vec<_>>()),
            Op::Row { session_id } => return to_json(self.fleet.row(&session_id).map(|row| self.view(row))),
            Op::Status { session_id } => return to_json(self.fleet.status(&session_id)),
            Op::Results { session_id } => return to_json(self.playback(&session_id)?.results()),
            Op::Workers => return to_json(&self.workers),
            Op::Claims => return to_json(self.fleet.claim_history()),
            Op::Requests => return to_json(self.requests.seen()),
            Op::Counts => return to_json(self.requests.counts()),
            Op::Now => return to_json(now),
        }
        Ok(Value::Null)
    }

    fn view(&self, row: &Row) -> RowView {
        RowView::new(row, self.playbacks.get(&row.spec.session_id))
    }

    fn playback(&mut self, session_id: &str) -> Result<&mut Playback, ControlError> {
        if self.fleet.status(session_id).is_none() {
            return Err(ControlError::Refused(format!("session {session_id} not found")));
        }
        Ok(self.playbacks.entry(session_id.to_owned()).or_default())
    }

    fn configure(&mut self, settings: Settings) {
        let options: &mut FleetOptions = &mut self.fleet.options;
        if let Some(page_cap) = settings.page_cap {
            options.page_cap = page_cap;
        }
        if let Some(ms) = settings.claim_ttl_ms {
            options.claim_ttl = Duration::from_millis(ms);
        }
        if let Some(ms) = settings.sweep_after_ms {
            options.sweep_after = Some(Duration::from_millis(ms));
        }
        if let Some(last_cursor) = settings.last_cursor {
            options.last_cursor = last_cursor;
        }
        if let Some(spellings) = settings.spellings {
            options.spellings = spellings;
        }
        if let Some(gateway_url) = settings.gateway_url {
            options.gateway_url = gateway_url;
        }
        if let Some(ms) = settings.stream_length_ms {
            self.stream_length = Duration::from_millis(ms);
        }
        if let Some(ms) = settings.keep_alive_ms {
            self.keep_alive = Duration::from_millis(ms);
        }
        if let Some(token) = settings.token {
            self.token = token.into();
        }
    }
}

fn to_json(value: impl Serialize) -> Result<Value, ControlError> {
    serde_json::to_value(value).map_err(|error| ControlError::Refused(error.to_string()))
}
