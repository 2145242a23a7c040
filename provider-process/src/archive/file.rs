//! An archive as a file: compressed, hashed, read back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use outpost_core::ports::ErrorKind;
use outpost_provider_kit::{Cancel, During as _, Fault};
use sha2::{Digest as _, Sha256};
use zstd::stream::{read::Decoder, write::Encoder};

use super::LEVEL;
use super::attributes::hex;
use super::pack::pack;
use super::unpack::{UnpackError, unpack};

const CHUNK_BYTES: usize = 512 * 1024;
const CHUNKS_AHEAD: usize = 8;

/// What is known of an archive.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) size_bytes: u64,
    /// Of the file's bytes, in hexadecimal.
    pub(crate) sha256: String,
    /// How many things are in it.
    pub(crate) entries: u64,
    pub(crate) warnings: Vec<String>,
}

/// Writes everything below `root` but the content of `root/skip` to a new file, and makes its content durable. After an
/// error or when it was called off there is no file.
pub(crate) fn pack_to(
    file: &Path,
    root: &Path,
    skip: &Path,
    threads: u32,
    cancel: &Cancel,
) -> Result<Packed, Fault> {
    let packed = write(file, root, skip, threads, cancel);
    if packed.is_err() {
        let _ = fs::remove_file(file);
    }
    packed
}

fn write(file: &Path, root: &Path, skip: &Path, threads: u32, cancel: &Cancel) -> Result<Packed, Fault> {
    let what = || "write the snapshot";
    let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file);
    let to = Hashing { inner: open.during(what)?, hash: Sha256::new(), bytes: 0 };
    let mut encoder = Encoder::new(to, LEVEL).during(what)?;
    encoder.include_checksum(true).during(what)?;
    if threads > 1 {
        encoder.multithread(threads).during(what)?;
    }
    let (encoder, report) = pack(root, skip, encoder, cancel)?;
    let to = encoder.finish().during(what)?;
    to.inner.sync_all().during(what)?;
    Ok(Packed {
        size_bytes: to.bytes,
        sha256: hex(&to.hash.finalize()),
        entries: report.entries,
        warnings: report.into_warnings(),
    })
}

/// Reads an archive back whole: its SHA-256, its checksum, its end, and the number of its entries.
pub(crate) fn verify(file: &Path, packed: &Packed, cancel: &Cancel) -> Result<(), Fault> {
    let damaged = |why: String| {
        Fault::new(ErrorKind::Unexpected, format!("the snapshot that was written cannot be read back: {why}"))
    };
    let count = |from: &mut dyn Read| {
        let mut count = 0;
        let mut tar = tar::Archive::new(from);
        for entry in tar.entries().map_err(|error| UnpackError::Archive(error.to_string()))? {
            cancel.check()?;
            entry.map_err(|error| UnpackError::Archive(error.to_string()))?;
            count += 1;
        }
        io::copy(&mut tar.into_inner(), &mut io::sink())
            .map_err(|error| UnpackError::Archive(error.to_string()))?;
        Ok(count)
    };
    match decoded(file, count) {
        Ok((entries, sha256)) if entries == packed.entries && sha256 == packed.sha256 => Ok(()),
        Ok((entries, sha256)) if sha256 == packed.sha256 => {
            Err(damaged(format!("it has {entries} entries instead of {}", packed.entries)))
        }
        Ok(_) => Err(damaged("its checksum is another".to_owned())),
        Err(UnpackError::Archive(why)) => Err(damaged(why)),
        Err(UnpackError::Other(fault)) => Err(fault),
    }
}

/// Makes everything that an archive holds below `root`. Only when this succeeds is what was made worth anything.
pub(crate) fn unpack_from(
    file: &Path,
    sha256: &str,
    root: &Path,
    cancel: &Cancel,
) -> Result<(), UnpackError> {
    let (_, found) = decoded(file, |from| unpack(from, root, cancel))?;
    if found == sha256 {
        Ok(())
    } else {
        Err(UnpackError::Archive("its checksum is not the one that was written down".to_owned()))
    }
}

