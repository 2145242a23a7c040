//! Files that are damaged, locked, or cannot be written: a clear error, and nothing lost.

use std::fs;
use std::path::PathBuf;

use outpost::sim::control::{Checksums, ControlExt as _};
use outpost::sim::model::ClaimOutcome;
use outpost::sim::script::Step;

use crate::common::{Playground, new_sleeper, until};

/// A session that sleeps, its snapshot saved, and nobody who runs.
fn asleep() -> Playground {
    let play = Playground::new();
    play.create("devin-1", new_sleeper("kept"));
    let mut run = play.outpost().start();
    run.until_says("boot 1 is removed");
    play.until_released("devin-1");
    assert!(run.stop().success());
    play
}

/// The only file in a directory with this ending.
#[track_caller]
fn only(directory: PathBuf, ending: &str) -> PathBuf {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files = files.filter(|path| path.to_string_lossy().ends_with(ending));
    let file = files.next().unwrap();
    assert_eq!(files.next(), None);
    file
}

// lesson 14
#[test]
fn a_second_process_on_one_state_directory_is_refused_and_told_who_has_it() {
    let play = Playground::new();
    let first = play.outpost().start();
    first.until_ready();
    let (status, said) = play.outpost().run();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains(&format!("in use by process {}", first.pid())), "{said}");
    assert!(said.contains("--state-dir"), "{said}");
}

// lesson 15
#[test]
fn a_damaged_instance_is_refused_and_left_alone() {
    let play = asleep();
    let file = play.state_dir().join("instance");
    fs::write(&file, "Not A Name").unwrap();
    let (status, said) = play.outpost().run();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains(file.to_str().unwrap()), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "Not A Name");
}

#[test]
fn a_state_directory_that_cannot_be_made_is_named() {
    let play = Playground::new();
    let file = play.dir().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("state");
    let (status, said) = play.outpost().args(&["--state-dir", below.to_str().unwrap()]).run();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains(&format!("the state directory {} cannot be used", below.display())), "{said}");
}

#[test]
fn a_disk_without_room_is_said_so_at_the_start() {
    let play = Playground::new();
    // A limit on the size of files answers as a full disk does, without one.
    let (status, said) =
        play.outpost().inside("(trap '' XFSZ; ulimit -f 0; exec \"$@\") 2>&1 | cat >&2").run();
    let _ = status;
    assert!(said.contains("cannot be used"), "{said}");
}

#[test]
fn a_disk_that_is_full_when_a_session_sleeps_loses_nothing() {
    let play = Playground::new();
    // Many small files that do not compress make an archive that is larger than the limit.
    let write = "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do head -c 10000 /dev/urandom >repos/$n; done; \
                 cat repos/* | cksum";
    play.create("devin-1", vec![Step::run(write), Step::Suspend, Step::run("cat repos/* | cksum")]);
    let log = play.dir().join("log-through-cat");
    let script = format!("trap '' XFSZ; ulimit -f 100; exec \"$@\" 2>'{}'", log.display());
    let mut run = play.outpost().inside(&script).start();
    let written = play.output_of("devin-1", 1);
    let said = || fs::read_to_string(&log).unwrap_or_default();
    until("the save has failed", || said().contains("File too large"));
    assert_eq!(play.claims("devin-1", ClaimOutcome::Released), 0, "release is last");
    run.kill();

    let second = play.outpost().start();
    second.until_says("boot 1 is removed");
    play.until_released("devin-1");
    play.sim().wake("devin-1").unwrap();
    assert_eq!(play.output_of("devin-1", 2), written);
}

#[test]
fn a_damaged_record_is_named_starts_nothing_and_can_be_mended() {
    let play = asleep();
    let file = only(play.state_dir().join("records"), ".json");
    let good = fs::read(&file).unwrap();
    fs::write(&file, &good[..good.len() / 2]).unwrap();
    play.sim().wake("devin-1").unwrap();
    let run = play.outpost().start();
    let why = run.until_not_ready("the records");
    assert!(why.contains(file.to_str().unwrap()), "{why}");
    assert_eq!(play.workers_of("devin-1").len(), 1, "it is not started cold behind a snapshot's back");

    fs::write(&file, good).unwrap();
    assert_eq!(play.output_of("devin-1", 2), "kept");
    run.until_ready();
}

// lesson 44
#[test]
fn a_damaged_snapshot_is_reported_and_kept_and_the_session_starts_afresh() {
    let play = asleep();
    let archive = only(play.state_dir().join("snapshots"), ".tar.zst");
    let mut bytes = fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&archive, &bytes).unwrap();
    play.sim().wake("devin-1").unwrap();
    let run = play.outpost().start();
    run.until_says("snapshot_unusable");
    assert!(play.output_of("devin-1", 2).contains("No such file"));
    assert_eq!(fs::read(&archive).unwrap(), bytes);
}

#[test]
fn a_worker_with_a_wrong_checksum_never_runs() {
    let play = Playground::new();
    play.sim().publish_checksums(Checksums::Wrong).unwrap();
    play.create("devin-1", vec![Step::run("echo one")]);
    let run = play.outpost().start();
    run.until_says("SHA-256");
    assert_eq!(play.claims("devin-1", ClaimOutcome::Won), 0, "lesson 17");
    assert!(play.workers_of("devin-1").is_empty());
    play.sim().publish_checksums(Checksums::Right).unwrap();
    assert_eq!(play.output_of("devin-1", 1), "one\n");
}
