//! Files with holes, in GNU's sparse format 1.0: a map of the parts that have data, then those parts.
//!
//! Source: <https://www.gnu.org/software/tar/manual/html_section/Sparse-Formats.html>.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{SeekFrom as Hole, seek};
use rustix::io::Errno;

use super::attributes::Record;

const MAJOR: &str = "GNU.sparse.major";
const MINOR: &str = "GNU.sparse.minor";
const NAME: &str = "GNU.sparse.name";
pub(super) const REAL_SIZE: &str = "GNU.sparse.realsize";

const BLOCK: usize = 512;
/// More parts than this and the file is saved as if it had no holes.
const MAX_PARTS: usize = 65_536;

/// A part that has data: from where, how long.
pub(super) type Part = (u64, u64);

/// The parts of a file that have data; `None` when it has no holes, or the file system does not tell. Either way the file
/// stands at its beginning afterwards.
pub(super) fn parts(file: &File, metadata: &Metadata) -> io::Result<Option<Vec<Part>>> {
    at_most(MAX_PARTS, file, metadata)
}

fn at_most(max: usize, file: &File, metadata: &Metadata) -> io::Result<Option<Vec<Part>>> {
    let parts = look_for(max, file, metadata);
    // Looking for holes moves the file, also when nothing comes of it.
    (&*file).seek(SeekFrom::Start(0))?;
    parts
}

fn look_for(max: usize, file: &File, metadata: &Metadata) -> io::Result<Option<Vec<Part>>> {
    let len = metadata.len();
    if metadata.blocks().saturating_mul(512) >= len {
        return Ok(None);
    }
    let mut parts = Vec::new();
    let mut at = 0;
    while at < len {
        let data = match seek(file, Hole::Data(at)) {
            Ok(data) => data,
            // Nothing but a hole up to the end.
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let hole = match seek(file, Hole::Hole(data)) {
            Ok(hole) => hole.min(len),
            // It was cut meanwhile.
            Err(Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if data >= hole || parts.len() + 1 == max {
            return Ok(None);
        }
        parts.push((data, hole - data));
        at = hole;
    }
    if parts.last().is_none_or(|(offset, length)| offset + length < len) {
        // GNU tar learns from an empty part where a hole at the end ends.
        parts.push((len, 0));
    }
    Ok(Some(parts))
}

/// The map as it stands before the data, filled up to whole blocks.
pub(super) fn map(parts: &[Part]) -> Vec<u8> {
    let mut text = format!("{}\n", parts.len());
    for (offset, length) in parts {
        text.push_str(&format!("{offset}\n{length}\n"));
    }
    let mut map = text.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}

/// The records that make a tar entry a sparse file.
pub(super) fn records(name: &[u8], real_size: u64) -> Vec<Record> {
    let mut records = vec![
        (MAJOR.to_owned(), b"1".to_vec()),
        (MINOR.to_owned(), b"0".to_vec()),
        (REAL_SIZE.to_owned(), real_size.to_string().into_bytes()),
    ];
    // GNU tar wants the name here. The entry itself has it too, for the names that a record cannot hold.
    if !name.contains(&b'\n') {
        records.push((NAME.to_owned(), name.to_vec()));
    }
    records
}

/// Reads the map from the head of an entry.
pub(super) fn read_map(entry: &mut impl Read) -> io::Result<Vec<Part>> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "the map of a sparse file is damaged");
    let mut block = [0; BLOCK];
    let mut numbers: Vec<u64> = Vec::new();
    let mut digits = String::new();
    loop {
        entry.read_exact(&mut block)?;
        for byte in block {
            match byte {
                b'0'..=b'9' if digits.len() < 20 => digits.push(char::from(byte)),
                b'\n' => numbers.push(std::mem::take(&mut digits).parse().map_err(|_| bad())?),
                _ => return Err(bad()),
            }
            let Some(count) = numbers.first().and_then(|count| usize::try_from(*count).ok()) else {
                continue;
            };
            if count > MAX_PARTS {
                return Err(bad());
            }
            if numbers.len() == 1 + 2 * count {
                return Ok(numbers[1..]
                    .as_chunks::<2>()
                    .0
                    .iter()
                    .map(|[offset, len]| (*offset, *len))
                    .collect());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_with_too_many_parts_is_read_from_its_beginning() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(64 << 20).unwrap();
        for at in 0..8_u64 {
            file.seek(SeekFrom::Start(at * (8 << 20))).unwrap();
            file.write_all(b"data").unwrap();
        }
        let metadata = file.metadata().unwrap();
        if at_most(100, &file, &metadata).unwrap().is_none_or(|parts| parts.len() < 8) {
            println!("skipped: the file system has no holes");
            return;
        }
        for max in 1..8 {
            assert_eq!(at_most(max, &file, &metadata).unwrap(), None);
            assert_eq!(file.stream_position().unwrap(), 0, "at most {max}");
        }
    }

    #[test]
    fn a_map_is_read_as_it_was_written_across_blocks() {
        for count in [0, 1, 40, 400] {
            let parts: Vec<Part> = (0..count).map(|n| (n * 1_000_000, 4096)).collect();
            let written = map(&parts);
            assert_eq!(written.len() % BLOCK, 0);
            let rest = [written.as_slice(), b"data"].concat();
            let mut reader = rest.as_slice();
            assert_eq!(read_map(&mut reader).unwrap(), parts);
            assert_eq!(reader, b"data");
        }
    }

    #[test]
    fn a_damaged_map_is_an_error_and_takes_no_memory() {
        for bad in ["x\n", "\n", "99999999999\n", "99999999999999999999999\n"] {
            let mut block = bad.as_bytes().to_vec();
            block.resize(BLOCK, 0);
            assert!(read_map(&mut block.as_slice()).is_err(), "{bad:?}");
        }
    }
}
