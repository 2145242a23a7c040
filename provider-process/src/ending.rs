//! Ending every process of a sandbox.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use outpost_core::model::WorkerEnding;
use outpost_core::ports::ErrorKind;

use crate::boot::BootDir;
use crate::fault::{Fault, blocking};
use crate::processes::{Members, Process, members, send};
use crate::tasks::Cancel;

/// How long after KILL a process may still be seen, for example while it waits for a disk.
const KILLED_WITHIN: Duration = Duration::from_secs(10);
/// How long a supervisor may outlive its worker: it writes down the code in that time.
const SUPERVISOR_LEAVES_WITHIN: Duration = Duration::from_secs(5);

/// Sends TERM, after `grace` KILL, and answers when no process is alive. What was forced is in the sandbox's `meta.json`
/// before the first KILL. Cancelling cuts the grace short.
pub(crate) async fn end_all(
    mut boot: BootDir,
    grace: Duration,
    cancel: Cancel,
) -> Result<WorkerEnding, Fault> {
    let mut asked: Vec<Process> = Vec::new();
    let begun = Instant::now();
    let mut killing_since: Option<Instant> = None;
    let mut worker_gone_since: Option<Instant> = None;
    let mut pause = Duration::from_millis(2);
    loop {
        let (found, looked_at) = look(boot).await?;
        boot = looked_at;
        if found.is_empty() {
            return Ok(boot.meta.ending);
        }
        if found.working.is_empty() {
            let gone_since = *worker_gone_since.get_or_insert_with(Instant::now);
            if gone_since.elapsed() >= SUPERVISOR_LEAVES_WITHIN {
                signal_all(&found.supervising, Signal::SIGKILL)?;
            }
        } else {
            worker_gone_since = None;
            if begun.elapsed() < grace && !cancel.is_cancelled() {
                // Each process is asked once, also one that came later.
                let new =
                    found.working.into_iter().filter(|p| !asked.iter().any(|a| a.is(p))).collect::<Vec<_>>();
                signal_all(&new, Signal::SIGTERM)?;
                asked.extend(new);
            } else {
                if boot.meta.ending != WorkerEnding::Forced {
                    boot.meta.ending = WorkerEnding::Forced;
                    // A full disk must not keep a process alive.
                    if let Err(fault) = boot.meta.write(&boot.dir) {
                        tracing::warn!(sandbox = %boot.meta.id(), "not noted that it was killed: {}", fault.message);
                    }
                }
                signal_all(&found.working, Signal::SIGKILL)?;
                killing_since.get_or_insert_with(Instant::now);
            }
        }
        if killing_since.is_some_and(|since| since.elapsed() >= KILLED_WITHIN + SUPERVISOR_LEAVES_WITHIN) {
            return Err(Fault::new(
                ErrorKind::Unavailable,
                "its processes do not end though they were killed",
            ));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

async fn look(boot: BootDir) -> Result<(Members, BootDir), Fault> {
    blocking(move || Ok((members(&boot.marks()?)?, boot))).await
}

fn signal_all(processes: &[Process], signal: Signal) -> Result<(), Fault> {
    processes.iter().try_for_each(|process| send(process, signal))
}
