//! `outpost run`: serves an outpost until it is told to stop.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use clap::ArgMatches;
use tokio_util::sync::CancellationToken;

use outpost_core::model::{OutpostId, Policy, WorkerMode, WorkerProgram, WorkerSettings};
use outpost_core::ports::{Clock, FixedProgram, WorkerPrograms};
use outpost_core::reconciler::{Ports, Reconciler, Workers};
use outpost_devin_api::{
    CliPrograms, DevinQueue, Outposts, RemotePrograms, ReqwestTransport, Resolved, Transport,
};
use outpost_provider_process::{ProcessProvider, UnenforcedNetworkPolicy as Unenforced};

use super::config::{Config, LogFormat, UnenforcedNetworkPolicy};
use super::observe::State;
use super::settings::Values;
use super::{EXIT_USAGE, http};
use crate::clock::SystemClock;
use crate::instance::StateDir;
use crate::store::FileStore;

/// How a process that a second signal ended leaves.
const EXIT_AT_ONCE: i32 = 130;

pub(super) fn main(flags: Vec<(&'static str, String)>, matches: &ArgMatches) -> ExitCode {
    let environment = |name: &str| std::env::var(name).ok();
    let file = matches.get_one::<String>("config").cloned().or_else(|| environment("OUTPOST_CONFIG"));
    let file = file.filter(|path| !path.is_empty()).map(PathBuf::from);
    let values = Values::gather(flags, environment, file.as_deref());
    let config = match Config::read(values, environment) {
        Ok(config) => config,
        Err(problems) => {
            eprintln!("outpost: these settings are bad (`outpost run --help` has them all):");
            for problem in problems {
                eprintln!("  - {problem}");
            }
            return ExitCode::from(EXIT_USAGE);
        }
    };
    if matches.get_flag("check") {
        print_check(&config);
        return ExitCode::SUCCESS;
    }
    set_up_log(&config);
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow!(error).context("no runtime")),
    };
    let ended = runtime.block_on(run(&config));
    // A task of a provider's may still work; the next process goes on where it was.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("outpost: {error:#}");
    ExitCode::FAILURE
}

fn print_check(config: &Config) {
    println!("The settings are good.");
    println!("  outpost      {}", config.outpost);
    println!("  API          {}", config.api.as_url());
    println!("  worker mode  {}", mode(config.worker_mode));
    println!("  limit        {}", config.limit);
    println!("  state        {}", config.state_dir.display());
    let listen = config.listen.map_or_else(|| "off".to_owned(), |address| format!("http://{address}"));
    println!("  endpoints    {listen}");
}

const fn mode(mode: WorkerMode) -> &'static str {
    match mode {
        WorkerMode::DevinRemote => "devin-remote",
        WorkerMode::Cli => "cli",
        WorkerMode::CliDirect => "cli-direct",
    }
}

fn set_up_log(config: &Config) {
    let filter = tracing_subscriber::EnvFilter::new(&config.log.filter);
    let colours = std::io::stderr().is_terminal();
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    // Setting it fails only when it was set before, and it is set here only.
    let _ = match config.log.format {
        LogFormat::Text => log.with_target(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).with_current_span(false).try_init(),
    };
}

