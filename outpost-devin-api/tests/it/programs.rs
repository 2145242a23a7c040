//! The worker's executable.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use outpost_core::model::WorkerProgram;
use outpost_core::ports::{ErrorKind, WorkerPrograms as _};
use outpost_devin_api::{BaseUrl, CliPrograms, Hosts, RemotePrograms, TowerTransport};
use outpost_sim::control::{Checksums, ControlExt as _};
use outpost_sim::fault::{Endpoint, Fault, FaultRule};
use outpost_sim::publish::{DEFAULT_SHA, Publication};
use outpost_sim::{Sim, SimOptions};

use crate::simulated::Paused;

fn sim() -> Sim {
    let mut options = SimOptions::default();
    options.publication = Publication::standin(Path::new("/bin/true"), &[]);
    Sim::new(options, outpost_sim::Clock::system())
}

fn remote(sim: &Sim, directory: &Path) -> RemotePrograms {
    let base = BaseUrl::parse("http://localhost/devin-rs/remote/", Hosts::Devin).unwrap();
    let transport = Arc::new(TowerTransport::new(sim.static_router()));
    RemotePrograms::new(base, directory, transport, Arc::new(Paused::new())).unwrap()
}

fn file(program: WorkerProgram) -> (std::path::PathBuf, String) {
    match program {
        WorkerProgram::File { path, version } => (path, version),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_newest_is_downloaded_checked_made_executable_and_kept() {
    let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
    let programs = remote(&sim, directory.path());
    let (path, version) = file(programs.resolve(None).await.unwrap());
    assert_eq!(version, DEFAULT_SHA);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
    let calls = sim.count(Endpoint::Static).unwrap();
    assert_eq!(file(programs.resolve(None).await.unwrap()).0, path);
    assert_eq!(sim.count(Endpoint::Static).unwrap(), calls, "it is asked for once");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
}

#[tokio::test]
async fn a_pinned_version_wins_over_the_newest() {
    let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
    let (path, version) = file(remote(&sim, directory.path()).resolve(Some("0ddba11c0de0")).await.unwrap());
    assert_eq!(version, "0ddba11c0de0");
    assert!(path.to_string_lossy().contains("0ddba11c0de0"));
}

#[tokio::test]
async fn a_wrong_checksum_is_refused_and_nothing_executable_is_left() {
    for checksums in [Checksums::Wrong, Checksums::Absent] {
        let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
        sim.publish_checksums(checksums).unwrap();
        let error = remote(&sim, directory.path()).resolve(None).await.unwrap_err();
        let expected = if checksums == Checksums::Wrong { ErrorKind::Invalid } else { ErrorKind::NotFound };
        assert_eq!(error.kind(), expected, "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).map_or(0, Iterator::count), 0);
    }
}

#[tokio::test]
async fn a_download_that_breaks_off_is_tried_again_from_the_beginning() {
    let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
    let programs = remote(&sim, directory.path());
    sim.add_fault(FaultRule::once(Endpoint::Static, Fault::CutBody { after_bytes: 10 }).after(2)).unwrap();
    assert!(programs.resolve(None).await.is_err());
    assert!(programs.resolve(None).await.is_ok());
}

#[tokio::test]
async fn a_hostile_version_is_refused_before_it_is_asked_for() {
    let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
    let programs = remote(&sim, directory.path());
    for version in ["../../etc/passwd", "a/b", "", "a b", "a?b", ".hidden", &"x".repeat(65)] {
        assert_eq!(
            programs.resolve(Some(version)).await.unwrap_err().kind(),
            ErrorKind::Invalid,
            "{version}"
        );
    }
    assert_eq!(sim.count(Endpoint::Static).unwrap(), 0);
}

#[tokio::test]
async fn two_sessions_that_want_the_same_download_it_once() {
    let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
    let programs = remote(&sim, directory.path());
    let (first, second) = futures::join!(programs.resolve(None), programs.resolve(None));
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(sim.count(Endpoint::Static).unwrap(), 3, "latest, checksum, file");
}

#[tokio::test]
async fn the_cli_is_found_by_its_manifest() {
    let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
    let manifest = BaseUrl::parse("http://localhost/cli/current/manifest.json", Hosts::Devin).unwrap();
    let transport = Arc::new(TowerTransport::new(sim.static_router()));
    let programs =
        CliPrograms::new(&manifest, Hosts::Devin, directory.path(), transport, Arc::new(Paused::new()));
    let (path, _) = file(programs.resolve(None).await.unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o111, 0o111);
    sim.publish_checksums(Checksums::Wrong).unwrap();
}
