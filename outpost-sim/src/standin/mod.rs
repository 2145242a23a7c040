//! A stand-in for `devin` and `devin-remote`: a worker that does what the scripted session says.
//!
//! It speaks to a simulator only. What it does like the real ones: arguments and environment, who claims
//! in which [mode](main), where commands run, and how it leaves. Its gateway protocol is the simulator's
//! own.

mod binary;
mod cli;
mod http;
mod remote;
mod serving;
mod shell;

use std::ffi::OsString;
use std::process::ExitCode;

/// The exit code of wrong usage: no token, a missing variable, an unknown argument.
pub const EXIT_USAGE: u8 = 2;
/// The exit code when the claim is another's.
pub const EXIT_LOST: u8 = 3;
/// The exit code when a downloaded `devin-remote` has another checksum than was published.
pub const EXIT_CHECKSUM: u8 = 4;
/// The exit code when the gateway does not know the connect token, or knows a later worker.
pub const EXIT_REFUSED: u8 = 5;
/// The exit code when the other side cannot be reached for two minutes.
pub const EXIT_UNREACHABLE: u8 = 75;

/// Runs the stand-in. `args` begin with whom it stands in for:
///
/// * `devin --version`
/// * `devin worker start --session=<id> …`: mode `cli`, claims by itself with `DEVIN_OUTPOSTS_TOKEN`; mode
///   `cli-direct` when `DEVIN_REMOTE_SESSION_TOKEN` is set, and then it makes no call to the queue.
/// * `devin worker start --outpost=<id> …`: polls, and serves one session after another.
/// * `devin-remote serve`: mode `devin-remote`, everything from its environment.
///
/// It blocks until the worker leaves; some orders end the process on the way.
#[must_use]
pub fn main(args: Vec<OsString>) -> ExitCode {
    let (persona, rest) = match args.split_first() {
        Some((persona, rest)) => (persona.to_string_lossy().into_owned(), rest.to_vec()),
        None => (String::new(), Vec::new()),
    };
    let code = match &*persona {
        "devin" => cli::main(rest),
        "devin-remote" => remote::main(rest),
        _ => {
            eprintln!("expected `devin` or `devin-remote` as the first argument");
            EXIT_USAGE
        }
    };
    ExitCode::from(code)
}

/// Parses arguments; an error or a request for help is printed and becomes the exit code.
fn parse<T: clap::Parser>(name: &str, args: Vec<OsString>) -> Result<T, u8> {
    let args = std::iter::once(OsString::from(name)).chain(args);
    T::try_parse_from(args).map_err(|error| {
        // Without a terminal there is nobody to tell.
        let _ = error.print();
        u8::try_from(error.exit_code()).unwrap_or(EXIT_USAGE)
    })
}
