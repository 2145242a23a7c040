//! The supervisor, run by every POSIX shell that is here.
// lesson 58: what is generated or shipped as a script is run by real shells, with real programs.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use outpost_core::model::SUPERVISOR;
use tempfile::TempDir;

const SECRET: &str = "sentinel-in-the-environment";

/// The shells to try, as words.
const SHELLS: &[&[&str]] = &[
    &["/bin/sh"],
    &["dash"],
    &["bash", "--posix"],
    &["busybox", "sh"],
    &["mksh"],
    &["ksh"],
    &["yash"],
    &["zsh", "--emulate", "sh"],
];

fn shells() -> Vec<&'static [&'static str]> {
    let (here, missing): (Vec<&'static [&'static str]>, Vec<_>) = SHELLS.iter().copied().partition(|words| {
        let run = Command::new(words[0]).args(&words[1..]).args(["-c", "exit 0"]).output();
        run.is_ok_and(|output| output.status.success())
    });
    for words in missing {
        println!("skipped: {} is not here", words.join(" "));
    }
    assert!(!here.is_empty(), "no shell at all");
    here
}

struct Stage {
    dir: TempDir,
    shell: &'static [&'static str],
}

impl Stage {
    fn new(shell: &'static [&'static str]) -> Self {
        let stage = Self { dir: tempfile::tempdir().unwrap(), shell };
        fs::create_dir(stage.run()).unwrap();
        fs::create_dir(stage.cwd()).unwrap();
        fs::write(stage.script(), SUPERVISOR).unwrap();
        stage
    }

    fn run(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    fn cwd(&self) -> PathBuf {
        self.dir.path().join("work dir")
    }

    fn script(&self) -> PathBuf {
        self.dir.path().join("supervisor.sh")
    }

    /// A supervisor of `/bin/sh -c worker`.
    fn start(&self, after: &str, worker: &str) -> Running<'_> {
        self.start_with(after, &["/bin/sh", "-c", worker, "worker", "an argument"], |_| {})
    }

    fn start_with(&self, after: &str, program: &[&str], change: impl FnOnce(&mut Command)) -> Running<'_> {
        let path = std::env::var("PATH").unwrap();
        let environment =
            format!("export PATH='{path}'\nexport SECRET='{SECRET}'\nexport TWO='a\n'\\''b'\n#end\n");
        self.start_in(&environment, after, program, change)
    }

    fn start_in(
        &self,
        environment: &str,
        after: &str,
        program: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Running<'_> {
        let mut command = Command::new(self.shell[0]);
        command
            .args(&self.shell[1..])
            .arg(self.script())
            .args([self.run(), self.cwd()])
            .args(["boot-7", after])
            .args(program)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("INHERITED", "by the supervisor only")
            .env("OUTPOST_SHELL", self.shell.join(" "))
            .stdin(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(environment.as_bytes()).unwrap();
        drop(input);
        Running { stage: self, child }
    }

    fn words(&self, file: &str) -> Option<Vec<String>> {
        let text = fs::read_to_string(self.run().join(file)).ok()?;
        Some(text.split_whitespace().map(str::to_owned).collect())
    }

    fn output(&self) -> String {
        fs::read_to_string(self.run().join("log")).unwrap_or_default()
    }

    fn wait_for(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !condition() {
            let late = begun.elapsed() > Duration::from_secs(20);
            assert!(!late, "{:?}: waited in vain for {what}; the log: {}", self.shell, self.output());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until no process works in the run directory.
    #[cfg(target_os = "linux")]
    fn leaves_nothing(&self) {
        let run = self.run();
        let works_there = |process: procfs::process::Process| process.cwd().is_ok_and(|cwd| cwd == run);
        self.wait_for("the end of its helpers", || {
            !procfs::process::all_processes().unwrap().flatten().any(works_there)
        });
    }

    #[cfg(not(target_os = "linux"))]
    fn leaves_nothing(&self) {}

    fn exit(&self) -> Vec<String> {
        self.wait_for("the worker's end", || self.words("exit").is_some());
        self.words("exit").unwrap()
    }

    fn worker(&self) -> Pid {
        self.wait_for("the worker's start", || self.words("worker").is_some());
        Pid::from_raw(self.words("worker").unwrap()[1].parse().unwrap())
    }
}

struct Running<'a> {
    stage: &'a Stage,
    child: Child,
}

impl Running<'_> {
    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap())
    }

    fn wait(&mut self) -> i32 {
        let stage = self.stage;
        let mut ended = None;
        stage.wait_for("the supervisor's end", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        let status = ended.unwrap();
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
    }
}

