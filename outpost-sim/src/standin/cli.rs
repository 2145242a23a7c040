//! `devin worker start`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::http::{Http, HttpError};
use super::serving::Serving;
use super::{EXIT_LOST, EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE, binary, parse};

#[derive(Debug, Parser)]
#[command(name = "devin", version = crate::publish::CLI_VERSION)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves sessions of an outpost.
    #[command(subcommand)]
    Worker(Worker),
}

#[derive(Debug, Subcommand)]
enum Worker {
    /// Serves one session, or one after another.
    Start(Start),
}

#[derive(Debug, Args)]
struct Start {
    /// The session to serve; without it the outpost is polled.
    #[arg(long)]
    session: Option<String>,
    /// The outpost.
    #[arg(long, alias = "pool")]
    outpost: Option<String>,
    #[arg(long, env = "DEVIN_WORKER_ACCEPTOR_ID")]
    acceptor_id: Option<String>,
    /// Shows in the process list; `DEVIN_OUTPOSTS_TOKEN` does not.
    #[arg(long, env = "DEVIN_OUTPOSTS_TOKEN", hide_env_values = true)]
    token: Option<SecretString>,
    /// The connect token of a claim that somebody else made.
    #[arg(long, env = "DEVIN_REMOTE_SESSION_TOKEN", hide_env_values = true, hide = true)]
    session_token: Option<SecretString>,
    /// The origin of the fleet API.
    #[arg(long, env = "DEVIN_API_URL", default_value = "https://api.devin.ai")]
    api_url: String,
    #[arg(long, env = "DEVIN_OUTPOST_GATEWAY_URL")]
    gateway_url: Option<String>,
    #[arg(long, env = "DEVIN_WORKER_REMOTE_SHA")]
    remote_binary_sha: Option<String>,
    /// Without it no `devin-remote` is downloaded.
    #[arg(long, env = "DEVIN_WORKER_STATIC_BASE_URL")]
    static_base_url: Option<String>,
    #[arg(long, env = "DEVIN_WORKER_CACHE_DIR")]
    cache_dir: Option<PathBuf>,
    #[arg(long, env = "DEVIN_PTY_BRIDGE_PORT")]
    pty_bridge_port: Option<u16>,
    /// Serves one session, then leaves.
    #[arg(long)]
    once: bool,
    #[arg(long, default_value_t = 5)]
    poll_interval_secs: u64,
    /// How a successful claim shows in the log; both forms of the real CLI were seen.
    #[arg(long, env = "DEVIN_STANDIN_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

pub(super) fn main(args: Vec<OsString>) -> u8 {
    match parse::<Cli>("devin", args) {
        Ok(Cli { command: Command::Worker(Worker::Start(start)) }) => run(start),
        Err(code) => code,
    }
}

fn run(mut start: Start) -> u8 {
    if let (Some(session_id), Some(token)) = (start.session.clone(), start.session_token.take()) {
        return start.serve_directly(session_id, token);
    }
    let Some(token) = start.token.take() else {
        eprintln!(
            "no token: set DEVIN_OUTPOSTS_TOKEN (the real CLI would create an outpost from its own login)"
        );
        return EXIT_USAGE;
    };
    let queue = Queue {
        http: Http::new(token),
        base: format!("{}/opbeta/outposts/devins", start.api_url.trim_end_matches('/')),
        acceptor_id: start.acceptor_id.clone().unwrap_or_else(|| format!("standin-{}", std::process::id())),
    };
    match (&start.session, &start.outpost) {
        (Some(session_id), _) => start.claim_and_serve(&queue, session_id),
        (None, Some(outpost)) => start.poll(&queue, outpost),
        (None, None) => {
            eprintln!("--session or --outpost is needed");
            EXIT_USAGE
        }
    }
}

impl Start {
    /// Mode `cli-direct`: the claim is another's business, and the queue is not called.
    fn serve_directly(&self, session_id: String, token: SecretString) -> u8 {
        let Some(gateway_url) = self.gateway_url.clone() else {
            eprintln!("DEVIN_OUTPOST_GATEWAY_URL is needed with DEVIN_REMOTE_SESSION_TOKEN");
            return EXIT_USAGE;
        };
        if let Err(code) = self.fetch_remote(None) {
            return code;
        }
        self.log_serving(&session_id);
        Serving { mode: "cli-direct", gateway_url, token, session_id }.serve()
    }

