//! What can be asked of `cargo xtask`.

use clap::{Args, Parser, Subcommand, builder::PossibleValuesParser};

use crate::parts::PARTS;

/// Outpost's own checks and chores.
#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run every check, part by part, and print how long each took.
    ///
    /// All parts run, also after one failed; the exit code is 0 only if none did. Missing tools are installed
    /// only with `--install` or with `CI=true` in the environment; otherwise nothing runs, and what is missing
    /// is said together with the command that installs it.
    Test(TestArgs),
    /// Play seeded runs of the simulated world, with all fault kinds on.
    Simulate(SimulateArgs),
    /// Run the benchmarks (no part of `test`).
    Bench(BenchArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Run only these parts, in the order of `--list`; all of them if none is named.
    #[arg(value_name = "PART", value_parser = part_names())]
    pub(crate) parts: Vec<String>,
    /// Leave a part out; may be repeated, or take names with commas between them.
    ///
    /// `--without docker` leaves out all that runs on container engines.
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = part_names())]
    pub(crate) without: Vec<String>,
    /// Install what is missing: tools into a cache of their own, and system packages where there is no other way.
    ///
    /// As root it also starts the container engines that are not running, for the time of the run.
    #[arg(long)]
    pub(crate) install: bool,
    /// Say what the parts are, and run none.
    #[arg(long)]
    pub(crate) list: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// How many seeds to play.
    #[arg(long, value_name = "N", default_value_t = crate::parts::SIMULATED_SEEDS)]
    pub(crate) seeds: u64,
    /// The first seed; the others follow it.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) from: u64,
    /// Handed on to the simulation as they are.
    #[arg(last = true, value_name = "ARG")]
    pub(crate) rest: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Run only these benchmarks; all of them if none is named.
    #[arg(value_name = "BENCH")]
    pub(crate) names: Vec<String>,
    /// Say what the benchmarks are, and run none.
    #[arg(long)]
    pub(crate) list: bool,
    /// Handed on to the benchmarks as they are.
    #[arg(last = true, value_name = "ARG")]
    pub(crate) rest: Vec<String>,
}

fn part_names() -> PossibleValuesParser {
    PossibleValuesParser::new(PARTS.iter().map(|part| part.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_part_that_does_not_exist_is_refused() {
        assert!(Cli::try_parse_from(["xtask", "test", "clippy"]).is_ok());
        assert!(Cli::try_parse_from(["xtask", "test", "clipy"]).is_err());
        assert!(Cli::try_parse_from(["xtask", "test", "--without", "fmt,clipy"]).is_err());
    }
}
