//! The command `outpost`.

fn main() -> std::process::ExitCode {
    outpost::cli::main()
}
