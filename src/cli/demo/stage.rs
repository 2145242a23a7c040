//! The simulator, and an Outpost that serves it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use outpost_core::model::{OutpostId, Policy};
use outpost_core::ports::{Clock, Removed, SandboxProvider};
use outpost_core::reconciler::{Ports, Reconciler, Workers};
use outpost_devin_api::{BaseUrl, DevinQueue, Hosts, RemotePrograms, ReqwestTransport, Transport};
use outpost_provider_process::ProcessProvider;
use outpost_sim::control::ControlExt as _;
use outpost_sim::{DEFAULT_TOKEN, ServeOptions, Sim, SimServer, serve};
use secrecy::SecretString;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Afterwards;
use super::view::View;
use crate::cli::sim::publication;
use crate::clock::SystemClock;
use crate::instance::StateDir;
use crate::store::FileStore;

/// The most sandboxes at once in the demo.
pub(super) const LIMIT: usize = 4;

pub(super) struct Stage {
    directory: TempDir,
    server: SimServer,
    provider: Arc<ProcessProvider>,
    stop: CancellationToken,
    outpost: JoinHandle<()>,
    _state: StateDir,
}

impl Stage {
    /// Starts the simulator and an Outpost.
    pub(super) async fn set(view: &View) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("outpost-demo-").tempdir()?;
        let mut options = ServeOptions::default();
        options.sim.publication = publication()?;
        let server = serve(options).await.context("the simulator cannot listen on loopback")?;
        let state = StateDir::open(directory.path(), None)?;
        let mut policy =
            Policy::new(OutpostId::new(outpost_sim::model::DEFAULT_OUTPOST)?, state.instance().clone());
        policy.limit = LIMIT;
        policy.list_interval = Duration::from_secs(2);
        policy.inventory_interval = Duration::from_millis(250);
        policy.suspend_grace = Duration::from_secs(5);
        policy.resume_courtesy = Duration::ZERO;
        let provider = Arc::new(ProcessProvider::builder(directory.path(), policy.instance.clone()).build()?);
        let ports = ports(&server, &policy, Arc::clone(&provider), directory.path())?;
        let reconciler =
            Reconciler::new(policy, ports, Workers::default()).map_err(|error| anyhow!(error))?;
        let reconciler = reconciler.with_observer(Arc::new(view.clone()));
        let stop = CancellationToken::new();
        let until = stop.clone().cancelled_owned();
        let outpost = tokio::spawn(async move {
            reconciler.run(until).await;
        });
        view.say(&format!("a simulated queue is at {}; an Outpost serves it", server.api_url()));
        Ok(Self { directory, server, provider, stop, outpost, _state: state })
    }

    pub(super) fn sim(&self) -> &Sim {
        self.server.sim()
    }

    /// Stops everything, and answers what is left: [`nothing`], if all went well.
    pub(super) async fn clear(self, afterwards: Afterwards) -> Result<String> {
        self.stop.cancel();
        // It ends by itself within its own bound.
        self.outpost.await?;
        let inventory = self.provider.list().await?;
        for sandbox in &inventory.sandboxes {
            while self.provider.remove(&sandbox.id).await? == Removed::InProgress {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        drop(self.provider);
        // Asked of the system, not of the provider: every worker that ever was told the simulator its number.
        let workers = self.server.sim().workers()?;
        let alive = workers.iter().filter(|worker| is_alive(worker.pid)).count();
        self.server.stop().await;
        let path = self.directory.path().to_owned();
        match afterwards {
            Afterwards::Keep => println!("kept: {}", self.directory.keep().display()),
            Afterwards::Delete => {
                self.directory.close().with_context(|| format!("{} cannot be deleted", path.display()))?;
            }
        }
        Ok(left(alive, path.exists()))
    }
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).map(nix::unistd::Pid::from_raw);
    pid.is_ok_and(|pid| nix::sys::signal::kill(pid, None).is_ok())
}

fn left(processes: usize, files: bool) -> String {
    let processes = if processes == 0 { "no process".to_owned() } else { format!("{processes} processes") };
    format!("{processes}, {}", if files { "its directory" } else { "no file" })
}

/// What is left when all went well.
pub(super) const fn nothing(afterwards: Afterwards) -> &'static str {
    match afterwards {
        Afterwards::Keep => "no process, its directory",
        Afterwards::Delete => "no process, no file",
    }
}

fn ports(
    server: &SimServer,
    policy: &Policy,
    provider: Arc<ProcessProvider>,
    directory: &Path,
) -> Result<Ports> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let transport: Arc<dyn Transport> = Arc::new(ReqwestTransport::new()?);
    let token = SecretString::from(DEFAULT_TOKEN);
    let api = BaseUrl::parse(&server.api_url(), Hosts::Devin)?;
    let queue =
        DevinQueue::new(api, &token, policy.outpost.clone(), Arc::clone(&transport), Arc::clone(&clock));
    let downloads = BaseUrl::parse(&server.remote_base_url(), Hosts::Devin)?;
    let programs = RemotePrograms::new(downloads, directory.join("programs"), transport, Arc::clone(&clock))?;
    Ok(Ports {
        source: Arc::new(queue),
        provider,
        store: Arc::new(FileStore::open(directory.join("records"))?),
        programs: Arc::new(programs),
        clock,
    })
}
