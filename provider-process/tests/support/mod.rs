//! A desk with a provider on it, and workers that are small shell scripts.
#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use outpost_core::model::{
    AcceptorId, Boot, InstanceId, NetworkPolicy, OutpostId, Sandbox, SandboxId, SandboxState, SessionId,
    Snapshot, SnapshotPurpose, SnapshotRef, WorkerCredentials, WorkerEnding, WorkerMode, WorkerProgram,
    WorkerSettings, WorkerSpec,
};
use outpost_core::ports::{Error, Removed, SandboxProvider, Saving, StartSpec, Started, Stopped};
use outpost_provider_process::{Builder, ProcessProvider};
use secrecy::SecretString;
use tempfile::TempDir;

pub(crate) const TOKEN: &str = "sentinel-connect-token-7f3a";
/// Nothing here takes that long unless it is broken.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// A state directory, and what is needed to run workers in it. Kills what a failing test left running.
pub(crate) struct Desk {
    dir: TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("state")
    }

    pub(crate) fn builder(&self) -> Builder {
        ProcessProvider::builder(self.state(), instance())
            .with(|settings| settings.removal_grace = Duration::from_millis(500))
    }

    pub(crate) fn provider(&self) -> ProcessProvider {
        self.builder().build().unwrap()
    }

    /// A worker's program: a shell script.
    pub(crate) fn script(&self, body: &str) -> WorkerProgram {
        let scripts = self.dir.path().join("scripts");
        fs::create_dir_all(&scripts).unwrap();
        let path = scripts.join(format!("worker-{}", fs::read_dir(&scripts).unwrap().count()));
        // Written under another name: nobody can be forking with this file open when it is executed.
        let beside = path.with_extension("new");
        fs::write(&beside, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(&beside, &path).unwrap();
        fs::remove_file(&beside).unwrap();
        WorkerProgram::File { path, version: "test".into() }
    }

    pub(crate) fn spec(&self, session: &str, boot: u64, body: &str) -> StartSpec {
        spec(session, boot, self.script(body))
    }

    /// Where the newest boot of a session has its disk.
    pub(crate) fn disk(&self, session: &str) -> PathBuf {
        let hash = SessionId::new(session).unwrap().stable_hash();
        self.state().join(format!("sandboxes/outpost-{}-{hash}/disk", instance()))
    }

    pub(crate) fn workspace(&self, session: &str) -> PathBuf {
        self.disk(session).join("workspace")
    }

    pub(crate) fn run(&self, session: &str) -> PathBuf {
        self.disk(session).parent().unwrap().join("run")
    }

    /// The number of the newest boot's `worker` or `supervisor`.
    pub(crate) fn pid(&self, session: &str, which: &str) -> i32 {
        let text = fs::read_to_string(self.run(session).join(which)).unwrap();
        text.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Every living process that has this desk in its environment or works on it.
    pub(crate) fn processes(&self) -> Vec<i32> {
        processes_of(&self.state())
    }
}

#[cfg(target_os = "linux")]
impl Desk {
    /// Where a text stands: in files under the state directory and in what they hold compressed, in arguments and
    /// environments of processes, the workers' own environments excepted.
    pub(crate) fn search(&self, needle: &str) -> Vec<String> {
        let mut found = Vec::new();
        search_files(&self.state(), needle.as_bytes(), &mut found);
        for process in procfs::process::all_processes().unwrap().flatten() {
            if process.cmdline().is_ok_and(|args| args.iter().any(|arg| arg.contains(needle))) {
                found.push(format!("the arguments of process {}", process.pid));
            }
        }
        // Other tests run at the same time, with workers of their own that have the same token.
        for pid in self.processes().into_iter().chain([std::process::id().try_into().unwrap()]) {
            let Ok(process) = procfs::process::Process::new(pid) else { continue };
            let Ok(stat) = process.stat() else { continue };
            let holds = |env: std::collections::HashMap<std::ffi::OsString, std::ffi::OsString>| {
                env.values().any(|value| value.to_string_lossy().contains(needle))
            };
            let is_worker = self.is_worker(stat.pid) || self.is_worker(stat.session);
            if !is_worker && process.environ().is_ok_and(holds) {
                found.push(format!("the environment of process {pid}"));
            }
        }
        found
    }

    fn is_worker(&self, pid: i32) -> bool {
        let Ok(sandboxes) = fs::read_dir(self.state().join("sandboxes")) else { return false };
        sandboxes.flatten().any(|sandbox| {
            let worker = fs::read_to_string(sandbox.path().join("run/worker")).unwrap_or_default();
            worker.split_whitespace().nth(1) == Some(&pid.to_string())
        })
    }
}

#[cfg(target_os = "linux")]
fn search_files(dir: &Path, needle: &[u8], found: &mut Vec<String>) {
    let holds = |bytes: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            search_files(&path, needle, found);
            continue;
        }
        // A file can go while others are looked at.
        let Ok(bytes) = fs::read(&path) else { continue };
        let compressed = path.extension().is_some_and(|extension| extension == "zst");
        let inside = if compressed { zstd::decode_all(&bytes[..]).unwrap_or_default() } else { Vec::new() };
        if holds(&bytes) || holds(&inside) || holds(path.as_os_str().as_encoded_bytes()) {
            found.push(path.display().to_string());
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
    }
}

