//! Serves an outpost with processes of this machine, until Ctrl-C.
//!
//! ```sh
//! cargo run --example process                # a simulated queue with one session, which sleeps, wakes and ends
//! DEVIN_OUTPOST_ID=outpost_env-… DEVIN_API_TOKEN=cog_… cargo run --example process
//! ```

use std::sync::Arc;

use outpost::clock::SystemClock;
use outpost::core::model::{OutpostId, Platform, Policy};
use outpost::core::ports::Clock;
use outpost::core::reconciler::{Ports, Reconciler, Workers};
use outpost::devin::{BaseUrl, DevinQueue, Hosts, RemotePrograms, ReqwestTransport, Transport};
use outpost::instance::StateDir;
use outpost::process::ProcessProvider;
use outpost::store::FileStore;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

async fn serve(at: simulated::Queue) -> Result {
    let state = StateDir::open(&at.state_dir, None)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let transport: Arc<dyn Transport> = Arc::new(ReqwestTransport::new()?);
    let (api, programs) =
        (BaseUrl::parse(&at.api_url, Hosts::Devin)?, BaseUrl::parse(&at.static_url, Hosts::Devin)?);
    let outpost = OutpostId::new(at.outpost)?;

    let mut policy = Policy::new(outpost.clone(), state.instance().clone());
    policy.platform = if cfg!(target_os = "macos") { Platform::Macos } else { Platform::Linux };
    policy.limit = 4;

    let ports = Ports {
        source: Arc::new(DevinQueue::new(
            api,
            &at.token.into(),
            outpost,
            Arc::clone(&transport),
            Arc::clone(&clock),
        )),
        provider: Arc::new(ProcessProvider::builder(state.path(), state.instance().clone()).build()?),
        store: Arc::new(FileStore::open(state.path().join("records"))?),
        programs: Arc::new(RemotePrograms::new(
            programs,
            state.path().join("programs"),
            transport,
            Arc::clone(&clock),
        )?),
        clock,
    };
    let report = Reconciler::new(policy, ports, Workers::default())?.run(at.until).await;
    println!(
        "{} started, {} saved, {} removed",
        report.counters.starts, report.counters.saves, report.counters.removals
    );
    Ok(())
}

fn main() -> std::process::ExitCode {
    if let Some(arguments) = simulated::worker_arguments() {
        return outpost::sim::standin::main(arguments);
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match runtime.block_on(async { serve(simulated::queue().await?).await }) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// The real queue when the environment names one, else a simulated one. Nothing of this is needed to serve the real one.
mod simulated {
    use std::ffi::OsString;
    use std::path::PathBuf;
    use std::time::Duration;

    use futures::future::{BoxFuture, FutureExt as _};
    use outpost::sim::control::ControlExt as _;
    use outpost::sim::model::{DEFAULT_OUTPOST, NewRow};
    use outpost::sim::publish::Publication;
    use outpost::sim::script::Step;
    use outpost::sim::{DEFAULT_TOKEN, ServeOptions, serve};
    use tempfile::TempDir;

    pub(super) struct Queue {
        pub(super) outpost: String,
        pub(super) token: String,
        pub(super) api_url: String,
        pub(super) static_url: String,
        pub(super) state_dir: PathBuf,
        /// When to stop serving.
        pub(super) until: BoxFuture<'static, ()>,
        /// Deleted when serving is over.
        pub(super) _directory: Option<TempDir>,
    }

    /// The simulator publishes this program as its worker.
    pub(super) fn worker_arguments() -> Option<Vec<OsString>> {
        let mut arguments = std::env::args_os().skip(1);
        (arguments.next()? == "worker").then(|| arguments.collect())
    }

    pub(super) async fn queue() -> super::Result<Queue> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        if let (Some(outpost), Some(token)) = (set("DEVIN_OUTPOST_ID"), set("DEVIN_API_TOKEN")) {
            return Ok(Queue {
                outpost,
                token,
                api_url: set("DEVIN_API_URL").unwrap_or_else(|| "https://api.devin.ai/opbeta".into()),
                static_url: "https://static.devin.ai/devin-rs/remote/".into(),
                state_dir: std::env::current_dir()?.join("outpost-state"),
                until: tokio::signal::ctrl_c().map(drop).boxed(),
                _directory: None,
            });
        }
        let mut options = ServeOptions::default();
        options.sim.publication = Publication::standin(&std::env::current_exe()?, &["worker"]);
        let server = serve(options).await?;
        let platform = if cfg!(target_os = "macos") { "macos" } else { "linux" };
        let life = vec![
            Step::run("echo 'written before it slept' >repos/note"),
            Step::Suspend,
            Step::run("cat repos/note"),
            Step::Terminate,
        ];
        server.sim().create_scripted(NewRow::new("devin-1").platform(platform), life)?;
        let directory = tempfile::tempdir()?;
        Ok(Queue {
            outpost: DEFAULT_OUTPOST.into(),
            token: DEFAULT_TOKEN.into(),
            api_url: server.api_url(),
            static_url: server.remote_base_url(),
            state_dir: directory.path().join("state"),
            until: async move {
                let sim = server.sim();
                let row = || sim.row("devin-1").ok().flatten();
                let released = |status: &str| {
                    row().is_none_or(|row| row.session_status == status && row.acceptor_id.is_none())
                };
                while !released("suspended") {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                println!("devin-1 sleeps");
                let _ = sim.wake("devin-1");
                while !released("terminated") {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                let printed = sim.results("devin-1").unwrap_or_default().pop();
                println!(
                    "devin-1 woke and read: {}",
                    printed.map_or_else(String::new, |result| result.output).trim()
                );
                server.stop().await;
            }
            .boxed(),
            _directory: Some(directory),
        })
    }
}
