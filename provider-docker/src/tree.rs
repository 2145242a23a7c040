//! What is on a disk, file by file, to compare two of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::CreateContainerOptionsBuilder;
use futures::TryStreamExt as _;
use outpost_core::ports::ErrorKind;
use outpost_provider_kit::{Cancel, During as _, Fault, blocking};
use tar::EntryType;
use tokio_util::io::{StreamReader, SyncIoBridge};

use crate::digest::sha256;
use crate::engine::Engine;
use crate::fault::Asking as _;
use crate::names::Labels;

/// How many differences an error names.
const NAMED_DIFFERENCES: usize = 3;

/// What the engine itself puts into every container, or mounts over.
const OF_THE_ENGINE: [&str; 12] = [
    ".dockerenv",
    "dev",
    "etc/hostname",
    "etc/hosts",
    "etc/mtab",
    "etc/resolv.conf",
    "opt/outpost",
    "proc",
    "run/.containerenv",
    "run/outpost",
    "run/secrets",
    "sys",
];

/// Everything on a disk but the engine's own files. Times are left out: engines round them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree(BTreeMap<Vec<u8>, Node>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    kind: u8,
    mode: u32,
    owner: (u64, u64),
    device: (u32, u32),
    /// Of a symbolic link.
    target: Vec<u8>,
    /// Of what a file holds.
    content: [u8; 32],
    attributes: BTreeMap<String, Vec<u8>>,
    /// The names of the same file, all of them.
    names: BTreeSet<Vec<u8>>,
}

impl Tree {
    /// Reads an archive of a disk.
    fn read(archive: impl Read, left_out: &[String], cancel: &Cancel) -> Result<Self, Fault> {
        let reading = || "read the disk";
        let mut nodes: BTreeMap<Vec<u8>, Node> = BTreeMap::new();
        let mut links: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut archive = tar::Archive::new(archive);
        for entry in archive.entries().during(reading)? {
            cancel.check()?;
            let mut entry = entry.during(reading)?;
            let path = trimmed(&entry.path_bytes());
            if path.is_empty() || is_left_out(&path, left_out) {
                continue;
            }
            let target = entry.link_name_bytes().map(|name| name.into_owned()).unwrap_or_default();
            if entry.header().entry_type() == EntryType::Link {
                links.insert(path, trimmed(&target));
                continue;
            }
            let mut attributes = BTreeMap::new();
            if let Some(extensions) = entry.pax_extensions().during(reading)? {
                for extension in extensions.flatten() {
                    if let Ok(key) = extension.key()
                        && key.starts_with("SCHILY.xattr.")
                    {
                        attributes.insert(key.to_owned(), extension.value_bytes().to_owned());
                    }
                }
            }
            let header = entry.header().clone();
            let content = sha256(&mut entry).during(reading)?;
            let node = Node {
                kind: header.entry_type().as_byte(),
                mode: header.mode().during(reading)? & 0o7777,
                owner: (header.uid().during(reading)?, header.gid().during(reading)?),
                device: (
                    header.device_major().ok().flatten().unwrap_or(0),
                    header.device_minor().ok().flatten().unwrap_or(0),
                ),
                target,
                content,
                attributes,
                names: BTreeSet::new(),
            };
            nodes.insert(path, node);
        }
        Ok(Self(with_links(nodes, links)))
    }

    /// Says in what `copy` differs; `None` = in nothing.
    pub(crate) fn difference(&self, copy: &Self) -> Option<String> {
        let paths: BTreeSet<_> = self.0.keys().chain(copy.0.keys()).collect();
        let mut different = paths.into_iter().filter(|path| self.0.get(*path) != copy.0.get(*path));
        let named: Vec<_> = different
            .by_ref()
            .take(NAMED_DIFFERENCES)
            .map(|path| {
                let how = match (self.0.get(path), copy.0.get(path)) {
                    (_, None) => "missing",
                    (None, _) => "too much",
                    _ => "different",
                };
                format!("/{} is {how}", String::from_utf8_lossy(path))
            })
            .collect();
        let more = different.count();
        match (named.is_empty(), more) {
            (true, _) => None,
            (false, 0) => Some(named.join(", ")),
            (false, more) => Some(format!("{}, and {more} more", named.join(", "))),
        }
    }
}

/// Which of a file's names comes first in an archive, and which are links to it, is chance.
fn with_links(
    mut nodes: BTreeMap<Vec<u8>, Node>,
    links: BTreeMap<Vec<u8>, Vec<u8>>,
) -> BTreeMap<Vec<u8>, Node> {
    let mut groups: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for (name, target) in links {
        let group = groups.entry(target.clone()).or_default();
        group.insert(target);
        group.insert(name);
    }
    for (target, names) in groups {
        let Some(mut node) = nodes.get(&target).cloned() else { continue };
        node.names = names.clone();
        nodes.extend(names.into_iter().map(|name| (name, node.clone())));
    }
    nodes
}

fn trimmed(path: &[u8]) -> Vec<u8> {
    let path = path.strip_prefix(b"./").unwrap_or(path);
    let path = path.strip_prefix(b"/").unwrap_or(path);
    path.strip_suffix(b"/").unwrap_or(path).to_owned()
}

