//! Where the connect token does not show.
// lesson 51
#![cfg(target_os = "linux")]

mod support;

use std::fs;

use outpost_core::model::WorkerProgram;
use outpost_core::ports::SandboxProvider as _;
use support::{Desk, TOKEN, exited, id, remove, save, start, stop, until};

#[tokio::test]
async fn the_scanner_finds_what_is_planted_and_the_token_nowhere() {
    let desk = Desk::new();
    let provider = desk.provider();
    let boot = id("devin-1", 1);
    // The worker has it, and shows by its length that it has.
    let worker = "echo \"length ${#DEVIN_OUTPOST_CONNECT_TOKEN}\" >length; exec sleep 1000";
    start(&provider, desk.spec("devin-1", 1, worker)).await;
    let length = desk.workspace("devin-1").join("length");
    let expected = format!("length {}\n", TOKEN.len());
    until("the worker", async || fs::read_to_string(&length).is_ok_and(|text| text == expected)).await;
    assert_eq!(desk.search(TOKEN), [] as [&str; 0], "while the worker runs");

    stop(&provider, &boot, support::BOUND).await;
    fs::write(desk.workspace("devin-1").join("planted"), "planted-needle").unwrap();
    let snapshot = save(&provider, &boot).await;
    assert_eq!(desk.search("planted-needle").len(), 2, "the scanner looks into disks and snapshots");
    assert_eq!(desk.search(TOKEN), [] as [&str; 0], "after the save");
    let mut planted = std::process::Command::new("sh")
        .args(["-c", "read line; :", "planted-argument"])
        .env("PLANTED", "planted-variable")
        .env("TMPDIR", desk.state())
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    for needle in ["planted-argument", "planted-variable"] {
        until("the scanner finds it", async || !desk.search(needle).is_empty()).await;
    }
    drop(planted.stdin.take());
    planted.wait().unwrap();

    let shown = format!("{provider:?} {:?} {snapshot:?}", provider.list().await.unwrap());
    assert!(!shown.contains(TOKEN));
    remove(&provider, &boot).await;
}

#[tokio::test]
async fn no_error_and_no_log_of_a_failed_start_shows_the_token() {
    let desk = Desk::new();
    let provider = desk.builder().with(|settings| settings.shell = "/bin/false".into()).build().unwrap();
    let error = provider.start(desk.spec("devin-1", 1, "exit 0")).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains(TOKEN));
    drop(provider);
    let provider = desk.provider();
    let missing = WorkerProgram::Installed { path: "outpost-test-no-such-program".into() };
    start(&provider, support::spec("devin-1", 1, missing)).await;
    exited(&provider, &id("devin-1", 1)).await;
    assert_eq!(desk.search(TOKEN), [] as [&str; 0]);
    remove(&provider, &id("devin-1", 1)).await;
}