/// Reads an archive through `reading`, while another thread decompresses, and answers the file's SHA-256 too.
fn decoded<T: Send>(
    file: &Path,
    reading: impl FnOnce(&mut dyn Read) -> Result<T, UnpackError>,
) -> Result<(T, String), UnpackError> {
    let file = match File::open(file) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(UnpackError::Archive("its archive is missing".to_owned()));
        }
        Err(error) => return Err(Fault::io("open the snapshot", &error).into()),
    };
    std::thread::scope(|scope| {
        let (send, receive) = sync_channel(CHUNKS_AHEAD);
        let (give_back, used) = channel();
        let decoder = scope.spawn(move || decode(file, &send, &used));
        let mut chunks = Chunks { receive, give_back, chunk: Vec::new(), at: 0 };
        let result = reading(&mut chunks);
        // Lets the decoder go when the reading has stopped early.
        drop(chunks);
        let decoded = decoder.join().map_err(|_| UnpackError::Archive("the decoder broke".to_owned()))?;
        match (decoded, result) {
            // The disk's fault is not the archive's, whatever the reader made of it.
            (Err(UnpackError::Other(fault)), _) => Err(UnpackError::Other(fault)),
            (_, Err(error)) => Err(error),
            (Err(error), Ok(_)) => Err(error),
            (Ok(sha256), Ok(value)) => Ok((value, sha256)),
        }
    })
}

fn decode(
    file: File,
    send: &SyncSender<io::Result<Vec<u8>>>,
    used: &Receiver<Vec<u8>>,
) -> Result<String, UnpackError> {
    let source = Hashing { inner: Watched { file, fault: None }, hash: Sha256::new(), bytes: 0 };
    let source = BufReader::with_capacity(CHUNK_BYTES, source);
    let mut decoder =
        Decoder::with_buffer(source).map_err(|error| UnpackError::Archive(error.to_string()))?;
    loop {
        let mut chunk = used.try_recv().unwrap_or_default();
        chunk.resize(CHUNK_BYTES, 0);
        match fill(&mut decoder, &mut chunk) {
            Ok(0) => return Ok(hex(&decoder.finish().into_inner().hash.finalize())),
            Ok(length) => {
                chunk.truncate(length);
                if send.send(Ok(chunk)).is_err() {
                    // Nobody reads any more, and nobody will ask for the hash.
                    return Ok(String::new());
                }
            }
            Err(error) => {
                let why = UnpackError::Archive(error.to_string());
                let fault = decoder.get_mut().get_mut().inner.fault.take();
                let _ = send.send(Err(error));
                return Err(fault.map_or(why, UnpackError::Other));
            }
        }
    }
}

/// Reads until the buffer is full or there is no more; answers how much that was.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match from.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Remembers that the file itself could not be read, which does not mean that its content is damaged.
struct Watched {
    file: File,
    fault: Option<Fault>,
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer);
        if let Err(error) = &read
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.fault = Some(Fault::io("read the snapshot", error));
        }
        read
    }
}

/// Hashes and counts what passes.
struct Hashing<T> {
    inner: T,
    hash: Sha256,
    bytes: u64,
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hash.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Hashing<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

/// The other thread's chunks as one stream. Buffers go back to it: they are too large to be allocated cheaply.
struct Chunks {
    receive: Receiver<io::Result<Vec<u8>>>,
    give_back: Sender<Vec<u8>>,
    chunk: Vec<u8>,
    at: usize,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.chunk.len() {
            match self.receive.recv() {
                Ok(chunk) => {
                    let _ = self.give_back.send(std::mem::replace(&mut self.chunk, chunk?));
                    self.at = 0;
                }
                Err(_) => return Ok(0),
            }
        }
        let count = buffer.len().min(self.chunk.len() - self.at);
        buffer[..count].copy_from_slice(&self.chunk[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
