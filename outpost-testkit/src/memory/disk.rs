use std::collections::BTreeMap;

/// A disk: a small map of paths, and a counter that stands for the work that was done on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Disk {
    /// What lies where.
    pub nodes: BTreeMap<String, Node>,
    /// How much work was done on it, ever. A restored disk goes on from its snapshot's, so a smaller number than was there
    /// before means lost work.
    pub work: u64,
    /// The next file's identity.
    next_file: u64,
}

/// What lies at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Node {
    /// A file. Two names with one `file` are hard links.
    File {
        /// Which file.
        file: u64,
        /// What is in it.
        text: String,
        /// Its permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Symlink {
        /// To where.
        target: String,
    },
    /// A directory that was made by itself.
    Dir,
}

impl Disk {
    /// Writes a file.
    pub fn write(&mut self, path: &str, text: &str) {
        self.next_file += 1;
        let node = Node::File { file: self.next_file, text: text.to_owned(), mode: 0o644 };
        self.nodes.insert(path.to_owned(), node);
    }

    /// What a file holds.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        match self.nodes.get(path)? {
            Node::File { text, .. } => Some(text),
            Node::Symlink { .. } | Node::Dir => None,
        }
    }

    /// Whether anything lies below a directory.
    #[must_use]
    pub fn is_empty_dir(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.nodes.get(path) == Some(&Node::Dir) && !self.nodes.keys().any(|other| other.starts_with(&below))
    }

    /// The paths whose contents hold `needle`.
    pub fn find<'d>(&'d self, needle: &'d str) -> impl Iterator<Item = &'d str> {
        self.nodes.iter().filter_map(move |(path, node)| match node {
            Node::File { text, .. } if text.contains(needle) => Some(path.as_str()),
            _ => None,
        })
    }
}
