//! A simulated queue and a directory, for one test.

use std::path::{Path, PathBuf};

use outpost::sim::control::{ControlExt as _, WorkerView};
use outpost::sim::model::{ClaimOutcome, NewRow};
use outpost::sim::publish::Publication;
use outpost::sim::script::{Script, Step};
use outpost::sim::{ServeOptions, Sim, SimServer, serve};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::{Outpost, processes, until, until_some};

/// The simulator publishes the command itself as its stand-in for `devin` and `devin-remote`. When a playground is dropped, whatever
/// still runs below its state directory is killed.
#[derive(Debug)]
pub(crate) struct Playground {
    dir: TempDir,
    // Dropped before the runtime that it runs on.
    server: Option<SimServer>,
    runtime: Runtime,
}

impl Playground {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// A playground whose simulator is set up differently.
    pub(crate) fn with(change: impl FnOnce(&mut ServeOptions)) -> Self {
        let runtime = Runtime::new().unwrap();
        let mut options = ServeOptions::default();
        options.sim.publication =
            Publication::standin(Path::new(env!("CARGO_BIN_EXE_outpost")), &["sim", "worker"]);
        change(&mut options);
        let server = runtime.block_on(serve(options)).unwrap();
        // The path as processes see it.
        let base = std::env::temp_dir().canonicalize().unwrap();
        let dir = tempfile::Builder::new().prefix("outpost-test-").tempdir_in(base).unwrap();
        Self { dir, server: Some(server), runtime }
    }

    pub(crate) fn server(&self) -> &SimServer {
        self.server.as_ref().expect("it serves until it is dropped")
    }

    pub(crate) fn sim(&self) -> &Sim {
        self.server().sim()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.dir().join("state")
    }

    /// An `outpost run` for this simulator and state directory, quick to react.
    pub(crate) fn outpost(&self) -> Outpost {
        Outpost::new(self)
    }

    /// Puts a new session into the queue.
    pub(crate) fn create(&self, session: &str, script: Script) {
        let row = NewRow::new(session).platform(if cfg!(target_os = "macos") { "macos" } else { "linux" });
        self.sim().create_scripted(row, script).unwrap();
    }

    /// Waits until a command of a session has ended, and answers what it printed.
    #[track_caller]
    pub(crate) fn output_of(&self, session: &str, nth: usize) -> String {
        until_some(&format!("command {nth} of {session} has ended"), || {
            let results = self.sim().results(session).unwrap();
            results.get(nth - 1).map(|result| result.output.clone())
        })
    }

    /// Waits until nobody holds a session's claim.
    #[track_caller]
    pub(crate) fn until_released(&self, session: &str) {
        until(&format!("{session} is released"), || {
            self.sim().row(session).unwrap().is_none_or(|row| row.acceptor_id.is_none())
        });
    }

    /// The workers that ever connected for a session.
    pub(crate) fn workers_of(&self, session: &str) -> Vec<WorkerView> {
        let workers = self.sim().workers().unwrap();
        workers.into_iter().filter(|worker| worker.session_id == session).collect()
    }

    /// How often something happened to a session's claim.
    pub(crate) fn claims(&self, session: &str, outcome: ClaimOutcome) -> usize {
        let claims = self.sim().claims().unwrap();
        claims.iter().filter(|claim| claim.session_id == session && claim.outcome == outcome).count()
    }

    /// Waits until no process is left below the state directory.
    #[track_caller]
    pub(crate) fn until_no_process(&self) {
        until("no process is left", || processes::below(&self.state_dir()).is_empty());
    }
}

impl Drop for Playground {
    fn drop(&mut self) {
        processes::end_all_below(&self.state_dir());
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop());
        }
    }
}

/// A session that writes a file, sleeps, and after waking says what the file holds, and ends.
pub(crate) fn new_sleeper(text: &str) -> Script {
    vec![
        Step::run(format!("mkdir -p repos/app && printf %s '{text}' >repos/app/note && cat repos/app/note")),
        Step::Suspend,
        Step::run("cat repos/app/note"),
        Step::Terminate,
    ]
}
