//! Processes as `/proc` shows them.

use std::ffi::OsStr;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use outpost_core::ports::ErrorKind;
use procfs::ProcError;
use procfs::process::{self, Stat};
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

use super::{Marks, Process};
use crate::fault::Fault;

/// What tells one start of the machine from another: process start times count from it.
pub(crate) fn machine_boot() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// When the process of this number started; `None` when there is none, or only a zombie.
pub(super) fn start_of(pid: i32) -> Option<String> {
    let stat = process::Process::new(pid).ok()?.stat().ok()?;
    is_alive(&stat).then(|| stat.starttime.to_string())
}

const fn is_alive(stat: &Stat) -> bool {
    !matches!(stat.state, 'Z' | 'X' | 'x')
}

/// Every living process, those marked that carry the sandbox's marks.
pub(super) fn all(marks: &Marks) -> Result<Vec<Process>, Fault> {
    let unreadable = |error: ProcError| Fault::new(ErrorKind::Unexpected, format!("read /proc: {error}"));
    let mut found = Vec::new();
    for process in process::all_processes().map_err(unreadable)? {
        // A process that ends while it is looked at is no longer there.
        let Ok(process) = process else { continue };
        let Ok(stat) = process.stat() else { continue };
        if !is_alive(&stat) {
            continue;
        }
        found.push(Process {
            pid: stat.pid,
            parent: stat.ppid,
            group: stat.pgrp,
            session: stat.session,
            started: stat.starttime.to_string(),
            marked: is_marked(&process, marks),
        });
    }
    Ok(found)
}

fn is_marked(process: &process::Process, marks: &Marks) -> bool {
    let within = |path: &Path| path.starts_with(&marks.dir) || path.starts_with(&marks.tmp);
    // Neither can be read of another user's processes, which are none of ours.
    process.cwd().is_ok_and(|cwd| within(&cwd))
        || process.environ().is_ok_and(|env| {
            let names = ["TMPDIR", "HOME", "DEVIN_REMOTE_STATE_DIR", "DEVIN_WORKER_CACHE_DIR"];
            names.iter().any(|name| env.get(OsStr::new(name)).is_some_and(|value| within(Path::new(value))))
        })
}

/// Signals a process through a handle, so that the number cannot pass to another process between the look and the
/// signal.
pub(super) fn send(process: &Process, signal: Signal) -> Result<(), Errno> {
    let errno = |error: rustix::io::Errno| Errno::from_raw(error.raw_os_error());
    let pid = rustix::process::Pid::from_raw(process.pid).ok_or(Errno::ESRCH)?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(errno)?;
    if start_of(process.pid).as_deref() != Some(process.started.as_str()) {
        return Err(Errno::ESRCH);
    }
    let signal = match signal {
        Signal::SIGTERM => rustix::process::Signal::TERM,
        Signal::SIGKILL => rustix::process::Signal::KILL,
        _ => return Err(Errno::EINVAL),
    };
    pidfd_send_signal(handle, signal).map_err(errno)
}
