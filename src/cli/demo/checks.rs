//! What was checked, and what was seen.

use std::fmt::Write as _;

/// What was checked so far.
#[derive(Debug, Default)]
pub(super) struct Checks(Vec<Check>);

#[derive(Debug)]
struct Check {
    what: &'static str,
    expected: String,
    seen: String,
}

impl Check {
    fn held(&self) -> bool {
        self.expected == self.seen
    }
}

impl Checks {
    /// Notes what was expected and what was seen.
    pub(super) fn check(&mut self, what: &'static str, expected: &str, seen: &str) {
        self.0.push(Check { what, expected: expected.to_owned(), seen: seen.to_owned() });
    }

    pub(super) fn all_held(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(Check::held)
    }

    /// Prints a table of all of them.
    pub(super) fn print(&self) {
        print!("{}", self.table());
    }

    fn table(&self) -> String {
        let rows = || {
            let head = ["", "what was checked", "expected", "seen"];
            let mark = |check: &Check| if check.held() { "ok" } else { "FAIL" };
            let row = move |check| [mark(check), check.what, check.expected.as_str(), check.seen.as_str()];
            std::iter::once(head).chain(self.0.iter().map(row))
        };
        let widths: [usize; 4] = std::array::from_fn(|column| {
            rows().map(|row| row[column].chars().count()).max().unwrap_or_default()
        });
        let [mark_width, what_width, expected_width, _] = widths;
        let mut table = String::from("\n");
        for [mark, what, expected, seen] in rows() {
            let _ =
                writeln!(table, "{mark:mark_width$}  {what:what_width$}  {expected:expected_width$}  {seen}");
        }
        let failed = self.0.iter().filter(|check| !check.held()).count();
        let _ = match failed {
            0 => writeln!(table, "\nAll {} checks held.", self.0.len()),
            1 => writeln!(table, "\n1 of {} checks FAILED.", self.0.len()),
            _ => writeln!(table, "\n{failed} of {} checks FAILED.", self.0.len()),
        };
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demo_that_checked_nothing_has_not_succeeded() {
        assert!(!Checks::default().all_held());
    }

    #[test]
    fn what_failed_is_shown_beside_what_was_expected() {
        let mut checks = Checks::default();
        checks.check("files after a resume", "the same", "the same");
        assert!(checks.all_held());
        checks.check("sandboxes at most", "3", "4");
        assert!(!checks.all_held());
        assert_eq!(
            checks.table(),
            "\n      what was checked      expected  seen\
             \nok    files after a resume  the same  the same\
             \nFAIL  sandboxes at most     3         4\
             \n\n1 of 2 checks FAILED.\n"
        );
    }
}
