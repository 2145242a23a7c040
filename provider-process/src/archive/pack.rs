//! Writing a tree as tar.

use std::collections::HashMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use outpost_provider_kit::{Cancel, During as _, Fault};
use tar::{Builder, EntryType, Header};

use super::attributes::{Record, mtime_record, xattrs};
use super::sparse;
use super::walk::{Found, Seen, Unreadable, walk, with_access};

const BUFFER_BYTES: usize = 256 * 1024;
/// As many warnings are kept for people; the others are only counted.
const KEPT_WARNINGS: usize = 20;

/// The name of the entry that holds a long target, as GNU tar has it.
const LONG_LINK: &[u8] = b"././@LongLink";

/// What was packed.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) entries: u64,
    pub(super) warnings: Vec<String>,
    further_warnings: u64,
}

impl Report {
    fn warn(&mut self, name: &Path, why: &str) {
        if self.warnings.len() < KEPT_WARNINGS {
            self.warnings.push(format!("{name:?} {why}"));
        } else {
            self.further_warnings += 1;
        }
    }

    /// The warnings, and how many more there were.
    pub(super) fn into_warnings(self) -> Vec<String> {
        let mut warnings = self.warnings;
        if self.further_warnings > 0 {
            warnings.push(format!("and {} more", self.further_warnings));
        }
        warnings
    }
}

impl From<Unreadable> for Fault {
    fn from(Unreadable(path, error): Unreadable) -> Self {
        Self::io(format_args!("read {path:?}"), &error)
    }
}

/// Writes everything below `root` but the content of `root/skip`.
pub(super) fn pack<W: Write>(root: &Path, skip: &Path, to: W, cancel: &Cancel) -> Result<(W, Report), Fault> {
    let mut packer = Packer {
        tar: Builder::new(to),
        links: HashMap::new(),
        buffer: vec![0; BUFFER_BYTES],
        report: Report::default(),
    };
    walk(root, skip, |seen| {
        cancel.check()?;
        match seen {
            Seen::Found(found) => packer.add(&found),
            Seen::Closed(name) => {
                packer.report.warn(&name, "cannot be read: what is in it was left out");
                Ok(())
            }
        }
    })?;
    let to = packer.tar.into_inner().during(|| "write the snapshot")?;
    Ok((to, packer.report))
}

struct Packer<W: Write> {
    tar: Builder<W>,
    /// Files with several names, by device and number: the name under which each was packed.
    links: HashMap<(u64, u64), PathBuf>,
    buffer: Vec<u8>,
    report: Report,
}

impl<W: Write> Packer<W> {
    fn add(&mut self, found: &Found) -> Result<(), Fault> {
        let kind = found.metadata.file_type();
        if kind.is_dir() {
            let mut header = header(&found.metadata, EntryType::Directory);
            let records = self.records(found);
            self.begin(found, &mut header, records)
        } else if kind.is_symlink() {
            self.add_symlink(found)
        } else if kind.is_file() {
            self.add_file(found)
        } else {
            let what = if kind.is_socket() {
                "is a socket"
            } else if kind.is_fifo() {
                "is a pipe"
            } else {
                "is a device"
            };
            self.report.warn(&found.name, &format!("{what} and was left out"));
            Ok(())
        }
    }

