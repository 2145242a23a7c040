//! Signals, whatever is under way.

use nix::sys::signal::Signal;
use outpost::sim::control::ControlExt as _;
use outpost::sim::fault::{Endpoint, Fault, FaultRule};
use outpost::sim::model::ClaimOutcome;
use outpost::sim::script::{Script, Step};

use crate::common::{Playground, processes, until};

fn two_commands_and_an_end() -> Script {
    vec![Step::run("echo one"), Step::wait("go"), Step::run("echo two"), Step::Terminate]
}

/// Ends a run in the given way while a session works, and sees the next run find the session again.
#[track_caller]
fn the_next_run_goes_on(end: impl FnOnce(&mut crate::common::Running)) {
    let play = Playground::new();
    play.create("devin-1", two_commands_and_an_end());
    let mut first = play.outpost().start();
    play.output_of("devin-1", 1);
    let before = processes::workers(&play.state_dir());
    assert_eq!(before.len(), 1, "{before:?}");

    end(&mut first);
    assert_eq!(processes::workers(&play.state_dir()), before, "its worker lives on");
    let row = play.sim().row("devin-1").unwrap().unwrap();
    assert_eq!(row.phase, "claimed");

    let mut second = play.outpost().start();
    second.until_ready();
    until("it sees the sandbox", || second.metric("outpost_sandboxes{state=\"running\"}") == Some(1.0));
    assert_eq!(processes::workers(&play.state_dir()), before);
    assert_eq!(play.claims("devin-1", ClaimOutcome::Released), 0);

    play.sim().go("devin-1", "go").unwrap();
    assert_eq!(play.output_of("devin-1", 2), "two\n");
    play.until_released("devin-1");
    play.until_no_process();
    assert_eq!(play.workers_of("devin-1").len(), 1, "no worker was started again");
    assert!(second.stop().success());
}

// lesson 27, lesson 23
#[test]
fn sigterm_leaves_a_working_session_to_the_next_run() {
    the_next_run_goes_on(|run| assert!(run.stop().success()));
}

// lesson 27
#[test]
fn sigint_leaves_a_working_session_to_the_next_run() {
    the_next_run_goes_on(|run| {
        run.signal(Signal::SIGINT);
        assert!(run.until_left().success());
    });
}

// lesson 23
#[test]
fn sigkill_leaves_a_working_session_to_the_next_run() {
    the_next_run_goes_on(crate::common::Running::kill);
}

/// Stops a run while a start is held up at an endpoint, and sees that nothing half-started is left.
#[track_caller]
fn nothing_half_started_is_left(endpoint: Endpoint) {
    let play = Playground::new();
    play.sim().add_fault(FaultRule::once(endpoint, Fault::Delay { ms: 1000 })).unwrap();
    play.create("devin-1", two_commands_and_an_end());
    let mut first = play.outpost().start();
    until("the start is held up", || play.sim().count(endpoint).unwrap() > 0);
    assert!(first.stop().success());
    let held = play.sim().row("devin-1").unwrap().unwrap().acceptor_id.is_some();
    assert!(!held || endpoint == Endpoint::Claim, "a start that had not claimed yet claims no more");
    // A claim without a worker would be a promise that nobody keeps.
    until("there is a worker if there is a claim", || {
        held != processes::workers(&play.state_dir()).is_empty()
    });

    let _second = play.outpost().start();
    play.output_of("devin-1", 1);
    assert_eq!(play.workers_of("devin-1").len(), 1);
}

// lesson 27
#[test]
fn sigterm_while_the_worker_is_downloaded_leaves_nothing_half_started() {
    nothing_half_started_is_left(Endpoint::Static);
}

// lesson 27
#[test]
fn sigterm_while_a_session_is_claimed_leaves_nothing_half_started() {
    nothing_half_started_is_left(Endpoint::Claim);
}

// lesson 27
#[test]
fn sigterm_while_a_session_falls_asleep_loses_nothing() {
    let play = Playground::new();
    play.create(
        "devin-1",
        vec![
            Step::run("head -c 50000000 /dev/urandom >repos/big && cksum <repos/big"),
            Step::Suspend,
            Step::run("cksum <repos/big"),
        ],
    );
    let mut first = play.outpost().start();
    let written = play.output_of("devin-1", 1);
    until("its worker has left", || play.workers_of("devin-1")[0].left_with.is_some());
    assert!(first.stop().success());

    let second = play.outpost().start();
    play.until_released("devin-1");
    until("its sandbox is gone", || {
        second.metric("outpost_sandboxes{state=\"exited\"}") == Some(0.0)
            && second.metric("outpost_snapshots") == Some(1.0)
    });
    play.sim().wake("devin-1").unwrap();
    assert_eq!(play.output_of("devin-1", 2), written);
}

#[test]
fn a_second_signal_leaves_at_once() {
    let play = Playground::new();
    // Longer than a run that was told to stop waits for what is under way.
    play.sim().add_fault(FaultRule::always(Endpoint::Claim, Fault::Delay { ms: 600_000 })).unwrap();
    play.create("devin-1", two_commands_and_an_end());
    let mut run = play.outpost().start();
    until("the claim has begun", || play.sim().count(Endpoint::Claim).unwrap() > 0);
    run.signal(Signal::SIGTERM);
    run.until_says("stopping");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.until_left().code(), Some(130));
}

#[test]
fn sigterm_before_the_queue_ever_answered_is_a_good_end() {
    let play = Playground::new();
    play.sim().add_fault(FaultRule::everywhere(Fault::status(503))).unwrap();
    let mut run = play.outpost().start();
    run.until_says("trying again");
    assert!(run.stop().success());
}
