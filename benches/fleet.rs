//! `outpost run` as a real process with 10,000 sessions in the queue, 200 of them live: its memory, the calls that a pass makes, and the
//! processor time that it takes.
//!
//! Linux only: it reads `/proc`. `OUTPOST_BENCH_LIVE` is how many are live (200).

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use outpost::sim::control::ControlExt as _;
use outpost::sim::fault::Endpoint;
use outpost::sim::model::{DEFAULT_OUTPOST, NewRow};
use outpost::sim::publish::Publication;
use outpost::sim::script::Step;
use outpost::sim::{DEFAULT_TOKEN, ServeOptions, SimServer, serve};

const LISTED: usize = 10_000;
/// As long as the list's interval.
const PASS: Duration = Duration::from_secs(10);
const PASSES: u32 = 6;

fn main() {
    let live = std::env::var("OUTPOST_BENCH_LIVE").map_or(200, |text| text.parse().expect("a number"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    let binary = Path::new(env!("CARGO_BIN_EXE_outpost"));
    let mut options = ServeOptions::default();
    options.sim.publication = Publication::standin(binary, &["sim", "worker"]);
    let server = runtime.block_on(serve(options)).expect("a simulator");
    for number in 0..LISTED {
        let row = NewRow::new(format!("devin-{number:032x}"));
        let row = if number < live { row } else { row.status("suspended") };
        server.sim().create_scripted(row, vec![Step::wait("never")]).expect("a row");
    }
    let mut outpost = start(binary, &server, directory.path(), live);
    let deadline = Instant::now() + Duration::from_secs(300);
    while server.sim().workers().expect("workers").len() < live {
        assert!(Instant::now() < deadline, "every session that wants a machine gets one");
        std::thread::sleep(Duration::from_millis(100));
    }
    measure(&server, &outpost, live);
    outpost.kill().expect("it runs");
    outpost.wait().expect("it ran");
    end_workers(directory.path());
    runtime.block_on(server.stop());
}

fn start(binary: &Path, server: &SimServer, directory: &Path, live: usize) -> Child {
    Command::new(binary)
        .args(["run", "--listen", "off", "--log", "warn", "--limit", &live.to_string()])
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap_or_default())
        .env("DEVIN_OUTPOST_ID", DEFAULT_OUTPOST)
        .env("DEVIN_API_TOKEN", DEFAULT_TOKEN)
        .env("DEVIN_API_URL", server.api_url())
        .env("OUTPOST_STATIC_URL", server.remote_base_url())
        .env("OUTPOST_STATE_DIR", directory)
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts")
}

fn measure(server: &SimServer, outpost: &Child, live: usize) {
    let counts = || server.sim().counts().expect("counts");
    let (before, ticks) = (counts(), processor_ticks(outpost));
    std::thread::sleep(PASS * PASSES);
    let (after, spent) = (counts(), processor_ticks(outpost) - ticks);
    let made = |endpoint| {
        let at =
            |counts: &std::collections::BTreeMap<Endpoint, u64>| counts.get(&endpoint).copied().unwrap_or(0);
        at(&after) - at(&before)
    };
    println!("{LISTED} sessions listed, {live} live, {PASSES} passes of {PASS:?}:");
    println!(
        "  resident memory    {} now, {} at the most",
        memory(outpost, "VmRSS:"),
        memory(outpost, "VmHWM:")
    );
    println!("  calls of the list  {} pages", made(Endpoint::List));
    println!("  other calls        {} renewals, {} looks", made(Endpoint::Claim), made(Endpoint::Get));
    println!(
        "  processor time     {} ms a pass, with the inventories between",
        spent * 10 / u64::from(PASSES)
    );
}

fn memory(outpost: &Child, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", outpost.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or("unknown");
    line.trim().to_owned()
}

/// User and system time, in hundredths of a second.
fn processor_ticks(outpost: &Child) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", outpost.id())).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').collect();
    let tick = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    tick(11) + tick(12)
}

/// The workers outlive the orchestrator; here nobody comes back for them.
fn end_workers(directory: &Path) {
    let below =
        |pid: &str| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(directory));
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Ok(pid) = name.parse::<i32>()
            && below(&name)
        {
            // It may have ended meanwhile.
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
    }
}
