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

    /// Every living process that has this desk in its environment or works on it.
    pub(crate) fn processes(&self) -> Vec<i32> {
        processes_of(&self.state())
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
    let code = std::cell::Cell::new(None);
    until("the worker ends", async || match state_of(provider, id).await {
        Some(SandboxState::Exited { code: found }) => {
            code.set(found);
            true
        }
        _ => false,
    })
    .await;
    code.get()
}
