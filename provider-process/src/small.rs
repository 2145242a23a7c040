//! Reading small files that code in a session could have tampered with: it runs as the same user. Whatever it has put in
//! their place, reading neither waits nor takes much memory, and says that the file is damaged, which is that session's
//! affair and nobody else's.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// No file that Outpost or the supervisor writes beside a disk is nearly as long.
const MOST_BYTES: u64 = 64 * 1024;

/// What is at a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Small {
    /// A file with this text.
    Text(String),
    /// Nothing.
    Missing,
    /// Something else, and why it is not a text.
    Damaged(String),
}

/// Reads a small file. An error is the machine's.
pub(crate) fn read_small(path: &Path) -> io::Result<Small> {
    match read(path) {
        Ok(small) => Ok(small),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => Ok(Small::Missing),
            // Made unreadable, or into a directory, a link, a socket.
            Some(Errno::ACCESS | Errno::PERM | Errno::ISDIR | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => {
                Ok(Small::Damaged(error.to_string()))
            }
            _ => Err(error),
        },
    }
}

fn read(path: &Path) -> io::Result<Small> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(Small::Damaged("it is no file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Ok(Small::Damaged("it is too long".to_owned()));
    }
    Ok(String::from_utf8(bytes).map_or_else(|_| Small::Damaged("it is no text".to_owned()), Small::Text))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn whatever_stands_in_a_files_place_is_damage_and_never_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("text"), "text").unwrap();
        fs::write(at("binary"), b"\xff").unwrap();
        fs::File::create(at("long")).unwrap().set_len(1 << 40).unwrap();
        fs::create_dir(at("directory")).unwrap();
        std::os::unix::fs::symlink("text", at("link")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert_eq!(read_small(&at("text")).unwrap(), Small::Text("text".into()));
        assert_eq!(read_small(&at("nothing")).unwrap(), Small::Missing);
        for name in ["binary", "long", "directory", "link", "pipe", "socket", "text/below"] {
            let read = read_small(&at(name)).unwrap();
            assert!(matches!(read, Small::Damaged(_)), "{name}: {read:?}");
        }
    }
}
