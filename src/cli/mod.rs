//! The command: arguments, and which part of it does what.

mod config;
mod demo;
mod http;
mod metrics;
mod observe;
mod run;
mod settings;
mod sim;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};

use settings::SETTINGS;

/// The settings are bad, or something else that the user can mend.
const EXIT_USAGE: u8 = 2;

/// Runs the command with the process's arguments.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(worker) = sim::stand_in_arguments(&arguments) {
        return outpost_sim::standin::main(worker);
    }
    // One crypto provider in the whole process, before anything opens TLS.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("outpost: another crypto provider was installed before ours");
        return ExitCode::FAILURE;
    }
    let matches = command().get_matches_from(arguments);
    match matches.subcommand() {
        Some(("run", matches)) => run::main(flags(matches), matches),
        Some(("demo", matches)) => demo::main(matches),
        Some(("sim", matches)) => sim::main(matches),
        _ => ExitCode::from(EXIT_USAGE),
    }
}

fn command() -> Command {
    Command::new("outpost")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Runs Devin sessions on machines you choose: one reconciler, any backend, no lost work.")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .max_term_width(110)
        .subcommand(run_command())
        .subcommand(demo::command())
        .subcommand(sim::command())
}

fn run_command() -> Command {
    let settings = SETTINGS.iter().map(|setting| {
        let environment = setting.env.first().map_or(String::new(), |name| format!("[env: {name}]"));
        let default = match setting.default {
            "" => String::new(),
            default => format!(" [default: {default}]"),
        };
        Arg::new(setting.name)
            .long(setting.name)
            .value_name(setting.value)
            .help(format!("{}{default} {environment}", setting.help))
            .action(ArgAction::Set)
    });
    Command::new("run")
        .about("Serves an outpost: a sandbox for every session, until it is told to stop")
        .long_about(
            "Serves an outpost: gives every session a sandbox, saves it when the session sleeps, restores it when the session \
             wakes, and removes it when the session ends.\n\n\
             Every setting is a flag, an environment variable and a line of the file that --config names (`limit = 20`). \
             Flags beat the environment, and that beats the file. The token is never a flag: every user of a machine can \
             read those.",
        )
        .after_long_help(
            "Signals: SIGTERM or Ctrl-C stops claiming, lets what is under way end, and leaves within 30 s; live workers and \
             their claims stay, and the next run finds them again. A second signal leaves at once.\n\n\
             Exit codes: 0 stopped as it was told; 1 could not go on; 2 a setting is bad; 130 left at once.",
        )
        .arg(Arg::new("config").long("config").value_name("PATH").help("A TOML file with settings [env: OUTPOST_CONFIG]"))
        .arg(
            Arg::new("check")
                .long("check")
                .action(ArgAction::SetTrue)
                .help("Checks the settings, says what they come to, and leaves"),
        )
        .args(settings)
}

fn flags(matches: &ArgMatches) -> Vec<(&'static str, String)> {
    let given = |name| matches.get_one::<String>(name).cloned();
    SETTINGS.iter().filter_map(|setting| Some((setting.name, given(setting.name)?))).collect()
}
