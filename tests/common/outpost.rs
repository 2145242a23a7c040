//! `outpost run`, as a real process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use outpost::sim::DEFAULT_TOKEN;
use outpost::sim::model::DEFAULT_OUTPOST;

use super::{Playground, until, until_some};

/// How `outpost run` is to be started. Its environment is made of nothing but these settings.
#[derive(Debug, Clone)]
pub(crate) struct Outpost {
    dir: PathBuf,
    env: BTreeMap<String, String>,
    flags: Vec<String>,
    /// A shell command in which `"$@"` is the command.
    inside: Option<String>,
}

impl Outpost {
    pub(super) fn new(playground: &Playground) -> Self {
        let server = playground.server();
        let quick = [
            ("LIST_INTERVAL", "200ms"),
            ("INVENTORY_INTERVAL", "100ms"),
            ("SUSPEND_GRACE", "1s"),
            ("STOP_GRACE", "2s"),
            ("RESUME_COURTESY", "0s"),
            ("LISTEN", "127.0.0.1:0"),
        ];
        let mut env: BTreeMap<String, String> =
            quick.into_iter().map(|(name, value)| (format!("OUTPOST_{name}"), value.to_owned())).collect();
        for (name, value) in [
            ("DEVIN_OUTPOST_ID", DEFAULT_OUTPOST.to_owned()),
            ("DEVIN_API_TOKEN", DEFAULT_TOKEN.to_owned()),
            ("DEVIN_API_URL", server.api_url()),
            ("OUTPOST_STATIC_URL", server.remote_base_url()),
            ("OUTPOST_MANIFEST_URL", server.manifest_url()),
            ("OUTPOST_STATE_DIR", playground.state_dir().display().to_string()),
            ("HOME", playground.dir().join("home").display().to_string()),
            ("PATH", std::env::var("PATH").unwrap_or_default()),
        ] {
            env.insert(name.into(), value);
        }
        Self { dir: playground.dir().to_owned(), env, flags: Vec::new(), inside: None }
    }

    /// With an environment variable.
    #[must_use]
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Without an environment variable.
    #[must_use]
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.env.remove(name);
        self
    }

    /// With more arguments after `run`.
    #[must_use]
    pub(crate) fn args(mut self, arguments: &[&str]) -> Self {
        self.flags.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// From within a shell, whose `script` has `exec "$@"` in it.
    #[must_use]
    pub(crate) fn inside(mut self, script: &str) -> Self {
        self.inside = Some(script.into());
        self
    }

    fn command(&self) -> Command {
        const BINARY: &str = env!("CARGO_BIN_EXE_outpost");
        let mut command = match &self.inside {
            None => Command::new(BINARY),
            Some(script) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", script, "sh", BINARY]);
                shell
            }
        };
        command.arg("run").args(&self.flags).env_clear().envs(&self.env);
        command.current_dir(&self.dir).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Starts it; its log goes to a file.
    #[track_caller]
    pub(crate) fn start(&self) -> Running {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let nth = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let log = self.dir.join(format!("outpost-{nth}.log"));
        let child = self.command().stderr(File::create(&log).unwrap()).spawn().unwrap();
        Running { child, log }
    }

    /// Runs it to its end; answers how it left and what it said.
    #[track_caller]
    pub(crate) fn run(&self) -> (ExitStatus, String) {
        let mut running = self.start();
        let status = running.until_left();
        (status, running.log())
    }
}

/// A running `outpost run`. Dropping it kills it; its workers live on.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id")
    }

    /// Everything that it has said.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until it has said something.
    #[track_caller]
    pub(crate) fn until_says(&self, what: &str) {
        until(&format!("it says `{what}`; its log:\n{}", self.log()), || self.log().contains(what));
    }

    /// The status and the text of one of its endpoints; `None` while it does not listen.
    pub(crate) fn get(&self, path: &str) -> Option<(u16, String)> {
        let log = self.log();
        let (before, _) = log.split_once("/readyz, /healthz and /metrics are served")?;
        let base = &before[before.rfind("http://")?..];
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(10)))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        let mut answer = ureq::Agent::from(config).get(format!("{base}{path}")).call().ok()?;
        Some((answer.status().as_u16(), answer.body_mut().read_to_string().ok()?))
    }

    /// Waits until it is ready.
    #[track_caller]
    pub(crate) fn until_ready(&self) {
        until("it is ready", || self.get("/readyz").is_some_and(|(status, _)| status == 200));
    }

    /// Waits until it is not ready, and answers why not.
    #[track_caller]
    pub(crate) fn until_not_ready(&self, why: &str) -> String {
        until_some(&format!("it is not ready because of `{why}`"), || {
            self.get("/readyz")
                .filter(|(status, text)| *status == 503 && text.contains(why))
                .map(|(_, text)| text)
        })
    }

    /// The value of a metric, with its labels as they stand in the text.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics")?;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits until it has left.
    #[track_caller]
    pub(crate) fn until_left(&mut self) -> ExitStatus {
        until_some("outpost run has left", || self.child.try_wait().unwrap())
    }

    /// SIGTERM, and waits until it has left.
    #[track_caller]
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.until_left()
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
        self.kill();
    }
}
