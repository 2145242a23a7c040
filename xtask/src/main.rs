//! Outpost's own checks and chores: `cargo xtask --help`.

mod cli;
mod command;
mod context;
mod engines;
mod parts;
mod report;
mod run;
mod select;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match run::run(&cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
