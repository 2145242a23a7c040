//! `outpost demo`: the whole life of several sessions on this machine, without an account.
//!
//! Real are the reconciler, the fleet API's client over HTTP and SSE, the process provider, processes, files and snapshots. Stood in for are
//! Devin's side, by the simulator, and the worker.

mod checks;
mod scenes;
mod stage;
mod view;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command};
use tokio::signal::unix::{SignalKind, signal};

use checks::Checks;
use stage::Stage;
use view::View;

/// Longer than the demo takes on any machine that is fit for it.
const AT_MOST: Duration = Duration::from_secs(180);

pub(super) fn command() -> Command {
    Command::new("demo")
        .about("Plays several sessions through their whole life on this machine, without an account")
        .long_about(
            "Plays several sessions through their whole life on this machine, without an account: new work, suspend and resume, a \
             worker that crashes, a session that ends while its sandbox starts, a burst above the limit. Devin's side is \
             simulated; processes, HTTP, files and snapshots are real. Takes under a minute, and leaves nothing behind.\n\n\
             Exit codes: 0 everything that was checked held; 1 something did not.",
        )
        .arg(
            Arg::new("provider")
                .long("provider")
                .value_name("process")
                .default_value("process")
                .value_parser(["process"])
                .help("Where the sandboxes run"),
        )
        .arg(
            Arg::new("keep")
                .long("keep")
                .action(ArgAction::SetTrue)
                .help("Keeps the state directory, to look into, and says where it is"),
        )
}

/// What becomes of the demo's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Afterwards {
    Delete,
    Keep,
}

pub(super) fn main(matches: &ArgMatches) -> ExitCode {
    let afterwards = if matches.get_flag("keep") { Afterwards::Keep } else { Afterwards::Delete };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("outpost: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(play(afterwards)) {
        Ok(checks) if checks.all_held() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("outpost: the demo could not be played: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn play(afterwards: Afterwards) -> anyhow::Result<Checks> {
    let view = View::new();
    view.say("Devin's side is simulated here; everything else is real: HTTP, processes, files, snapshots.");
    let mut told_to_stop = Box::pin(told_to_stop()?);
    let stage = Stage::set(&view).await?;
    let mut checks = Checks::default();
    let played = tokio::select! {
        played = scenes::play(&stage, &view, &mut checks) => played,
        () = tokio::time::sleep(AT_MOST) => Err(anyhow::anyhow!("it takes longer than three minutes")),
        () = &mut told_to_stop => Err(anyhow::anyhow!("it was interrupted")),
    };
    view.say("cleaning up");
    let left = stage.clear(afterwards).await;
    view.end();
    played?;
    checks.check("afterwards: what is left", stage::nothing(afterwards), &left?);
    checks.print();
    Ok(checks)
}

/// Ready when somebody wants the demo to end, be it by closing its terminal. Heard from the call on.
fn told_to_stop() -> anyhow::Result<impl Future<Output = ()>> {
    let heard = |kind| signal(kind).context("signals cannot be heard");
    let mut interrupt = heard(SignalKind::interrupt())?;
    let mut terminate = heard(SignalKind::terminate())?;
    let mut hang_up = heard(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
    })
}
