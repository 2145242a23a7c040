//! Snapshots as archives: tar in zstd, with a checksum.
//!
//! The format is plain: `zstd -d | tar x` restores it too. Holes of sparse files are kept in GNU's sparse format 1.0,
//! times to the nanosecond as pax records, extended attributes as `SCHILY.xattr.*`, and those whose value a pax record
//! cannot hold in this parser (it has a line break) as `OUTPOST.xattr.<name in hexadecimal>` with the value in
//! hexadecimal.

mod attributes;
mod file;
mod pack;
mod sparse;
#[cfg(test)]
mod tests;
mod unpack;
mod walk;

pub(crate) use file::{pack_to, unpack_from, verify};
pub(crate) use unpack::UnpackError;

/// The compression level: saving and restoring are on the path of a session that sleeps and wakes.
const LEVEL: i32 = 1;
