//! What of a file a tar header does not hold: times to the nanosecond, and extended attributes.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use filetime::FileTime;

use super::walk::with_access;

const SCHILY: &str = "SCHILY.xattr.";
const OURS: &str = "OUTPOST.xattr.";

/// A key and a value of a pax header.
pub(super) type Record = (String, Vec<u8>);

/// The time of the last change, when it is not a whole second.
pub(super) fn mtime_record(metadata: &Metadata) -> Option<Record> {
    let (secs, nanos) = (metadata.mtime(), metadata.mtime_nsec());
    // Before 1970 the fraction of a negative number would have to be counted backwards; whole seconds do there.
    (nanos != 0 && secs >= 0).then(|| ("mtime".to_owned(), format!("{secs}.{nanos:09}").into_bytes()))
}

/// Reads what [`mtime_record`] wrote.
pub(super) fn parse_mtime(value: &str) -> Option<FileTime> {
    let (secs, fraction) = value.split_once('.').unwrap_or((value, ""));
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    Some(FileTime::from_unix_time(secs.parse().ok()?, digits.parse().ok()?))
}

/// The extended attributes of a file or a directory.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    pub(super) records: Vec<Record>,
    /// The names of those whose value cannot be read.
    pub(super) unreadable: Vec<OsString>,
}

/// Reads them. A system without them has none.
pub(super) fn xattrs(path: &Path) -> io::Result<Attributes> {
    let names = match xattr::list(path) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(Attributes::default()),
        Err(error) => return Err(error),
    };
    let mut attributes = Attributes::default();
    for name in names {
        match with_access(path, 0o400, || xattr::get(path, &name)) {
            Ok(Some(value)) => attributes.records.push(xattr_record(&name, value)),
            // Removed meanwhile.
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
            Err(_) => attributes.unreadable.push(name),
        }
    }
    Ok(attributes)
}

fn xattr_record(name: &OsStr, value: Vec<u8>) -> Record {
    match name.to_str() {
        Some(text) if !value.contains(&b'\n') && !text.contains(['\n', '=']) => {
            (format!("{SCHILY}{text}"), value)
        }
        _ => (format!("{OURS}{}", hex(name.as_bytes())), hex(&value).into_bytes()),
    }
}

/// Reads what [`xattrs`] made; `None` for other records.
pub(super) fn parse_xattr(key: &str, value: &[u8]) -> Option<(OsString, Vec<u8>)> {
    if let Some(name) = key.strip_prefix(SCHILY) {
        return Some((OsString::from(name), value.to_vec()));
    }
    let name = unhex(key.strip_prefix(OURS)?.as_bytes())?;
    Some((OsString::from_vec(name), unhex(value)?))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_chunks::<2>();
    rest.is_empty().then_some(())?;
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_whatever_bytes_they_hold() {
        for value in [&b"plain"[..], b"", b"two\nlines", b"\xff\x00="] {
            let (key, written) = xattr_record(OsStr::new("user.x"), value.to_vec());
            assert!(!written.contains(&b'\n'));
            assert_eq!(parse_xattr(&key, &written), Some((OsString::from("user.x"), value.to_vec())));
        }
    }

    #[test]
    fn a_time_keeps_its_nanoseconds() {
        assert_eq!(parse_mtime("12.000000034"), Some(FileTime::from_unix_time(12, 34)));
        assert_eq!(parse_mtime("12.5"), Some(FileTime::from_unix_time(12, 500_000_000)));
        assert_eq!(parse_mtime("12"), Some(FileTime::from_unix_time(12, 0)));
    }
}
