//! The one step from a row to a running worker, call by call: its order, and what it leaves behind when it fails anywhere.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::stream::{BoxStream, StreamExt as _};
use jiff::Timestamp;
use outpost_core::engine::Notice;
use outpost_core::engine::Report;
use outpost_core::model::{
    AcceptorId, Claim, InstanceId, OutpostId, Phase, Policy, Sandbox, SandboxId, SandboxState, Session,
    SessionId, SessionStatus, SnapshotPurpose, SnapshotRef, WorkerProgram,
};
use outpost_core::ports::{
    Capabilities, Claimed, Clock, Cursor, Error, ErrorKind, Inventory, Listing, Removed, SandboxProvider,
    Saving, SessionSource, SnapshotStore as _, StartSpec, Started, Stopped, WatchEvent, WorkerPrograms,
};
use outpost_core::reconciler::{Observer, Ports, Reconciler, Workers};
use outpost_testkit::clock::{Executor, Livelock, VirtualClock};
use outpost_testkit::memory::MemoryStore;

/// How this world differs from one in which everything goes well at once.
#[derive(Debug, Clone, Default)]
struct Ways {
    resolving_takes: Duration,
    starting_takes: Duration,
    starting_fails: bool,
    removing_fails: bool,
    /// From so many renewals on another has the session.
    lost_after_renewals: Option<usize>,
    /// What is wrong with the answer to a claim.
    claim: Echo,
    claiming_fails: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Echo {
    #[default]
    Right,
    OtherSession,
    OtherOutpost,
    OtherAcceptor,
    NoToken,
    NoGateway,
    Suspended,
}

/// A queue with one session, a backend, and the worker's program; notes every call.
#[derive(Debug)]
struct World {
    clock: VirtualClock,
    ways: Ways,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    calls: Vec<&'static str>,
    row: Session,
    renewals: usize,
    sandboxes: Vec<Sandbox>,
    notices: Vec<String>,
}

fn policy() -> Policy {
    Policy::new(OutpostId::new("outpost_env-1").unwrap(), InstanceId::new("us").unwrap())
}

fn session() -> SessionId {
    SessionId::new("devin-1").unwrap()
}

fn fault(who: &'static str, operation: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, who, operation, "it broke").may_have_been_applied()
}

impl World {
    fn new(ways: Ways) -> Arc<Self> {
        let state = State {
            calls: Vec::new(),
            row: Session::pending(session(), policy().outpost),
            renewals: 0,
            sandboxes: Vec::new(),
            notices: Vec::new(),
        };
        Arc::new(Self { clock: VirtualClock::new(), ways, state: Mutex::new(state) })
    }

    fn note<T>(&self, call: &'static str, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap();
        state.calls.push(call);
        act(&mut state)
    }

    /// The calls so far, but for readings.
    fn calls(&self) -> Vec<&'static str> {
        self.state.lock().unwrap().calls.clone()
    }

    fn row(&self) -> Session {
        self.state.lock().unwrap().row.clone()
    }

    fn hold(&self, state: &mut State, acceptor: &AcceptorId) {
        let deadline = Some(self.clock.now() + Duration::from_secs(300));
        state.row.phase = Phase::Claimed;
        state.row.claim = Some(Claim { acceptor: acceptor.clone(), deadline });
    }
}

#[async_trait]
impl WorkerPrograms for World {
    async fn resolve(&self, _pinned: Option<&str>) -> Result<WorkerProgram, Error> {
        self.clock.sleep(self.ways.resolving_takes).await;
        self.note("resolve", |_| Ok(WorkerProgram::Installed { path: "devin-remote".into() }))
    }
}

#[async_trait]
impl SessionSource for World {
    async fn list(&self) -> Result<Listing, Error> {
        Ok(Listing::new(vec![self.row()], None))
    }

