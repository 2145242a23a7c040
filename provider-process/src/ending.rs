//! Ending every process of a sandbox.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use outpost_core::model::WorkerEnding;
use outpost_core::ports::ErrorKind;
use outpost_provider_kit::{Cancel, Fault, blocking};

use crate::boot::{BootDir, Mark};
use crate::processes::{Members, Process, members, send};

/// How long after KILL a process may still be seen, for example while it waits for a disk.
const KILLED_WITHIN: Duration = Duration::from_secs(15);
/// How long a supervisor may outlive its worker: it writes down the code in that time.
const SUPERVISOR_LEAVES_WITHIN: Duration = Duration::from_secs(5);

const SHORT_PAUSE: Duration = Duration::from_millis(2);
const LONG_PAUSE: Duration = Duration::from_millis(100);

/// Sends TERM, after `grace` KILL, and answers when no process is alive. What was forced is noted in the
/// sandbox before the first KILL. Cancelling cuts the grace short.
pub(crate) async fn end_all(
    mut boot: BootDir,
    grace: Duration,
    cancel: Cancel,
) -> Result<WorkerEnding, Fault> {
    let mut asked: Vec<Process> = Vec::new();
    let mut refused: Option<Fault> = None;
    let begun = Instant::now();
    let mut killing_since: Option<Instant> = None;
    let mut killing_workers = false;
    let mut worker_gone_since: Option<Instant> = None;
    let mut pause = SHORT_PAUSE;
    loop {
        let (found, looked_at) = look(boot).await?;
        boot = looked_at;
        if found.is_empty() {
            return if killing_workers { Ok(WorkerEnding::Forced) } else { boot.ending() };
        }
        if found.working.is_empty() {
            let gone_since = *worker_gone_since.get_or_insert_with(Instant::now);
            if gone_since.elapsed() >= SUPERVISOR_LEAVES_WITHIN {
                refused = signal_all(&found.supervising, Signal::SIGKILL);
                killing_since.get_or_insert_with(Instant::now);
            }
        } else if begun.elapsed() < grace && !cancel.is_cancelled() {
            worker_gone_since = None;
            // Each process is asked once, also one that came later.
            let new: Vec<_> = found.working.into_iter().filter(|p| !asked.iter().any(|a| a.is(p))).collect();
            signal_all(&new, Signal::SIGTERM);
            asked.extend(new);
        } else {
            worker_gone_since = None;
            if !killing_workers {
                killing_workers = true;
                killing_since = Some(Instant::now());
                pause = SHORT_PAUSE;
                note_forced(&boot);
            }
            refused = signal_all(&found.working, Signal::SIGKILL);
        }
        if killing_since.is_some_and(|since| since.elapsed() >= KILLED_WITHIN) {
            let silent =
                || Fault::new(ErrorKind::Unavailable, "its processes do not end though they were killed");
            return Err(refused.unwrap_or_else(silent));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONG_PAUSE);
    }
}

/// Notes that KILL is needed, before it is sent.
fn note_forced(boot: &BootDir) {
    // A full disk must not keep a process alive.
    if let Err(fault) = boot.mark(Mark::Killed) {
        tracing::warn!(sandbox = %boot.meta.id(), "not noted that it was killed: {}", fault.message);
    }
}

async fn look(boot: BootDir) -> Result<(Members, BootDir), Fault> {
    blocking(move || Ok((members(&boot.marks()?)?, boot))).await
}

/// Signals each of them, whatever becomes of the others; the last one's fault if any would not take it.
fn signal_all(processes: &[Process], signal: Signal) -> Option<Fault> {
    let mut refused = None;
    for process in processes {
        if let Err(fault) = send(process, signal) {
            refused = Some(fault);
        }
    }
    refused
}
