//! `devin-remote serve`: the documented spawn contract.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use super::serving::Serving;
use super::{EXIT_USAGE, parse};

#[derive(Debug, Parser)]
#[command(name = "devin-remote", version = crate::publish::CLI_VERSION)]
struct Remote {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves one session.
    Serve,
}

pub(super) fn main(args: Vec<OsString>) -> u8 {
    match parse::<Remote>("devin-remote", args) {
        Ok(Remote { command: Command::Serve }) => serve(),
        Err(code) => code,
    }
}

fn serve() -> u8 {
    let wanted = ["DEVIN_OUTPOST_GATEWAY_URL", "DEVIN_OUTPOST_CONNECT_TOKEN", "DEVIN_OUTPOST_SESSION_ID"];
    let found = wanted.map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let [Some(gateway_url), Some(token), Some(session_id)] = found else {
        eprintln!("{} must be set together", wanted.join(", "));
        return EXIT_USAGE;
    };
    if let Some(state_dir) = std::env::var_os("DEVIN_REMOTE_STATE_DIR").map(PathBuf::from) {
        let kept = std::fs::create_dir_all(&state_dir)
            .and_then(|()| std::fs::write(state_dir.join("session"), format!("{session_id}\n")));
        if let Err(error) = kept {
            eprintln!("state directory: {error}");
            return EXIT_USAGE;
        }
    }
    Serving { mode: "devin-remote", gateway_url, token: token.into(), session_id }.serve()
}