#[cfg(target_os = "linux")]
pub(crate) fn processes_of(state: &Path) -> Vec<i32> {
    let marker = state.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for process in procfs::process::all_processes().unwrap().flatten() {
        let own = i32::try_from(std::process::id()).unwrap();
        let dead = process.stat().map_or(true, |stat| stat.state == 'Z' || stat.pid == own);
        let named =
            process.environ().is_ok_and(|env| env.values().any(|v| v.to_string_lossy().contains(&marker)))
                || process.cwd().is_ok_and(|cwd| cwd.starts_with(state))
                || process.cmdline().is_ok_and(|args| args.iter().any(|arg| arg.contains(&marker)));
        if named && !dead {
            found.push(process.pid);
        }
    }
    found
}

#[cfg(target_os = "linux")]
pub(crate) fn command_line(pid: i32) -> Vec<String> {
    procfs::process::Process::new(pid).and_then(|process| process.cmdline()).unwrap_or_default()
}

pub(crate) fn kill_if_there(pid: i32) {
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
}

/// Kills a process behind the provider's back.
pub(crate) fn kill(pid: i32) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
}

/// Damages a file in its middle.
pub(crate) fn flip_a_byte(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    fs::write(file, bytes).unwrap();
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn processes_of(_state: &Path) -> Vec<i32> {
    Vec::new()
}

pub(crate) fn instance() -> InstanceId {
    InstanceId::new("desk-1").unwrap()
}

pub(crate) fn id(session: &str, boot: u64) -> SandboxId {
    SandboxId::new(SessionId::new(session).unwrap(), Boot::new(boot))
}

pub(crate) fn spec(session: &str, boot: u64, program: WorkerProgram) -> StartSpec {
    let id = id(session, boot);
    let worker = WorkerSpec {
        mode: WorkerMode::DevinRemote,
        program,
        session: id.session.clone(),
        outpost: OutpostId::new("outpost_env-1").unwrap(),
        acceptor: AcceptorId::new("desk-1-x").unwrap(),
        credentials: WorkerCredentials::Connect {
            gateway_url: "https://gateway.example".into(),
            token: SecretString::from(TOKEN.to_owned()),
        },
        remote_sha: None,
        settings: WorkerSettings::default(),
    };
    StartSpec { id, restore: None, worker, network_policy: NetworkPolicy::Unrestricted }
}

pub(crate) fn restored(mut spec: StartSpec, snapshot: &Snapshot) -> StartSpec {
    spec.restore = Some(snapshot.reference.clone());
    spec
}

pub(crate) async fn start(provider: &ProcessProvider, spec: StartSpec) -> Sandbox {
    match provider.start(spec).await.unwrap() {
        Started::Sandbox(sandbox) => sandbox,
        Started::SnapshotUnusable { why } => panic!("the snapshot cannot be used: {why}"),
    }
}

/// Asks until it is no longer in progress.
pub(crate) async fn stop(provider: &ProcessProvider, id: &SandboxId, grace: Duration) -> WorkerEnding {
    let begun = Instant::now();
    loop {
        match provider.stop_worker(id, grace).await.unwrap() {
            Stopped::Done { ending } => return ending,
            Stopped::InProgress => assert!(begun.elapsed() < BOUND, "the worker does not end"),
        }
    }
}

pub(crate) async fn try_save(provider: &ProcessProvider, id: &SandboxId) -> Result<Snapshot, Error> {
    let begun = Instant::now();
    loop {
        match provider.save(id, SnapshotPurpose::Resume).await? {
            Saving::Done(snapshot) => return Ok(snapshot),
            Saving::InProgress => assert!(begun.elapsed() < BOUND, "the save does not end"),
        }
    }
}

pub(crate) async fn save(provider: &ProcessProvider, id: &SandboxId) -> Snapshot {
    try_save(provider, id).await.unwrap()
}

pub(crate) async fn remove(provider: &ProcessProvider, id: &SandboxId) {
    let begun = Instant::now();
    while provider.remove(id).await.unwrap() == Removed::InProgress {
        assert!(begun.elapsed() < BOUND, "the removal does not end");
    }
}

pub(crate) async fn state_of(provider: &ProcessProvider, id: &SandboxId) -> Option<SandboxState> {
    let inventory = provider.list().await.unwrap();
    inventory.sandboxes.into_iter().find(|sandbox| sandbox.id == *id).map(|sandbox| sandbox.state)
}

pub(crate) async fn snapshots(provider: &ProcessProvider) -> Vec<SnapshotRef> {
    provider.list().await.unwrap().snapshots.into_iter().map(|snapshot| snapshot.reference).collect()
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < BOUND, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn exited(provider: &ProcessProvider, id: &SandboxId) -> Option<i32> {
    let ended = async || matches!(state_of(provider, id).await, Some(SandboxState::Exited { .. }));
    until("the worker ends", ended).await;
    match state_of(provider, id).await {
        Some(SandboxState::Exited { code }) => code,
        other => panic!("it was Exited and is {other:?}"),
    }
}
