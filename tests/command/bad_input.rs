//! Settings that are bad get one clear message.

use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;
use outpost::sim::control::ControlExt as _;
use outpost::sim::fault::{Fault, FaultRule};
use outpost::sim::model::NewOutpost;

use crate::common::{Outpost, Playground};

/// Runs it, and sees it leave with `code` and a message that has all `parts`.
#[track_caller]
fn refused(outpost: &Outpost, code: i32, parts: &[&str]) {
    let (status, said) = outpost.run();
    assert_eq!(status.code(), Some(code), "{said}");
    for part in parts {
        assert!(said.contains(part), "`{part}` is not in:\n{said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn every_bad_setting_is_named_in_one_message() {
    let play = Playground::new();
    let file = play.dir().join("outpost.toml");
    std::fs::write(&file, "limmit = 3\nstop-grace = 30\n").unwrap();
    let outpost = play.outpost().without("DEVIN_API_TOKEN").without("DEVIN_OUTPOST_ID");
    let outpost = outpost.without("OUTPOST_STOP_GRACE").env("OUTPOST_LISTEN", "8787");
    let outpost = outpost.args(&["--config", file.to_str().unwrap(), "--worker-mode", "docker"]);
    refused(
        &outpost,
        2,
        &[
            "limmit is not a setting; did you mean limit?",
            "stop-grace is `30`; it must be a time with its unit",
            "OUTPOST_LISTEN is `8787`",
            "--worker-mode is `docker`",
            "set DEVIN_OUTPOST_ID",
            "set DEVIN_API_TOKEN",
        ],
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let play = Playground::new();
    let nowhere = play.dir().join("nowhere.toml");
    let outpost = play.outpost().args(&["--config", nowhere.to_str().unwrap()]);
    refused(&outpost, 2, &["nowhere.toml cannot be read"]);
    let directory = play.outpost().env("OUTPOST_CONFIG", play.dir().to_str().unwrap());
    refused(&directory, 2, &["cannot be read"]);
    let file = play.dir().join("broken.toml");
    std::fs::write(&file, "limit = 3\nlist-interval = 10s\n").unwrap();
    let broken = play.outpost().args(&["--config", file.to_str().unwrap()]);
    refused(&broken, 2, &["broken.toml, line 2"]);
}

#[test]
fn a_token_is_never_taken_from_a_flag_or_shown() {
    let play = Playground::new();
    refused(&play.outpost().args(&["--token", "cog_sentinel"]), 2, &["unexpected argument '--token'"]);
    let file = play.dir().join("outpost.toml");
    std::fs::write(&file, "token = \"cog_sentinel\"\n").unwrap();
    let (_, said) = play.outpost().args(&["--config", file.to_str().unwrap()]).run();
    assert!(said.contains("token") && !said.contains("sentinel"), "{said}");
}

#[test]
fn a_token_file_must_be_private() {
    let play = Playground::new();
    let file = play.dir().join("token");
    std::fs::write(&file, outpost::sim::DEFAULT_TOKEN).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let outpost = play.outpost().without("DEVIN_API_TOKEN").env("OUTPOST_TOKEN_FILE", file.to_str().unwrap());
    refused(&outpost, 2, &["can be read by others; make it private: chmod 600"]);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let mut run = outpost.start();
    run.until_ready();
    assert!(run.stop().success());
}

#[test]
fn an_outpost_that_does_not_exist_is_told_from_those_that_do() {
    let play = Playground::new();
    let outpost = play.outpost().env("DEVIN_OUTPOST_ID", "outpost_env-other");
    refused(&outpost, 1, &["there is no outpost `outpost_env-other`", "the token sees outpost_env-sim"]);
}

// lesson 8
#[test]
fn an_outpost_is_found_by_its_name() {
    let play = Playground::new();
    play.sim().put_outpost("outpost_env-named", NewOutpost::new("my desk", own_platform())).unwrap();
    let mut run = play.outpost().env("DEVIN_OUTPOST_ID", "my desk").start();
    run.until_ready();
    assert!(run.stop().success());
}

#[test]
fn an_outpost_for_another_platform_is_refused() {
    let play = Playground::new();
    play.sim().put_outpost("outpost_env-windows", NewOutpost::new("windows", "windows")).unwrap();
    let outpost = play.outpost().env("DEVIN_OUTPOST_ID", "outpost_env-windows");
    refused(&outpost, 1, &["windows"]);
}

#[test]
fn a_token_that_is_refused_at_the_start_is_said_so() {
    let play = Playground::new();
    play.sim().add_fault(FaultRule::everywhere(Fault::status(401))).unwrap();
    refused(&play.outpost(), 1, &["401"]);
}

#[test]
fn an_address_that_is_taken_is_said_so() {
    let play = Playground::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&play.outpost().args(&["--listen", &address]), 1, &[&address, "choose another with --listen"]);
}

// lesson 50
#[test]
fn the_token_goes_to_no_host_that_is_not_devins() {
    let play = Playground::new();
    for url in
        ["https://evil.example/opbeta", "http://api.devin.ai/opbeta", "https://api.devin.ai.evil.example"]
    {
        refused(&play.outpost().env("DEVIN_API_URL", url), 2, &["DEVIN_API_URL is refused"]);
    }
}

// lesson 60: a second crypto provider panics at the first use of TLS
#[test]
fn tls_is_opened_with_the_one_provider() {
    let play = Playground::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/opbeta", listener.local_addr().unwrap());
    let mut run = play.outpost().env("DEVIN_API_URL", &url).start();
    let mut first = [0];
    listener.accept().unwrap().0.read_exact(&mut first).unwrap();
    assert_eq!(first, [0x16], "a handshake record of TLS");
    run.signal(Signal::SIGTERM);
    assert!(run.until_left().success());
}

fn own_platform() -> &'static str {
    if cfg!(target_os = "macos") { "macos" } else { "linux" }
}
