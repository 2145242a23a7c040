//! The stand-in `devin` and `devin-remote`: see `outpost_sim::standin`.

use std::process::ExitCode;

fn main() -> ExitCode {
    outpost_sim::standin::main(std::env::args_os().skip(1).collect())
}
