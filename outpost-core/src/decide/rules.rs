//! The state table, asserted over every combination.
//!
//! `table` holds the rules, `cases` the combinations, `world` what they are built of.

mod cases;
mod fixpoint;
mod table;
#[cfg(not(target_arch = "wasm32"))]
mod totality;
mod world;

use std::collections::BTreeMap;

use cases::Case;
use table::{Do, RULES, Renew};
use world::World;

use super::{Decision, Step};
use crate::model::{Boot, Standing, WorkerMode};

/// Rules from which the function differs, and why that is still open: they are printed and allowed.
const DISPUTED: &[(&str, &str)] = &[];

/// What the decision does, in the terms of the table.
fn done(world: &World, decision: &Decision) -> Result<Do, String> {
    Ok(match &decision.step {
        None => Do::Nothing,
        Some(Step::Look) => Do::Look,
        Some(Step::Start(plan)) => Do::Start(plan.boot, plan.restore.as_ref().map(|from| from.boot)),
        Some(Step::StopWorker { boot, reason, .. }) => Do::Stop(*boot, *reason),
        Some(Step::Save { boot, purpose }) => Do::Save(*boot, *purpose),
        Some(Step::Remove { boot, .. }) => Do::Remove(*boot),
        Some(Step::Write(record)) => {
            let newest = record.newest_snapshot.as_ref();
            match newest {
                Some(newest) if newest.standing == Standing::Superseded => Do::Supersede,
                Some(newest) if world.record.newest_snapshot.as_ref() != Some(newest) => {
                    Do::Adopt(newest.boot)
                }
                _ => return Err("a record is written for no reason that the table knows".into()),
            }
        }
        Some(Step::DeleteSnapshot { reference }) => {
            let snapshot = world.snapshots.iter().find(|snapshot| snapshot.reference == *reference);
            Do::Delete(snapshot.map_or(Boot::NONE, |snapshot| snapshot.boot))
        }
        Some(Step::Forget) => Do::Forget,
        Some(Step::Release) => Do::Release,
    })
}

/// The rule that holds, or what is wrong.
fn judge(case: &Case, world: &World) -> Result<&'static str, (&'static str, String)> {
    let rule = RULES.iter().find(|rule| (rule.when)(case));
    let Some(rule) = rule else { return Err(("no rule", format!("no rule fits\n  {case:?}"))) };
    let decision = world.decide();
    let (step, renew) = (rule.then)(case);
    let complain = |what: String| {
        let why = &decision.why;
        Err((rule.name, format!("rule: {}\n  {what}\n  why: {why}\n  {case:?}", rule.name)))
    };
    match done(world, &decision) {
        Ok(found) if found == step => {}
        found => return complain(format!("expected {step:?}, got {found:?}")),
    }
    if renew != Renew::Open && decision.upkeep.renew != (renew == Renew::Yes) {
        return complain(format!("expected the renewal {renew:?}, got {}", decision.upkeep.renew));
    }
    if decision.look_again.is_some_and(|at| at <= world.now) {
        return complain(format!("it is to be looked at again at {:?}, which is over", decision.look_again));
    }
    Ok(rule.name)
}

/// What a walk found.
#[derive(Default)]
struct Walk {
    cases: u64,
    held: BTreeMap<&'static str, u64>,
    broken: BTreeMap<&'static str, (u64, String)>,
}

fn walk(mode: WorkerMode) -> Walk {
    let mut walk = Walk::default();
    Case::walk(mode, |case, world| {
        walk.cases += 1;
        match judge(case, world) {
            Ok(rule) => *walk.held.entry(rule).or_default() += 1,
            Err((rule, text)) => walk.broken.entry(rule).or_insert((0, text)).0 += 1,
        }
    });
    walk
}

/// Rules that no combination of the mode reaches.
const fn unreachable(mode: WorkerMode) -> &'static [&'static str] {
    match mode {
        WorkerMode::DevinRemote | WorkerMode::CliDirect => {
            &["the CLI that has not claimed its session in four minutes is ended"]
        }
        WorkerMode::Cli => &[
            "a resumed session without a snapshot here is left to the host that has it, for a minute",
            "after five failures the claim is given back",
            "a session that sleeps is released when nothing is left, and only then (lesson 37)",
            "a session that has ended is released last",
        ],
    }
}

fn assert_table(mode: WorkerMode) {
    let walk = walk(mode);
    println!("{mode:?}: {} combinations, {} rules", walk.cases, RULES.len());
    let mut failures = Vec::new();
    for (rule, (count, text)) in &walk.broken {
        let text = format!("{mode:?}: {count} times\n  {text}");
        match DISPUTED.iter().find(|(disputed, _)| disputed == rule) {
            Some((_, reason)) => println!("disputed ({reason}): {text}"),
            None => failures.push(text),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    for rule in RULES {
        let reached = walk.held.contains_key(rule.name) || walk.broken.contains_key(rule.name);
        assert_eq!(reached, !unreachable(mode).contains(&rule.name), "{mode:?}: {}", rule.name);
    }
}

// Lesson 33: every combination has exactly one outcome. One test a mode, so that they run at the same time.

#[test]
fn every_combination_does_what_the_table_says_where_devin_remote_serves() {
    assert_table(WorkerMode::DevinRemote);
}

#[test]
fn every_combination_does_what_the_table_says_where_the_cli_claims() {
    assert_table(WorkerMode::Cli);
}

#[test]
fn every_combination_does_what_the_table_says_where_the_cli_serves_our_claim() {
    assert_table(WorkerMode::CliDirect);
}
