//! The simulator, in process, under tokio's paused time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use outpost_core::model::{AcceptorId, OutpostId, SessionId};
use outpost_core::ports::Clock;
use outpost_devin_api::{BaseUrl, DevinQueue, Hosts, Outposts, TowerTransport, Transport};
use outpost_sim::model::DEFAULT_OUTPOST;
use outpost_sim::{DEFAULT_TOKEN, Sim, SimOptions};
use tokio::time::Instant;

/// tokio's time, which jumps when nothing else is to be done.
#[derive(Debug)]
pub(crate) struct Paused {
    began: Instant,
    start: Timestamp,
}

impl Paused {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), start: Timestamp::from_second(1_800_000_000).unwrap() }
    }
}

#[async_trait]
impl Clock for Paused {
    fn now(&self) -> Timestamp {
        self.start + self.began.elapsed()
    }

    async fn sleep(&self, pause: Duration) {
        tokio::time::sleep(pause).await;
    }
}

/// A simulator and a queue that speaks to it.
pub(crate) struct Simulated {
    pub(crate) sim: Sim,
    pub(crate) queue: DevinQueue,
    pub(crate) clock: Arc<Paused>,
}

pub(crate) fn simulated() -> Simulated {
    simulated_with(SimOptions::default())
}

pub(crate) fn simulated_with(options: SimOptions) -> Simulated {
    let clock = Arc::new(Paused::new());
    let sim = Sim::new(options, outpost_sim::Clock::tokio(clock.start));
    let outpost = OutpostId::new(DEFAULT_OUTPOST).unwrap();
    let queue = DevinQueue::new(
        base(),
        &DEFAULT_TOKEN.into(),
        outpost,
        transport(&sim),
        Arc::clone(&clock) as Arc<_>,
    );
    Simulated { sim, queue, clock }
}

pub(crate) fn base() -> BaseUrl {
    BaseUrl::parse("http://localhost", Hosts::Devin).unwrap()
}

/// Calls answered by the simulator's router.
pub(crate) fn transport(sim: &Sim) -> Arc<dyn Transport> {
    Arc::new(TowerTransport::new(sim.fleet_router()))
}

impl Simulated {
    pub(crate) fn outposts(&self) -> Outposts {
        Outposts::new(base(), &DEFAULT_TOKEN.into(), transport(&self.sim), Arc::clone(&self.clock) as Arc<_>)
    }
}

pub(crate) fn session(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

pub(crate) fn acceptor(id: &str) -> AcceptorId {
    AcceptorId::new(id).unwrap()
}
