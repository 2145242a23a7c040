//! Making a tree from tar.
//!
//! The names in an archive were chosen by code in a session. An entry is only ever made below the destination: its name
//! has no `..` and no root, each directory above it is a real one and no link, and the target of a hard link is held to
//! the same rules. The destination is fresh, private, and written by nobody else meanwhile.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use filetime::FileTime;
use outpost_provider_kit::{Cancel, Fault};
use tar::{Archive, Entry, EntryType};
use xattr::FileExt as _;

use super::attributes::{parse_mtime, parse_xattr};
use super::sparse;

/// Why a tree could not be made.
#[derive(Debug)]
pub(crate) enum UnpackError {
    /// The archive is damaged, or not one of ours: it will never do.
    Archive(String),
    /// Anything else: it may do another time.
    Other(Fault),
}

impl From<Fault> for UnpackError {
    fn from(fault: Fault) -> Self {
        Self::Other(fault)
    }
}

fn archive(error: impl std::fmt::Display) -> UnpackError {
    UnpackError::Archive(error.to_string())
}

fn disk(name: &Path, error: &io::Error) -> UnpackError {
    UnpackError::Other(Fault::io(format_args!("restore {name:?}"), error))
}

/// Makes everything that the archive holds below `root`, and answers how many entries that were.
pub(super) fn unpack(from: &mut dyn Read, root: &Path, cancel: &Cancel) -> Result<u64, UnpackError> {
    let mut unpacker = Unpacker {
        root,
        real_directories: HashSet::from([PathBuf::new()]),
        directories: Vec::new(),
        buffer: vec![0; 256 * 1024],
        own: (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw()),
    };
    let mut count = 0;
    let mut tar = Archive::new(from);
    for entry in tar.entries().map_err(archive)? {
        cancel.check()?;
        unpacker.make(entry.map_err(archive)?)?;
        count += 1;
    }
    unpacker.finish_directories()?;
    // The checksums at the end count only when all was read.
    io::copy(&mut tar.into_inner(), &mut io::sink()).map_err(archive)?;
    Ok(count)
}

struct Unpacker<'a> {
    root: &'a Path,
    /// Directories below the root that are known to be no links.
    real_directories: HashSet<PathBuf>,
    /// Their modes and times are set last: making what is in them changes their times, and their modes may forbid it.
    directories: Vec<(PathBuf, Attributes)>,
    buffer: Vec<u8>,
    own: (u32, u32),
}

#[derive(Debug)]
struct Attributes {
    mode: u32,
    owner: (u32, u32),
    mtime: FileTime,
    xattrs: Vec<(OsString, Vec<u8>)>,
    sparse_size: Option<u64>,
}

