//! `outpost demo` and `outpost sim serve`, as a stranger starts them.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use outpost::sim::control::{ControlClient, ControlExt as _};
use outpost::sim::model::NewRow;
use outpost::sim::script::Step;
use tempfile::TempDir;

use crate::common::{Playground, processes, until, until_some};

/// `outpost` with these arguments, in a directory that takes all of its files; what it prints goes to a file there.
struct Started {
    child: Child,
    dir: TempDir,
    printed: TempDir,
}

impl Started {
    fn new(arguments: &[&str]) -> Self {
        let base = std::env::temp_dir().canonicalize().unwrap();
        let (dir, printed) = (TempDir::new_in(&base).unwrap(), TempDir::new_in(&base).unwrap());
        let out = File::create(printed.path().join("out")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_outpost"));
        command.args(arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("TMPDIR", dir.path()).current_dir(printed.path());
        command.stdin(Stdio::null()).stderr(out.try_clone().unwrap()).stdout(out);
        Self { child: command.spawn().unwrap(), dir, printed }
    }

    fn printed(&self) -> String {
        fs::read_to_string(self.printed.path().join("out")).unwrap()
    }

    #[track_caller]
    fn until_prints(&self, what: &str) {
        until(&format!("it prints `{what}`"), || self.printed().contains(what));
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    #[track_caller]
    fn until_left(&mut self) -> Option<i32> {
        until_some("it has left", || self.child.try_wait().unwrap()).code()
    }

    #[track_caller]
    fn left_nothing(&self) {
        let left: Vec<_> =
            fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}\n{}", self.printed());
        let alive = processes::below(self.dir.path());
        assert!(alive.is_empty(), "{alive:?}\n{}", self.printed());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        processes::end_all_below(self.dir.path());
    }
}

#[test]
fn the_demo_holds_what_it_promises_and_leaves_nothing_behind() {
    let mut demo = Started::new(&["demo"]);
    let code = demo.until_left();
    let printed = demo.printed();
    assert_eq!(code, Some(0), "{printed}");
    for part in
        ["sleeps and wakes", "crashes", "ends while its sandbox starts", "come at once", "checks held."]
    {
        assert!(printed.contains(part), "`{part}` is not in:\n{printed}");
    }
    assert!(!printed.contains('\x1b'), "no colours where there is no terminal:\n{printed}");
    demo.left_nothing();
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing_behind() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut demo = Started::new(&["demo"]);
        demo.until_prints("devin-crash      boot 1 started");
        until("there is something to leave behind", || !processes::workers(demo.dir.path()).is_empty());
        demo.signal(signal);
        assert_eq!(demo.until_left(), Some(1), "{}", demo.printed());
        demo.left_nothing();
    }
}

#[test]
fn a_simulator_by_itself_says_how_an_outpost_serves_it() {
    let simulator = Started::new(&["sim", "serve"]);
    simulator.until_prints("Stop with Ctrl-C");
    let printed = simulator.printed();
    let words: Vec<&str> = printed.split_whitespace().collect();
    let settings: Vec<(&str, &str)> = words.iter().filter_map(|word| word.split_once('=')).collect();
    let control = words.iter().find_map(|word| word.strip_suffix("/_sim/op")).expect("a control interface");
    let control = ControlClient::new(control);

    let play = Playground::new();
    let mut outpost = play.outpost();
    for (name, value) in
        settings.iter().filter(|(name, _)| name.starts_with("DEVIN_") || name.starts_with("OUTPOST_"))
    {
        outpost = outpost.env(name, value);
    }
    let row = NewRow::new("devin-1").platform(if cfg!(target_os = "macos") { "macos" } else { "linux" });
    control.create_scripted(row, vec![Step::run("echo hello"), Step::Terminate]).unwrap();
    let run = outpost.start();
    run.until_says("boot 1 is removed");
    assert_eq!(control.results("devin-1").unwrap()[0].output, "hello\n");
}

#[test]
fn without_arguments_it_says_what_it_can_do() {
    let mut outpost = Started::new(&[]);
    assert_eq!(outpost.until_left(), Some(2));
    let printed = outpost.printed();
    for part in ["run", "demo", "sim", "--help"] {
        assert!(printed.contains(part), "{printed}");
    }
}
