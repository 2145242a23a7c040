//! Where a token may be, and where not. The scanner first proves that it finds a planted one.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use outpost::sim::control::ControlExt as _;
use outpost::sim::script::Step;

use crate::common::{Playground, processes, until, until_some};

const FLEET_TOKEN: &str = "cog_sentinel_5d1b7c0e";
/// No other test has a session of this name: the simulator makes connect tokens out of names, and processes of every test are searched.
const SESSION: &str = "devin-with-secrets";
const PLANTED: &str = "planted_9f3e2a71";

/// Where a text was found: files below a directory (compressed ones unpacked), and processes' arguments and environments.
fn find(text: &str, directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if meta.is_dir() {
            left.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else if meta.is_file() && holds(&read(&path), text) {
            found.insert(format!("file {}", path.display()));
        }
    }
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        for (what, name) in [("arguments", "cmdline"), ("environment", "environ")] {
            let content = fs::read(entry.path().join(name)).unwrap_or_default();
            if pid != std::process::id() && holds(&content, text) {
                found.insert(format!("{what} of {pid}"));
            }
        }
    }
    found
}

fn read(path: &Path) -> Vec<u8> {
    let content = fs::read(path).unwrap_or_default();
    let packed = path.extension().is_some_and(|extension| extension == "zst");
    if !packed {
        return content;
    }
    let mut unpacked = Vec::new();
    let mut decoder = zstd::Decoder::new(content.as_slice()).unwrap();
    // A snapshot that is being written is cut.
    let _ = decoder.read_to_end(&mut unpacked);
    unpacked
}

fn holds(content: &[u8], text: &str) -> bool {
    content.windows(text.len()).any(|window| window == text.as_bytes())
}

fn snapshots(state_dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(state_dir.join("snapshots")).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "zst"))
        .collect()
}

// lesson 51
#[test]
fn no_token_is_anywhere_but_where_it_belongs() {
    for mode in ["devin-remote", "cli-direct"] {
        let play = Playground::with(|options| options.sim.token = FLEET_TOKEN.into());
        play.create(
            SESSION,
            vec![
                Step::run(format!("printf {PLANTED} >note")),
                Step::wait("look"),
                Step::Suspend,
                Step::wait("end"),
                Step::Terminate,
            ],
        );
        let run = play.outpost().env("DEVIN_API_TOKEN", FLEET_TOKEN).args(&[
            "--log",
            "trace",
            "--worker-mode",
            mode,
        ]);
        let mut outpost = run.start();
        play.output_of(SESSION, 1);
        let worker = until_some("its worker runs", || processes::workers(&play.state_dir()).pop());
        let environ = fs::read(format!("/proc/{}/environ", worker.pid)).unwrap();
        let environ = String::from_utf8_lossy(&environ).into_owned();
        let name =
            if mode == "cli-direct" { "DEVIN_REMOTE_SESSION_TOKEN=" } else { "DEVIN_OUTPOST_CONNECT_TOKEN=" };
        let connect_token =
            environ.split('\0').find_map(|entry| entry.strip_prefix(name)).unwrap().to_owned();
        assert!(connect_token.len() >= 8, "{connect_token}");

        // It finds what is planted: in a file, and in arguments.
        let mut victim =
            Command::new("/bin/sh").args(["-c", "read -r _", PLANTED]).stdin(Stdio::piped()).spawn().unwrap();
        until("arguments are searched", || {
            find(PLANTED, play.dir()).contains(&format!("arguments of {}", victim.id()))
        });
        assert!(find(PLANTED, play.dir()).iter().any(|place| place.ends_with("/note")), "files are searched");
        victim.kill().unwrap();
        victim.wait().unwrap();

        let own = format!("environment of {}", outpost.pid());
        let places = find(FLEET_TOKEN, play.dir());
        assert_eq!(places, BTreeSet::from([own]), "the fleet token, {mode}");
        let only_in_workers = |places: BTreeSet<String>| {
            let pids: BTreeSet<String> = processes::below(&play.state_dir())
                .iter()
                .map(|process| format!("environment of {}", process.pid))
                .collect();
            assert!(!places.is_empty() && places.is_subset(&pids), "the connect token, {mode}: {places:?}");
        };
        only_in_workers(find(&connect_token, play.dir()));

        play.sim().go(SESSION, "look").unwrap();
        play.until_released(SESSION);
        play.until_no_process();
        let kept = snapshots(&play.state_dir());
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert!(holds(&read(&kept[0]), PLANTED), "snapshots are searched");
        assert_eq!(find(&connect_token, play.dir()), BTreeSet::new(), "after it slept, {mode}");
        play.sim().go(SESSION, "end").unwrap();
        play.sim().wake(SESSION).unwrap();
        play.until_released(SESSION);
        assert!(!outpost.log().contains(FLEET_TOKEN) && outpost.log().contains(SESSION));
        assert!(outpost.stop().success());
    }
}
