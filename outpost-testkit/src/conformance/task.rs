use std::collections::BTreeMap;

/// What a worker does in a case: acts in order, then an end.
///
/// A backend that runs processes takes [`to_sh`](Self::to_sh), a script for any POSIX shell that works in the directory in
/// which workers start; a backend in memory interprets the acts. An expectation that does not hold ends the worker with a
/// code of its own, which [`explain`](Self::explain) turns into words; so the suite sees disks through workers' eyes and
/// needs no way into them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Task {
    /// What it does, in order.
    pub acts: Vec<Act>,
    /// How it ends.
    pub end: End,
}

/// How a worker ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum End {
    /// By itself, with this code (0 to 99).
    Exit(i32),
    /// It goes on until it is ended. Processes that belong to it carry its mark in their command line.
    #[default]
    Stay,
}

/// One thing that a worker does. Paths are relative to where it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// Writes a file; makes its directories.
    Write {
        /// Where.
        path: &'static str,
        /// What, without a final newline.
        text: String,
    },
    /// Sets a file's permission bits.
    Chmod {
        /// Of which file.
        path: &'static str,
        /// To what, such as `0o750`.
        mode: u32,
    },
    /// Makes a symbolic link.
    Symlink {
        /// Where.
        path: &'static str,
        /// To what.
        target: &'static str,
    },
    /// Makes a second name of a file.
    HardLink {
        /// Where.
        path: &'static str,
        /// Of which file.
        target: &'static str,
    },
    /// Makes an empty directory.
    MakeDir {
        /// Where.
        path: &'static str,
    },
    /// From now on ignores TERM; so do the processes that it starts later.
    IgnoreTerm,
    /// Starts a process that goes on by itself, with `mark` in its command line, and that leaves the worker's process group
    /// where the system has `setsid`.
    Spawn {
        /// By which it is found.
        mark: String,
    },
    /// From now on the worker's own command line holds `mark` while it stays.
    Mark {
        /// By which it is found.
        mark: String,
    },
    /// Ends with a failure unless this holds.
    Expect(Expectation),
}

/// What a worker can find out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expectation {
    /// A file holds exactly this, not counting final newlines.
    File {
        /// Which.
        path: &'static str,
        /// What.
        text: String,
    },
    /// Nothing is there.
    Absent {
        /// Where.
        path: &'static str,
    },
    /// A file has these permission bits.
    Mode {
        /// Which.
        path: &'static str,
        /// Which bits.
        mode: u32,
    },
    /// A symbolic link points there.
    Symlink {
        /// Which.
        path: &'static str,
        /// Where.
        target: &'static str,
    },
    /// Two names are one file.
    SameFile {
        /// One name.
        path: &'static str,
        /// The other.
        other: &'static str,
    },
    /// An empty directory is there.
    EmptyDir {
        /// Where.
        path: &'static str,
    },
    /// A variable of the environment has this value. The script holds it cut in two, so that looking for the value does not
    /// find the script.
    Env {
        /// Which.
        name: String,
        /// Which value.
        value: String,
    },
    /// The environment has no other variables than these and what a shell sets by itself.
    EnvOnly {
        /// Which.
        names: Vec<String>,
    },
    /// No file below holds this text. The script holds it cut in two.
    NoFileHolds {
        /// Which.
        text: String,
    },
    /// The outside cannot be reached, as far as the fixture's probe can tell.
    Offline,
}

/// An expectation that did not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the worker found that this does not hold: {0:?}")]
pub struct CheckFailed(pub Expectation);

impl Task {
    /// What a worker's exit code begins at when an expectation did not hold.
    pub const FIRST_FAILURE: i32 = 100;

    /// A task without acts that goes on until it is ended.
    #[must_use]
    pub fn stay() -> Self {
        Self::default()
    }

    /// A task without acts that ends by itself.
    #[must_use]
    pub fn exit(code: i32) -> Self {
        Self { end: End::Exit(code), ..Self::default() }
    }

    /// With one more act.
    #[must_use]
    pub fn act(mut self, act: Act) -> Self {
        self.acts.push(act);
        self
    }

    /// With a file that it writes.
    #[must_use]
    pub fn write(self, path: &'static str, text: impl Into<String>) -> Self {
        self.act(Act::Write { path, text: text.into() })
    }

    /// With an expectation.
    #[must_use]
    pub fn expect(self, expectation: Expectation) -> Self {
        self.act(Act::Expect(expectation))
    }

    /// With an expectation of a file's contents.
    #[must_use]
    pub fn expect_file(self, path: &'static str, text: impl Into<String>) -> Self {
        self.expect(Expectation::File { path, text: text.into() })
    }

    /// What an exit code says: which expectation did not hold, if it is that.
    ///
    /// # Errors
    /// The expectation.
    pub fn explain(&self, code: Option<i32>) -> Result<(), CheckFailed> {
        let place = code.and_then(|code| usize::try_from(code - Self::FIRST_FAILURE).ok());
        match place.and_then(|place| self.expectations().nth(place)) {
            Some(expectation) => Err(CheckFailed(expectation.clone())),
            None => Ok(()),
        }
    }

    /// The expectations, in order.
    pub fn expectations(&self) -> impl Iterator<Item = &Expectation> {
        self.acts.iter().filter_map(|act| match act {
            Act::Expect(expectation) => Some(expectation),
            _ => None,
        })
    }

    /// The variables that shells set by themselves.
    pub const SHELL_VARIABLES: [&'static str; 4] = ["PWD", "OLDPWD", "SHLVL", "_"];

    /// Whether `environment` has only what an [`Expectation::EnvOnly`] allows; for backends that interpret tasks.
    #[must_use]
    pub fn env_is_only(environment: &BTreeMap<String, String>, names: &[String]) -> bool {
        environment.keys().all(|name| names.contains(name) || Self::SHELL_VARIABLES.contains(&name.as_str()))
    }
}
