//! Where everything lies under the state directory.
//!
//! ```text
//! <state>/<instance>.lock                     held while a provider lives; the holder's pid
//! <state>/sandboxes/outpost-<instance>-<hash of session>/        the session's newest boot
//! <state>/sandboxes/outpost-<instance>-<hash of session>-<boot>/ an older boot that is not yet removed
//!     meta.json                               which boot it is, and what it came from
//!     launched, synced, killed, removing      empty: what has happened to it
//!     disk/{home,workspace/repos,state}       what is saved
//!     run/                                    what belongs to this boot only
//! <state>/sandboxes/.new-…, .gone-…           being prepared, being deleted
//! <state>/sandboxes/.damaged-…                was in the way of a boot and is damaged; for people, never deleted
//! <state>/tmp/outpost-<instance>-<hash of session>-<boot>/       TMPDIR; never saved
//! <state>/snapshots/<reference>.tar.zst, .json
//! ```
//!
//! A session's files keep their absolute paths from boot to boot, because tools write such paths into what they make
//! (virtual environments, build directories). Only `TMPDIR` differs, and tells the processes of two boots apart.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use outpost_core::model::{InstanceId, SandboxId, SessionId, SnapshotPurpose};

/// The paths of one instance.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
    instance: InstanceId,
}

impl Layout {
    pub(crate) const fn new(root: PathBuf, instance: InstanceId) -> Self {
        Self { root, instance }
    }

    pub(crate) const fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// Makes the directories that all sandboxes share.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        private_dir(&self.root)?;
        for dir in [self.sandboxes(), self.snapshots(), self.tmp_root()] {
            private_dir(&dir)?;
        }
        Ok(())
    }

    pub(crate) fn lock_file(&self) -> PathBuf {
        self.root.join(format!("{}.lock", self.instance))
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    fn session_name(&self, session: &SessionId) -> String {
        format!("outpost-{}-{}", self.instance, session.stable_hash())
    }

    /// Where the newest boot of a session lies.
    pub(crate) fn newest(&self, session: &SessionId) -> PathBuf {
        self.sandboxes().join(self.session_name(session))
    }

    /// Where a boot lies that a newer one has displaced.
    pub(crate) fn displaced(&self, id: &SandboxId) -> PathBuf {
        self.sandboxes().join(id.name(&self.instance))
    }

    /// A fresh name for a directory that is not a sandbox yet (`new`) or no longer (`gone`).
    pub(crate) fn aside(&self, what: &str, id: &SandboxId) -> PathBuf {
        self.sandboxes().join(format!(".{what}-{}.{:08x}", id.name(&self.instance), fastrand::u32(..)))
    }

    /// A fresh name for what lies at a session's place and cannot be read.
    pub(crate) fn damaged(&self, session: &SessionId) -> PathBuf {
        self.sandboxes().join(format!(".damaged-{}.{:08x}", self.session_name(session), fastrand::u32(..)))
    }

    /// The boot's `TMPDIR`.
    pub(crate) fn tmp(&self, id: &SandboxId) -> PathBuf {
        self.tmp_root().join(id.name(&self.instance))
    }

    pub(crate) fn tmp_root(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// A snapshot's reference: it names its files.
    pub(crate) fn reference(&self, id: &SandboxId, purpose: SnapshotPurpose) -> String {
        let name = id.name(&self.instance);
        match purpose {
            SnapshotPurpose::Resume => name,
            SnapshotPurpose::Detached => format!("{name}.detached"),
        }
    }

    pub(crate) fn archive(&self, reference: &str) -> PathBuf {
        self.snapshots().join(format!("{reference}.tar.zst"))
    }

    pub(crate) fn sidecar(&self, reference: &str) -> PathBuf {
        self.snapshots().join(format!("{reference}.json"))
    }

    /// Whether a text can be a reference of this instance's: it comes from a record, and becomes a path.
    pub(crate) fn owns_reference(&self, reference: &str) -> bool {
        let boot = reference.strip_suffix(".detached").unwrap_or(reference);
        self.is_own_boot(boot)
    }

    /// Whether a file name is that of a sandbox's directory of this instance, of its newest or an older boot.
    pub(crate) fn owns_directory(&self, name: &str) -> bool {
        self.is_own_boot(name) || self.after_prefix(name).is_some_and(is_hash)
    }

    /// Whether a file name is that of a leftover of this instance: prepared and never used, or half deleted.
    pub(crate) fn owns_leftover(&self, name: &str) -> bool {
        let inner = name.strip_prefix(".new-").or_else(|| name.strip_prefix(".gone-"));
        inner.and_then(|inner| inner.split_once('.')).is_some_and(|(boot, _)| self.is_own_boot(boot))
    }

    fn after_prefix<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix("outpost-")?.strip_prefix(self.instance.as_str())?.strip_prefix('-')
    }

    pub(crate) fn is_own_boot(&self, name: &str) -> bool {
        self.after_prefix(name).and_then(|rest| rest.split_once('-')).is_some_and(|(hash, boot)| {
            is_hash(hash) && !boot.is_empty() && boot.bytes().all(|b| b.is_ascii_digit())
        })
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == 20 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Makes a directory that only this user can enter; an existing one is taken as it is.
pub(crate) fn private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file so that it is there whole or not at all, also after a loss of power.
pub(crate) fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let written = (|| {
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written?;
    sync_parent(path)
}

/// Makes the names in the directory of `path` durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use outpost_core::model::Boot;

    use super::*;

    fn layout(instance: &str) -> Layout {
        Layout::new(PathBuf::from("/s"), InstanceId::new(instance).unwrap())
    }

    #[test]
    fn an_instance_takes_only_its_own_names_for_its_own() {
        let session = SessionId::new("devin-1").unwrap();
        let id = SandboxId::new(session.clone(), Boot::new(7));
        let (a, ab) = (layout("a"), layout("a-b"));
        for (ours, other) in [(&a, &ab), (&ab, &a)] {
            for purpose in [SnapshotPurpose::Resume, SnapshotPurpose::Detached] {
                assert!(ours.owns_reference(&ours.reference(&id, purpose)));
                assert!(!other.owns_reference(&ours.reference(&id, purpose)));
            }
            for dir in [ours.newest(&session), ours.displaced(&id)] {
                let name = dir.file_name().unwrap().to_str().unwrap();
                assert!(ours.owns_directory(name) && !other.owns_directory(name), "{name}");
            }
            let leftover = ours.aside("new", &id);
            let name = leftover.file_name().unwrap().to_str().unwrap();
            assert!(ours.owns_leftover(name) && !other.owns_leftover(name), "{name}");
        }
    }

    #[test]
    fn a_reference_from_outside_never_leads_out_of_the_directory() {
        for bad in ["../x", "/etc/passwd", "outpost-a-8fb25e4dc273d1f733bb-1/../../x", "outpost-a-x-1", ""] {
            assert!(!layout("a").owns_reference(bad), "{bad}");
        }
    }
}
