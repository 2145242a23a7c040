//! outpost-core inside another service, which has sessions of its own: a [`SessionSource`] in memory feeds them, and a shell script
//! is the worker.
//!
//! ```sh
//! cargo run --example embed
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt as _};
use outpost::clock::SystemClock;
use outpost::core::model::{
    AcceptorId, Claim, InstanceId, OutpostId, Phase, Platform, Policy, Session, SessionId, SessionStatus,
    WorkerProgram,
};
use outpost::core::ports::{
    Claimed, Cursor, Error, ErrorKind, FixedProgram, Listing, SessionSource, WatchEvent,
};
use outpost::core::reconciler::{Ports, Reconciler, Workers};
use outpost::process::ProcessProvider;
use outpost::store::FileStore;
use tokio::sync::broadcast;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// What a session's machine runs here: it adds a line to a file on the session's disk, shows the file to the service, and leaves with
/// 0, as a worker does whose session falls asleep.
const WORKER: &str = "\
#!/bin/sh
echo \"a piece of work for $DEVIN_OUTPOST_SESSION_ID\" >>repos/journal
cp repos/journal \"$DESK_INBOX.new\" && mv \"$DESK_INBOX.new\" \"$DESK_INBOX\"
";

/// The service's own sessions.
#[derive(Debug)]
struct Desk {
    sessions: Mutex<BTreeMap<SessionId, Session>>,
    changes: broadcast::Sender<Session>,
}

impl Desk {
    fn new() -> Self {
        Self { sessions: Mutex::default(), changes: broadcast::Sender::new(64) }
    }

    /// Changes a session's row, tells whoever watches, and answers the row.
    fn change(&self, id: &SessionId, change: impl FnOnce(&mut Session)) -> Result<Session, Error> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = || Error::new(ErrorKind::NotFound, "desk", "change", "there is no such session");
        let session = sessions.get_mut(id).ok_or_else(missing)?;
        change(session);
        // Nobody may be watching.
        let _ = self.changes.send(session.clone());
        Ok(session.clone())
    }

    fn add(&self, session: Session) {
        self.sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(session.id.clone(), session.clone());
        let _ = self.changes.send(session);
    }

    fn row(&self, id: &SessionId) -> Option<Session> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }
}

#[async_trait]
impl SessionSource for Desk {
    async fn list(&self) -> Result<Listing, Error> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Listing::new(sessions.values().cloned().collect(), None))
    }

    fn watch(&self, _from: Option<Cursor>) -> BoxStream<'_, WatchEvent> {
        let changes = futures::stream::unfold(self.changes.subscribe(), |mut changes| async {
            match changes.recv().await {
                Ok(session) => Some((WatchEvent::Changed(Box::new(session)), changes)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((WatchEvent::ListAgain, changes)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        });
        // A watch never ends.
        changes.chain(futures::stream::pending()).boxed()
    }

    async fn get(&self, session: &SessionId) -> Result<Option<Session>, Error> {
        Ok(self.row(session))
    }

    async fn claim(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<Claimed, Error> {
        Ok(Claimed {
            session: self.renew(session, acceptor).await?,
            deadline: None,
            // What a worker of Devin's proves itself with; ours needs neither.
            connect_token: "none".to_owned().into(),
            gateway_url: "http://127.0.0.1:9".into(),
        })
    }

    async fn renew(&self, session: &SessionId, acceptor: &AcceptorId) -> Result<Session, Error> {
        self.change(session, |row| {
            row.phase = Phase::Claimed;
            row.claim = Some(Claim { acceptor: acceptor.clone(), deadline: None });
        })
    }

    async fn release(&self, session: &SessionId, _acceptor: &AcceptorId) -> Result<(), Error> {
        self.change(session, |row| {
            row.phase = Phase::Pending;
            row.claim = None;
        })
        .map(drop)
    }
}

#[tokio::main]
async fn main() -> Result {
    let directory = tempfile::tempdir()?;
    let state = directory.path().join("state");
    let worker = directory.path().join("worker.sh");
    std::fs::write(&worker, WORKER)?;
    std::fs::set_permissions(&worker, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;

    let instance = InstanceId::new("embedded")?;
    let mut policy = Policy::new(OutpostId::new("my-service")?, instance.clone());
    policy.platform = Platform::Linux;
    policy.list_interval = Duration::from_millis(500);
    policy.inventory_interval = Duration::from_millis(100);
    let desk = Arc::new(Desk::new());
    let program = WorkerProgram::Installed { path: worker.to_string_lossy().into_owned() };
    let ports = Ports {
        source: Arc::clone(&desk) as Arc<dyn SessionSource>,
        provider: Arc::new(ProcessProvider::builder(&state, instance).build()?),
        store: Arc::new(FileStore::open(state.join("records"))?),
        programs: Arc::new(FixedProgram(program)),
        clock: Arc::new(SystemClock),
    };
    let inbox = directory.path().join("inbox");
    let mut workers = Workers::default();
    workers.settings.extra_env.push(("DESK_INBOX".into(), inbox.to_string_lossy().into_owned()));
    let reconciler = Reconciler::new(policy.clone(), ports, workers)?;

    // The service goes about its business, and the reconciler beside it until that is done.
    let report = reconciler.run(business(desk, policy.outpost, &inbox)).await;
    println!(
        "{} started, {} restored, {} saved",
        report.counters.starts, report.counters.restores, report.counters.saves
    );
    Ok(())
}

/// A session that works, sleeps, works again on the same disk, and ends.
async fn business(desk: Arc<Desk>, outpost: OutpostId, inbox: &Path) {
    let id = SessionId::new("order-4711").expect("an id");
    let set = |status: SessionStatus| desk.change(&id, |row| row.status = status).map(drop);
    desk.add(Session::pending(id.clone(), outpost));
    for pieces in 1..=2 {
        until(|| std::fs::read_to_string(inbox).is_ok_and(|journal| journal.lines().count() == pieces)).await;
        println!("the journal has {pieces} lines");
        let _ = set(SessionStatus::Suspended);
        until(|| desk.row(&id).is_some_and(|row| row.phase == Phase::Pending)).await;
        println!("saved and released");
        if pieces == 1 {
            let _ = set(SessionStatus::Pending);
        }
    }
    let _ = set(SessionStatus::Terminated);
}

async fn until(holds: impl Fn() -> bool + Send) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
