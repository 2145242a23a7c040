//! What is built, and out of which files.

use std::collections::HashMap;
use std::path::Path;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// The folder of the images, which is their build context.
pub(crate) fn images() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/images"))
}

/// One build.
#[derive(Debug)]
pub(crate) struct Build {
    /// The name of what is made.
    pub(crate) image: String,
    /// The path of the Dockerfile in the context.
    pub(crate) dockerfile: String,
    /// The context, as a tar archive.
    pub(crate) context: Bytes,
    pub(crate) args: HashMap<String, String>,
}

impl Build {
    /// A build of one of this project's images.
    pub(crate) fn ours(folder: &str, image: impl Into<String>) -> Self {
        let mut archive = tar::Builder::new(Vec::new());
        archive.mode(tar::HeaderMode::Deterministic);
        archive.append_dir_all(".", images()).unwrap();
        Self::of(archive, format!("{folder}/Dockerfile"), image.into())
    }

    /// A build of a Dockerfile that a test has written, with one more file beside it.
    pub(crate) fn written(
        dockerfile: &str,
        (name, content): (&str, &[u8]),
        image: impl Into<String>,
    ) -> Self {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, content) in [("Dockerfile", dockerfile.as_bytes()), (name, content)] {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o755);
            archive.append_data(&mut header, name, content).unwrap();
        }
        Self::of(archive, "Dockerfile".into(), image.into())
    }

    fn of(archive: tar::Builder<Vec<u8>>, dockerfile: String, image: String) -> Self {
        let context = archive.into_inner().unwrap().into();
        Self { image, dockerfile, context, args: HashMap::new() }
    }

    /// With a build argument.
    #[must_use]
    pub(crate) fn arg(mut self, name: &str, value: &str) -> Self {
        self.args.insert(name.into(), value.into());
        self
    }
}

/// A short name for what something is made of.
pub(crate) fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