impl Unpacker<'_> {
    fn make(&mut self, mut entry: Entry<'_, &mut dyn Read>) -> Result<(), UnpackError> {
        let name = checked_name(&entry.path().map_err(archive)?)?;
        let attributes = attributes(&mut entry)?;
        if let Some(parent) = name.parent() {
            self.ensure_directory(parent)?;
        }
        match entry.header().entry_type() {
            EntryType::Directory => {
                self.ensure_directory(&name)?;
                self.directories.push((name, attributes));
                Ok(())
            }
            EntryType::Regular | EntryType::Continuous => self.make_file(&name, &attributes, &mut entry),
            EntryType::Symlink => {
                let target = entry.link_name().map_err(archive)?;
                let target = target.ok_or_else(|| archive(format!("{name:?} is a link to nothing")))?;
                self.make_symlink(&name, &target, &attributes)
            }
            EntryType::Link => {
                let target = entry.link_name().map_err(archive)?;
                let target = target.ok_or_else(|| archive(format!("{name:?} is a link to nothing")))?;
                self.make_hard_link(&name, &checked_name(&target)?)
            }
            kind => Err(archive(format!("{name:?} is of a kind that no snapshot holds: {kind:?}"))),
        }
    }

    fn make_file(
        &mut self,
        name: &Path,
        attributes: &Attributes,
        entry: &mut Entry<'_, &mut dyn Read>,
    ) -> Result<(), UnpackError> {
        let path = self.root.join(name);
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = fresh(&path, create).map_err(|error| disk(name, &error))?;
        match attributes.sparse_size {
            None => {
                let size = entry.size();
                let copied = self.copy(name, entry, &mut file, size)?;
                if copied != size {
                    return Err(archive(format!("{name:?} is cut")));
                }
            }
            Some(size) => {
                file.set_len(size).map_err(|error| disk(name, &error))?;
                for (offset, length) in sparse::read_map(entry).map_err(archive)? {
                    io::Seek::seek(&mut file, io::SeekFrom::Start(offset))
                        .map_err(|error| disk(name, &error))?;
                    if self.copy(name, entry, &mut file, length)? != length {
                        return Err(archive(format!("{name:?} is cut")));
                    }
                }
            }
        }
        self.set_attributes(&file, attributes).map_err(|error| disk(name, &error))
    }

    /// Copies at most `length` bytes, and tells the archive's faults from the disk's.
    fn copy(
        &mut self,
        name: &Path,
        from: &mut dyn Read,
        to: &mut File,
        length: u64,
    ) -> Result<u64, UnpackError> {
        let mut left = length;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
            let got = from.read(&mut self.buffer[..want]).map_err(archive)?;
            if got == 0 {
                break;
            }
            to.write_all(&self.buffer[..got]).map_err(|error| disk(name, &error))?;
            left -= got as u64;
        }
        Ok(length - left)
    }

    fn make_symlink(&self, name: &Path, target: &Path, attributes: &Attributes) -> Result<(), UnpackError> {
        let path = self.root.join(name);
        let make = || {
            fresh(&path, || std::os::unix::fs::symlink(target, &path))?;
            if attributes.owner != self.own {
                let (uid, gid) = attributes.owner;
                where_allowed(std::os::unix::fs::lchown(&path, Some(uid), Some(gid)))?;
            }
            filetime::set_symlink_file_times(&path, attributes.mtime, attributes.mtime)
        };
        make().map_err(|error| disk(name, &error))
    }

    fn make_hard_link(&mut self, name: &Path, target: &Path) -> Result<(), UnpackError> {
        if let Some(parent) = target.parent() {
            self.ensure_directory(parent)?;
        }
        let (path, target) = (self.root.join(name), self.root.join(target));
        if !fs::symlink_metadata(&target).is_ok_and(|metadata| metadata.is_file()) {
            return Err(archive(format!("{name:?} is a link to a file that is not in the snapshot")));
        }
        fresh(&path, || fs::hard_link(&target, &path)).map_err(|error| disk(name, &error))
    }

    /// Makes a directory and those above it, and refuses to go through anything else.
    fn ensure_directory(&mut self, name: &Path) -> Result<(), UnpackError> {
        if self.real_directories.contains(name) {
            return Ok(());
        }
        if let Some(parent) = name.parent() {
            self.ensure_directory(parent)?;
        }
        let path = self.root.join(name);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(archive(format!("{name:?} is used as a directory and is none"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::DirBuilder::new().mode(0o700).create(&path).map_err(|error| disk(name, &error))?;
            }
            Err(error) => return Err(disk(name, &error)),
        }
        self.real_directories.insert(name.to_owned());
        Ok(())
    }

    fn finish_directories(&self) -> Result<(), UnpackError> {
        // Children after their parents in the archive, so before them here.
        for (name, attributes) in self.directories.iter().rev() {
            let path = self.root.join(name);
            let finish = || self.set_attributes(&File::open(&path)?, attributes);
            finish().map_err(|error| disk(name, &error))?;
        }
        Ok(())
    }

    fn set_attributes(&self, file: &File, attributes: &Attributes) -> io::Result<()> {
        if attributes.owner != self.own {
            let (uid, gid) = attributes.owner;
            where_allowed(std::os::unix::fs::fchown(file, Some(uid), Some(gid)))?;
        }
        for (name, value) in &attributes.xattrs {
            where_allowed(file.set_xattr(name, value))?;
        }
        // After the owner: changing that takes set-user-id away.
        file.set_permissions(Permissions::from_mode(attributes.mode))?;
        filetime::set_file_handle_times(file, None, Some(attributes.mtime))
    }
}

/// Makes something where nothing is; what an earlier entry of the same name made gives way.
fn fresh<T>(path: &Path, make: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match make() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            make()
        }
        result => result,
    }
}

/// Owners and attributes that this user may not set, or this file system cannot keep, are left as they are.
fn where_allowed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) =>
        {
            Ok(())
        }
        result => result,
    }
}

/// A name that stays below the root.
fn checked_name(name: &Path) -> Result<PathBuf, UnpackError> {
    let mut checked = PathBuf::new();
    for component in name.components() {
        match component {
            Component::Normal(part) => checked.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(archive(format!("{name:?} leads out of the sandbox")));
            }
        }
    }
    if checked.as_os_str().is_empty() {
        return Err(archive("an entry has no name"));
    }
    Ok(checked)
}

fn attributes(entry: &mut Entry<'_, &mut dyn Read>) -> Result<Attributes, UnpackError> {
    let header = entry.header();
    let id = |id: io::Result<u64>| u32::try_from(id.map_err(archive)?).map_err(archive);
    let mtime = i64::try_from(header.mtime().map_err(archive)?).map_err(archive)?;
    let mut attributes = Attributes {
        mode: header.mode().map_err(archive)? & 0o7777,
        owner: (id(header.uid())?, id(header.gid())?),
        mtime: FileTime::from_unix_time(mtime, 0),
        xattrs: Vec::new(),
        sparse_size: None,
    };
    let Some(extensions) = entry.pax_extensions().map_err(archive)? else { return Ok(attributes) };
    for extension in extensions {
        let extension = extension.map_err(archive)?;
        let key = extension.key().map_err(archive)?;
        let text = || extension.value().ok().map(str::to_owned);
        match key {
            "mtime" => {
                let parsed = text().and_then(|text| parse_mtime(&text));
                attributes.mtime = parsed.ok_or_else(|| archive("a time is damaged"))?;
            }
            sparse::REAL_SIZE => {
                let parsed = text().and_then(|text| text.parse().ok());
                attributes.sparse_size = Some(parsed.ok_or_else(|| archive("a size is damaged"))?);
            }
            _ => attributes.xattrs.extend(parse_xattr(key, extension.value_bytes())),
        }
    }
    Ok(attributes)
}
