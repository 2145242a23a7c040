//! Which processes of this machine belong to a state directory.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A live process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Its arguments, as `ps` shows them.
    pub(crate) command: String,
}

/// Every process that works below `state_dir`, by its working directory or by a path in its environment: supervisors, workers, and
/// whatever those started. An `outpost run` whose settings name the directory itself is not among them.
pub(crate) fn below(state_dir: &Path) -> Vec<Process> {
    let mut found = found_below(&format!("{}/", state_dir.display()));
    found.sort();
    found
}

/// The workers among [`below`]: the processes that serve a session.
pub(crate) fn workers(state_dir: &Path) -> Vec<Process> {
    let serves = |process: &Process| {
        let words: Vec<&str> = process.command.split_whitespace().collect();
        words.windows(2).any(|pair| pair == ["devin-remote", "serve"])
            || words.windows(3).any(|words| words == ["devin", "worker", "start"])
    };
    below(state_dir).into_iter().filter(serves).collect()
}

/// Whether a process is alive; a zombie is not.
pub(crate) fn is_alive(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok() && !is_zombie(pid)
}

/// Ends every process of [`below`] without mercy, so that a failed test leaves nothing behind.
pub(crate) fn end_all_below(state_dir: &Path) {
    for process in below(state_dir) {
        let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
    }
}

#[cfg(target_os = "linux")]
fn found_below(prefix: &str) -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    pids.filter(|pid| *pid != own).filter_map(|pid| look_at(pid, prefix)).collect()
}

#[cfg(target_os = "linux")]
fn look_at(pid: i32, prefix: &str) -> Option<Process> {
    // Whatever cannot be read has ended, or is another user's.
    let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ").trim().to_owned();
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    let environment = String::from_utf8_lossy(&read("environ")).into_owned();
    let at_home = format!("{}/", cwd.display()).starts_with(prefix)
        || environment
            .split('\0')
            .any(|entry| entry.split_once('=').is_some_and(|(_, value)| value.starts_with(prefix)));
    (at_home && !command.is_empty() && !is_zombie(pid)).then_some(Process { pid, command })
}

#[cfg(target_os = "linux")]
fn is_zombie(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

#[cfg(not(target_os = "linux"))]
fn found_below(prefix: &str) -> Vec<Process> {
    let output = std::process::Command::new("ps").args(["-axEww", "-o", "pid=,state=,command="]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let own = std::process::id().to_string();
    let lines = text.lines().filter(|line| line.contains(prefix) && !line.contains("-axEww"));
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (pid, state) = (words.next()?, words.next()?);
            let alive = pid != own && !state.starts_with('Z');
            alive.then(|| Process {
                pid: pid.parse().unwrap_or_default(),
                command: words.collect::<Vec<_>>().join(" "),
            })
        })
        .collect()
}

#[cfg(not(target_os = "linux"))]
fn is_zombie(pid: i32) -> bool {
    let output = std::process::Command::new("ps").args(["-o", "state=", "-p", &pid.to_string()]).output();
    output.is_ok_and(|output| output.stdout.trim_ascii_start().starts_with(b"Z"))
}
