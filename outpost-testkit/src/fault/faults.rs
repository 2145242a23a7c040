use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;
use outpost_core::ports::{Clock, Error, ErrorKind};

use super::plan::FaultPlan;
use crate::clock::yield_once;

/// The faults of one orchestrator: a plan, a seeded source of chance, and what has come of them. Clones are the same faults.
#[derive(Clone)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
    answers: Answers,
}

/// When a call that nothing befalls is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    AtOnce,
    NextTurn,
}

struct State {
    plan: FaultPlan,
    chance: Rng,
    switch: Switch,
    outage: Option<ErrorKind>,
    crashed: bool,
    notes: Vec<String>,
}

/// Whether faults happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// As the plan says.
    On,
    /// Never.
    Off,
}

/// What becomes of one call.
#[derive(Debug, Clone, Copy)]
struct Fate {
    wait_before: Option<Duration>,
    before: Option<Failure>,
    after: Option<Failure>,
    wait_after: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
enum Failure {
    Crash,
    Error { kind: ErrorKind, retry_after: Option<Duration>, uncertain: bool },
}

/// What a call is, for the faults that befall it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) who: &'static str,
    pub(super) operation: &'static str,
    /// Kinds that would be a lie here, because they settle something.
    pub(super) never: &'static [ErrorKind],
}

impl Faults {
    /// Faults that follow `plan`, with the chance of `seed`.
    #[must_use]
    pub fn seeded(seed: u64, plan: FaultPlan, clock: Arc<dyn Clock>) -> Self {
        let state = State {
            plan,
            chance: Rng::with_seed(seed),
            switch: Switch::On,
            outage: None,
            crashed: false,
            notes: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), clock, answers: Answers::AtOnce }
    }

    /// No faults.
    #[must_use]
    pub fn none(clock: Arc<dyn Clock>) -> Self {
        Self::seeded(0, FaultPlan::none(), clock)
    }

    /// The same faults; but no call is answered in the poll that makes it, as no real one is. An orchestrator that asks again
    /// and again is seen by whoever counts its polls.
    #[must_use]
    pub(crate) const fn answering_next_turn(mut self) -> Self {
        self.answers = Answers::NextTurn;
        self
    }

    /// Switches the faults on or off. An [outage](Self::outage) ends with them.
    pub fn switch(&self, to: Switch) {
        let mut state = self.lock();
        state.switch = to;
        if to == Switch::Off {
            state.outage = None;
        }
    }

    /// From now on every call fails before its effect, with this kind; `None` ends that.
    pub fn outage(&self, kind: Option<ErrorKind>) {
        self.lock().outage = kind;
    }

    /// Whether the process has died in a call since this was last asked. Such a call never answers: whoever drives the
    /// orchestrator drops it now.
    #[must_use]
    pub fn take_crash(&self) -> bool {
        std::mem::take(&mut self.lock().crashed)
    }

    /// The faults since this was last asked, one line each.
    #[must_use]
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().notes)
    }

    /// Makes a call, with what befalls it.
    pub(super) async fn around<T>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let fate = self.fate(call);
        if self.answers == Answers::NextTurn {
            yield_once().await;
        }
        self.wait(fate.wait_before).await;
        self.befall(call, fate.before).await?;
        let answer = work.await?;
        self.befall(call, fate.after).await?;
        self.wait(fate.wait_after).await;
        Ok(answer)
    }

    async fn wait(&self, pause: Option<Duration>) {
        if let Some(pause) = pause {
            self.clock.sleep(pause).await;
        }
    }

    async fn befall(&self, call: Call, failure: Option<Failure>) -> Result<(), Error> {
        match failure {
            None => Ok(()),
            Some(Failure::Crash) => {
                self.lock().crashed = true;
                std::future::pending().await
            }
            Some(Failure::Error { kind, retry_after, uncertain }) => {
                let error = Error::new(kind, call.who, call.operation, "a fault of the plan")
                    .with_retry_after(retry_after);
                Err(if uncertain { error.may_have_been_applied() } else { error })
            }
        }
    }

    fn fate(&self, call: Call) -> Fate {
        let mut state = self.lock();
        let mut fate = Fate { wait_before: None, before: None, after: None, wait_after: None };
        if let Some(kind) = state.outage {
            fate.before = Some(Failure::Error { kind, retry_after: None, uncertain: false });
            return fate;
        }
        if state.switch == Switch::Off {
            return fate;
        }
        let plan = state.plan.clone();
        if state.happens(plan.delay) {
            let pause = Some(state.up_to(plan.longest_delay));
            if state.chance.bool() {
                fate.wait_before = pause
            } else {
                fate.wait_after = pause
            }
            state.note(call, format_args!("waits {pause:?}"));
        }
        if state.happens(plan.crash) {
            let after = state.chance.bool();
            *(if after { &mut fate.after } else { &mut fate.before }) = Some(Failure::Crash);
            state.note(call, format_args!("crash {}", if after { "after" } else { "before" }));
            return fate;
        }
        if state.happens(plan.fail_before) {
            fate.before = state.error(call, &plan, "before");
        } else if state.happens(plan.fail_after) {
            fate.after = state.error(call, &plan, "after");
        }
        fate
    }

    /// Whether a list is answered with an older one, and how old it may be.
    pub(super) fn staleness(&self, call: Call) -> Option<Timestamp> {
        let mut state = self.lock();
        let probability = state.plan.stale;
        if state.switch == Switch::Off || !state.happens(probability) {
            return None;
        }
        let age = state.plan.stale_for;
        state.note(call, format_args!("is stale"));
        jiff::SignedDuration::try_from(age).ok().and_then(|age| self.clock.now().checked_sub(age).ok())
    }

    /// What befalls an item of a watch.
    pub(super) fn interruption(&self) -> Interruption {
        let mut state = self.lock();
        if state.switch == Switch::Off {
            return Interruption::None;
        }
        let plan = state.plan.clone();
        if state.happens(plan.silence) {
            Interruption::Silence(state.up_to(plan.longest_silence))
        } else if state.happens(plan.cut) {
            Interruption::Cut
        } else if state.happens(plan.repeat) {
            Interruption::Repeat
        } else {
            Interruption::None
        }
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Interruption {
    None,
    Cut,
    Silence(Duration),
    Repeat,
}

impl State {
    fn happens(&mut self, probability: f64) -> bool {
        // The draw comes first, so that a plan's zero does not shift the chance of the others.
        self.chance.f64() < probability
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.chance.f64())
    }

    fn error(&mut self, call: Call, plan: &FaultPlan, when: &str) -> Option<Failure> {
        let kinds: Vec<_> = plan.kinds.iter().filter(|kind| !call.never.contains(kind)).collect();
        let kind = **self.chance.choice(&kinds)?;
        let retry_after = self.happens(plan.retry_after).then(|| self.up_to(plan.longest_retry_after));
        // Nobody can say of a lost answer whether the request was lost, too.
        let uncertain = when == "after" || self.chance.bool();
        self.note(call, format_args!("fails {when} its effect: {}", kind.as_str()));
        Some(Failure::Error { kind, retry_after, uncertain })
    }

    fn note(&mut self, call: Call, what: fmt::Arguments<'_>) {
        self.notes.push(format!("{} {} {what}", call.who, call.operation));
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("switch", &self.lock().switch).finish_non_exhaustive()
    }
}
