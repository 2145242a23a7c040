//! What builds are played with: a simulator that publishes a Devin CLI as the real one is published.

use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use outpost::sim::control::{Checksums, ControlExt as _};
use outpost::sim::publish::CLI_VERSION;
use outpost::sim::{ServeOptions, SimServer, serve};
use tempfile::TempDir;

/// A Devin CLI that says its version and what `worker start` takes.
pub(crate) fn cli() -> String {
    format!(
        "#!/bin/sh\ncase \"$*\" in\n--version) echo 'devin {CLI_VERSION} (0badcafe)' ;;\n'worker start --help') echo '  --session <ID>' ;;\n\
         *) exit 2 ;;\nesac\n"
    )
}

/// A gzip archive with files in it, as `path`, `content`, all of them executable.
pub(crate) fn archive(files: &[(&str, &str)]) -> Bytes {
    let folder = TempDir::new().unwrap();
    for (path, content) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        make_executable(&path);
    }
    let packed = Command::new("tar")
        .args(["--create", "--gzip", "--directory"])
        .arg(folder.path())
        .arg(".")
        .output()
        .unwrap();
    assert!(packed.status.success(), "{packed:?}");
    packed.stdout.into()
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A simulator that publishes the archive of a CLI, with a checksum that is right or not.
pub(crate) async fn publish(checksums: Checksums) -> SimServer {
    let mut options = ServeOptions::default();
    options.sim.publication.cli = archive(&[("bin/devin", &cli()), ("share/man/man1/devin.1", "")]);
    let server = serve(options).await.unwrap();
    server.sim().publish_checksums(checksums).unwrap();
    server
}
