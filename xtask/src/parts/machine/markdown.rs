//! As much of Markdown as the checks need.

/// A document taken apart: prose without code, and the code.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// Lines outside fences, with the text in backticks taken out.
    pub(super) prose: Vec<String>,
    /// Lines inside fences, and what stands in backticks.
    pub(super) code: Vec<String>,
}

pub(super) fn read(text: &str) -> Document {
    let mut document = Document::default();
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => document.code.push(line.to_owned()),
            (None, None) => {
                let mut prose = String::new();
                for (index, piece) in line.split('`').enumerate() {
                    if index % 2 == 0 {
                        prose.push_str(piece);
                    } else {
                        document.code.push(piece.to_owned());
                    }
                }
                document.prose.push(prose);
            }
        }
    }
    document
}

impl Document {
    /// Where its links lead.
    pub(super) fn links(&self) -> Vec<&str> {
        let mut links = Vec::new();
        for line in &self.prose {
            for (at, mark) in line.match_indices("](") {
                links.extend(line[at + mark.len()..].split([')', ' ']).next());
            }
            if let Some((_, target)) =
                line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "))
            {
                links.extend(target.split_whitespace().next());
            }
        }
        links
    }
}

/// The anchors that its headings make, as GitHub makes them.
pub(super) fn anchors(text: &str) -> Vec<String> {
    let mut in_fence = false;
    let mut anchors = Vec::new();
    for line in text.lines() {
        in_fence ^= line.trim_start().starts_with("```");
        if !in_fence && line.starts_with('#') {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            anchors.push(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_in_prose_and_not_in_code() {
        let text =
            "See [a](a.md) and [b](b.md \"title\"), not `[c](c.md)`.\n```\n[d](d.md)\n```\n[e]: e.md\n";
        assert_eq!(read(text).links(), ["a.md", "b.md", "e.md"]);
    }

    #[test]
    fn code_is_what_stands_in_fences_and_backticks() {
        let text = "Run `cargo test`:\n\n```sh\ncargo build\n```\n";
        assert_eq!(read(text).code, ["cargo test", "cargo build"]);
    }

    #[test]
    fn headings_make_anchors() {
        assert_eq!(
            anchors("# Before you start\n```\n# a comment\n```\n## What's `new`?\n"),
            ["before-you-start", "whats-new"]
        );
    }
}
