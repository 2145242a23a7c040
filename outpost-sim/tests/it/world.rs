//! A simulator on loopback, and stand-in processes that live no longer than their test.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use outpost_sim::publish::Publication;
use outpost_sim::{DEFAULT_TOKEN, ServeOptions, Sim, SimServer, serve};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// How long a test waits for anything.
const BOUND: Duration = Duration::from_secs(30);

/// The stand-in's executable.
pub(crate) const STANDIN: &str = env!("CARGO_BIN_EXE_devin-standin");

pub(crate) struct World {
    server: SimServer,
    directory: TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        let mut options = ServeOptions::default();
        options.sim.publication = Publication::standin(Path::new(STANDIN), &[]);
        let server = serve(options).await.unwrap();
        Self { server, directory: TempDir::new().unwrap() }
    }

    pub(crate) fn sim(&self) -> &Sim {
        self.server.sim()
    }

    pub(crate) fn server(&self) -> &SimServer {
        &self.server
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Claims a session, as an orchestrator does.
    pub(crate) fn claim(&self, session_id: &str) -> Value {
        self.sim().fleet(|fleet, now| fleet.claim(now, session_id, "orchestrator")).unwrap()
    }

    /// Claims a session and starts `devin-remote serve` for it, as an orchestrator does.
    pub(crate) fn remote(&self, session_id: &str) -> Worker {
        let entry = self.claim(session_id);
        self.remote_with(session_id, entry["status"]["connect_token"].as_str().unwrap())
    }

    pub(crate) fn remote_with(&self, session_id: &str, token: &str) -> Worker {
        let gateway = self.server.gateway_url();
        let state = self.directory().join("state");
        self.start_worker(
            &["devin-remote", "serve"],
            &[
                ("DEVIN_OUTPOST_GATEWAY_URL", &gateway),
                ("DEVIN_OUTPOST_CONNECT_TOKEN", token),
                ("DEVIN_OUTPOST_SESSION_ID", session_id),
                ("DEVIN_REMOTE_STATE_DIR", state.to_str().unwrap()),
            ],
        )
    }

    /// Starts `devin worker start` with the fleet token.
    pub(crate) fn cli(&self, arguments: &[&str]) -> Worker {
        self.cli_with(arguments, &[("DEVIN_OUTPOSTS_TOKEN", DEFAULT_TOKEN)])
    }

    pub(crate) fn cli_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Worker {
        let arguments: Vec<_> = ["devin", "worker", "start"].iter().chain(arguments).copied().collect();
        let origin = self.server.api_origin();
        let home = self.directory().to_str().unwrap().to_owned();
        let mut all = vec![("DEVIN_API_URL", &*origin), ("HOME", &*home)];
        all.extend_from_slice(variables);
        self.start_worker(&arguments, &all)
    }

    /// Starts the stand-in with nothing in its environment but `PATH` and what is given.
    pub(crate) fn start_worker(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Worker {
        let variables: BTreeMap<_, _> = variables.iter().copied().collect();
        let child = Command::new(STANDIN)
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .envs(variables)
            .current_dir(self.directory())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        Worker { pid: child.id().unwrap(), child: Some(child) }
    }

    /// Waits until something holds, and panics with its name when it does not in time.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Sim) -> bool) {
        let start = Instant::now();
        while !holds(self.sim()) {
            assert!(start.elapsed() < BOUND, "waited in vain: {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A worker in a process group of its own, which ends with this value.
pub(crate) struct Worker {
    pid: u32,
    child: Option<Child>,
}

impl Worker {
    /// Its exit code, or `None` when a signal ended it. Bounded.
    pub(crate) async fn exit_code(&mut self) -> Option<i32> {
        self.exit_status().await.code()
    }

    pub(crate) async fn exit_status(&mut self) -> ExitStatus {
        let wait = self.child().wait();
        tokio::time::timeout(BOUND, wait).await.expect("the worker never left").unwrap()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child().try_wait().unwrap().is_none()
    }

    /// Its exit code and what it logged.
    pub(crate) async fn output(mut self) -> (Option<i32>, String) {
        let wait = self.child.take().unwrap().wait_with_output();
        let output = tokio::time::timeout(BOUND, wait).await.expect("the worker never left").unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Signals the worker alone.
    pub(crate) fn signal(&self, name: &str) {
        assert!(kill(name, &self.pid.to_string()));
    }

    fn child(&mut self) -> &mut Child {
        self.child.as_mut().unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Most groups are gone by now.
        kill("KILL", &format!("-{}", self.pid));
    }
}

fn kill(signal: &str, target: &str) -> bool {
    let mut command = std::process::Command::new("kill");
    command.args([&format!("-{signal}"), "--", target]).stderr(Stdio::null()).status().unwrap().success()
}