impl Drop for Running<'_> {
    /// Nothing stays, whatever the test has come to.
    fn drop(&mut self) {
        if let Some(worker) = self.stage.words("worker") {
            let _ = kill(Pid::from_raw(-worker[1].parse::<i32>().unwrap()), Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_shell_takes_the_script() {
    for shell in shells() {
        let stage = Stage::new(shell);
        let check = Command::new(shell[0]).args(&shell[1..]).arg("-n").arg(stage.script()).output().unwrap();
        assert!(check.status.success(), "{shell:?}: {}", String::from_utf8_lossy(&check.stderr));
    }
}

#[test]
fn a_worker_runs_in_its_directory_with_its_arguments_and_its_end_is_written_down() {
    for shell in shells() {
        let stage = Stage::new(shell);
        let mut running = stage.start("leave", "pwd; echo \"argument: $1\"; exit 7");
        assert_eq!(running.wait(), 0);
        stage.leaves_nothing();
        let exit = stage.exit();
        assert_eq!(exit[..2], ["boot-7", "7"], "{shell:?}");
        let time: i64 = exit[2].parse().unwrap();
        assert!((jiff::Timestamp::now().as_second() - time).abs() < 600, "{shell:?}: {time}");
        let output = stage.output();
        assert!(
            output.contains("work dir\n") && output.contains("argument: an argument\n"),
            "{shell:?}: {output}"
        );
    }
}

#[test]
fn in_a_container_the_output_is_the_engines_and_the_end_has_the_workers_code() {
    for shell in shells() {
        let stage = Stage::new(shell);
        let words = ["/bin/sh", "-c", "echo from the worker; exit 9"];
        let mut running = stage.start_with("container", &words, |command| {
            command.stdout(Stdio::piped());
        });
        assert_eq!(running.wait(), 9, "{shell:?}");
        stage.leaves_nothing();
        let output = std::io::read_to_string(running.child.stdout.take().unwrap()).unwrap();
        assert_eq!(output, "from the worker\n", "{shell:?}");
        assert!(!stage.run().join("log").exists(), "{shell:?}");
    }
}

// lesson 51
#[test]
fn the_environment_is_exactly_what_came_through_the_pipe() {
    for shell in shells() {
        let stage = Stage::new(shell);
        // `env` itself is the worker: a shell would add variables of its own.
        stage.start_with("leave", &["env"], |_| {}).wait();
        let output = stage.output();
        let mut lines: Vec<_> = output.lines().filter(|line| !line.starts_with("PATH=")).collect();
        lines.sort_unstable();
        assert_eq!(lines, ["'b", &format!("SECRET={SECRET}"), "TWO=a"], "{shell:?}");
    }
}

#[test]
fn a_worker_never_starts_with_a_part_of_its_environment() {
    let cut = [
        "",
        "export SECRET='x'\n",
        "export SECRET='x'\n#end",
        "export SECRET='x\n",
        "export SECRET='x\n#end\n",
    ];
    for shell in shells() {
        for environment in cut {
            let stage = Stage::new(shell);
            let program = ["/bin/sh", "-c", "echo it runs"];
            assert_eq!(stage.start_in(environment, "leave", &program, |_| {}).wait(), 0);
            let (code, output) = (stage.exit()[1].clone(), stage.output());
            assert!(!output.contains("it runs"), "{shell:?} {environment:?}: {output}");
            // Some shells end by themselves, with a code of their own, when a quotation is not closed.
            let whole = environment.ends_with("#end\n");
            assert!(code == "125" || whole && code != "0", "{shell:?} {environment:?}: {code}");
            assert!(whole || output.contains("ended before #end"), "{shell:?} {environment:?}: {output}");
        }
        let stage = Stage::new(shell);
        stage.start_in("#end\n", "leave", &["/bin/sh", "-c", "echo it runs"], |_| {}).wait();
        assert_eq!(stage.output(), "it runs\n", "{shell:?}: none at all can be meant");
    }
}

// lesson 51
#[cfg(target_os = "linux")]
#[test]
fn only_the_worker_ever_holds_the_secret() {
    for shell in shells() {
        let stage = Stage::new(shell);
        let running = stage.start("leave", "echo ready; while :; do sleep 1; done");
        stage.wait_for("the worker", || stage.output().contains("ready"));
        let worker = stage.worker().as_raw();
        let holds = |pid: i32, file: &str| {
            let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
        };
        assert!(holds(worker, "environ"), "{shell:?}: the scan does not find what is there");
        let group = running.pid().as_raw();
        for process in procfs::process::all_processes().unwrap().flatten() {
            let Ok(stat) = process.stat() else { continue };
            let supervising = stat.pid == group || stat.ppid == group;
            if supervising && stat.pid != worker {
                assert!(!holds(stat.pid, "environ") && !holds(stat.pid, "cmdline"), "{shell:?}: {stat:?}");
            }
        }
        for file in ["supervisor", "worker", "log"] {
            assert!(
                !fs::read_to_string(stage.run().join(file)).unwrap().contains(SECRET),
                "{shell:?}: {file}"
            );
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_worker_leads_a_session_and_a_group_and_ignores_no_signal() {
    for shell in shells() {
        let stage = Stage::new(shell);
        let running = stage.start("leave", "echo ready; while :; do sleep 1; done");
        stage.wait_for("the worker", || stage.output().contains("ready"));
        let worker = procfs::process::Process::new(stage.worker().as_raw()).unwrap();
        let stat = worker.stat().unwrap();
        assert_eq!((stat.session, stat.pgrp), (stat.pid, stat.pid), "{shell:?}");
        // Those above 31 are the C library's own, which its thread library may ignore.
        assert_eq!(worker.status().unwrap().sigign & 0x7fff_ffff, 0, "{shell:?}: it ignores signals");
        assert_eq!(stage.words("worker").unwrap()[2], stat.starttime.to_string(), "{shell:?}");
        let own = procfs::process::Process::new(running.pid().as_raw()).unwrap().stat().unwrap();
        let noted = stage.words("supervisor").unwrap();
        assert_eq!(noted, ["boot-7".to_owned(), own.pid.to_string(), own.starttime.to_string()], "{shell:?}");
    }
}

#[test]
fn without_proc_a_start_is_written_down_in_utc_wherever_the_machine_is() {
    if !Command::new("ps").args(["-o", "lstart=", "-p", "1"]).output().is_ok_and(|it| it.status.success()) {
        println!("skipped: ps is not here, or not this one");
        return;
    }
    // busybox's shell has a ps of its own, which knows no start.
    for shell in shells().into_iter().filter(|words| words[0] != "busybox") {
        let stage = Stage::new(shell);
        fs::write(stage.script(), SUPERVISOR.replace("/proc/", "/nowhere/")).unwrap();
        let running = stage.start_with("leave", &["sleep", "1000"], |command| {
            command.env("TZ", "FAR-9:30");
        });
        let worker = stage.worker();
        let noted = stage.words("worker").unwrap()[2].clone();
        // Asked again and again: some systems reckon back from the present, and may be a second off.
        stage.wait_for("ps to say the same", || {
            let mut ps = Command::new("ps");
            ps.args(["-o", "lstart=", "-p", &worker.to_string()]).env("LC_ALL", "C").env("TZ", "UTC0");
            let printed = String::from_utf8(ps.output().unwrap().stdout).unwrap();
            printed.split_whitespace().eq(noted.split('_'))
        });
        drop(running);
    }
}

#[test]
fn term_and_int_reach_the_worker_and_all_of_its_group() {
    for shell in shells() {
        for (signal, name) in [(Signal::SIGTERM, "TERM"), (Signal::SIGINT, "INT")] {
            let stage = Stage::new(shell);
            let worker = format!(
                "(trap 'echo child got it; exit 0' {name}; echo child; while :; do sleep 0.05; done) & \
                 trap 'wait; echo worker got it; exit 9' {name}; echo worker; while :; do sleep 0.05; done"
            );
            // A background child of a shell ignores INT, so the child's part holds for TERM only.
            let both = signal == Signal::SIGTERM;
            let mut running =
                stage.start("leave", &if both { worker } else { worker.replace("wait; ", "kill $!; ") });
            stage.wait_for("both", || {
                stage.output().contains("worker\n") && stage.output().contains("child\n")
            });
            running.signal(signal);
            assert_eq!(running.wait(), 0, "{shell:?} {name}");
            assert_eq!(stage.exit()[1], "9", "{shell:?} {name}: {}", stage.output());
            assert_eq!(stage.output().contains("child got it"), both, "{shell:?} {name}");
        }
    }
}

#[test]
fn a_worker_that_goes_on_after_term_is_still_waited_for() {
    for shell in shells() {
        let stage = Stage::new(shell);
        let worker = "trap 'echo again; stopped=$((stopped+1)); [ $stopped -lt 3 ] || exit 5' TERM; \
                      stopped=0; echo ready; while :; do sleep 0.05; done";
        let mut running = stage.start("leave", worker);
        stage.wait_for("the worker", || stage.output().contains("ready"));
        for times in 1..=3 {
            running.signal(Signal::SIGTERM);
            stage.wait_for("the signal", || stage.output().matches("again").count() == times);
        }
        assert_eq!(running.wait(), 0, "{shell:?}");
        assert_eq!(stage.exit()[1], "5", "{shell:?}");
    }
}

#[test]
fn the_code_says_which_signal_killed_a_worker_and_that_one_was_not_found() {
    for shell in shells() {
        let stage = Stage::new(shell);
        stage.start("leave", "kill -9 $$").wait();
        assert_eq!(stage.exit()[1], "137", "{shell:?}");
        let stage = Stage::new(shell);
        stage.start_with("leave", &["/nowhere/worker"], |_| {}).wait();
        assert_eq!(stage.exit()[1], "127", "{shell:?}: {}", stage.output());
        let stage = Stage::new(shell);
        fs::remove_dir(stage.cwd()).unwrap();
        stage.start("leave", "exit 0").wait();
        assert_eq!(stage.exit()[1], "126", "{shell:?}: {}", stage.output());
    }
}

#[test]
fn the_worker_has_the_callers_umask() {
    for shell in shells() {
        let stage = Stage::new(shell);
        let status = Command::new("sh").args(["-c", "umask"]).output().unwrap().stdout;
        stage.start("leave", "umask").wait();
        let of = |text: &str| u32::from_str_radix(text.trim(), 8).unwrap();
        assert_eq!(of(&stage.output()), of(&String::from_utf8(status).unwrap()), "{shell:?}");
    }
}

#[test]
fn a_log_that_grows_is_cut_and_the_worker_writes_on() {
    let stages: Vec<_> = shells().into_iter().map(Stage::new).collect();
    // All at once: the length is looked at every few seconds.
    let running: Vec<_> = stages
        .iter()
        .map(|stage| {
            stage.start("leave", "head -c 9000000 /dev/zero; while :; do echo still here; sleep 0.05; done")
        })
        .collect();
    for stage in &stages {
        stage.wait_for("the cut", || {
            stage.run().join("log.1").exists() && stage.output().contains("still here")
        });
        let length = fs::metadata(stage.run().join("log")).unwrap().len();
        assert!(length < 8_000_000, "{:?}: {length}", stage.shell);
    }
    drop(running);
}

#[test]
fn what_an_earlier_boot_left_is_cleared_away_before_anything_starts() {
    for shell in shells() {
        let stage = Stage::new(shell);
        for file in ["supervisor", "worker", "exit"] {
            fs::write(stage.run().join(file), "boot-6 1 1\n").unwrap();
        }
        let running = stage.start("leave", "echo ready; while :; do sleep 1; done");
        stage.wait_for("the worker", || stage.output().contains("ready"));
        stage.wait_for("its file", || stage.words("worker").is_some_and(|words| words[0] == "boot-7"));
        assert_eq!(stage.words("exit"), None, "{shell:?}");
        assert_eq!(stage.words("supervisor").unwrap()[0], "boot-7", "{shell:?}");
        drop(running);
    }
}

#[test]
fn it_stays_when_told_so_until_it_is_told_to_end() {
    for shell in shells() {
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let stage = Stage::new(shell);
            let mut running = stage.start("stay", "exit 3");
            assert_eq!(stage.exit()[1], "3", "{shell:?}");
            assert!(running.child.try_wait().unwrap().is_none(), "{shell:?}: it left");
            running.signal(signal);
            assert_eq!(running.wait(), 0, "{shell:?}");
            stage.leaves_nothing();
        }
    }
}

#[test]
fn without_setsid_perl_makes_the_session() {
    let tool = |name: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).output().unwrap();
        let path = String::from_utf8(found.stdout).unwrap();
        (!path.trim().is_empty()).then(|| PathBuf::from(path.trim()))
    };
    if tool("perl").is_none() {
        println!("skipped: perl is not here");
        return;
    }
    for shell in shells() {
        let stage = Stage::new(shell);
        let bin = stage.dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        for name in ["cat", "mv", "rm", "sleep", "date", "wc", "env", "perl", "ps", "tr"] {
            if let Some(path) = tool(name) {
                std::os::unix::fs::symlink(path, bin.join(name)).unwrap();
            }
        }
        let interpreter = which(shell[0]);
        let mut running = stage.start_with("leave", &["/bin/sh", "-c", "echo $$; exit 4"], |command| {
            let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
            let mut again = Command::new(&interpreter);
            again.args(arguments).env_clear().env("PATH", &bin).stdin(Stdio::piped());
            again.env("OUTPOST_SHELL", [&[interpreter.to_str().unwrap()], &shell[1..]].concat().join(" "));
            *command = again;
        });
        assert_eq!(running.wait(), 0);
        assert_eq!(stage.exit()[1], "4", "{shell:?}: {}", stage.output());
        assert_eq!(stage.output().trim(), stage.worker().to_string(), "{shell:?}");
    }
}

fn which(program: &str) -> PathBuf {
    if program.contains('/') {
        return Path::new(program).to_owned();
    }
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.exists()).unwrap()
}
