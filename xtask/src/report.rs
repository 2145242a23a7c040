//! What is printed at the end: a table of times, and a line that counts.

use std::fmt::Write as _;
use std::time::Duration;

use crate::select::EXCLUDED;

/// How one part ended.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Passed,
    /// Why, in one line.
    Failed(String),
    /// Why it did not run.
    LeftOut(&'static str),
}

/// One line of the table.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
    /// The command that does only this again.
    pub(crate) again: String,
}

/// The table, what failed with the command that runs it alone, and the counting line last.
pub(crate) fn render(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut total = Duration::ZERO;
    for row in rows {
        total += row.took;
        let (word, time, why) = match &row.outcome {
            Outcome::Passed => ("passed", clock(row.took), ""),
            Outcome::Failed(_) => ("FAILED", clock(row.took), ""),
            Outcome::LeftOut(why) => ("left out", "-".to_owned(), *why),
        };
        let line = format!("  {:width$}  {word:8}  {time:>8}  {why}", row.name);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ = writeln!(text, "  {:width$}  {:8}  {:>8}", "total", "", clock(total));
    for row in rows {
        if let Outcome::Failed(why) = &row.outcome {
            let _ = writeln!(text, "\n{} failed: {why}\n  run it alone: {}", row.name, row.again);
        }
    }
    let excluded: Vec<&str> = rows
        .iter()
        .filter(|row| matches!(row.outcome, Outcome::LeftOut(EXCLUDED)))
        .map(|row| row.name.as_str())
        .collect();
    if !excluded.is_empty() {
        let _ = writeln!(text, "\nNOT RUN, as {EXCLUDED} asked: {}", excluded.join(", "));
    }
    let count = |wanted: fn(&Outcome) -> bool| rows.iter().filter(|row| wanted(&row.outcome)).count();
    let _ = write!(
        text,
        "\nparts: {} passed, {} failed, {} skipped",
        count(|outcome| matches!(outcome, Outcome::Passed)),
        count(|outcome| matches!(outcome, Outcome::Failed(_))),
        count(|outcome| matches!(outcome, Outcome::LeftOut(_))),
    );
    text
}

fn clock(took: Duration) -> String {
    let tenths = (took.as_millis() + 50) / 100;
    let (minutes, rest) = (tenths / 600, tenths % 600);
    if minutes == 0 {
        format!("{}.{} s", rest / 10, rest % 10)
    } else {
        format!("{minutes}:{:02} min", rest / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_and_says_why_a_part_failed_or_was_left_out() {
        let row = |name: &str, outcome, secs| Row {
            name: name.to_owned(),
            outcome,
            took: Duration::from_secs(secs),
            again: format!("cargo xtask test {name}"),
        };
        let text = render(&[
            row("fmt", Outcome::Passed, 1),
            row("clippy", Outcome::Failed("`cargo clippy` failed".into()), 83),
            row("deny", Outcome::LeftOut("--without"), 0),
        ]);
        assert!(text.contains("  fmt     passed       1.0 s\n"), "{text}");
        assert!(text.contains("  deny    left out         -  --without\n"), "{text}");
        assert!(text.contains("  total             1:24 min\n"), "{text}");
        assert!(text.contains("run it alone: cargo xtask test clippy\n"), "{text}");
        assert!(text.contains("\nNOT RUN, as --without asked: deny\n"), "{text}");
        assert!(text.ends_with("\nparts: 1 passed, 1 failed, 1 skipped"), "{text}");
    }
}
