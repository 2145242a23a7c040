//! The worker's executable.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use outpost_core::model::WorkerProgram;
use outpost_core::ports::{ErrorKind, WorkerPrograms as _};
use outpost_devin_api::{
    BaseUrl, Body, CliPrograms, Hosts, RemotePrograms, TowerTransport, Transport, TransportError,
};
use outpost_sim::control::{Checksums, ControlExt as _};
use outpost_sim::fault::{Endpoint, Fault, FaultRule};
use outpost_sim::publish::{DEFAULT_SHA, Publication};
use outpost_sim::{Sim, SimOptions};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::simulated::Paused;

fn sim() -> Sim {
    let mut options = SimOptions::default();
    options.publication = Publication::standin(Path::new("/bin/true"), &[]);
    Sim::new(options, outpost_sim::Clock::system())
}

fn remote(sim: &Sim, directory: &Path) -> RemotePrograms {
    remote_over(statics(sim), directory)
}

fn remote_over(transport: Arc<dyn Transport>, directory: &Path) -> RemotePrograms {
    let base = BaseUrl::parse("http://localhost/devin-rs/remote/", Hosts::Devin).unwrap();
    RemotePrograms::new(base, directory, transport, Arc::new(Paused::new())).unwrap()
}

fn statics(sim: &Sim) -> Arc<dyn Transport> {
    Arc::new(TowerTransport::new(sim.static_router()))
}

/// Keeps whoever asks for an address with `part` in it waiting until it is let go.
#[derive(Debug)]
struct Held {
    inner: Arc<dyn Transport>,
    part: &'static str,
    asked: Semaphore,
    let_go: Semaphore,
}

impl Held {
    fn new(sim: &Sim, part: &'static str) -> Arc<Self> {
        let (asked, let_go) = (Semaphore::new(0), Semaphore::new(0));
        Arc::new(Self { inner: statics(sim), part, asked, let_go })
    }
}

#[async_trait]
impl Transport for Held {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        if request.uri().path().contains(self.part) {
            self.asked.add_permits(1);
            self.let_go.acquire().await.unwrap().forget();
        }
        self.inner.send(request).await
    }
}

/// Where the newest version of `devin-remote` is written down.
fn note() -> String {
    let suffix = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => "linux_x64",
        ("linux", _) => "linux_arm64",
        _ => "macos_arm64",
    };
    format!("latest_{suffix}")
}

/// What is in a directory, in order.
fn names(directory: &Path) -> Vec<String> {
    let files = std::fs::read_dir(directory).into_iter().flatten();
    let mut names: Vec<_> =
        files.map(|file| file.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);

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
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o555);
    let calls = sim.count(Endpoint::Static).unwrap();
    assert_eq!(file(programs.resolve(None).await.unwrap()).0, path);
    assert_eq!(sim.count(Endpoint::Static).unwrap(), calls, "it is asked for once");
    let names = names(directory.path());
    let expected = [path.file_name().unwrap().to_string_lossy().into_owned(), note()];
    assert_eq!(names, expected, "the file, and a note which is the newest; nothing else is left");
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

// invariant 10
#[tokio::test]
async fn a_version_that_does_not_come_delays_nobody_who_wants_another() {
    let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
    let held = Held::new(&sim, "0ddba11c0de0");
    let programs = remote_over(Arc::clone(&held) as _, directory.path());
    let here = programs.resolve(Some(DEFAULT_SHA)).await.unwrap();
    let slow = programs.resolve(Some("0ddba11c0de0"));
    let others = async {
        held.asked.acquire().await.unwrap().forget();
        for pinned in [Some(DEFAULT_SHA), None, None] {
            let found = timeout(SOON, programs.resolve(pinned)).await.expect("it waits for nobody");
            assert_eq!(found.unwrap(), here, "{pinned:?}");
        }
        held.let_go.add_permits(10);
    };
    let (slow, ()) = futures::join!(slow, others);
    assert_eq!(file(slow.unwrap()).1, "0ddba11c0de0", "it came when it could");
}

#[tokio::test]
async fn a_download_goes_on_when_whoever_wanted_it_has_given_up() {
    let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
    let held = Held::new(&sim, "0ddba11c0de0");
    let programs = remote_over(Arc::clone(&held) as _, directory.path());
    for _ in 0..3 {
        let given_up = timeout(Duration::from_millis(20), programs.resolve(Some("0ddba11c0de0"))).await;
        assert!(given_up.is_err(), "{given_up:?}");
    }
    held.let_go.add_permits(10);
    let there = async {
        while !names(directory.path()).iter().any(|name| !name.ends_with(".part")) {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, there).await.expect("nobody waits, and it comes");
    let calls = sim.count(Endpoint::Static).unwrap();
    programs.resolve(Some("0ddba11c0de0")).await.unwrap();
    assert_eq!((calls, sim.count(Endpoint::Static).unwrap()), (2, 2), "the checksum and the file, once");
}

#[tokio::test]
async fn everybody_who_waits_for_a_download_hears_why_it_failed() {
    let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
    sim.add_fault(FaultRule::once(Endpoint::Static, Fault::rate_limited(Duration::from_secs(7)))).unwrap();
    let programs = remote(&sim, directory.path());
    let (first, second) = futures::join!(programs.resolve(None), programs.resolve(None));
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        assert!(error.to_string().starts_with("devin: download the worker: 429"), "{error}");
    }
    assert!(programs.resolve(None).await.is_ok(), "the next who asks begins anew");
}

