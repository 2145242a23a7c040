use std::collections::BTreeMap;

use jiff::Timestamp;
use outpost_core::model::WorkerEnding;

use super::disk::{Disk, Node};
use crate::conformance::{Act, End, Expectation, Task};

/// What a sandbox's worker will do.
#[derive(Debug, Clone)]
pub(super) enum Behavior {
    /// A task of the conformance suite.
    Task(Task),
    /// It lives until somebody ends it through the [`MemoryBackend`](super::MemoryBackend).
    Puppet,
}

/// Where a worker stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Worker {
    /// It runs from then on.
    Waiting { until: Timestamp },
    /// It runs.
    Alive(Alive),
    /// It has ended.
    Ended { code: Option<i32>, ending: WorkerEnding },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Alive {
    /// Whether it does nothing about TERM.
    pub(super) ignores_term: bool,
    /// The marks of its processes.
    pub(super) processes: Vec<String>,
    /// When it will be gone, and how, once it was asked to end.
    pub(super) dies: Option<(Timestamp, WorkerEnding)>,
}

pub(super) const TERM_CODE: i32 = 143;
pub(super) const KILL_CODE: i32 = 137;

impl Behavior {
    /// Does at once what the worker does until it stays or ends.
    pub(super) fn begin(
        &self,
        disk: &mut Disk,
        environment: &BTreeMap<String, String>,
        network: Network,
    ) -> Worker {
        let Self::Task(task) = self else { return Worker::Alive(Alive::default()) };
        let mut alive = Alive::default();
        let mut failure = Task::FIRST_FAILURE;
        let mut mark = None;
        for act in &task.acts {
            match act {
                Act::Write { path, text } => disk.write(path, text),
                Act::Chmod { path, mode: bits } => {
                    if let Some(Node::File { mode, .. }) = disk.nodes.get_mut(*path) {
                        *mode = *bits;
                    }
                }
                Act::Symlink { path, target } => {
                    disk.nodes.insert((*path).to_owned(), Node::Symlink { target: (*target).to_owned() });
                }
                Act::HardLink { path, target } => {
                    if let Some(node) = disk.nodes.get(*target).cloned() {
                        disk.nodes.insert((*path).to_owned(), node);
                    }
                }
                Act::MakeDir { path } => {
                    disk.nodes.insert((*path).to_owned(), Node::Dir);
                }
                Act::IgnoreTerm => alive.ignores_term = true,
                Act::Spawn { mark } => alive.processes.push(mark.clone()),
                Act::Mark { mark: new } => mark = Some(new.clone()),
                Act::Expect(expectation) => {
                    if !holds(expectation, disk, environment, network) {
                        return Worker::Ended { code: Some(failure), ending: WorkerEnding::Clean };
                    }
                    failure += 1;
                }
            }
        }
        alive.processes.extend(mark);
        match task.end {
            End::Exit(code) => Worker::Ended { code: Some(code), ending: WorkerEnding::Clean },
            End::Stay => Worker::Alive(alive),
        }
    }
}

/// Whether a worker reaches the outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    Open,
    Closed,
}

fn holds(
    expectation: &Expectation,
    disk: &Disk,
    environment: &BTreeMap<String, String>,
    network: Network,
) -> bool {
    match expectation {
        Expectation::File { path, text } => disk.text(path) == Some(text),
        Expectation::Absent { path } => !disk.nodes.contains_key(*path),
        Expectation::Mode { path, mode: bits } => {
            matches!(disk.nodes.get(*path), Some(Node::File { mode, .. }) if mode == bits)
        }
        Expectation::Symlink { path, target: wanted } => {
            matches!(disk.nodes.get(*path), Some(Node::Symlink { target }) if target == wanted)
        }
        Expectation::SameFile { path, other } => match (disk.nodes.get(*path), disk.nodes.get(*other)) {
            (Some(Node::File { file: a, .. }), Some(Node::File { file: b, .. })) => a == b,
            _ => false,
        },
        Expectation::EmptyDir { path } => disk.is_empty_dir(path),
        Expectation::Env { name, value } => environment.get(name) == Some(value),
        Expectation::EnvOnly { names } => Task::env_is_only(environment, names),
        Expectation::NoFileHolds { text } => disk.find(text).next().is_none(),
        Expectation::Offline => network == Network::Closed,
    }
}
