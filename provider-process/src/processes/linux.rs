//! Processes as `/proc` shows them.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use outpost_core::ports::ErrorKind;
use outpost_provider_kit::Fault;
use procfs::ProcError;
use procfs::process::{self, Stat};
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

use super::{Marks, Process};

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
    // Neither can be read of another user's processes, which are none of ours.
    let Ok(environment) = process.environ() else { return false };
    shows(&environment, process.cwd().ok().as_deref(), marks)
}

/// Whether a process shows by its environment, or by where it works, that it is the sandbox's.
fn shows(environment: &HashMap<OsString, OsString>, cwd: Option<&Path>, marks: &Marks) -> bool {
    let within = |path: &Path| path.starts_with(&marks.dir) || path.starts_with(&marks.tmp);
    let names = ["TMPDIR", "HOME", "DEVIN_REMOTE_STATE_DIR", "DEVIN_WORKER_CACHE_DIR"];
    let value = |name: &str| environment.get(OsStr::new(name)).map(Path::new);
    // While a program is being started its environment is seen empty, whoever's it is.
    let cleared = value("HOME").is_none() && !environment.is_empty();
    names.iter().any(|name| value(name).is_some_and(within)) || (cleared && cwd.is_some_and(within))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_environment_and_by_its_place_only_when_it_has_no_home() {
        let marks = Marks { supervisor: None, worker: None, tmp: "/t".into(), dir: "/d".into() };
        type Variables<'a> = &'a [(&'a str, &'a str)];
        let table: [(Variables<'_>, &str, bool); 10] = [
            (&[("TMPDIR", "/t")], "/", true),
            (&[("TMPDIR", "/tmp"), ("HOME", "/d/disk/home")], "/", true),
            (&[("DEVIN_REMOTE_STATE_DIR", "/d/disk/state"), ("HOME", "/root")], "/", true),
            (&[("PATH", "/bin")], "/d/disk", true),
            (&[("PATH", "/bin")], "/t", true),
            // A person's shell, and Outpost.
            (&[("PATH", "/bin"), ("HOME", "/home/person")], "/d/disk/workspace", false),
            (&[("HOME", "/home/person"), ("TMPDIR", "/tmp")], "/t", false),
            (&[], "/d", false),
            (&[("TMPDIR", "/t2"), ("HOME", "/d2")], "/d3", false),
            (&[("PATH", "/d/bin")], "/", false),
        ];
        for (variables, cwd, expected) in table {
            let environment = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
            assert_eq!(shows(&environment, Some(Path::new(cwd)), &marks), expected, "{variables:?} in {cwd}");
        }
    }
}
