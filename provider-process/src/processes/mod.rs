//! Which processes of this machine belong to a sandbox, and the ending of them.
//!
//! A process is taken for a sandbox's when one of these holds:
//!
//! * it is the worker or the supervisor, or in the group or session that the worker or supervisor leads;
//! * its environment has the boot's `TMPDIR` or (Linux only) a home or state directory in the sandbox;
//! * its working directory lies in the sandbox and its environment names no `HOME` (Linux only): a process of the
//!   session's that was started with a cleared environment. A person's shell that stands in the sandbox, an editor, or
//!   Outpost itself have a `HOME`, which lies elsewhere, and are let alone;
//! * its parent is one of those. Outpost's own process is nobody's, and so is nobody through it.
//!
//! A number alone never counts: it goes together with the time at which its process started, so that a recycled number is
//! nobody. A leader that has died leaves only the number of its group, which may have passed to another group whose
//! leader has died too: so it counts as long as a process in it carries a mark, for then it was never free.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod macos;
#[cfg(any(test, not(target_os = "linux")))]
mod ps;

use std::collections::HashSet;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::signal::Signal;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(not(target_os = "linux"))]
use macos as system;
use outpost_provider_kit::Fault;

pub(crate) use system::machine_boot;

/// A process that is not a zombie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// As the supervisor writes it down.
    pub(crate) started: String,
    /// It itself shows that it belongs to the sandbox: by its environment, or by its working directory.
    pub(crate) marked: bool,
}

impl Process {
    /// Whether both are the same process, whatever has become of it between the two looks.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.pid == other.pid && self.started == other.started
    }
}

/// A process as the supervisor wrote it down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) pid: i32,
    pub(crate) started: String,
}

impl Recorded {
    /// Whether it is alive: it itself, not another one of its number, and not a zombie.
    pub(crate) fn is_alive(&self) -> bool {
        system::start_of(self.pid).is_some_and(|started| self.matches(&started))
    }

    fn matches(&self, started: &str) -> bool {
        self.started == started || !self.is_certain() && !cfg!(target_os = "linux")
    }

    /// Whether it is written down when it started, and not `-`: the supervisor's system could not tell, which on Linux it
    /// always can.
    pub(crate) fn is_certain(&self) -> bool {
        self.started != "-"
    }
}

/// By what a sandbox's processes are known.
#[derive(Debug, Clone)]
pub(crate) struct Marks {
    pub(crate) supervisor: Option<Recorded>,
    pub(crate) worker: Option<Recorded>,
    /// The boot's `TMPDIR`.
    pub(crate) tmp: PathBuf,
    /// The sandbox's directory.
    pub(crate) dir: PathBuf,
}

/// The living processes of a sandbox.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// The supervisor and its helpers: they end by themselves when the worker has.
    pub(crate) supervising: Vec<Process>,
    /// The worker, its group, its session, and those that left them.
    pub(crate) working: Vec<Process>,
}

impl Members {
    pub(crate) fn is_empty(&self) -> bool {
        self.supervising.is_empty() && self.working.is_empty()
    }
}

/// Finds them.
pub(crate) fn members(marks: &Marks) -> Result<Members, Fault> {
    Ok(select(system::all(marks)?, marks, i32::try_from(std::process::id()).unwrap_or(-1)))
}

/// Picks a sandbox's processes out of all.
fn select(mut all: Vec<Process>, marks: &Marks, own_pid: i32) -> Members {
    // Before anything is concluded from parents: every supervisor that was started by this process is its child.
    all.retain(|p| p.pid != own_pid);
    let valid = |recorded: &Recorded| {
        let leads = |p: &Process| p.group == recorded.pid || p.session == recorded.pid;
        match all.iter().find(|p| p.pid == recorded.pid) {
            // A group's number cannot be given to a new process while the group has members. So when a process of that
            // number exists and started at another time, the group that we knew is gone and this one is somebody else's.
            Some(p) => recorded.matches(&p.started),
            None => all.iter().any(|p| p.marked && leads(p)),
        }
    };
    let leader = marks.worker.as_ref().filter(|it| valid(it)).map(|it| it.pid);
    let supervisor = marks.supervisor.as_ref().filter(|it| valid(it)).map(|it| it.pid);

    let belongs = |p: &Process| {
        p.marked
            || leader.is_some_and(|leader| p.group == leader || p.session == leader || p.pid == leader)
            || supervisor.is_some_and(|supervisor| p.group == supervisor || p.pid == supervisor)
    };
    let mut known: HashSet<i32> = all.iter().filter(|p| belongs(p)).map(|p| p.pid).collect();
    loop {
        let before = known.len();
        known.extend(all.iter().filter(|p| known.contains(&p.parent)).map(|p| p.pid).collect::<Vec<_>>());
        if known.len() == before {
            break;
        }
    }

    let (supervising, working) = all
        .into_iter()
        .filter(|p| known.contains(&p.pid))
        .partition(|p| supervisor.is_some_and(|s| p.pid == s || p.group == s));
    Members { supervising, working }
}

