//! Which orchestrator this is, kept in its state directory and locked there.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use outpost_core::model::InstanceId;

const FILE: &str = "instance";
const LOCK: &str = "outpost.lock";
/// A process that was killed while it started another can hold its lock through that one, until it has become another program.
const FORK_AT_MOST: Duration = Duration::from_secs(1);

/// A state directory that belongs to this process until it is dropped.
///
/// One acceptor that two processes share protects nothing, because the queue takes the second one's claim for a renewal: hence
/// the lock.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    instance: InstanceId,
    _lock: File,
}

/// Why a state directory cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateDirError {
    /// Another process has it.
    #[error(
        "the state directory {} is in use by process {holder}; stop that one, or choose another with --state-dir",
        path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The other process's id, as it wrote it down.
        holder: String,
    },
    /// Its instance cannot be read.
    #[error(
        "{} does not hold an instance's name ({why}); it is in the names of this orchestrator's sandboxes and claims: \
         restore it, or delete it if nothing of this orchestrator is left",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It is kept for another instance than the settings name.
    #[error("the state directory {} belongs to instance `{kept}`, and the settings say `{wanted}`", path.display())]
    Other {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        kept: InstanceId,
        /// What the settings say.
        wanted: InstanceId,
    },
    /// It cannot be read or written.
    #[error("the state directory {} cannot be used: {source}", path.display())]
    Unusable {
        /// The directory or a file in it.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl StateDir {
    /// Opens a state directory, made (0700) if it does not exist, and locks it. The instance is what it holds; at the first
    /// start, `wanted`, else a random one.
    ///
    /// # Errors
    /// [`StateDirError`], which says what to do.
    pub fn open(path: &Path, wanted: Option<InstanceId>) -> Result<Self, StateDirError> {
        let unusable = |source| StateDirError::Unusable { path: path.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
        let lock = lock(path)?;
        let file = path.join(FILE);
        let instance = match fs::read_to_string(&file) {
            Ok(text) => {
                let kept = text.trim_end().parse::<InstanceId>();
                let kept =
                    kept.map_err(|error| StateDirError::Corrupt { path: file, why: error.to_string() })?;
                match wanted {
                    Some(wanted) if wanted != kept => {
                        return Err(StateDirError::Other { path: path.to_owned(), kept, wanted });
                    }
                    _ => kept,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let instance = wanted.unwrap_or_else(random);
                write_whole(&file, instance.as_str().as_bytes()).map_err(unusable)?;
                instance
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(StateDirError::Corrupt { path: file, why: "it is not text".into() });
            }
            Err(error) => return Err(unusable(error)),
        };
        Ok(Self { path: path.to_owned(), instance, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which orchestrator this is.
    pub const fn instance(&self) -> &InstanceId {
        &self.instance
    }
}

fn lock(path: &Path) -> Result<File, StateDirError> {
    let unusable = |source| StateDirError::Unusable { path: path.join(LOCK), source };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(path.join(LOCK)).map_err(unusable)?;
    let deadline = Instant::now() + FORK_AT_MOST;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only for the message.
                let _ = file.read_to_string(&mut holder);
                let holder = holder.trim();
                let holder = if holder.is_empty() { "unknown" } else { holder }.to_owned();
                return Err(StateDirError::Locked { path: path.to_owned(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
    }
    let mut note = || {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    note().map_err(unusable)?;
    Ok(file)
}

/// Twelve letters and digits, the first a letter.
fn random() -> InstanceId {
    let mut rng = fastrand::Rng::new();
    let mut text = String::from(rng.lowercase());
    text.extend(std::iter::repeat_with(|| rng.digit(36)).take(11));
    InstanceId::new(text).expect("letters and digits")
}

/// Writes a file beside its place, syncs it, renames it into place, and syncs the directory: afterwards it is there wholly, or as
/// it was before.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = directory.join(format!(".{name}.new"));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    let written =
        file.write_all(content).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    // lesson 15
    #[test]
    fn a_restart_keeps_the_instance() {
        let dir = tempfile::tempdir().unwrap();
        let first = StateDir::open(dir.path(), None).unwrap().instance().clone();
        let second = StateDir::open(dir.path(), None).unwrap().instance().clone();
        assert_eq!(first, second);
    }

    // lesson 14
    #[test]
    fn a_second_process_on_the_same_directory_is_refused_and_told_who_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = StateDir::open(dir.path(), None).unwrap();
        let error = StateDir::open(dir.path(), None).unwrap_err();
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        StateDir::open(dir.path(), None).unwrap();
    }

    // lesson 15
    #[test]
    fn a_corrupt_instance_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "Not A Name").unwrap();
        assert!(matches!(StateDir::open(dir.path(), None), Err(StateDirError::Corrupt { .. })));
        assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap(), "Not A Name");
    }

    // lesson 15
    #[test]
    fn first_starts_that_race_end_with_one_instance() {
        let dir = tempfile::tempdir().unwrap();
        let names: std::collections::BTreeSet<String> = std::thread::scope(|scope| {
            let start = || {
                loop {
                    match StateDir::open(dir.path(), None) {
                        Ok(state) => return state.instance().to_string(),
                        Err(StateDirError::Locked { .. }) => std::thread::yield_now(),
                        Err(error) => panic!("{error}"),
                    }
                }
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn a_directory_of_another_instance_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(StateDir::open(dir.path(), Some(InstanceId::new("a").unwrap())).unwrap());
        let error = StateDir::open(dir.path(), Some(InstanceId::new("b").unwrap())).unwrap_err();
        assert!(matches!(error, StateDirError::Other { .. }), "{error}");
    }
}
