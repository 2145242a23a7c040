//! From a session's row in the queue to the provider's start call: through real HTTP and SSE on loopback, with re-reading the row,
//! claiming it and writing the record to a file in between.
//!
//! `OUTPOST_BENCH_EVENTS` is how many are measured (500).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use outpost::clock::SystemClock;
use outpost::core::model::{
    InstanceId, OutpostId, Policy, Sandbox, SandboxId, SandboxState, SnapshotPurpose, SnapshotRef,
    WorkerProgram,
};
use outpost::core::ports::{
    Capabilities, Clock, Error, ErrorKind, FixedProgram, Inventory, Removed, SandboxProvider, Saving,
    StartSpec, Started, Stopped,
};
use outpost::core::reconciler::{Ports, Reconciler, Workers};
use outpost::devin::{BaseUrl, DevinQueue, Hosts, ReqwestTransport, Transport};
use outpost::sim::control::ControlExt as _;
use outpost::sim::model::{DEFAULT_OUTPOST, NewRow};
use outpost::sim::{DEFAULT_TOKEN, ServeOptions, serve};
use outpost::store::FileStore;

/// Notes when a start was called.
#[derive(Debug, Default)]
struct Notes {
    started: Mutex<HashMap<SandboxId, (Instant, Sandbox)>>,
}

fn unused(operation: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, "notes", operation, "it is not measured here")
}

#[async_trait]
impl SandboxProvider for Notes {
    fn name(&self) -> &'static str {
        "notes"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn list(&self) -> Result<Inventory, Error> {
        let started = self.started.lock().expect("no panic");
        let sandboxes = started.values().map(|(_, sandbox)| sandbox.clone()).collect();
        Ok(Inventory { sandboxes, snapshots: Vec::new() })
    }

    async fn start(&self, spec: StartSpec) -> Result<Started, Error> {
        let now = Instant::now();
        let sandbox = Sandbox {
            id: spec.id.clone(),
            state: SandboxState::Running,
            started_at: Timestamp::now(),
            expires_at: None,
            restored_from: None,
        };
        self.started.lock().expect("no panic").insert(spec.id, (now, sandbox.clone()));
        Ok(Started::Sandbox(sandbox))
    }

    async fn stop_worker(&self, _: &SandboxId, _: Duration) -> Result<Stopped, Error> {
        Err(unused("stop_worker"))
    }

    async fn save(&self, _: &SandboxId, _: SnapshotPurpose) -> Result<Saving, Error> {
        Err(unused("save"))
    }

    async fn remove(&self, id: &SandboxId) -> Result<Removed, Error> {
        self.started.lock().expect("no panic").remove(id);
        Ok(Removed::Done)
    }

    async fn extend(&self, _: &SandboxId) -> Result<Option<Timestamp>, Error> {
        Ok(None)
    }

    async fn delete_snapshot(&self, _: &SnapshotRef) -> Result<(), Error> {
        Err(unused("delete_snapshot"))
    }
}

fn main() {
    let events = std::env::var("OUTPOST_BENCH_EVENTS").map_or(500, |text| text.parse().expect("a number"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut taken = runtime.block_on(measure(events));
    taken.sort();
    let at = |share: f64| taken[((taken.len() - 1) as f64 * share).round() as usize];
    println!(
        "from a row in the queue to the start call, {} events one after another, loopback:",
        taken.len()
    );
    println!("  p50 {:?}\n  p99 {:?}\n  max {:?}", at(0.5), at(0.99), at(1.0));
}

async fn measure(events: usize) -> Vec<Duration> {
    let directory = tempfile::tempdir().expect("a directory");
    let server = serve(ServeOptions::default()).await.expect("a simulator");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let transport: Arc<dyn Transport> = Arc::new(ReqwestTransport::new().expect("TLS"));
    let outpost = OutpostId::new(DEFAULT_OUTPOST).expect("an id");
    let api = BaseUrl::parse(&server.api_url(), Hosts::Devin).expect("a URL");
    let mut policy = Policy::new(outpost.clone(), InstanceId::new("bench").expect("an id"));
    policy.limit = events + 1;
    let provider = Arc::new(Notes::default());
    let program = WorkerProgram::Installed { path: "devin-remote".into() };
    let ports = Ports {
        source: Arc::new(DevinQueue::new(api, &DEFAULT_TOKEN.into(), outpost, transport, Arc::clone(&clock))),
        provider: Arc::clone(&provider) as Arc<dyn SandboxProvider>,
        store: Arc::new(FileStore::open(directory.path()).expect("a store")),
        programs: Arc::new(FixedProgram(program)),
        clock,
    };
    let reconciler = Reconciler::new(policy, ports, Workers::default()).expect("a reconciler");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(reconciler.run(async move {
        // Whether it was told or the teller is gone: stop.
        let _ = stopped.await;
    }));
    // The first one waits for the watch to be opened, and is not counted.
    let mut taken = Vec::with_capacity(events);
    for number in 0..=events {
        let session = format!("devin-{number}");
        let began = Instant::now();
        server.sim().create(NewRow::new(&session)).expect("a row");
        let started = started(&provider, &session).await;
        if number > 0 {
            taken.push(started - began);
        }
    }
    drop(stop);
    running.await.expect("it ran");
    server.stop().await;
    taken
}

async fn started(provider: &Notes, session: &str) -> Instant {
    let look = async {
        loop {
            let found = {
                let started = provider.started.lock().expect("no panic");
                started.iter().find(|(id, _)| id.session.as_str() == session).map(|(_, (at, _))| *at)
            };
            match found {
                Some(at) => return at,
                None => tokio::time::sleep(Duration::from_micros(200)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), look).await.expect("it was started")
}
