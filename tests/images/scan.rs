//! Looks for texts in everything that an image consists of.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read};
use std::process::{Command, Stdio};

use futures::Stream;
use tokio_util::io::{StreamReader, SyncIoBridge};

use crate::Engine;

/// The parts of an image (layers, configuration, history) that hold one of two texts.
pub(crate) async fn parts_with(engine: &Engine, image: &str, texts: [&'static str; 2]) -> BTreeSet<String> {
    find(engine.save(image), texts).await
}

/// The same for an archive that comes in pieces.
async fn find(
    archive: impl Stream<Item = io::Result<bytes::Bytes>> + Send + 'static,
    texts: [&'static str; 2],
) -> BTreeSet<String> {
    let reader = SyncIoBridge::new(StreamReader::new(Box::pin(archive)));
    tokio::task::spawn_blocking(move || {
        let mut found = BTreeSet::new();
        for entry in tar::Archive::new(reader).entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            if holds(&mut entry, texts) {
                found.insert(name);
            }
        }
        found
    })
    .await
    .unwrap()
}

/// Whether a part holds one of the texts. Newer engines write their layers compressed.
fn holds(part: &mut impl Read, [one, other]: [&str; 2]) -> bool {
    let mut magic = Vec::new();
    part.take(4).read_to_end(&mut magic).unwrap();
    let unpack = match magic[..] {
        [0x1f, 0x8b, ..] => "gzip -dc |",
        [0x28, 0xb5, 0x2f, 0xfd] => "zstd -dc |",
        _ => "",
    };
    let script = format!("{unpack} LC_ALL=C grep -q -a -F -e \"$1\" -e \"$2\"");
    let mut grep = Command::new("/bin/sh")
        .args(["-c", &script, "sh", one, other])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = grep.stdin.take().unwrap();
    let sent = io::copy(&mut magic.as_slice().chain(part), &mut stdin);
    drop(stdin);
    match (grep.wait().unwrap().code(), sent) {
        (Some(0), Ok(_)) => true,
        // It has left when it has found it.
        (Some(0), Err(error)) if error.kind() == ErrorKind::BrokenPipe => true,
        (Some(1), Ok(_)) => false,
        (code, sent) => panic!("grep left with {code:?}, {sent:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_found_in_plain_and_in_packed_layers_and_nowhere_else() {
    let pack = |program: &str| {
        let packed = Command::new("/bin/sh")
            .args(["-c", &format!("printf 'x planted x' | {program} -c")])
            .output()
            .unwrap();
        assert!(packed.status.success() && !packed.stdout.windows(7).any(|window| window == b"planted"));
        packed.stdout
    };
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in [
        ("plain", b"x planted x".to_vec()),
        ("gzip", pack("gzip")),
        ("clean", b"x".repeat(100_000)),
        ("empty", Vec::new()),
        ("late", [vec![0; 1_000_000], b"other".to_vec()].concat()),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, content.as_slice()).unwrap();
    }
    let pieces: Vec<_> = archive
        .into_inner()
        .unwrap()
        .chunks(1000)
        .map(|piece| Ok(bytes::Bytes::copy_from_slice(piece)))
        .collect();
    let found = find(futures::stream::iter(pieces), ["planted", "other"]).await;
    assert_eq!(found, ["gzip", "late", "plain"].map(str::to_owned).into());
}
