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

/// Calls `each` for everything below `root`, in no particular order but parents first. Whatever vanishes meanwhile is
/// left out. `skip` names a directory whose content is left out, relative to the root.
pub(super) fn walk<E: From<(PathBuf, io::Error)>>(
    root: &Path,
    skip: &Path,
    mut each: impl FnMut(Found) -> Result<(), E>,
) -> Result<(), E> {
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let inside = root.join(&directory);
        let entries = match read_dir(&inside) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err((inside, error).into()),
        };
        for entry in entries {
            let entry = entry.map_err(|error| (inside.clone(), error))?;
            let (path, name) = (entry.path(), directory.join(entry.file_name()));
            let metadata = match fs::symlink_metadata(&path) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err((path, error).into()),
            };
            if metadata.is_dir() && name != skip {
                directories.push(name.clone());
            }
            each(Found { path, name, metadata })?;
        }
    }
    Ok(())
}

fn read_dir(path: &Path) -> io::Result<fs::ReadDir> {
    with_access(path, 0o700, || fs::read_dir(path))
}

/// Tries, and when the owner's own permissions are in the way, lends them for the moment of the try. A session can
/// have such files, and they are as much its work as others.
pub(super) fn with_access<T>(path: &Path, mode: u32, attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match attempt() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let before = fs::symlink_metadata(path)?.permissions();
            fs::set_permissions(path, Permissions::from_mode(before.mode() | mode))?;
            let result = attempt();
            fs::set_permissions(path, before)?;
            result
        }
        result => result,
    }
}
