//! Serving one session: connect to the gateway, follow orders, leave.

use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::SecretString;

use super::http::{Http, HttpError};
use super::shell::Shell;
use super::{EXIT_REFUSED, EXIT_UNREACHABLE};
use crate::script::Order;
use crate::server::{Hello, NextOrder, Report, Welcome};

/// How long the gateway may be out of reach.
const PATIENCE: Duration = Duration::from_secs(120);
const RETRY: Duration = Duration::from_millis(200);
/// How long a worker hangs that nobody kills, so that a failed test leaves nothing behind for ever.
const HANG: Duration = Duration::from_secs(3600);

/// A session to serve.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) mode: &'static str,
    pub(super) gateway_url: String,
    pub(super) token: SecretString,
    pub(super) session_id: String,
}

impl Serving {
    /// Serves until the gateway tells the worker to leave; answers its exit code.
    pub(super) fn serve(self) -> u8 {
        let http = Http::new(self.token);
        let session = utf8_percent_encode(&self.session_id, NON_ALPHANUMERIC);
        let base = format!("{}/{session}", self.gateway_url.trim_end_matches('/'));
        let hello = introduce(self.mode);
        let worker = match patiently(|| http.post_for::<Welcome>(&format!("{base}/hello"), &hello)) {
            Ok(welcome) => welcome.worker,
            Err(code) => return code,
        };
        let shell = Shell::default();
        let (next_url, report_url) = (format!("{base}/next"), format!("{base}/report"));
        let report = move |http: &Http, number, code, output| {
            let report = Report { worker, number, code, output };
            // A result that cannot be reported is asked for again of the next worker.
            let _ = patiently(|| http.post(&report_url, &report));
        };
        loop {
            match patiently(|| http.post_for::<Order>(&next_url, &NextOrder { worker })) {
                Ok(Order::Idle) => {}
                Ok(Order::Run { number, command }) => {
                    let (http, report) = (http.clone(), report.clone());
                    shell.start(&command, move |outcome| {
                        report(&http, Some(number), outcome.code, outcome.output)
                    });
                }
                Ok(Order::Exit { code, after_ms }) => {
                    std::thread::sleep(Duration::from_millis(after_ms));
                    shell.kill();
                    report(&http, None, Some(i32::from(code)), String::new());
                    return code;
                }
                Ok(Order::Hang) => {
                    std::thread::sleep(HANG);
                    return EXIT_UNREACHABLE;
                }
                Ok(Order::KillSelf) => kill_self(),
                Ok(Order::IgnoreTerm) => ignore_term(),
                Err(code) => {
                    shell.kill();
                    return code;
                }
            }
        }
    }
}

/// Names only: what a variable holds is nobody's business, except whether it looks like a fleet token.
fn introduce(mode: &str) -> Hello {
    let variables = || std::env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value));
    let directory = std::env::current_dir().unwrap_or_default();
    Hello {
        mode: mode.to_owned(),
        pid: std::process::id(),
        repos_here: directory.join("repos").is_dir(),
        directory: directory.to_string_lossy().into_owned(),
        env_names: variables().map(|(name, _)| name).collect(),
        fleet_token_in: variables()
            .filter(|(_, value)| value.to_string_lossy().starts_with("cog_"))
            .map(|(name, _)| name)
            .collect(),
    }
}

/// Repeats a call until it is answered, refused for good, or patience is over.
fn patiently<T>(mut call: impl FnMut() -> Result<T, HttpError>) -> Result<T, u8> {
    let until = Instant::now() + PATIENCE;
    loop {
        match call() {
            Ok(answer) => return Ok(answer),
            Err(error) if error.is_final() => {
                eprintln!("gateway {error}");
                return Err(EXIT_REFUSED);
            }
            Err(error) if Instant::now() >= until => {
                eprintln!("gateway unreachable: {error}");
                return Err(EXIT_UNREACHABLE);
            }
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

/// The shell's parent is this process, and nothing survives SIGKILL to be told of a failure.
fn kill_self() {
    let _ = std::process::Command::new("/bin/sh").args(["-c", "kill -KILL $PPID"]).status();
}

/// Installs a handler that does nothing; once installed it stays for the life of the process.
#[cfg(unix)]
fn ignore_term() {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let installed =
        runtime.and_then(|runtime| runtime.block_on(async { signal(SignalKind::terminate()).map(drop) }));
    if let Err(error) = installed {
        eprintln!("cannot ignore SIGTERM: {error}");
    }
}

#[cfg(not(unix))]
fn ignore_term() {}
