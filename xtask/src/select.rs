//! Which parts run, and why the others do not.

use crate::parts::Place;

/// What becomes of one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    Run,
    /// Left out, for this reason.
    LeaveOut(&'static str),
}

/// The reason of a part that was excluded: what it checks is not known.
pub(crate) const EXCLUDED: &str = "--without";

/// The part whose exclusion leaves out all that runs on container engines.
const DOCKER: &str = "docker";

/// What one excludes to do without a part: the engines are of no use but for the tests on them.
pub(crate) fn exclusion(name: &'static str, place: Place) -> &'static str {
    if place == Place::Engines { DOCKER } else { name }
}

/// Decides for each of `all`, in its order. A part that is both named and excluded is left out. The part that makes
/// engines ready runs when another one needs it; without it, or without the tests on engines, nothing runs on them.
pub(crate) fn select(all: &[(&str, Place)], named: &[String], without: &[String]) -> Vec<Choice> {
    let has = |list: &[String], name: &str| list.iter().any(|other| other == name);
    let engines = all.iter().find(|(_, place)| *place == Place::Engines);
    let no_engines = has(without, DOCKER) || engines.is_some_and(|(name, _)| has(without, name));
    let choose = |name: &str, place| {
        if has(without, name) || (place == Place::OnEngines && no_engines) {
            Choice::LeaveOut(EXCLUDED)
        } else if !named.is_empty() && !has(named, name) {
            Choice::LeaveOut("not asked for")
        } else {
            Choice::Run
        }
    };
    let is_needed =
        all.iter().any(|(name, place)| *place == Place::OnEngines && choose(name, *place) == Choice::Run);
    all.iter()
        .map(|(name, place)| match choose(name, *place) {
            Choice::LeaveOut("not asked for") if *place == Place::Engines && is_needed => Choice::Run,
            Choice::Run if *place == Place::Engines && !is_needed && !has(named, name) => {
                Choice::LeaveOut("nothing needs it")
            }
            choice => choice,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[(&str, Place)] = &[
        ("fmt", Place::Plain),
        ("clippy", Place::Plain),
        ("engines", Place::Engines),
        ("tests", Place::Plain),
        ("docker", Place::OnEngines),
        ("images", Place::OnEngines),
    ];

    fn owned(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn selected(named: &[&str], without: &[&str]) -> Vec<&'static str> {
        ALL.iter()
            .zip(select(ALL, &owned(named), &owned(without)))
            .filter(|(_, choice)| *choice == Choice::Run)
            .map(|((name, _), _)| *name)
            .collect()
    }

    #[test]
    fn all_parts_run_when_none_is_named() {
        assert_eq!(selected(&[], &[]), ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }

    #[test]
    fn named_parts_run_in_the_order_of_the_table() {
        assert_eq!(selected(&["tests", "fmt"], &[]), ["fmt", "tests"]);
    }

    #[test]
    fn an_excluded_part_is_left_out_even_when_it_is_named() {
        assert_eq!(selected(&["tests", "fmt"], &["fmt"]), ["tests"]);
        assert_eq!(selected(&[], &["clippy", "docker"]), ["fmt", "tests"]);
    }

    #[test]
    fn a_part_that_runs_on_engines_brings_them_along() {
        assert_eq!(selected(&["docker"], &[]), ["engines", "docker"]);
        assert_eq!(selected(&["fmt", "images"], &[]), ["fmt", "engines", "images"]);
        assert_eq!(selected(&["engines"], &[]), ["engines"]);
    }

    #[test]
    fn without_docker_no_engine_is_needed() {
        assert_eq!(selected(&[], &["docker"]), ["fmt", "clippy", "tests"]);
        assert_eq!(selected(&["images"], &["docker"]), [""; 0]);
        assert_eq!(selected(&[], &["engines"]), ["fmt", "clippy", "tests"]);
        assert_eq!(selected(&[], &["images"]), ["fmt", "clippy", "engines", "tests", "docker"]);
    }

    #[test]
    fn a_part_that_is_left_out_says_why() {
        let choices = select(ALL, &owned(&["fmt", "docker"]), &owned(&["docker"]));
        let (unasked, excluded) = (Choice::LeaveOut("not asked for"), Choice::LeaveOut("--without"));
        let expected = [Choice::Run, unasked.clone(), unasked.clone(), unasked, excluded.clone(), excluded];
        assert_eq!(choices, expected);
    }
}
