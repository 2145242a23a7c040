use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::server::FLEET_PREFIX;
use crate::sim::{Sim, SimOptions};

/// The pause after a connection that could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// How [`serve`] is set up. Port 0 takes any free port.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ServeOptions {
    /// The simulator.
    pub sim: SimOptions,
    /// The port of the fleet API.
    pub fleet_port: u16,
    /// The port of the static host.
    pub static_port: u16,
    /// The port of the workers' gateway.
    pub gateway_port: u16,
    /// Where the workers' gateway listens, which workers in containers must reach; `None` = on loopback.
    pub gateway_address: Option<IpAddr>,
    /// The port of the control interface.
    pub control_port: u16,
}

/// A running simulator. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct SimServer {
    sim: Sim,
    fleet: SocketAddr,
    statics: SocketAddr,
    gateway: SocketAddr,
    control: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Serves a simulator on four ports, on loopback unless the options say otherwise, at the system's time, until its handle is dropped or
/// [stopped](SimServer::stop). The gateway's address becomes the `gateway_url` of claims.
///
/// # Errors
///
/// When a port cannot be bound.
pub async fn serve(options: ServeOptions) -> io::Result<SimServer> {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let fleet = bind(options.fleet_port).await?;
    let statics = bind(options.static_port).await?;
    let gateway_address = options.gateway_address.unwrap_or(Ipv4Addr::LOCALHOST.into());
    let gateway = TcpListener::bind((gateway_address, options.gateway_port)).await?;
    let control = bind(options.control_port).await?;

    let sim = Sim::new(options.sim, Clock::system());
    let gateway_url = format!("http://{}/gateway", gateway.local_addr()?);
    sim.fleet(|fleet, _| fleet.options.gateway_url = gateway_url);

    let server = SimServer {
        fleet: fleet.local_addr()?,
        statics: statics.local_addr()?,
        gateway: gateway.local_addr()?,
        control: control.local_addr()?,
        stop: CancellationToken::new(),
        tasks: TaskTracker::new(),
        sim,
    };
    server.spawn(fleet, server.sim.fleet_router());
    server.spawn(statics, server.sim.static_router());
    server.spawn(gateway, server.sim.gateway_router());
    server.spawn(control, server.sim.control_router());
    Ok(server)
}

impl SimServer {
    /// The simulator, for operations in process.
    #[must_use]
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// The fleet API with its prefix, as `DEVIN_API_URL` of an orchestrator.
    #[must_use]
    pub fn api_url(&self) -> String {
        format!("http://{}{FLEET_PREFIX}", self.fleet)
    }

    /// The fleet API's origin, as the Devin CLI wants it.
    #[must_use]
    pub fn api_origin(&self) -> String {
        format!("http://{}", self.fleet)
    }

    /// The base of `devin-remote`, as `https://static.devin.ai/devin-rs/remote/`.
    #[must_use]
    pub fn remote_base_url(&self) -> String {
        format!("http://{}/devin-rs/remote/", self.statics)
    }

    /// The CLI's manifest, as `https://static.devin.ai/cli/current/manifest.json`.
    #[must_use]
    pub fn manifest_url(&self) -> String {
        format!("http://{}/cli/current/manifest.json", self.statics)
    }

    /// What a claim hands out as `gateway_url`.
    #[must_use]
    pub fn gateway_url(&self) -> String {
        format!("http://{}/gateway", self.gateway)
    }

    /// The control listener, for [`ControlClient`](crate::control::ControlClient).
    #[must_use]
    pub fn control_url(&self) -> String {
        format!("http://{}", self.control)
    }

    /// Stops listening, cuts every connection, and waits until that is done. Cancelling the wait leaves
    /// the simulator stopping.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn spawn(&self, listener: TcpListener, router: Router) {
        let (stop, tasks) = (self.stop.clone(), self.tasks.clone());
        self.tasks.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = stop.cancelled() => return,
                };
                let Ok((stream, _)) = accepted else {
                    // Without a free file descriptor the next attempt would fail at once, and so on.
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                };
                let service = TowerToHyperService::new(router.clone());
                let stop = stop.clone();
                tasks.spawn(async move {
                    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    tokio::select! {
                        // Clients break connections, and faults do; neither is news.
                        _ = connection => {}
                        () = stop.cancelled() => {}
                    }
                });
            }
        });
    }
}

impl Drop for SimServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
