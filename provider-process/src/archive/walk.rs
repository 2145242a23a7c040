//! What there is to save, parents before their children.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// One thing in the tree.
#[derive(Debug)]
pub(super) struct Found {
    /// Where it is.
    pub(super) path: PathBuf,
    /// Where it is in the archive.
    pub(super) name: PathBuf,
    pub(super) metadata: Metadata,
}

/// What a walk comes by.
#[derive(Debug)]
pub(super) enum Seen {
    Found(Found),
    /// The directory of this name in the archive was found before, and what is in it cannot be read: it is another user's.
    Closed(PathBuf),
}

/// Access that was lent, to be taken back.
#[derive(Debug)]
struct Lent {
    path: PathBuf,
    before: Permissions,
}

impl Lent {
    /// Gives the owner access. A session can have files and directories that their owner may not read, and they are as
    /// much its work as others.
    fn to(path: &Path, mode: u32) -> io::Result<Self> {
        let before = fs::symlink_metadata(path)?.permissions();
        fs::set_permissions(path, Permissions::from_mode(before.mode() | mode))?;
        Ok(Self { path: path.to_owned(), before })
    }

    fn take_back(self) -> io::Result<()> {
        match fs::set_permissions(&self.path, self.before) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

/// What cannot be read, and why.
#[derive(Debug)]
pub(super) struct Unreadable(pub(super) PathBuf, pub(super) io::Error);

enum Step {
    Enter(PathBuf),
    TakeBack(Lent),
}

/// Calls `each` for everything below `root`, in no particular order but parents first. Whatever vanishes meanwhile is
/// left out. `skip` names a directory whose content is left out, relative to the root. A directory that forbids its owner
/// to enter is opened up until all that is below it was handled.
///
/// What cannot be read even so is [`Seen::Closed`], but an error when it is the root or one of the directories in it:
/// those are not the session's to give away, and without them there would be next to nothing in the archive.
pub(super) fn walk<E: From<Unreadable>>(
    root: &Path,
    skip: &Path,
    mut each: impl FnMut(Seen) -> Result<(), E>,
) -> Result<(), E> {
    let mut steps = vec![Step::Enter(PathBuf::new())];
    let mut result = Ok(());
    while let Some(step) = steps.pop() {
        match step {
            // Also after an error; the innermost first, which is reached through the others.
            Step::TakeBack(lent) => {
                let path = lent.path.clone();
                let taken = lent.take_back().map_err(|error| Unreadable(path, error).into());
                result = result.and(taken);
            }
            Step::Enter(directory) if result.is_ok() => {
                result = enter(root, skip, directory, &mut steps, &mut each);
            }
            Step::Enter(_) => {}
        }
    }
    result
}

fn enter<E: From<Unreadable>>(
    root: &Path,
    skip: &Path,
    directory: PathBuf,
    steps: &mut Vec<Step>,
    each: &mut impl FnMut(Seen) -> Result<(), E>,
) -> Result<(), E> {
    let inside = root.join(&directory);
    let entries = match open(&inside) {
        Ok((entries, lent)) => {
            steps.extend(lent.map(Step::TakeBack));
            entries
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error)
            if error.kind() == io::ErrorKind::PermissionDenied && directory.components().count() > 1 =>
        {
            return each(Seen::Closed(directory));
        }
        Err(error) => return Err(Unreadable(inside, error).into()),
    };
    for entry in entries {
        let entry = entry.map_err(|error| Unreadable(inside.clone(), error))?;
        let (path, name) = (entry.path(), directory.join(entry.file_name()));
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Unreadable(path, error).into()),
        };
        if metadata.is_dir() && name != skip {
            steps.push(Step::Enter(name.clone()));
        }
        each(Seen::Found(Found { path, name, metadata }))?;
    }
    Ok(())
}

/// Opens a directory whose entries can be looked at, with the access that had to be lent for that.
fn open(path: &Path) -> io::Result<(fs::ReadDir, Option<Lent>)> {
    let attempt = || {
        let entries = fs::read_dir(path)?;
        // Reading the names is one permission, reaching what they name is another.
        fs::symlink_metadata(path.join("."))?;
        Ok::<_, io::Error>(entries)
    };
    match attempt() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let Ok(lent) = Lent::to(path, 0o500) else { return Err(error) };
            match attempt() {
                Ok(entries) => Ok((entries, Some(lent))),
                Err(error) => {
                    lent.take_back()?;
                    Err(error)
                }
            }
        }
        result => result.map(|entries| (entries, None)),
    }
}

/// Tries, and when the owner's own permissions are in the way, lends them for the moment of the try. Permission is
/// denied only when that does not help.
pub(super) fn with_access<T>(path: &Path, mode: u32, attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match attempt() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let Ok(lent) = Lent::to(path, mode) else { return Err(error) };
            let result = attempt();
            lent.take_back()?;
            result
        }
        result => result,
    }
}
