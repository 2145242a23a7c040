//! What `ps` prints.

use super::{Marks, Process};

/// As the supervisor writes a start time: blanks become underscores.
pub(super) fn joined(words: &[&str]) -> String {
    words.join("_")
}

/// Reads lines `PID PPID PGID SESS STAT DAY MONTH DATE TIME YEAR COMMAND AND ENVIRONMENT…`.
pub(super) fn parse(text: &str, marks: &Marks) -> Vec<Process> {
    let tmp = format!("TMPDIR={}", marks.tmp.display());
    text.lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [pid, parent, group, session, state, rest @ ..] = words.as_slice() else { return None };
            let (start, _command) = rest.split_at_checked(5)?;
            if state.starts_with('Z') {
                return None;
            }
            let number = |word: &str| word.parse::<i32>().ok();
            // The session is an address on some versions of macOS: then only the group and the marks count.
            Some(Process {
                pid: number(pid)?,
                parent: number(parent)?,
                group: number(group)?,
                session: number(session).unwrap_or(0),
                started: joined(start),
                marked: has_word(line, &tmp),
            })
        })
        .collect()
}

/// Whether a text has a word, which may itself contain blanks, between blanks or ends.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        before.is_none_or(char::is_whitespace) && after.is_none_or(char::is_whitespace)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_ps_are_read_with_their_marks_and_without_zombies() {
        let marks = Marks { supervisor: None, worker: None, tmp: "/s/tmp/a b-1".into(), dir: "/s/d".into() };
        let text = "\
  501     1   501      0 Ss   Tue Dec  1 10:00:00 2026 /bin/sh worker HOME=/h TMPDIR=/s/tmp/a b-1 LANG=C
  502   501   501      0 Z    Tue Dec  1 10:00:01 2026 (sh)
  503     1   503      0 S    Tue Dec  1 10:00:02 2026 other TMPDIR=/s/tmp/a b-10
";
        let found = parse(text, &marks);
        let seen: Vec<_> = found.iter().map(|p| (p.pid, p.started.as_str(), p.marked)).collect();
        assert_eq!(seen, [(501, "Tue_Dec_1_10:00:00_2026", true), (503, "Tue_Dec_1_10:00:02_2026", false)]);
    }
}
