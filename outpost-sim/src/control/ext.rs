use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::{Checksums, Control, ControlError, Op, RowView, Settings, WorkerView};
use crate::fault::{Endpoint, FaultRule};
use crate::model::{ClaimRecord, NewOutpost, NewRow, Waking};
use crate::requests::RequestSeen;
use crate::script::{RunResult, Script, Step};

type Result<T> = std::result::Result<T, ControlError>;

/// The operations as methods, on everything that is [`Control`].
///
/// # Errors
///
/// All of them: [`ControlError`], as [`Control::call`] says.
pub trait ControlExt: Control {
    /// Puts a row into the queue. Its session does nothing until steps are pushed.
    fn create(&self, row: NewRow) -> Result<()> {
        self.create_scripted(row, Vec::new())
    }

    /// Puts a row into the queue, with what its session does.
    fn create_scripted(&self, row: NewRow, script: Script) -> Result<()> {
        self.call(Op::CreateRow { row, script }).map(drop)
    }

    /// Adds steps to the end of a session's script.
    fn push(&self, session_id: &str, steps: Vec<Step>) -> Result<()> {
        self.call(Op::PushSteps { session_id: session_id.to_owned(), steps }).map(drop)
    }

    /// Lets a session pass the [`Step::Wait`] of this name, now or when it gets there.
    fn go(&self, session_id: &str, name: &str) -> Result<()> {
        self.call(Op::Go { session_id: session_id.to_owned(), name: name.to_owned() }).map(drop)
    }

    /// Sets a session's status; an ending tells its worker to leave.
    fn set_status(&self, session_id: &str, status: &str) -> Result<()> {
        self.call(Op::SetStatus { session_id: session_id.to_owned(), status: status.to_owned() }).map(drop)
    }

    /// Wakes a session as `pending`, `kind: resume`.
    fn wake(&self, session_id: &str) -> Result<()> {
        self.wake_as(session_id, Waking::Pending)
    }

    /// Wakes a session.
    fn wake_as(&self, session_id: &str, waking: Waking) -> Result<()> {
        self.call(Op::Wake { session_id: session_id.to_owned(), waking }).map(drop)
    }

    /// Takes a row out of the queue, whatever its status.
    fn tombstone(&self, session_id: &str) -> Result<()> {
        self.call(Op::Tombstone { session_id: session_id.to_owned() }).map(drop)
    }

    /// Tombstones the released rows that are suspended or terminated; answers how many.
    fn sweep(&self) -> Result<usize> {
        self.read(Op::Sweep)
    }

    /// Gives a row's claim to another acceptor, or to nobody.
    fn seize(&self, session_id: &str, acceptor_id: Option<&str>) -> Result<()> {
        let acceptor_id = acceptor_id.map(str::to_owned);
        self.call(Op::Seize { session_id: session_id.to_owned(), acceptor_id }).map(drop)
    }

    /// Makes or replaces an outpost.
    fn put_outpost(&self, outpost_id: &str, spec: NewOutpost) -> Result<()> {
        self.call(Op::PutOutpost { outpost_id: outpost_id.to_owned(), spec }).map(drop)
    }

    /// Removes an outpost.
    fn delete_outpost(&self, outpost_id: &str) -> Result<()> {
        self.call(Op::DeleteOutpost { outpost_id: outpost_id.to_owned() }).map(drop)
    }

    /// Makes every cursor from before now expire for the watch.
    fn forget_history(&self) -> Result<()> {
        self.call(Op::ForgetHistory).map(drop)
    }

    /// Moves the simulator's clock ahead of the one it was made with.
    fn advance(&self, by: Duration) -> Result<()> {
        let ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.call(Op::Advance { ms }).map(drop)
    }

    /// Changes settings.
    fn configure(&self, settings: Settings) -> Result<()> {
        self.call(Op::Configure { settings }).map(drop)
    }

    /// Adds a fault.
    fn add_fault(&self, rule: FaultRule) -> Result<()> {
        self.call(Op::AddFault { rule }).map(drop)
    }

    /// Takes all faults away.
    fn clear_faults(&self) -> Result<()> {
        self.call(Op::ClearFaults).map(drop)
    }

    /// Publishes right or wrong checksums.
    fn publish_checksums(&self, checksums: Checksums) -> Result<()> {
        self.call(Op::PublishChecksums { checksums }).map(drop)
    }

    /// All rows, by session id.
    fn rows(&self) -> Result<Vec<RowView>> {
        self.read(Op::Rows)
    }

    /// One row; `None` when it is not in the queue.
    fn row(&self, session_id: &str) -> Result<Option<RowView>> {
        self.read(Op::Row { session_id: session_id.to_owned() })
    }

    /// A session's status, also after its row left the queue; `None` when it never was.
    fn status(&self, session_id: &str) -> Result<Option<String>> {
        self.read(Op::Status { session_id: session_id.to_owned() })
    }

    /// The results of a session's commands, in order.
    fn results(&self, session_id: &str) -> Result<Vec<RunResult>> {
        self.read(Op::Results { session_id: session_id.to_owned() })
    }

    /// Every worker that connected, in order.
    fn workers(&self) -> Result<Vec<WorkerView>> {
        self.read(Op::Workers)
    }

    /// Every claim, renewal, release and expiry, in order.
    fn claims(&self) -> Result<Vec<ClaimRecord>> {
        self.read(Op::Claims)
    }

    /// The last requests, oldest first.
    fn requests(&self) -> Result<Vec<RequestSeen>> {
        self.read(Op::Requests)
    }

    /// How often each endpoint was called since the start.
    fn counts(&self) -> Result<BTreeMap<Endpoint, u64>> {
        self.read(Op::Counts)
    }

    /// How often one endpoint was called since the start.
    fn count(&self, endpoint: Endpoint) -> Result<u64> {
        Ok(self.counts()?.get(&endpoint).copied().unwrap_or_default())
    }

    /// The simulator's time.
    fn time(&self) -> Result<Timestamp> {
        self.read(Op::Now)
    }

    /// An operation whose result is a `T`.
    fn read<T: DeserializeOwned>(&self, op: Op) -> Result<T> {
        serde_json::from_value(self.call(op)?).map_err(|error| ControlError::Unreachable(error.to_string()))
    }
}

impl<C: Control + ?Sized> ControlExt for C {}
