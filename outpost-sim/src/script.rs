//! What a session does, as a list of steps that its worker is led through.
//!
//! Pure as the [model](crate::model): a [`Playback`] is asked for the next order with the time and
//! answers with the status changes that go with it.
//!
//! A script outlives workers: after a suspend, a crash or a kill the next worker goes on where the last
//! one stopped. A command whose result never came is given to the next worker again.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A session's steps, in order.
pub type Script = Vec<Step>;

/// One step of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
#[non_exhaustive]
pub enum Step {
    /// Runs a command with `/bin/sh -c` in the worker's working directory and waits for its result.
    Run {
        /// The command.
        command: String,
    },
    /// Waits until [`go`](Playback::go) says this name. A name said before counts.
    Wait {
        /// The name.
        name: String,
    },
    /// Lets time pass.
    Pause {
        /// How long.
        ms: u64,
    },
    /// The session goes to sleep: its status becomes `suspended` and its worker leaves with 0.
    Suspend,
    /// The session ends: its status becomes `terminated` and its worker leaves with 0.
    Terminate,
    /// The session status becomes this, which a worker notices only when it is an ending.
    SetStatus {
        /// Any text.
        status: String,
    },
    /// The worker leaves at once with this code; the session lives on.
    Crash {
        /// The exit code.
        code: u8,
    },
    /// The worker stops listening and never leaves. An ending right after this one changes the status and
    /// the worker does not notice.
    Hang,
    /// The worker is gone by SIGKILL.
    KillSelf,
    /// The worker ignores SIGTERM from here on.
    IgnoreTerm,
    /// The worker of the next ending leaves this much later than it is told.
    ExitLate {
        /// How much.
        ms: u64,
    },
    /// The status of the next ending changes this much later than its worker leaves.
    StatusLag {
        /// How much.
        ms: u64,
    },
    /// The worker of the next ending leaves with this code.
    ExitWith {
        /// The exit code.
        code: u8,
    },
}

impl Step {
    /// A command.
    pub fn run(command: impl Into<String>) -> Self {
        Self::Run { command: command.into() }
    }

    /// A wait for [`go`](Playback::go).
    pub fn wait(name: impl Into<String>) -> Self {
        Self::Wait { name: name.into() }
    }
}

/// What a worker is told to do next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "order")]
#[non_exhaustive]
pub enum Order {
    /// Nothing: ask again.
    Idle,
    /// Run this and report under this number; a command that is running already is not run again.
    Run {
        /// The number of the command in the session.
        number: u64,
        /// The command.
        command: String,
    },
    /// Leave after a while.
    Exit {
        /// With this code.
        code: u8,
        /// How long to wait first.
        after_ms: u64,
    },
    /// Never leave, and ask no more.
    Hang,
    /// Kill yourself.
    KillSelf,
    /// Ignore SIGTERM from here on, and ask again.
    IgnoreTerm,
}

/// A command's result, as the worker reported it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunResult {
    /// The number of the command in the session.
    pub number: u64,
    /// The command.
    pub command: String,
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Its output and errors, cut at 64 KiB.
    pub output: String,
}

/// A status change that goes with an order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatusChange {
    /// When.
    pub at: Timestamp,
    /// To what.
    pub status: String,
}

/// How far a session's script has been played.
#[derive(Debug, Clone, Default)]
pub struct Playback {
    steps: VecDeque<Step>,
    said: BTreeSet<String>,
    paused_until: Option<Timestamp>,
    running: Option<(u64, String)>,
    /// The worker that has the running command.
    runner: Option<u64>,
    commands: u64,
    results: Vec<RunResult>,
    exit_late: Duration,
    status_lag: Duration,
    exit_code: u8,
    /// The worker that was told to leave, so that it is told again when its answer was lost.
    leaving: Option<(u64, Order)>,
}

impl Playback {
    /// At the beginning of a script.
    #[must_use]
    pub fn new(script: Script) -> Self {
        Self { steps: script.into(), ..Self::default() }
    }

    /// Adds steps to the end.
    pub fn push(&mut self, steps: impl IntoIterator<Item = Step>) {
        self.steps.extend(steps);
    }

    /// Lets a [`Step::Wait`] of this name pass.
    pub fn go(&mut self, name: impl Into<String>) {
        self.said.insert(name.into());
    }

    /// Steps that are still to come; the running command is not one of them.
    #[must_use]
    pub fn left(&self) -> usize {
        self.steps.len()
    }

