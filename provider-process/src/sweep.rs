//! Deleting trees, and clearing away what an earlier process was in the middle of.

use outpost_provider_kit::{During as _, Fault};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::boot::{self, Mark, names_in};
use crate::layout::Layout;

/// So often is a tree begun to be deleted before a fault counts.
const DELETIONS: usize = 3;

/// Deletes a tree, also one whose directories its owner may not change. What does not exist is deleted.
pub(crate) fn delete_tree(path: &Path) -> Result<(), Fault> {
    let what = || format!("delete {}", path.display());
    for _ in 0..DELETIONS {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open_up(path).during(what)?,
            // Something came into it meanwhile, such as the note that a disk is durable.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => return result.during(what),
        }
    }
    fs::remove_dir_all(path).during(what)
}

fn open_up(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

pub(crate) fn delete_file(path: &Path) -> Result<(), Fault> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.during(|| format!("delete {}", path.display())),
    }
}

/// Clears away what nobody can still be working on, because the instance's lock is held: directories that were being
/// prepared or deleted, sandboxes in which no process was ever started, archives that are not snapshots yet, and
/// temporary directories without a sandbox. What cannot be deleted stays, for it is in nobody's way.
pub(crate) fn sweep(layout: &Layout) -> Result<(), Fault> {
    for name in names_in(&layout.sandboxes())? {
        if layout.owns_leftover(&name) {
            if_possible(delete_tree(&layout.sandboxes().join(name)));
        }
    }
    let mut temporary = Vec::new();
    let (boots, damaged) = boot::all(layout)?;
    for boot in boots {
        if !boot.has(Mark::Launched)? {
            let gone = layout.aside("gone", &boot.meta.id());
            fs::rename(&boot.dir, &gone).during(|| format!("move {}", boot.dir.display()))?;
            if_possible(delete_tree(&gone));
        } else {
            temporary.push(boot.tmp);
        }
    }
    let root = layout.tmp_root();
    for name in names_in(&root)? {
        let dir = root.join(&name);
        // Which boot a damaged sandbox is of is not known; its processes may live.
        let is_damaged = damaged.iter().any(|it| it.dir.file_name().is_some_and(|it| is_boot_of(&name, it)));
        if layout.is_own_boot(&name) && !temporary.contains(&dir) && !is_damaged {
            if_possible(delete_tree(&dir));
        }
    }
    for name in names_in(&layout.snapshots())? {
        if is_unfinished(layout, &name) {
            if_possible(delete_file(&layout.snapshots().join(&name)));
        }
    }
    Ok(())
}

/// Whether a name is that of a boot whose sandbox may have the directory of another name.
fn is_boot_of(name: &str, directory: &OsStr) -> bool {
    directory.to_str().is_some_and(|directory| name.starts_with(directory))
}

/// Whether a file among the snapshots belongs to one of this instance's that is not complete.
fn is_unfinished(layout: &Layout, name: &str) -> bool {
    let whole = name.strip_suffix(".part").unwrap_or(name);
    let reference = whole.strip_suffix(".tar.zst").or_else(|| whole.strip_suffix(".json"));
    reference
        .filter(|reference| layout.owns_reference(reference))
        .is_some_and(|reference| whole != name || !layout.sidecar(reference).exists())
}

fn if_possible(result: Result<(), Fault>) {
    if let Err(fault) = result {
        tracing::warn!("a leftover stays: {}", fault.message);
    }
}
