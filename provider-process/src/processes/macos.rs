//! Processes as `ps` shows them, where there is no `/proc`: macOS.

use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use outpost_core::ports::ErrorKind;
use outpost_provider_kit::Fault;

use super::ps::{joined, parse};
use super::{Marks, Process};

/// Start times that `ps` prints are dates, so they need nothing to tell one start of the machine from another.
pub(crate) const fn machine_boot() -> Option<String> {
    None
}

/// It prints dates as the supervisor's does: in one language, and in one time zone wherever the machine has gone.
fn ps() -> Command {
    let mut command = Command::new("ps");
    command.env("LC_ALL", "C").env("TZ", "UTC0");
    command
}

/// When the process of this number started; `None` when there is none, or only a zombie.
pub(super) fn start_of(pid: i32) -> Option<String> {
    let output = ps().args(["-o", "stat=,lstart=", "-p", &pid.to_string()]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut words = text.split_whitespace();
    let alive = words.next()?;
    (!alive.starts_with('Z')).then(|| joined(&words.collect::<Vec<_>>()))
}

/// Every living process, those marked that carry the sandbox's marks. `-E` shows the environments of this user's
/// processes; working directories cannot be seen.
pub(super) fn all(marks: &Marks) -> Result<Vec<Process>, Fault> {
    let columns = "pid=,ppid=,pgid=,sess=,stat=,lstart=,command=";
    let output = ps().args(["-A", "-ww", "-E", "-o", columns]).output();
    let output = output.map_err(|error| Fault::io("run ps", &error))?;
    if !output.status.success() {
        return Err(Fault::new(ErrorKind::Unexpected, format!("ps ended with {}", output.status)));
    }
    Ok(parse(&String::from_utf8_lossy(&output.stdout), marks))
}

/// Signals a process. Between the look and the signal lies an instant in which its number could pass to another.
pub(super) fn send(process: &Process, signal: Signal) -> Result<(), Errno> {
    if start_of(process.pid).as_deref() != Some(process.started.as_str()) {
        return Err(Errno::ESRCH);
    }
    signal::kill(Pid::from_raw(process.pid), signal)
}