fn is_left_out(path: &[u8], more: &[String]) -> bool {
    let more = more.iter().map(|path| path.trim_matches('/'));
    OF_THE_ENGINE.into_iter().chain(more).any(|left_out| {
        let rest = path.strip_prefix(left_out.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    })
}

impl Engine {
    /// Reads the disk of a container that does not run. `left_out` are the places where something is mounted.
    pub(crate) async fn tree(
        &self,
        container: &str,
        left_out: &[String],
        cancel: &Cancel,
    ) -> Result<Tree, Fault> {
        let stream = self.patient.export_container(container).map_err(io::Error::other);
        let (left_out, cancel) = (left_out.to_owned(), cancel.clone());
        let archive = SyncIoBridge::new(StreamReader::new(Box::pin(stream)));
        blocking(move || Tree::read(archive, &left_out, &cancel)).await
    }

    /// Reads the disk of an image, through a container `name` that is never started.
    pub(crate) async fn image_tree(
        &self,
        image: &str,
        name: &str,
        labels: Labels,
        left_out: &[String],
        cancel: &Cancel,
    ) -> Result<Tree, Fault> {
        self.discard(name).await?;
        let container = ContainerCreateBody {
            image: Some(image.to_owned()),
            entrypoint: Some(vec!["/nothing".to_owned()]),
            labels: Some(labels),
            host_config: Some(HostConfig { network_mode: Some("none".to_owned()), ..HostConfig::default() }),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptionsBuilder::default().name(name).build();
        let made = self.quick.create_container(Some(options), container).await;
        made.changing("make a container to look into the image")?;
        let tree = self.tree(name, left_out, cancel).await;
        self.discard(name).await?;
        tree
    }
}

/// An error that says what the engine has left out.
pub(crate) fn incomplete(difference: &str) -> Fault {
    let why = format!(
        "the engine has saved another disk than the sandbox's ({difference}); it will be saved again"
    );
    Fault::new(ErrorKind::Unexpected, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(build: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        build(&mut builder);
        builder.into_inner().unwrap()
    }

    fn file(builder: &mut tar::Builder<Vec<u8>>, path: &str, content: &str, mode: u32, owner: u64) {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        header.set_uid(owner);
        header.set_gid(owner);
        builder.append_data(&mut header, path, content.as_bytes()).unwrap();
    }

    fn link(builder: &mut tar::Builder<Vec<u8>>, kind: EntryType, path: &str, target: &str) {
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        header.set_mode(0o777);
        header.set_uid(0);
        header.set_gid(0);
        header.set_entry_type(kind);
        builder.append_link(&mut header, path, target).unwrap();
    }

    fn tree(archive: &[u8]) -> Tree {
        Tree::read(archive, &["/data".to_owned()], &Cancel::default()).unwrap()
    }

    #[test]
    fn every_difference_is_named() {
        let disk = tree(&archive(|it| {
            file(it, "a", "work", 0o644, 0);
            link(it, EntryType::Symlink, "s", "a");
        }));
        type Change = fn(&mut tar::Builder<Vec<u8>>);
        let others: [(Change, &str); 6] = [
            (|it| link(it, EntryType::Symlink, "s", "a"), "/a is missing"),
            (
                |it| {
                    file(it, "a", "w0rk", 0o644, 0);
                    link(it, EntryType::Symlink, "s", "a");
                },
                "/a is different",
            ),
            (
                |it| {
                    file(it, "a", "work", 0o600, 0);
                    link(it, EntryType::Symlink, "s", "a");
                },
                "/a is different",
            ),
            (
                |it| {
                    file(it, "a", "work", 0o644, 1);
                    link(it, EntryType::Symlink, "s", "a");
                },
                "/a is different",
            ),
            (
                |it| {
                    file(it, "a", "work", 0o644, 0);
                    link(it, EntryType::Symlink, "s", "b");
                },
                "/s is different",
            ),
            (
                |it| {
                    file(it, "a", "work", 0o644, 0);
                    link(it, EntryType::Symlink, "s", "a");
                    file(it, "b", "", 0o644, 0);
                },
                "/b is too much",
            ),
        ];
        for (other, difference) in others {
            assert_eq!(disk.difference(&tree(&archive(other))).as_deref(), Some(difference));
        }
    }

    #[test]
    fn the_order_of_a_files_names_makes_no_difference_but_a_copy_does() {
        let one = tree(&archive(|it| {
            file(it, "a", "work", 0o644, 0);
            link(it, EntryType::Link, "b", "a");
        }));
        let turned = tree(&archive(|it| {
            file(it, "b", "work", 0o644, 0);
            link(it, EntryType::Link, "a", "b");
        }));
        let copied = tree(&archive(|it| {
            file(it, "a", "work", 0o644, 0);
            file(it, "b", "work", 0o644, 0);
        }));
        assert_eq!(one.difference(&turned), None);
        assert!(one.difference(&copied).is_some());
    }

    #[test]
    fn what_the_engine_makes_and_what_is_mounted_is_left_out() {
        let left_out = tree(&archive(|it| {
            for path in ["./etc/hosts", "dev/console", "data/file", "opt/outpost/worker", ".dockerenv"] {
                file(it, path, "", 0o644, 0);
            }
        }));
        assert_eq!(left_out, Tree::default());
        let kept = tree(&archive(|it| file(it, "etc/hosts.allow", "", 0o644, 0)));
        assert_ne!(kept, Tree::default());
    }
}
