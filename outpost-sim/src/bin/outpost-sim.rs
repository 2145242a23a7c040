//! Runs a simulator by itself, and sends it operations.

use std::error::Error;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use outpost_sim::control::{Control, ControlClient};
use outpost_sim::publish::Publication;
use outpost_sim::{DEFAULT_TOKEN, ServeOptions, serve};

/// A simulator of Devin's control plane.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves on loopback until it is interrupted.
    Serve {
        #[arg(long, default_value_t = 0)]
        fleet_port: u16,
        #[arg(long, default_value_t = 0)]
        static_port: u16,
        #[arg(long, default_value_t = 0)]
        gateway_port: u16,
        #[arg(long, default_value_t = 0)]
        control_port: u16,
        /// The stand-in that is published; by default the one beside this program.
        #[arg(long)]
        standin: Option<PathBuf>,
    },
    /// Sends one operation, as JSON such as '{"op": "rows"}', and prints its result.
    Op {
        /// The control listener, as `serve` prints it.
        #[arg(long, env = "OUTPOST_SIM_CONTROL_URL")]
        control_url: String,
        operation: String,
    },
}

fn main() -> Result<(), Box<dyn Error>> {
    match Cli::parse().command {
        Command::Serve { fleet_port, static_port, gateway_port, control_port, standin } => {
            let standin = match standin {
                Some(standin) => standin,
                None => std::env::current_exe()?.with_file_name("devin-standin"),
            };
            let mut options = ServeOptions::default();
            options.sim.publication = Publication::standin(&standin, &[]);
            (options.fleet_port, options.static_port) = (fleet_port, static_port);
            (options.gateway_port, options.control_port) = (gateway_port, control_port);
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(options))
        }
        Command::Op { control_url, operation } => {
            let answer = ControlClient::new(&control_url).call(serde_json::from_str(&operation)?)?;
            println!("{answer:#}");
            Ok(())
        }
    }
}

async fn run(options: ServeOptions) -> Result<(), Box<dyn Error>> {
    let server = serve(options).await?;
    println!("DEVIN_API_URL={}", server.api_url());
    println!("DEVIN_API_TOKEN={DEFAULT_TOKEN}");
    println!("DEVIN_OUTPOST_ID={}", outpost_sim::model::DEFAULT_OUTPOST);
    println!("DEVIN_WORKER_STATIC_BASE_URL={}", server.remote_base_url());
    println!("OUTPOST_SIM_CONTROL_URL={}", server.control_url());
    tokio::signal::ctrl_c().await?;
    server.stop().await;
    Ok(())
}
