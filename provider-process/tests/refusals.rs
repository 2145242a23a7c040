//! What is refused, and what a full disk or a stranger's lock does: a clear error, and nothing lost.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outpost_core::model::{InstanceId, NetworkPolicy, SandboxState, WorkerProgram};
use outpost_core::ports::{ErrorKind, SandboxProvider as _};
use outpost_provider_process::{BuildError, ProcessProvider, UnenforcedNetworkPolicy};
use support::{Desk, exited, id, instance, remove, restored, save, snapshots, start, state_of, try_save};

#[tokio::test]
async fn a_second_process_of_the_instance_is_refused_with_the_firsts_number() {
    let desk = Desk::new();
    let provider = desk.provider();
    let error = desk.builder().build().unwrap_err();
    assert!(matches!(error, BuildError::Locked { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    assert!(text.contains("desk-1") && !text.contains('\n'), "{text}");
    drop(provider);
    desk.builder().build().unwrap();
}

#[tokio::test]
async fn two_instances_share_a_state_directory_and_nothing_else() {
    let desk = Desk::new();
    let (ours, theirs) = (desk.provider(), InstanceId::new("desk-1-b").unwrap());
    let theirs = ProcessProvider::builder(desk.state(), theirs).build().unwrap();
    start(&ours, desk.spec("devin-1", 1, "exit 0")).await;
    assert!(theirs.list().await.unwrap().sandboxes.is_empty());
    remove(&theirs, &id("devin-1", 1)).await;
    assert!(state_of(&ours, &id("devin-1", 1)).await.is_some());
    remove(&ours, &id("devin-1", 1)).await;
}

#[test]
fn a_state_directory_that_cannot_be_one_is_refused() {
    for bad in ["relative/path", "", "/tmp/with\na line break"] {
        let error = ProcessProvider::builder(Path::new(bad), instance()).build().unwrap_err();
        assert!(matches!(error, BuildError::Path { .. }), "{error:?}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = ProcessProvider::builder(file.path(), instance()).build().unwrap_err();
    assert!(matches!(error, BuildError::Unusable { .. }), "{error:?}");
    let error = ProcessProvider::builder("/proc/outpost", instance()).build().unwrap_err();
    assert!(matches!(error, BuildError::Unusable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_network_policy_is_refused_unless_the_setting_allows_it() {
    let desk = Desk::new();
    let provider = desk.provider();
    let mut spec = desk.spec("devin-1", 1, "exit 0");
    spec.network_policy = NetworkPolicy::Allow(vec![]);
    let error = provider.start(spec.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("unenforced_network_policy"), "{error}");
    assert!(provider.list().await.unwrap().sandboxes.is_empty());
    drop(provider);

    let allowing = |settings: &mut outpost_provider_process::Settings| {
        settings.unenforced_network_policy = UnenforcedNetworkPolicy::Allow;
    };
    let provider = desk.builder().with(allowing).build().unwrap();
    start(&provider, spec).await;
    remove(&provider, &id("devin-1", 1)).await;
}

#[tokio::test]
async fn a_program_that_is_not_here_is_an_error_and_leaves_nothing() {
    let desk = Desk::new();
    let provider = desk.provider();
    let fetch = WorkerProgram::Fetch { url: "https://x".into(), sha256: "0".into(), version: "1".into() };
    let missing = WorkerProgram::File { path: "/nowhere/devin-remote".into(), version: "1".into() };
    for (program, kind) in [(fetch, ErrorKind::Unsupported), (missing, ErrorKind::Unexpected)] {
        let error = provider.start(support::spec("devin-1", 1, program)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(provider.list().await.unwrap().sandboxes.is_empty());
        for dir in ["sandboxes", "tmp"] {
            assert_eq!(fs::read_dir(desk.state().join(dir)).unwrap().count(), 0, "{dir}");
        }
    }
    // One that is installed is looked for by the worker's process.
    let installed = WorkerProgram::Installed { path: "outpost-test-no-such-program".into() };
    start(&provider, support::spec("devin-1", 1, installed)).await;
    assert_eq!(exited(&provider, &id("devin-1", 1)).await, Some(127));
    remove(&provider, &id("devin-1", 1)).await;
}

#[tokio::test]
async fn a_shell_that_does_not_exist_is_an_error_and_leaves_nothing() {
    let desk = Desk::new();
    let provider = desk.builder().with(|settings| settings.shell = "/nowhere/sh".into()).build().unwrap();
    provider.start(desk.spec("devin-1", 1, "exit 0")).await.unwrap_err();
    drop(provider);
    // It starts, and ends at once.
    let provider = desk.builder().with(|settings| settings.shell = "/bin/false".into()).build().unwrap();
    provider.start(desk.spec("devin-1", 1, "exit 0")).await.unwrap_err();
    drop(provider);
    // It starts, and does nothing.
    let idle = desk.script("exec sleep 1000");
    let WorkerProgram::File { path, .. } = idle else { unreachable!() };
    let change = |settings: &mut outpost_provider_process::Settings| {
        settings.shell = path;
        settings.launch_timeout = Duration::from_millis(200);
    };
    let provider = desk.builder().with(change).build().unwrap();
    let error = provider.start(desk.spec("devin-1", 1, "exit 0")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(provider.list().await.unwrap().sandboxes.is_empty());
    assert_eq!(desk.processes(), [] as [i32; 0]);
}

#[tokio::test]
async fn a_shell_that_never_reads_the_environment_does_not_hang_the_start() {
    let desk = Desk::new();
    let idle = desk.script("exec sleep 1000");
    let WorkerProgram::File { path, .. } = idle else { unreachable!() };
    let change = |settings: &mut outpost_provider_process::Settings| {
        settings.shell = path;
        settings.launch_timeout = Duration::from_millis(200);
        // More than a pipe holds.
        settings.lang = "C".repeat(1 << 20);
    };
    let provider = desk.builder().with(change).build().unwrap();
    let start = provider.start(desk.spec("devin-1", 1, "exit 0"));
    let error = tokio::time::timeout(support::BOUND, start).await.expect("it hangs").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(provider.list().await.unwrap().sandboxes.is_empty());
    assert_eq!(desk.processes(), [] as [i32; 0]);
}

/// A small file system of its own, where this user may mount one.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    fn new(bytes: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).output();
        if cfg!(target_os = "linux") && mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self { dir });
        }
        println!("skipped: no file system can be mounted here, which takes root on Linux");
        None
    }
}

impl Drop for SmallDisk {
    /// Leaves no process there, whatever the test has come to, for they would hold the disk.
    fn drop(&mut self) {
        for pid in support::processes_of(self.dir.path()) {
            support::kill_if_there(pid);
        }
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_fails_saves_and_starts_and_loses_nothing() {
    let Some(disk) = SmallDisk::new("2600k") else { return };
    let desk = Desk::new();
    let state = disk.dir.path().join("state");
    let provider = ProcessProvider::builder(&state, instance()).build().unwrap();
    let (first, second) = (id("devin-1", 1), id("devin-1", 2));
    // A megabyte that cannot be compressed fits twice, and not three times.
    let spec = desk.spec("devin-1", 1, "head -c 1000000 /dev/urandom >repos/data; exit 0");
    start(&provider, spec).await;
    exited(&provider, &first).await;
    let earlier = save(&provider, &first).await;

    let error = provider.start(restored(desk.spec("devin-1", 2, "exit 0"), &earlier)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity, "{error}");
    let listed = provider.list().await.unwrap();
    assert_eq!(listed.sandboxes.iter().map(|sandbox| &sandbox.id).collect::<Vec<_>>(), [&first]);
    assert_eq!(listed.snapshots, std::slice::from_ref(&earlier));
    remove(&provider, &first).await;

    let more = "head -c 500000 /dev/urandom >repos/more; exit 0";
    start(&provider, restored(desk.spec("devin-1", 2, more), &earlier)).await;
    exited(&provider, &second).await;
    let error = try_save(&provider, &second).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity, "{error}");
    assert!(matches!(state_of(&provider, &second).await, Some(SandboxState::Exited { .. })));
    assert_eq!(snapshots(&provider).await, std::slice::from_ref(&earlier.reference));
    assert_eq!(fs::read_dir(state.join("snapshots")).unwrap().count(), 2, "something is left behind");

    // Room is made, and the same call succeeds.
    let repos = fs::read_dir(state.join("sandboxes")).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(repos.join("disk/workspace/repos/data")).unwrap();
    save(&provider, &second).await;
    remove(&provider, &second).await;
}

#[tokio::test]
async fn a_worker_is_ended_and_its_sandbox_removed_though_the_disk_is_full() {
    let Some(disk) = SmallDisk::new("1m") else { return };
    let desk = Desk::new();
    let state = disk.dir.path().join("state");
    let provider = ProcessProvider::builder(&state, instance()).build().unwrap();
    let boot = id("devin-1", 1);
    let filler = "trap '' TERM; cat /dev/zero >repos/data; while :; do sleep 0.1; done";
    start(&provider, desk.spec("devin-1", 1, filler)).await;
    let probes = AtomicUsize::new(0);
    let is_full = async || {
        let probe = state.join(format!("probe-{}", probes.fetch_add(1, Ordering::Relaxed)));
        fs::write(probe, [0; 8192]).is_err()
    };
    support::until("the disk is full", is_full).await;
    support::stop(&provider, &boot, Duration::from_millis(100)).await;
    assert!(matches!(state_of(&provider, &boot).await, Some(SandboxState::Exited { .. })));
    remove(&provider, &boot).await;
    assert!(provider.list().await.unwrap().sandboxes.is_empty());
}
