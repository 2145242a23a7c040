//! `outpost sim`: the simulator by itself, and the worker that it publishes.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use outpost_sim::publish::Publication;
use outpost_sim::{DEFAULT_TOKEN, ServeOptions, serve};

/// What the published launcher says before the stand-in's own arguments.
pub(super) const STAND_IN: [&str; 2] = ["sim", "worker"];

/// The stand-in's arguments, when this process was started as one. Its arguments are the real worker's, and so is what it does with
/// bad ones.
pub(super) fn stand_in_arguments(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let rest = arguments.get(1..)?;
    let leading = rest.get(..STAND_IN.len())?;
    (leading == STAND_IN).then(|| rest[STAND_IN.len()..].to_vec())
}

/// What a simulator of this binary publishes: this binary, as a worker.
pub(super) fn publication() -> std::io::Result<Publication> {
    Ok(Publication::standin(&std::env::current_exe()?, &STAND_IN))
}

pub(super) fn command() -> Command {
    let port = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("PORT")
            .default_value("0")
            .value_parser(value_parser!(u16))
            .help(help)
    };
    Command::new("sim")
        .about("A simulator of Devin's fleet queue, for trying things out")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("serve")
                .about(
                    "Serves a simulated queue on loopback ports until it is stopped; 0 takes any free port",
                )
                .arg(port("port", "The fleet API's port"))
                .arg(port("static-port", "The port of the host that workers are downloaded from"))
                .arg(port("gateway-port", "The port of the workers' gateway"))
                .arg(port("control-port", "The port of the control interface")),
        )
}

pub(super) fn main(matches: &ArgMatches) -> ExitCode {
    let Some(("serve", matches)) = matches.subcommand() else { return ExitCode::from(super::EXIT_USAGE) };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    match runtime.block_on(serve_until_stopped(matches)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &std::io::Error) -> ExitCode {
    eprintln!("outpost: the simulator cannot be served: {error}");
    ExitCode::FAILURE
}

async fn serve_until_stopped(matches: &ArgMatches) -> std::io::Result<()> {
    let port = |name| matches.get_one::<u16>(name).copied().unwrap_or_default();
    let mut options = ServeOptions::default();
    options.fleet_port = port("port");
    options.static_port = port("static-port");
    options.gateway_port = port("gateway-port");
    options.control_port = port("control-port");
    options.sim.publication = publication()?;
    let server = serve(options).await?;
    let outpost = outpost_sim::model::DEFAULT_OUTPOST;
    println!("A simulated queue is served. In another terminal:\n");
    println!(
        "  export DEVIN_OUTPOST_ID={outpost} DEVIN_API_TOKEN={DEFAULT_TOKEN} DEVIN_API_URL={}",
        server.api_url()
    );
    println!(
        "  export OUTPOST_STATIC_URL={} OUTPOST_MANIFEST_URL={}",
        server.remote_base_url(),
        server.manifest_url()
    );
    println!("  outpost run --state-dir /tmp/outpost-try\n");
    println!("A session is put into it with:\n");
    println!(
        "  curl {}/_sim/op -H 'content-type: application/json' -d '{{\"op\":\"create_row\",\"row\":{{\"session_id\":\"devin-1\",\
         \"platform\":\"{}\"}},\"script\":[{{\"do\":\"run\",\"command\":\"echo hello >repos/note\"}},{{\"do\":\"suspend\"}}]}}'\n",
        server.control_url(),
        std::env::consts::OS
    );
    println!(
        "Other operations: wake, set_status, rows, results (with a session_id), workers, claims, add_fault."
    );
    println!("Stop with Ctrl-C.");
    tokio::signal::ctrl_c().await?;
    server.stop().await;
    Ok(())
}