    fn watch(&self, _from: Option<Cursor>) -> BoxStream<'_, WatchEvent> {
        futures::stream::pending().boxed()
    }

    async fn get(&self, _session: &SessionId) -> Result<Option<Session>, Error> {
        self.note("get", |state| Ok(Some(state.row.clone())))
    }

    async fn claim(&self, _session: &SessionId, acceptor: &AcceptorId) -> Result<Claimed, Error> {
        self.note("claim", |state| {
            self.hold(state, acceptor);
            if self.ways.claiming_fails {
                return Err(fault("devin", "claim"));
            }
            let mut session = state.row.clone();
            let mut token = "token";
            let mut gateway = "https://gateway.example";
            match self.ways.claim {
                Echo::Right => {}
                Echo::OtherSession => session.id = SessionId::new("devin-2").unwrap(),
                Echo::OtherOutpost => session.outpost = OutpostId::new("outpost_env-2").unwrap(),
                Echo::OtherAcceptor => {
                    let acceptor = AcceptorId::new("them").unwrap();
                    session.claim = Some(Claim { acceptor, deadline: None });
                }
                Echo::NoToken => token = "",
                Echo::NoGateway => gateway = "",
                Echo::Suspended => {
                    session.status = SessionStatus::Suspended;
                    state.row.status = SessionStatus::Suspended;
                }
            }
            let deadline = session.claim.as_ref().and_then(|claim| claim.deadline);
            Ok(Claimed { session, deadline, connect_token: token.into(), gateway_url: gateway.into() })
        })
    }

    async fn renew(&self, _session: &SessionId, acceptor: &AcceptorId) -> Result<Session, Error> {
        self.note("renew", |state| {
            state.renewals += 1;
            if self.ways.lost_after_renewals.is_some_and(|most| state.renewals > most) {
                self.hold(state, &AcceptorId::new("them").unwrap());
                return Err(Error::new(ErrorKind::Conflict, "devin", "renew", "another has it"));
            }
            self.hold(state, acceptor);
            Ok(state.row.clone())
        })
    }

    async fn release(&self, _session: &SessionId, _acceptor: &AcceptorId) -> Result<(), Error> {
        self.note("release", |state| {
            state.row.phase = Phase::Pending;
            state.row.claim = None;
            Ok(())
        })
    }
}

#[async_trait]
impl SandboxProvider for World {
    fn name(&self) -> &'static str {
        "world"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn list(&self) -> Result<Inventory, Error> {
        let sandboxes = self.state.lock().unwrap().sandboxes.clone();
        Ok(Inventory { sandboxes, snapshots: Vec::new() })
    }

    async fn start(&self, spec: StartSpec) -> Result<Started, Error> {
        self.note("start", |_| ());
        self.clock.sleep(self.ways.starting_takes).await;
        let sandbox = Sandbox {
            id: spec.id,
            state: SandboxState::Running,
            started_at: self.clock.now(),
            expires_at: None,
            restored_from: None,
        };
        self.note("started", |state| {
            if !self.ways.starting_fails || self.ways.removing_fails {
                state.sandboxes.push(sandbox.clone());
            }
            if self.ways.starting_fails {
                Err(fault("world", "start"))
            } else {
                Ok(Started::Sandbox(sandbox))
            }
        })
    }

    async fn stop_worker(&self, _: &SandboxId, _: Duration) -> Result<Stopped, Error> {
        Err(fault("world", "stop_worker"))
    }

    async fn save(&self, _: &SandboxId, _: SnapshotPurpose) -> Result<Saving, Error> {
        Err(fault("world", "save"))
    }

    async fn remove(&self, id: &SandboxId) -> Result<Removed, Error> {
        self.note("remove", |state| {
            if self.ways.removing_fails {
                return Err(fault("world", "remove"));
            }
            state.sandboxes.retain(|sandbox| sandbox.id != *id);
            Ok(Removed::Done)
        })
    }

    async fn extend(&self, _: &SandboxId) -> Result<Option<Timestamp>, Error> {
        Ok(None)
    }

    async fn delete_snapshot(&self, _: &SnapshotRef) -> Result<(), Error> {
        Ok(())
    }
}

impl Observer for World {
    fn report(&self, _: &Report) {}

    fn notice(&self, notice: &Notice) {
        self.state.lock().unwrap().notices.push(notice.text.clone());
    }
}

/// Lets a reconciler serve the world for a while.
fn serve(world: &Arc<World>, store: &MemoryStore, lasting: Duration) {
    let ports = Ports {
        source: Arc::clone(world) as Arc<_>,
        provider: Arc::clone(world) as Arc<_>,
        store: Arc::new(store.clone()),
        programs: Arc::clone(world) as Arc<_>,
        clock: Arc::new(world.clock.clone()),
    };
    let reconciler = Reconciler::new(policy(), ports, Workers::default()).unwrap();
    let reconciler = reconciler.with_observer(Arc::clone(world) as Arc<_>);
    let mut executor = Executor::new(world.clock.clone());
    executor.spawn(async move {
        reconciler.run(std::future::pending()).await;
    });
    let until = world.clock.now() + lasting;
    executor.drive_bounded::<Livelock>(until, |_, _| Ok(())).unwrap();
}

fn served(ways: Ways, lasting: Duration) -> (Arc<World>, MemoryStore) {
    let (world, store) = (World::new(ways), MemoryStore::new());
    serve(&world, &store, lasting);
    (world, store)
}

fn record(store: &MemoryStore) -> outpost_core::model::Record {
    let stored = store.get(&session()).now_or_never().expect("it is in memory").unwrap();
    stored.map(|stored| stored.record).unwrap_or_default()
}