    fn add_symlink(&mut self, found: &Found) -> Result<(), Fault> {
        let target = match std::fs::read_link(&found.path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Unreadable(found.path.clone(), error).into()),
        };
        let mut header = header(&found.metadata, EntryType::Symlink);
        self.prepend(mtime_record(&found.metadata).into_iter().collect())?;
        self.link(found, &mut header, &target)
    }

    fn add_file(&mut self, found: &Found) -> Result<(), Fault> {
        let key = (found.metadata.dev(), found.metadata.ino());
        if found.metadata.nlink() > 1 {
            if let Some(first) = self.links.get(&key).cloned() {
                let mut header = header(&found.metadata, EntryType::Link);
                return self.link(found, &mut header, &first);
            }
            self.links.insert(key, found.name.clone());
        }
        let mut file = match open(&found.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.links.remove(&key);
                self.report.warn(&found.name, "vanished while it was saved");
                return Ok(());
            }
            // Another user's, which a session makes with sudo. Failing would keep all else from ever being saved.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.links.remove(&key);
                self.report.warn(&found.name, "cannot be read and was left out");
                return Ok(());
            }
            Err(error) => return Err(Unreadable(found.path.clone(), error).into()),
        };
        let reading = |error| Fault::from(Unreadable(found.path.clone(), error));
        // What is open counts, not what was at this name before.
        let metadata = file.metadata().map_err(reading)?;
        if !metadata.is_file() {
            self.report.warn(&found.name, "changed into something else while it was saved");
            return Ok(());
        }
        let found = Found { path: found.path.clone(), name: found.name.clone(), metadata };
        let mut records = self.records(&found);
        let mut header = header(&found.metadata, EntryType::Regular);
        let mut written = Written::default();
        match sparse::parts(&file, &found.metadata).map_err(reading)? {
            None => {
                header.set_size(found.metadata.len());
                self.begin(&found, &mut header, records)?;
                self.copy(&mut file, &found, found.metadata.len(), &mut written)?;
            }
            Some(parts) => {
                let map = sparse::map(&parts);
                let data: u64 = parts.iter().map(|(_, length)| length).sum();
                header.set_size(map.len() as u64 + data);
                records.extend(sparse::records(found.name.as_os_str().as_bytes(), found.metadata.len()));
                self.begin(&found, &mut header, records)?;
                self.write(&map)?;
                for (offset, length) in parts {
                    io::Seek::seek(&mut file, io::SeekFrom::Start(offset)).map_err(reading)?;
                    self.copy(&mut file, &found, length, &mut written)?;
                }
            }
        }
        self.pad(written.bytes)?;
        let changed = || {
            file.metadata().map(|now| {
                now.mtime() != found.metadata.mtime()
                    || now.mtime_nsec() != found.metadata.mtime_nsec()
                    || now.len() != found.metadata.len()
            })
        };
        if written.cut || changed().map_err(reading)? {
            self.report.warn(&found.name, "changed while it was saved");
        }
        Ok(())
    }

    /// What the header does not hold. Attributes that cannot be read are a warning.
    fn records(&mut self, found: &Found) -> Vec<Record> {
        let mut records: Vec<Record> = mtime_record(&found.metadata).into_iter().collect();
        match xattrs(&found.path) {
            Ok(attributes) => {
                records.extend(attributes.records);
                for name in attributes.unreadable {
                    self.report.warn(&found.name, &format!("was saved without its attribute {name:?}"));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                self.report.warn(&found.name, &format!("was saved without extended attributes: {error}"));
            }
        }
        records
    }

    /// Copies exactly `length` bytes, which the header has promised: zeros for what is no longer there.
    fn copy(
        &mut self,
        file: &mut File,
        found: &Found,
        length: u64,
        written: &mut Written,
    ) -> Result<(), Fault> {
        let mut left = length;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
            let got = match file.read(&mut self.buffer[..want]) {
                Ok(0) => {
                    written.cut = true;
                    self.buffer[..want].fill(0);
                    want
                }
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Unreadable(found.path.clone(), error).into()),
            };
            self.tar.get_mut().write_all(&self.buffer[..got]).during(|| "write the snapshot")?;
            left -= got as u64;
        }
        written.bytes += length;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.tar.get_mut().write_all(bytes).during(|| "write the snapshot")
    }

    fn pad(&mut self, written: u64) -> Result<(), Fault> {
        let rest = usize::try_from(written % 512).unwrap_or(0);
        if rest == 0 { Ok(()) } else { self.write(&[0; 512][rest..]) }
    }

    /// Writes an entry's header; its data follow.
    fn begin(&mut self, found: &Found, header: &mut Header, records: Vec<Record>) -> Result<(), Fault> {
        self.prepend(records)?;
        self.report.entries += 1;
        self.tar
            .append_data(header, &found.name, io::empty())
            .during(|| format!("write {:?} into the snapshot", found.name))
    }

    /// Writes a link's entry with the target as it stands: the crate's `append_link` writes `a//b` as `a/b`.
    fn link(&mut self, found: &Found, header: &mut Header, target: &Path) -> Result<(), Fault> {
        let target = target.as_os_str().as_bytes();
        if header.set_link_name_literal(target).is_err() {
            // It is too long for the header: GNU's entry for that goes before, and ends with a zero.
            let mut long = Header::new_gnu();
            long.as_old_mut().name[..LONG_LINK.len()].copy_from_slice(LONG_LINK);
            long.set_entry_type(EntryType::GNULongLink);
            long.set_mode(0o644);
            long.set_uid(0);
            long.set_gid(0);
            long.set_mtime(0);
            long.set_size(target.len() as u64 + 1);
            long.set_cksum();
            self.tar.append(&long, target.chain(&[0][..])).during(|| "write the snapshot")?;
        }
        self.begin(found, header, Vec::new())
    }

    fn prepend(&mut self, records: Vec<Record>) -> Result<(), Fault> {
        if records.is_empty() {
            return Ok(());
        }
        let records = records.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
        self.tar.append_pax_extensions(records).during(|| "write the snapshot")
    }
}

#[derive(Debug, Default)]
struct Written {
    bytes: u64,
    cut: bool,
}

fn header(metadata: &Metadata, kind: EntryType) -> Header {
    // GNU tar takes pax's sparse files in such headers only.
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(metadata.mode() & 0o7777);
    header.set_uid(u64::from(metadata.uid()));
    header.set_gid(u64::from(metadata.gid()));
    // Times before 1970 have no form in a header that every tar reads.
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
    header.set_size(0);
    header
}

/// Opens a file and nothing else: no link, and no pipe that would wait for a writer.
fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    with_access(path, 0o400, || OpenOptions::new().read(true).custom_flags(flags).open(path))
}
