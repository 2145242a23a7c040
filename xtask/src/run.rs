//! Carries out what was asked for.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::cli::{Command, TestArgs};
use crate::context::{Context, Permission, in_ci};
use crate::parts::{self, PARTS, Part};
use crate::report::{self, Outcome, Row};
use crate::select::{Choice, exclusion, select};
use crate::tools::Tool;

pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Test(args) => test(args),
        Command::Simulate(args) => {
            let context = Context::new(Permission::AskFirst)?;
            parts::simulate(&context, args.seeds, args.from, &args.rest)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Bench(args) => {
            let context = Context::new(Permission::AskFirst)?;
            parts::bench(&context, args)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn test(args: &TestArgs) -> Result<ExitCode> {
    if args.list {
        for part in PARTS {
            println!("{:10} {}", part.name, part.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let permission = if args.install || in_ci() { Permission::Install } else { Permission::AskFirst };
    let mut context = Context::new(permission)?;
    let names: Vec<_> = PARTS.iter().map(|part| (part.name, part.place)).collect();
    let choices = select(&names, &args.parts, &args.without);
    let chosen: Vec<&Part> = PARTS
        .iter()
        .zip(&choices)
        .filter(|(_, choice)| **choice == Choice::Run)
        .map(|(part, _)| part)
        .collect();
    if chosen.is_empty() {
        bail!("no part is left to run");
    }

    let mut rows = set_up(&context, &chosen)?;
    for (part, choice) in PARTS.iter().zip(&choices) {
        rows.push(match choice {
            Choice::LeaveOut(why) => Row {
                name: part.name.to_owned(),
                outcome: Outcome::LeftOut(why),
                took: Duration::ZERO,
                again: again(part),
            },
            Choice::Run => timed(part.name.to_owned(), again(part), || (part.run)(&context)),
        });
    }
    if let Some(engines) = context.engines.take() {
        let again = "cargo xtask test engines".to_owned();
        rows.push(timed("clean up".to_owned(), again, || engines.clean_up(&context)));
    }
    println!("\n{}", report::render(&rows));
    let failed = rows.iter().any(|row| matches!(row.outcome, Outcome::Failed(_)));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Installs the tools that the chosen parts need and that are not there, or says how, before any part runs.
fn set_up(context: &Context, chosen: &[&Part]) -> Result<Vec<Row>> {
    let needed: BTreeSet<Tool> = chosen.iter().flat_map(|part| part.needs.iter().copied()).collect();
    let missing: Vec<Tool> = needed.into_iter().filter(|tool| !tool.is_there(context)).collect();
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    if context.permission == Permission::AskFirst {
        let mut without = BTreeSet::new();
        for tool in &missing {
            let parts: Vec<&&Part> = chosen.iter().filter(|part| part.needs.contains(tool)).collect();
            let names: Vec<&str> = parts.iter().map(|part| part.name).collect();
            eprintln!(
                "{} is missing, which {} needs. To install it:\n  {}\n",
                tool.name(),
                names.join(", "),
                tool.recipe()
            );
            without.extend(parts.iter().map(|part| exclusion(part.name, part.place)));
        }
        eprintln!("To let the checks install it all: add --install");
        let without: Vec<&str> = without.into_iter().collect();
        eprintln!("To do without: add --without {}\n", without.join(","));
        bail!("nothing was run, because tools are missing");
    }
    let install = |tool: Tool| {
        let part =
            chosen.iter().find(|part| part.needs.contains(&tool)).expect("a part needs each missing tool");
        timed(format!("install {}", tool.name()), format!("{} --install", again(part)), || {
            tool.install(context)
        })
    };
    Ok(missing.into_iter().map(install).collect())
}

/// The command that runs one part alone.
fn again(part: &Part) -> String {
    format!("cargo xtask test {}", part.name)
}

fn timed(name: String, again: String, work: impl FnOnce() -> Result<()>) -> Row {
    eprintln!("\n=== {name}");
    let started = Instant::now();
    let outcome = match work() {
        Ok(()) => Outcome::Passed,
        Err(error) => {
            eprintln!("{name} failed: {error:#}");
            Outcome::Failed(format!("{error:#}"))
        }
    };
    Row { name, outcome, took: started.elapsed(), again }
}