    /// Whether every step was played and no command runs.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.steps.is_empty() && self.running.is_none()
    }

    /// Results so far.
    #[must_use]
    pub fn results(&self) -> &[RunResult] {
        &self.results
    }

    /// When asking again can help although nothing was said.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Timestamp> {
        self.paused_until
    }

    /// Takes a command's result. A result that was reported before, or that nobody waits for, is dropped.
    pub fn report(&mut self, number: u64, code: Option<i32>, output: String) {
        if let Some((_, command)) = self.running.take_if(|(running, _)| *running == number) {
            self.runner = None;
            self.results.push(RunResult { number, command, code, output });
        }
    }

    /// The next order for `worker`, given the session's status, and the status changes that come with it.
    pub fn next(&mut self, now: Timestamp, worker: u64, status: Option<&str>) -> (Order, Vec<StatusChange>) {
        let mut changes = Vec::new();
        let order = self.advance(now, worker, status, &mut changes);
        (order, changes)
    }

    fn advance(
        &mut self,
        now: Timestamp,
        worker: u64,
        status: Option<&str>,
        changes: &mut Vec<StatusChange>,
    ) -> Order {
        if let Some((_, order)) = self.leaving.as_ref().filter(|(leaving, _)| *leaving == worker) {
            return order.clone();
        }
        if matches!(status, Some("suspended" | "terminated")) {
            return self.leave(worker);
        }
        if let Some((number, command)) = &self.running {
            if self.runner == Some(worker) {
                return Order::Idle;
            }
            self.runner = Some(worker);
            return Order::Run { number: *number, command: command.clone() };
        }
        while let Some(step) = self.steps.front() {
            match step {
                Step::Wait { name } if !self.said.contains(name) => return Order::Idle,
                Step::Pause { ms } => {
                    let until = *self.paused_until.get_or_insert(now + Duration::from_millis(*ms));
                    if now < until {
                        return Order::Idle;
                    }
                    self.paused_until = None;
                }
                _ => {}
            }
            let Some(step) = self.steps.pop_front() else { break };
            match step {
                Step::Wait { name } => {
                    self.said.remove(&name);
                }
                Step::Pause { .. } => {}
                Step::Run { command } => {
                    self.commands += 1;
                    self.running = Some((self.commands, command.clone()));
                    self.runner = Some(worker);
                    return Order::Run { number: self.commands, command };
                }
                Step::Suspend => return self.end(now, worker, "suspended", changes),
                Step::Terminate => return self.end(now, worker, "terminated", changes),
                Step::SetStatus { status } => {
                    let ends = matches!(&*status, "suspended" | "terminated");
                    changes.push(StatusChange { at: now, status });
                    if ends {
                        return self.leave(worker);
                    }
                }
                Step::Crash { code } => return self.told(worker, Order::Exit { code, after_ms: 0 }),
                Step::KillSelf => return self.told(worker, Order::KillSelf),
                Step::Hang => {
                    self.end_unnoticed(now, changes);
                    return self.told(worker, Order::Hang);
                }
                Step::IgnoreTerm => return Order::IgnoreTerm,
                Step::ExitLate { ms } => self.exit_late = Duration::from_millis(ms),
                Step::StatusLag { ms } => self.status_lag = Duration::from_millis(ms),
                Step::ExitWith { code } => self.exit_code = code,
            }
        }
        Order::Idle
    }

    /// An ending by script. With a lag the status changes only after the worker has left.
    fn end(&mut self, now: Timestamp, worker: u64, status: &str, changes: &mut Vec<StatusChange>) -> Order {
        let lag = std::mem::take(&mut self.status_lag);
        let at = if lag.is_zero() { now } else { now + self.exit_late + lag };
        changes.push(StatusChange { at, status: status.to_owned() });
        self.leave(worker)
    }

    fn leave(&mut self, worker: u64) -> Order {
        // A command that the session's end cut short is not run again when the session wakes.
        self.running = None;
        self.runner = None;
        let after_ms = u64::try_from(std::mem::take(&mut self.exit_late).as_millis()).unwrap_or(u64::MAX);
        let code = std::mem::take(&mut self.exit_code);
        self.told(worker, Order::Exit { code, after_ms })
    }

    fn told(&mut self, worker: u64, order: Order) -> Order {
        self.leaving = Some((worker, order.clone()));
        order
    }

    fn end_unnoticed(&mut self, now: Timestamp, changes: &mut Vec<StatusChange>) {
        let mut at = now;
        while let Some(step) = self.steps.front() {
            match step {
                Step::StatusLag { ms } => at = now + Duration::from_millis(*ms),
                Step::Suspend => changes.push(StatusChange { at, status: "suspended".to_owned() }),
                Step::Terminate => changes.push(StatusChange { at, status: "terminated".to_owned() }),
                Step::SetStatus { status } => changes.push(StatusChange { at, status: status.clone() }),
                _ => return,
            }
            self.steps.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::UNIX_EPOCH;
    const AWAKE: Option<&str> = Some("running");

    fn at(secs: u64) -> Timestamp {
        START + Duration::from_secs(secs)
    }

    fn exit(code: u8, after_ms: u64) -> Order {
        Order::Exit { code, after_ms }
    }

    #[test]
    fn command_is_given_once_to_a_worker_and_again_to_the_next_until_its_result_came() {
        let mut playback = Playback::new(vec![Step::run("a"), Step::run("b")]);
        let run = |number, command: &str| Order::Run { number, command: command.into() };
        assert_eq!(playback.next(START, 1, AWAKE).0, run(1, "a"));
        assert_eq!(playback.next(START, 1, AWAKE).0, Order::Idle);
        assert_eq!(playback.next(START, 2, AWAKE).0, run(1, "a"));
        playback.report(9, Some(0), String::new());
        assert!(playback.results().is_empty());
        playback.report(1, Some(0), String::new());
        playback.report(1, Some(1), "again".into());
        assert_eq!(playback.results().len(), 1);
        assert_eq!(playback.next(START, 2, AWAKE).0, run(2, "b"));
        assert!(!playback.is_finished());
        playback.report(2, None, String::new());
        assert!(playback.is_finished());
    }

    #[test]
    fn word_said_before_its_wait_counts_once() {
        let mut playback = Playback::new(vec![Step::wait("x"), Step::Crash { code: 1 }, Step::wait("x")]);
        playback.go("x");
        assert_eq!(playback.next(START, 1, AWAKE).0, exit(1, 0));
        assert_eq!(playback.next(START, 2, AWAKE).0, Order::Idle);
        assert_eq!(playback.left(), 1);
        playback.go("x");
        playback.next(START, 2, AWAKE);
        assert!(playback.is_finished());
    }

    #[test]
    fn pause_lasts_from_when_it_is_reached() {
        let pause = || Step::Pause { ms: 5000 };
        let mut playback = Playback::new(vec![pause(), pause(), Step::Crash { code: 1 }]);
        assert_eq!(playback.next(at(100), 1, AWAKE).0, Order::Idle);
        assert_eq!(playback.wakes_at(), Some(at(105)));
        assert_eq!(playback.next(at(104), 1, AWAKE).0, Order::Idle);
        assert_eq!(playback.next(at(105), 1, AWAKE).0, Order::Idle);
        assert_eq!(playback.wakes_at(), Some(at(110)));
        assert_eq!(playback.next(at(110), 1, AWAKE).0, exit(1, 0));
    }

    #[test]
    fn lag_begins_when_the_worker_has_left() {
        let script =
            vec![Step::ExitLate { ms: 2000 }, Step::StatusLag { ms: 3000 }, Step::Suspend, Step::Suspend];
        let mut playback = Playback::new(script);
        let (order, changes) = playback.next(START, 1, AWAKE);
        assert_eq!(order, exit(0, 2000));
        assert_eq!(changes, [StatusChange { at: at(5), status: "suspended".into() }]);
        let (order, changes) = playback.next(START, 2, AWAKE);
        assert_eq!(order, exit(0, 0), "manners hold for one ending");
        assert_eq!(changes[0].at, START);
    }

    #[test]
    fn worker_is_told_to_leave_as_long_as_its_session_sleeps_and_never_stays_after_it_was_told() {
        let mut playback = Playback::new(vec![Step::run("a"), Step::run("b")]);
        playback.next(START, 1, AWAKE);
        assert_eq!(playback.next(START, 1, Some("suspended")).0, exit(0, 0));
        assert_eq!(playback.next(START, 1, AWAKE).0, exit(0, 0), "the answer may have been lost");
        let next = playback.next(START, 2, AWAKE).0;
        assert_eq!(next, Order::Run { number: 2, command: "b".into() }, "what was cut short is over");
    }

    #[test]
    fn ending_after_a_hang_is_not_noticed() {
        let mut playback =
            Playback::new(vec![Step::Hang, Step::StatusLag { ms: 1000 }, Step::Terminate, Step::run("a")]);
        let (order, changes) = playback.next(START, 1, AWAKE);
        assert_eq!(order, Order::Hang);
        assert_eq!(changes, [StatusChange { at: at(1), status: "terminated".into() }]);
        assert_eq!(playback.left(), 1);
    }
}