const SOON: Duration = Duration::from_secs(4);

// lesson 17
#[test]
fn the_claim_comes_after_the_slow_download_and_a_second_look_and_right_before_the_start() {
    let ways = Ways { resolving_takes: Duration::from_secs(200), ..Ways::default() };
    let (world, _) = served(ways, Duration::from_secs(201));
    assert_eq!(world.calls(), ["resolve", "get", "claim", "start", "started"]);
}

// lesson 17
#[test]
fn a_session_that_went_to_sleep_during_the_download_is_not_claimed() {
    let ways = Ways { resolving_takes: Duration::from_secs(200), ..Ways::default() };
    let (world, store) = (World::new(ways), MemoryStore::new());
    serve(&world, &store, Duration::from_secs(100));
    world.state.lock().unwrap().row.status = SessionStatus::Suspended;
    serve(&world, &store, Duration::from_secs(600));
    assert!(!world.calls().contains(&"claim"), "{:?}", world.calls());
}

// lessons 8 and 9
#[test]
fn a_claim_whose_answer_is_about_something_else_is_released_and_starts_nothing() {
    for claim in [
        Echo::OtherSession,
        Echo::OtherOutpost,
        Echo::OtherAcceptor,
        Echo::NoToken,
        Echo::NoGateway,
        Echo::Suspended,
    ] {
        let (world, _) = served(Ways { claim, ..Ways::default() }, Duration::from_millis(500));
        assert_eq!(world.calls(), ["resolve", "get", "claim", "release"], "{claim:?}");
    }
}

#[test]
fn a_claim_whose_answer_is_lost_is_released() {
    let (world, _) = served(Ways { claiming_fails: true, ..Ways::default() }, Duration::from_millis(500));
    assert_eq!(world.calls(), ["resolve", "get", "claim", "release"]);
    assert_eq!(world.row().claim, None);
}

// lesson 20
#[test]
fn a_start_that_takes_twenty_minutes_is_waited_for_and_its_claim_renewed_meanwhile() {
    let ways = Ways { starting_takes: Duration::from_secs(20 * 60), ..Ways::default() };
    let (world, store) = served(ways, Duration::from_secs(20 * 60 + 5));
    let calls = world.calls();
    assert_eq!(&calls[..4], ["resolve", "get", "claim", "start"]);
    assert!(calls.iter().filter(|call| **call == "renew").count() >= 19, "{calls:?}");
    assert!(!calls.contains(&"remove") && !calls.contains(&"release"), "{calls:?}");
    assert_eq!(record(&store).failures, 0);
}

// lesson 20
#[test]
fn a_start_whose_claim_is_lost_meanwhile_is_taken_back_and_not_released() {
    let ways = Ways {
        starting_takes: Duration::from_secs(20 * 60),
        lost_after_renewals: Some(2),
        ..Ways::default()
    };
    let (world, store) = served(ways, Duration::from_secs(10 * 60));
    assert_eq!(world.calls()[..8], ["resolve", "get", "claim", "start", "renew", "renew", "renew", "remove"]);
    assert!(
        !world.calls().contains(&"release") && !world.calls().contains(&"started"),
        "{:?}",
        world.calls()
    );
    let record = record(&store);
    assert_eq!((record.newest_boot, record.failures), (record.closed_boot, 0));
}

// lesson 19
#[test]
fn a_start_that_fails_is_removed_before_its_claim_is_released() {
    let (world, store) = served(Ways { starting_fails: true, ..Ways::default() }, SOON);
    assert_eq!(world.calls(), ["resolve", "get", "claim", "start", "started", "remove", "release"]);
    let record = record(&store);
    assert_eq!(
        (record.newest_boot, record.closed_boot.number(), record.failures),
        (record.closed_boot, 1, 1)
    );
}

// lesson 57
#[test]
fn a_start_that_fails_and_cannot_be_removed_keeps_its_claim_and_is_found_again() {
    let ways = Ways { starting_fails: true, removing_fails: true, ..Ways::default() };
    let (world, _) = served(ways, Duration::from_secs(60));
    let calls = world.calls();
    assert!(!calls.contains(&"release"), "{calls:?}");
    assert_eq!(
        calls.iter().filter(|call| **call == "start").count(),
        1,
        "the sandbox that is there serves: {calls:?}"
    );
}

#[test]
fn a_boot_that_cannot_be_recorded_is_not_started() {
    let (world, store) = (World::new(Ways::default()), MemoryStore::new());
    store.hinder_writes();
    serve(&world, &store, Duration::from_millis(500));
    assert_eq!(world.calls(), ["resolve", "get", "claim", "remove", "release"]);
    store.heal();
    serve(&world, &store, Duration::from_secs(60));
    assert!(world.calls().contains(&"started"));
}
