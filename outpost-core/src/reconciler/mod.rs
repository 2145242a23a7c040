//! The shell: carries out what the engine asks for, over the ports.
//!
//! # Expected flow
//! [`Reconciler::run`] serves an outpost until it is told to stop; [`Reconciler::run_once`] makes one pass, for hosts that are
//! woken from outside. Both drive the same [`Engine`].
//!
//! # Guarantees
//! * Level-triggered: the list is the truth, and runs on its own timer whatever the watch does. An event is planned upon at
//!   once.
//! * All work runs beside each other in one future, without a runtime of its own: nothing here spawns.
//! * It can be dropped, or its process killed, at any await: the next run finds out what there is and goes on.
//!
//! # Caveats
//! A port's call that never answers is given up after five minutes (a start after an hour), as *may have been applied*.

mod calls;
mod execute;
mod start;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, Either, FutureExt, OptionFuture, select};
use futures::select_biased;
use futures::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use secrecy::SecretString;

use crate::decide::time::since;
use crate::engine::{Engine, Input, Notice, Report};
use crate::model::{Policy, WorkerSettings};
use crate::ports::{Clock, SandboxProvider, SessionSource, SnapshotStore, WorkerPrograms};

/// How long a stopping reconciler waits for what is under way.
const LEAVE_WITHIN: Duration = Duration::from_secs(20);

/// What a reconciler works with.
#[derive(Debug, Clone)]
pub struct Ports {
    /// What Devin wants.
    pub source: Arc<dyn SessionSource>,
    /// What exists.
    pub provider: Arc<dyn SandboxProvider>,
    /// What must survive a restart.
    pub store: Arc<dyn SnapshotStore>,
    /// What runs in a sandbox.
    pub programs: Arc<dyn WorkerPrograms>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// What workers are given beside what their session brings.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Workers {
    /// What every worker is told.
    pub settings: WorkerSettings,
    /// The fleet token, for [`WorkerMode::Cli`](crate::model::WorkerMode) only: code in a session can read it there.
    pub fleet_token: Option<SecretString>,
}

/// Hears what happens. Called from within the reconciler: it must not block.
pub trait Observer: std::fmt::Debug + Send + Sync {
    /// The state of things, after every round of decisions.
    fn report(&self, report: &Report);

    /// Something that people should be told.
    fn notice(&self, notice: &Notice);
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn report(&self, _: &Report) {}
    fn notice(&self, _: &Notice) {}
}

/// Serves one outpost.
#[derive(Debug)]
pub struct Reconciler {
    engine: Engine,
    context: Arc<Context>,
    observer: Arc<dyn Observer>,
    reported_at: Option<Timestamp>,
}

/// What every call needs.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) ports: Ports,
    pub(crate) policy: Policy,
    pub(crate) workers: Workers,
    stopping: AtomicBool,
}

impl Context {
    /// Whether nothing new is to be claimed any more.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

type InFlight = FuturesUnordered<BoxFuture<'static, Input>>;

impl Reconciler {
    /// A reconciler that goes by `policy`.
    ///
    /// # Errors
    /// One line that says what does not fit together.
    pub fn new(policy: Policy, ports: Ports, workers: Workers) -> Result<Self, String> {
        if !policy.worker_mode.claims() && workers.fleet_token.is_none() {
            return Err("worker mode `cli` needs the fleet token: without one the Devin CLI would create an outpost of its own".into());
        }
        if policy.limit == 0 {
            return Err("the limit of sandboxes is 0: nothing could ever be started".into());
        }
        let engine = Engine::new(policy.clone(), ports.provider.capabilities());
        let context = Arc::new(Context { ports, policy, workers, stopping: AtomicBool::new(false) });
        Ok(Self { engine, context, observer: Arc::new(NoObserver), reported_at: None })
    }

