//! placeholder
use clap::{ArgMatches, Command};
use std::process::ExitCode;
pub(super) fn command() -> Command {
    Command::new("demo")
}
pub(super) fn main(_: &ArgMatches) -> ExitCode {
    ExitCode::SUCCESS
}
