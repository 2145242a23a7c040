//! The examples do what they say, and end.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use crate::common::until_some;

/// Runs an example to its end and answers what it printed.
#[track_caller]
fn run(name: &str) -> String {
    // Cargo builds examples beside the directory of the tests.
    let tests = std::env::current_exe().unwrap();
    let example: PathBuf = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    let directory = tempfile::tempdir().unwrap();
    let printed = directory.path().join("printed");
    let mut command = Command::new(&example);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("TMPDIR", directory.path());
    command.stdout(File::create(&printed).unwrap()).current_dir(directory.path());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", example.display()));
    let status = until_some(&format!("{name} has ended"), || child.try_wait().unwrap());
    let text = std::fs::read_to_string(&printed).unwrap();
    assert!(status.success(), "{text}");
    std::fs::remove_file(printed).unwrap();
    let left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
    text
}

#[test]
fn process_serves_a_simulated_session_through_sleep() {
    let printed = run("process");
    assert!(printed.contains("devin-1 woke and read: written before it slept"), "{printed}");
}

#[test]
fn embed_keeps_a_sessions_disk_between_two_pieces_of_work() {
    let printed = run("embed");
    assert!(printed.contains("the journal has 2 lines"), "{printed}");
    assert!(printed.contains("2 started, 1 restored, 2 saved"), "{printed}");
}