    /// The same reconciler, heard by `observer`.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Serves the outpost until `until` is ready, and a little longer, so that what is under way can end. Live workers and
    /// their claims stay for the next process.
    ///
    /// # Cancellation
    /// Dropping it is like killing the process: nothing is lost, and the next run goes on from what there is.
    pub async fn run(mut self, until: impl Future<Output = ()> + Send) -> Report {
        let source = Arc::clone(&self.context.ports.source);
        let mut until = pin!(until.fuse());
        let mut in_flight = InFlight::new();
        // Where a watch can begin is known after the first complete list.
        let mut watch = None;
        loop {
            self.dispatch(&mut in_flight);
            let mut sleep = self.sleep().fuse();
            let mut event = OptionFuture::from(watch.as_mut().map(StreamExt::select_next_some));
            let input = select_biased! {
                () = until => break,
                input = in_flight.select_next_some() => input,
                event = event => match event {
                    Some(event) => Input::Watched(event),
                    None => continue,
                },
                () = sleep => continue,
            };
            if let (None, Input::Sessions(Ok(listing))) = (&watch, &input) {
                watch = Some(source.watch(listing.cursor.clone()).fuse());
            }
            self.take(input);
        }
        self.leave(in_flight).await
    }

    /// Makes one pass: reads the records, the backend and the queue, and does what is to be done until nothing is left to do
    /// now.
    ///
    /// # Cancellation
    /// As [`Reconciler::run`].
    pub async fn run_once(&mut self) -> Report {
        let mut in_flight = InFlight::new();
        loop {
            self.dispatch(&mut in_flight);
            let Some(input) = in_flight.next().await else { break };
            self.take(input);
        }
        self.engine.report(self.now())
    }

    /// The state of things.
    pub fn report(&self) -> Report {
        self.engine.report(self.now())
    }

    fn now(&self) -> Timestamp {
        self.context.ports.clock.now()
    }

    fn take(&mut self, input: Input) {
        let now = self.now();
        self.engine.handle(now, input);
    }

    /// Begins what is to be done now, and tells the observer.
    fn dispatch(&mut self, in_flight: &mut InFlight) {
        let effects = self.engine.poll(self.now());
        in_flight
            .extend(effects.into_iter().map(|effect| execute::carry_out(Arc::clone(&self.context), effect)));
        for notice in self.engine.take_notices() {
            self.observer.notice(&notice);
        }
        self.tell_state();
    }

    /// A report costs a look at every session, so a burst of events makes one, not many.
    fn tell_state(&mut self) {
        const AT_MOST_EVERY: Duration = Duration::from_millis(100);
        let now = self.now();
        if self.reported_at.is_none_or(|at| since(now, at) >= AT_MOST_EVERY) {
            self.reported_at = Some(now);
            self.observer.report(&self.engine.report(now));
        }
    }

    fn sleep(&self) -> BoxFuture<'static, ()> {
        let clock = Arc::clone(&self.context.ports.clock);
        match self.engine.wake_at() {
            Some(at) => {
                let pause = since(at, clock.now()).max(Duration::from_millis(1));
                Box::pin(async move { clock.sleep(pause).await })
            }
            None => Box::pin(std::future::pending()),
        }
    }

    /// Waits a little for what is under way. What does not end in time is cut off; the next run finds it.
    async fn leave(mut self, mut in_flight: InFlight) -> Report {
        self.engine.stop();
        self.context.stopping.store(true, Ordering::Relaxed);
        let clock = Arc::clone(&self.context.ports.clock);
        let mut deadline = clock.sleep(LEAVE_WITHIN);
        while !in_flight.is_empty() {
            match select(in_flight.next(), deadline).await {
                Either::Left((Some(input), rest)) => {
                    deadline = rest;
                    self.take(input);
                }
                Either::Left((None, _)) | Either::Right(_) => break,
            }
        }
        for notice in self.engine.take_notices() {
            self.observer.notice(&notice);
        }
        self.engine.report(self.now())
    }
}