async fn run(config: &Config) -> Result<()> {
    let stop = CancellationToken::new();
    watch_signals(stop.clone())?;
    let state_dir = StateDir::open(&config.state_dir, config.instance.clone())?;
    let state = Arc::new(State::default());
    if let Some(address) = config.listen {
        serve_endpoints(address, &state, &stop).await?;
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let transport: Arc<dyn Transport> = Arc::new(ReqwestTransport::new()?);
    let found = tokio::select! {
        found = resolve(config, &transport, &clock, &state) => found?,
        () = stop.cancelled() => return Ok(()),
    };
    let policy = policy(config, found, &state_dir);
    let ports = ports(config, &policy, &state_dir, &transport, &clock)?;
    let workers = workers(config);
    let reconciler = Reconciler::new(policy, ports, workers).map_err(|error| anyhow!(error))?;
    let reconciler = reconciler.with_observer(Arc::clone(&state) as Arc<_>);
    say_hello(config, &state_dir);
    reconciler.run(stop.cancelled_owned()).await;
    tracing::info!("stopped; live workers and their claims stay for the next run");
    Ok(())
}

/// Serves `/healthz` and the others from the very start: a queue that is down then is to be seen too.
async fn serve_endpoints(address: SocketAddr, state: &Arc<State>, stop: &CancellationToken) -> Result<()> {
    let listener = http::bind(address).await?;
    let bound = listener.local_addr().context("the endpoints' address is not known")?;
    tracing::info!("http://{bound}/readyz, /healthz and /metrics are served");
    tokio::spawn(http::serve(listener, Arc::clone(state), stop.clone().cancelled_owned()));
    Ok(())
}

fn say_hello(config: &Config, state_dir: &StateDir) {
    tracing::info!(
        outpost = config.outpost,
        instance = %state_dir.instance(),
        mode = mode(config.worker_mode),
        limit = config.limit,
        state = %state_dir.path().display(),
        "serving"
    );
    tracing::warn!("the process provider isolates nothing: sessions run as this user, see SECURITY.md");
    if config.worker_mode == WorkerMode::Cli {
        tracing::warn!(
            "worker mode `cli`: code in a session can read the fleet token, and this must be the only orchestrator of the \
             outpost"
        );
    }
}

/// The outpost that the setting names, checked as far as the token allows. A queue that cannot be reached is no reason to
/// give up: it is tried again, until it answers.
async fn resolve(
    config: &Config,
    transport: &Arc<dyn Transport>,
    clock: &Arc<dyn Clock>,
    state: &State,
) -> Result<OutpostId> {
    let outposts = Outposts::new(config.api.clone(), &config.token, Arc::clone(transport), Arc::clone(clock));
    let mut pause = std::time::Duration::from_secs(1);
    loop {
        let error = match outposts.resolve(&config.outpost, &config.platform).await {
            Ok(Resolved::Found(outpost)) => return Ok(outpost.id),
            Ok(Resolved::Unchecked(id)) => {
                tracing::warn!(outpost = %id, "the token may not list outposts, so this one is not checked");
                return Ok(id);
            }
            Ok(_) => return Err(anyhow!("the outpost cannot be found")),
            Err(error) => error,
        };
        if !error.is_retryable() {
            return Err(error.into());
        }
        state.not_started_yet(format!("the outpost cannot be looked up: {error}"));
        tracing::warn!("the outpost cannot be looked up, trying again in {pause:?}: {error}");
        clock.sleep(pause.max(error.retry_after().unwrap_or_default())).await;
        pause = (pause * 2).min(std::time::Duration::from_secs(60));
    }
}

fn policy(config: &Config, outpost: OutpostId, state_dir: &StateDir) -> Policy {
    let times = config.times;
    let mut policy = Policy::new(outpost, state_dir.instance().clone());
    policy.worker_mode = config.worker_mode;
    policy.platform = config.platform.clone();
    policy.limit = config.limit;
    policy.list_interval = times.list_interval;
    policy.inventory_interval = times.inventory_interval;
    policy.start_timeout = times.start_timeout;
    policy.suspend_grace = times.suspend_grace;
    policy.stop_grace = times.stop_grace;
    policy.resume_courtesy = times.resume_courtesy;
    policy.snapshot_ttl = times.snapshot_ttl;
    policy
}

fn ports(
    config: &Config,
    policy: &Policy,
    state_dir: &StateDir,
    transport: &Arc<dyn Transport>,
    clock: &Arc<dyn Clock>,
) -> Result<Ports> {
    let provider = ProcessProvider::builder(state_dir.path(), policy.instance.clone())
        .with(|settings| {
            settings.unenforced_network_policy = match config.network_policy {
                UnenforcedNetworkPolicy::Refuse => Unenforced::Refuse,
                UnenforcedNetworkPolicy::Allow => Unenforced::Allow,
            };
        })
        .build()?;
    let store = FileStore::open(state_dir.path().join("records"))
        .with_context(|| format!("records cannot be kept in {}", state_dir.path().display()))?;
    let source = DevinQueue::new(
        config.api.clone(),
        &config.token,
        policy.outpost.clone(),
        Arc::clone(transport),
        Arc::clone(clock),
    );
    Ok(Ports {
        source: Arc::new(source),
        provider: Arc::new(provider),
        store: Arc::new(store),
        programs: programs(config, state_dir, transport, clock)?,
        clock: Arc::clone(clock),
    })
}

/// Where the worker's executable comes from.
fn programs(
    config: &Config,
    state_dir: &StateDir,
    transport: &Arc<dyn Transport>,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn WorkerPrograms>> {
    if let Some(path) = &config.worker_program {
        let path = path.to_string_lossy().into_owned();
        return Ok(Arc::new(FixedProgram(WorkerProgram::Installed { path })));
    }
    let shelf = state_dir.path().join("programs");
    let (transport, clock) = (Arc::clone(transport), Arc::clone(clock));
    match config.worker_mode {
        WorkerMode::DevinRemote => {
            Ok(Arc::new(RemotePrograms::new(config.static_url.clone(), shelf, transport, clock)?))
        }
        WorkerMode::Cli | WorkerMode::CliDirect => {
            Ok(Arc::new(CliPrograms::new(&config.manifest_url, config.hosts, shelf, transport, clock)))
        }
    }
}

fn workers(config: &Config) -> Workers {
    let mut settings = WorkerSettings::default();
    // The real ones are the worker's own defaults.
    if !config.api.origin().ends_with("devin.ai") {
        settings.api_origin = Some(config.api.origin().to_owned());
        settings.static_base_url = Some(config.static_url.as_url());
    }
    let mut workers = Workers::default();
    workers.settings = settings;
    workers.fleet_token = (config.worker_mode == WorkerMode::Cli).then(|| config.token.clone());
    workers
}

/// The first SIGTERM or SIGINT stops; the second ends the process at once.
fn watch_signals(stop: CancellationToken) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("signals cannot be heard")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals cannot be heard")?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if stop.is_cancelled() {
                std::process::exit(EXIT_AT_ONCE);
            }
            tracing::info!("stopping; another signal leaves at once");
            stop.cancel();
        }
    });
    Ok(())
}
