//! Which parts run, and why the others do not.

/// What becomes of one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    Run,
    /// Left out, for this reason.
    LeaveOut(&'static str),
}

/// Decides for each of `all`, in its order. A part that is both named and excluded is left out.
pub(crate) fn select(all: &[&str], named: &[String], without: &[String]) -> Vec<Choice> {
    let has = |list: &[String], name: &str| list.iter().any(|other| other == name);
    all.iter()
        .map(|name| {
            if has(without, name) {
                Choice::LeaveOut("--without")
            } else if !named.is_empty() && !has(named, name) {
                Choice::LeaveOut("not asked for")
            } else {
                Choice::Run
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[&str] = &["fmt", "clippy", "tests"];

    fn selected(named: &[&str], without: &[&str]) -> Vec<&'static str> {
        let owned = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        ALL.iter()
            .zip(select(ALL, &owned(named), &owned(without)))
            .filter(|(_, choice)| *choice == Choice::Run)
            .map(|(name, _)| *name)
            .collect()
    }

    #[test]
    fn all_parts_run_when_none_is_named() {
        assert_eq!(selected(&[], &[]), ALL);
    }

    #[test]
    fn named_parts_run_in_the_order_of_the_table() {
        assert_eq!(selected(&["tests", "fmt"], &[]), ["fmt", "tests"]);
    }

    #[test]
    fn an_excluded_part_is_left_out_even_when_it_is_named() {
        assert_eq!(selected(&["tests", "fmt"], &["fmt"]), ["tests"]);
        assert_eq!(selected(&[], &["clippy"]), ["fmt", "tests"]);
    }

    #[test]
    fn a_part_that_is_left_out_says_why() {
        let choices = select(ALL, &["fmt".into()], &["tests".into()]);
        assert_eq!(choices, [Choice::Run, Choice::LeaveOut("not asked for"), Choice::LeaveOut("--without")]);
    }
}