    /// Mode `cli`: claim, serve, renew meanwhile, release after a clean end.
    fn claim_and_serve(&self, queue: &Queue, session_id: &str) -> u8 {
        let entry = match queue.post(session_id, "claim") {
            Ok(entry) => entry,
            Err(error) => return failed("claim", &error),
        };
        let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let (Some(token), Some(gateway_url)) =
            (text("/status/connect_token"), text("/status/gateway_url").or_else(|| self.gateway_url.clone()))
        else {
            eprintln!("claim: the answer has no connect token or gateway");
            return EXIT_REFUSED;
        };
        if let Err(code) = self.fetch_remote(text("/spec/remote_binary_sha")) {
            return code;
        }
        self.log_serving(session_id);
        let renewals = queue.renew_in_background(session_id, &entry);
        let serving =
            Serving { mode: "cli", gateway_url, token: token.into(), session_id: session_id.to_owned() };
        let code = serving.serve();
        drop(renewals);
        if code == 0 {
            // The claim may be gone already, which is what a release is for.
            let _ = queue.post(session_id, "release");
        }
        code
    }

    fn poll(&self, queue: &Queue, outpost: &str) -> u8 {
        loop {
            let next = match queue.next_waiting(outpost) {
                Ok(next) => next,
                Err(error) if error.is_final() => return failed("list", &error),
                Err(_) => None,
            };
            match next.map(|session_id| self.claim_and_serve(queue, &session_id)) {
                Some(0) if self.once => return 0,
                // Lost to another worker: the next poll shows who else waits.
                Some(0 | EXIT_LOST) => {}
                Some(code) => return code,
                None => thread::sleep(Duration::from_secs(self.poll_interval_secs)),
            }
        }
    }

    fn fetch_remote(&self, pinned: Option<String>) -> Result<(), u8> {
        let Some(base) = &self.static_base_url else { return Ok(()) };
        let home = || std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let cache = self.cache_dir.clone().unwrap_or_else(|| home().join(".devin/worker/cache"));
        let pinned = pinned.or_else(|| self.remote_binary_sha.clone());
        binary::fetch(base, pinned.as_deref(), &cache).map(drop)
    }

    fn log_serving(&self, session_id: &str) {
        match self.log_format {
            LogFormat::Text => eprintln!("serving session {session_id}"),
            LogFormat::Json => {
                eprintln!(
                    "{}",
                    json!({ "level": "INFO", "fields": { "message": "claimed", "session_id": session_id } })
                );
            }
        }
    }
}

fn failed(call: &str, error: &HttpError) -> u8 {
    eprintln!("{call}: {error}");
    match error {
        HttpError::Status(409) => EXIT_LOST,
        HttpError::Status(_) => EXIT_REFUSED,
        HttpError::Transport(_) => EXIT_UNREACHABLE,
    }
}

/// The fleet API, as far as the CLI uses it.
#[derive(Debug, Clone)]
struct Queue {
    http: Http,
    base: String,
    acceptor_id: String,
}

impl Queue {
    fn post(&self, session_id: &str, action: &str) -> Result<Value, HttpError> {
        let session_id = utf8_percent_encode(session_id, NON_ALPHANUMERIC);
        let body = json!({ "acceptor_id": self.acceptor_id });
        self.http.post_for(&format!("{}/{session_id}/{action}", self.base), &body)
    }

    fn next_waiting(&self, outpost: &str) -> Result<Option<String>, HttpError> {
        let outpost = utf8_percent_encode(outpost, NON_ALPHANUMERIC);
        let page = self.http.get_json(&format!("{}?outpost={outpost}&phase=pending&first=200", self.base))?;
        let waits =
            |row: &&Value| matches!(row["status"]["session_status"].as_str(), Some("pending" | "running"));
        let rows = page["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let row = rows.iter().find(waits);
        Ok(row.and_then(|row| row["metadata"]["session_id"].as_str()).map(str::to_owned))
    }

    /// Renews in good time, again and again, until the answer is dropped.
    fn renew_in_background(&self, session_id: &str, entry: &Value) -> mpsc::Sender<()> {
        let (stop, stopped) = mpsc::channel::<()>();
        let (queue, session_id) = (self.clone(), session_id.to_owned());
        let mut rest = time_to_renewal(entry);
        thread::spawn(move || {
            while stopped.recv_timeout(rest) == Err(RecvTimeoutError::Timeout) {
                // A renewal that fails is tried again at the next turn; a lost claim shows at the gateway.
                if let Ok(entry) = queue.post(&session_id, "claim") {
                    rest = time_to_renewal(&entry);
                }
            }
        });
        stop
    }
}

/// A third of what is left of the claim.
fn time_to_renewal(entry: &Value) -> Duration {
    let deadline = entry["status"]["claim_deadline"].as_i64().unwrap_or_default();
    let left = deadline - jiff::Timestamp::now().as_second();
    Duration::from_secs(u64::try_from(left / 3).unwrap_or_default().clamp(1, 60))
}