/// Sends a signal to a process if it is still the one that was found.
pub(crate) fn send(process: &Process, signal: Signal) -> Result<(), Fault> {
    match system::send(process, signal) {
        // Gone meanwhile.
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(Fault::new(
            outpost_core::ports::ErrorKind::Unauthorized,
            format!("send {signal} to process {}: {error}", process.pid),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, group: i32, session: i32) -> Process {
        Process { pid, parent, group, session, started: format!("s{pid}"), marked: false }
    }

    fn marks(worker: (i32, &str)) -> Marks {
        Marks {
            supervisor: Some(Recorded { pid: 10, started: "s10".into() }),
            worker: Some(Recorded { pid: worker.0, started: worker.1.into() }),
            tmp: "/t".into(),
            dir: "/d".into(),
        }
    }

    fn pids(processes: &[Process]) -> Vec<i32> {
        processes.iter().map(|p| p.pid).collect()
    }

    #[test]
    fn group_session_marks_and_children_are_found_and_nobody_else() {
        let stray = marked(process(40, 1, 40, 40));
        let all = vec![
            process(1, 0, 1, 1),
            process(10, 1, 10, 5),
            process(11, 10, 10, 5),
            process(20, 10, 20, 20),
            process(21, 20, 20, 20),
            process(22, 21, 22, 20),
            stray,
            process(41, 40, 41, 41),
            process(50, 1, 50, 50),
        ];
        let members = select(all, &marks((20, "s20")), 50);
        assert_eq!(pids(&members.supervising), [10, 11]);
        assert_eq!(pids(&members.working), [20, 21, 22, 40, 41]);
    }

    #[test]
    fn a_recycled_number_is_nobody_and_neither_is_its_group() {
        let all = vec![process(20, 1, 20, 20), process(21, 20, 20, 20)];
        let members = select(all, &marks((20, "an earlier time")), 50);
        assert!(members.is_empty(), "{members:?}");
    }

    fn marked(process: Process) -> Process {
        Process { marked: true, ..process }
    }

    #[test]
    fn a_group_whose_leader_is_dead_is_ours_while_one_in_it_is_marked() {
        let all = vec![marked(process(21, 1, 20, 20)), process(22, 1, 20, 20), process(23, 22, 23, 23)];
        let members = select(all, &marks((20, "s20")), 50);
        assert_eq!(pids(&members.working), [21, 22, 23]);
    }

    #[test]
    fn a_group_whose_leader_is_dead_and_in_which_nobody_is_marked_may_be_anybodys() {
        let all = vec![process(21, 1, 20, 20), process(22, 21, 22, 20), process(11, 1, 10, 5)];
        let members = select(all, &marks((20, "s20")), 50);
        assert!(members.is_empty(), "{members:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_start_that_is_not_known_matches_nobody() {
        let members = select(vec![process(20, 1, 20, 20), process(21, 20, 20, 20)], &marks((20, "-")), 50);
        assert!(members.is_empty(), "{members:?}");
        let own = Recorded { pid: i32::try_from(std::process::id()).unwrap(), started: "-".into() };
        assert!(!own.is_alive());
    }

    #[test]
    fn neither_this_process_nor_what_it_started_counts_because_it_works_in_the_directory() {
        let all = vec![
            marked(process(50, 1, 50, 50)),
            // Another sandbox's supervisor and worker.
            process(60, 50, 60, 50),
            process(61, 60, 61, 61),
            process(10, 50, 10, 50),
            process(20, 10, 20, 20),
        ];
        let members = select(all, &marks((20, "s20")), 50);
        assert_eq!(pids(&members.supervising), [10]);
        assert_eq!(pids(&members.working), [20]);
    }
}
