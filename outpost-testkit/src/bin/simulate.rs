//! Plays seeded runs of the simulated world; a failure prints its seed and leaves a log that can be replayed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use outpost_testkit::world::{Outcome, Scenario, simulate};

/// Plays seeded runs of the simulated world.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many runs.
    #[arg(long, default_value_t = 2000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Plays the run of this log again, and says where it goes another way.
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Goes on after a failure.
    #[arg(long)]
    keep_going: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let failed = match &arguments.replay {
        Some(path) => replay(path),
        None => play(&arguments),
    };
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn play(arguments: &Arguments) -> bool {
    let (next, end) = (AtomicU64::new(arguments.from), arguments.from + arguments.seeds);
    let failures = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let stop = !arguments.keep_going && !failures.lock().expect("no panic").is_empty();
                    if seed >= end || stop {
                        break;
                    }
                    let outcome = simulate(Scenario::from_seed(seed));
                    if let Err(failure) = &outcome.result {
                        let path = save(&outcome);
                        println!("seed {seed}: {failure}\n  log: {}", path.display());
                        failures.lock().expect("no panic").push(seed);
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("no panic");
    failures.sort_unstable();
    let played = next.into_inner().min(end) - arguments.from;
    println!("{played} runs, {} failed: {failures:?}", failures.len());
    !failures.is_empty()
}

fn save(outcome: &Outcome) -> PathBuf {
    let folder = Path::new("target/simulate");
    let path = folder.join(format!("{}.log", outcome.scenario.seed));
    let written =
        std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, outcome.log.join("\n")));
    if let Err(error) = written {
        println!("the log cannot be written: {error}");
    }
    path
}

fn replay(path: &Path) -> bool {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            println!("{}: {error}", path.display());
            return true;
        }
    };
    let head = text.lines().next().unwrap_or_default();
    let digits = head.split_once("seed: ").map(|(_, rest)| rest.split(',').next().unwrap_or_default());
    let Some(seed) = digits.and_then(|digits| digits.parse().ok()) else {
        println!("{} does not begin with a scenario", path.display());
        return true;
    };
    let outcome = simulate(Scenario::from_seed(seed));
    outcome.log.iter().for_each(|line| println!("{line}"));
    let differs = text.lines().zip(&outcome.log).position(|(old, new)| old != new);
    if let Some(place) = differs {
        println!("goes another way at line {}: the code is another than the log's", place + 1);
    }
    outcome.result.is_err()
}