#[tokio::test]
async fn nothing_goes_on_when_the_programs_are_dropped() {
    let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
    let held = Held::new(&sim, "0ddba11c0de0");
    let programs = remote_over(Arc::clone(&held) as _, directory.path());
    let _ = timeout(Duration::from_millis(20), programs.resolve(Some("0ddba11c0de0"))).await;
    assert!(Arc::strong_count(&held) > 1);
    drop(programs);
    let ended = async {
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, ended).await.expect("the task has let go of what it used");
}

#[tokio::test]
async fn what_a_process_that_was_killed_left_of_a_download_is_swept() {
    let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
    for name in
        ["devin-remote_abc_linux_x64.17-0.part", "devin-remote_abc_linux_x64.18.part", "people's.part"]
    {
        std::fs::write(directory.path().join(name), "half of it").unwrap();
    }
    let programs = remote(&sim, directory.path());
    assert_eq!(names(directory.path()), ["people's.part"]);
    sim.add_fault(FaultRule::once(Endpoint::Static, Fault::CutBody { after_bytes: 10 }).after(2)).unwrap();
    assert!(programs.resolve(None).await.is_err());
    assert_eq!(names(directory.path()), ["people's.part"], "nor does a failure leave anything");
}

#[tokio::test]
async fn versions_that_differ_after_a_dot_do_not_meet_in_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = SimOptions::default();
    options.publication.older = vec!["1.2.3".to_owned(), "1.2.4".to_owned()];
    let sim = Sim::new(options, outpost_sim::Clock::system());
    let programs = remote(&sim, directory.path());
    let (first, second) = futures::join!(programs.resolve(Some("1.2.3")), programs.resolve(Some("1.2.4")));
    assert_ne!(file(first.unwrap()).0, file(second.unwrap()).0);
}

#[tokio::test(start_paused = true)]
async fn while_the_newest_cannot_be_had_the_one_before_is_used() {
    let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
    let programs = remote(&sim, directory.path());
    let before = programs.resolve(None).await.unwrap();
    sim.add_fault(FaultRule::always(Endpoint::Static, Fault::status(503))).unwrap();
    tokio::time::advance(Duration::from_secs(301)).await;
    assert_eq!(programs.resolve(None).await.unwrap(), before);
    let calls = sim.count(Endpoint::Static).unwrap();
    assert_eq!(programs.resolve(None).await.unwrap(), before);
    assert_eq!(sim.count(Endpoint::Static).unwrap(), calls, "it is not asked for at every start");
    let programs = remote(&sim, directory.path());
    assert_eq!(programs.resolve(None).await.unwrap(), before, "by the next process too");
    std::fs::remove_file(file(before).0).unwrap();
    let error = remote(&sim, directory.path()).resolve(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "there is none before: {error}");
    sim.clear_faults().unwrap();
    assert!(programs.resolve(None).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_start_waits_half_a_minute_for_a_host_that_stalls_and_then_uses_the_one_before() {
    let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
    let before = remote(&sim, directory.path()).resolve(None).await.unwrap();
    sim.add_fault(FaultRule::always(Endpoint::Static, Fault::StallBody { after_bytes: 1 })).unwrap();
    let programs = remote(&sim, directory.path());
    let began = tokio::time::Instant::now();
    assert_eq!(programs.resolve(None).await.unwrap(), before);
    assert_eq!(programs.resolve(None).await.unwrap(), before);
    assert!(began.elapsed() <= Duration::from_secs(31), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_note_that_names_something_else_is_not_believed() {
    let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
    let elsewhere = directory.path().join("elsewhere");
    std::fs::write(&elsewhere, "").unwrap();
    let shelf = directory.path().join("shelf");
    std::fs::create_dir(&shelf).unwrap();
    sim.add_fault(FaultRule::always(Endpoint::Static, Fault::status(503))).unwrap();
    for text in ["", "1", "1\n../elsewhere\n", &format!("1\n{}\n", elsewhere.display()), "1\n..", "1\n\n"] {
        std::fs::write(shelf.join(note()), text).unwrap();
        assert!(remote(&sim, &shelf).resolve(None).await.is_err(), "{text:?}");
    }
}

#[tokio::test]
async fn the_cli_is_found_by_its_manifest() {
    let (sim, directory) = (sim(), tempfile::tempdir().unwrap());
    let manifest = BaseUrl::parse("http://localhost/cli/current/manifest.json", Hosts::Devin).unwrap();
    let transport = Arc::new(TowerTransport::new(sim.static_router()));
    let programs =
        CliPrograms::new(&manifest, Hosts::Devin, directory.path(), transport, Arc::new(Paused::new()));
    let found = programs.resolve(None).await.unwrap();
    let (path, _) = file(found.clone());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o111, 0o111);
    sim.add_fault(FaultRule::always(Endpoint::Static, Fault::status(503))).unwrap();
    let later =
        CliPrograms::new(&manifest, Hosts::Devin, directory.path(), statics(&sim), Arc::new(Paused::new()));
    assert_eq!(later.resolve(None).await.unwrap(), found, "the one before, while the manifest cannot be had");
}
