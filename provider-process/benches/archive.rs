//! Saving and restoring a tree of mixed files, beside `tar | zstd -1 -T0` in the same run.
//!
//! `OUTPOST_BENCH_MIB` is the tree's size (1024), `OUTPOST_BENCH_ROUNDS` how often each is measured (3); the medians are
//! printed. Ours includes making the snapshot durable and reading it back whole; the rows say whether theirs does.
#![allow(missing_docs, reason = "a program")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use outpost_core::model::{
    AcceptorId, Boot, InstanceId, NetworkPolicy, OutpostId, SandboxId, SandboxState, SessionId,
    SnapshotPurpose, SnapshotRef, WorkerCredentials, WorkerMode, WorkerProgram, WorkerSettings, WorkerSpec,
};
use outpost_core::ports::{SandboxProvider as _, Saving, StartSpec, Started};
use outpost_provider_process::ProcessProvider;

fn setting(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect("a number"))
}

/// Source files, a few libraries, and archives that cannot be compressed: about what a checkout with its dependencies is.
fn make_tree(root: &Path, mib: usize) -> usize {
    let mut random = fastrand::Rng::with_seed(7);
    let words: Vec<String> =
        (0..2000).map(|_| (0..random.usize(2..10)).map(|_| random.lowercase()).collect()).collect();
    let mut files = 0;
    let mut left = mib << 20;
    while left > 0 {
        let (size, text) = match random.u32(0..1000) {
            0..960 => (random.usize(200..30_000), true),
            960..995 => (random.usize(30_000..600_000), random.bool()),
            _ => (random.usize(1_000_000..16_000_000), random.bool()),
        };
        let size = size.min(left);
        let mut content = Vec::with_capacity(size + 16);
        while content.len() < size {
            if text {
                content.extend_from_slice(words[random.usize(..words.len())].as_bytes());
                content.push(if random.u8(..) < 30 { b'\n' } else { b' ' });
            } else {
                content.extend_from_slice(&random.u64(..).to_le_bytes());
            }
        }
        content.truncate(size);
        let dir = root.join(format!("repos/package-{}/src-{}", files / 400, files % 400 / 20));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("file-{files}")), content).unwrap();
        files += 1;
        left -= size;
    }
    files
}

fn spec(boot: u64, restore: Option<SnapshotRef>) -> StartSpec {
    let session = SessionId::new("devin-bench").unwrap();
    let worker = WorkerSpec {
        mode: WorkerMode::DevinRemote,
        program: WorkerProgram::Installed { path: "true".into() },
        session: session.clone(),
        outpost: OutpostId::new("outpost_env-bench").unwrap(),
        acceptor: AcceptorId::new("bench").unwrap(),
        credentials: WorkerCredentials::Connect {
            gateway_url: "http://x".into(),
            token: "x".to_owned().into(),
        },
        remote_sha: None,
        settings: WorkerSettings::default(),
    };
    let id = SandboxId::new(session, Boot::new(boot));
    StartSpec { id, restore, worker, network_policy: NetworkPolicy::Unrestricted }
}

async fn ended(provider: &ProcessProvider) {
    let exited = |state: &SandboxState| matches!(state, SandboxState::Exited { .. });
    while !provider.list().await.unwrap().sandboxes.iter().all(|sandbox| exited(&sandbox.state)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn save(provider: &ProcessProvider, id: &SandboxId) -> SnapshotRef {
    loop {
        if let Saving::Done(snapshot) = provider.save(id, SnapshotPurpose::Resume).await.unwrap() {
            return snapshot.reference;
        }
    }
}

fn shell(script: &str, paths: &[&Path]) {
    let status = Command::new("sh").args(["-c", script, "sh"]).args(paths).status().unwrap();
    assert!(status.success(), "{script}");
}

/// A moment, and how much processor time this process and its children had used.
struct Begun(Instant, f64);

fn begin() -> Begun {
    Begun(Instant::now(), processor_seconds())
}

#[cfg(target_os = "linux")]
fn processor_seconds() -> f64 {
    let stat = procfs::process::Process::myself().unwrap().stat().unwrap();
    let ticks = stat.utime + stat.stime + u64::try_from(stat.cutime + stat.cstime).unwrap();
    ticks as f64 / procfs::ticks_per_second() as f64
}

#[cfg(not(target_os = "linux"))]
fn processor_seconds() -> f64 {
    f64::NAN
}

#[derive(Default)]
struct Times(Vec<(&'static str, Vec<(Duration, f64)>)>);

impl Times {
    fn note(&mut self, what: &'static str, begun: Begun) {
        let time = (begun.0.elapsed(), processor_seconds() - begun.1);
        match self.0.iter_mut().find(|(known, _)| *known == what) {
            Some((_, times)) => times.push(time),
            None => self.0.push((what, vec![time])),
        }
    }

    fn print(mut self, mib: usize) {
        for (what, times) in &mut self.0 {
            times.sort_by(|a, b| a.partial_cmp(b).unwrap());
            let (median, processor) = times[times.len() / 2];
            let median = median.as_secs_f64();
            println!(
                "{what:<58} {median:>6.2} s {:>5.0} MiB/s {processor:>6.2} s of processor",
                mib as f64 / median
            );
        }
    }
}

#[tokio::main]
async fn main() {
    let (mib, rounds) = (setting("OUTPOST_BENCH_MIB", 1024), setting("OUTPOST_BENCH_ROUNDS", 3));
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let provider = ProcessProvider::builder(&state, InstanceId::new("bench").unwrap())
        .with(|settings| settings.patience = Duration::from_secs(600))
        .build()
        .unwrap();
    let first = spec(1, None);
    provider.start(first.clone()).await.unwrap();
    ended(&provider).await;
    let sandbox = fs::read_dir(state.join("sandboxes")).unwrap().next().unwrap().unwrap().path();
    let disk = sandbox.join("disk");
    let files = make_tree(&disk.join("workspace"), mib);
    shell("sync", &[]);
    println!("{mib} MiB in {files} files, medians of {rounds}");

    let (archive, out): (PathBuf, PathBuf) = (dir.path().join("theirs.tar.zst"), dir.path().join("theirs"));
    let mut times = Times::default();
    let mut boot = 1;
    for _ in 0..rounds {
        let begun = begin();
        shell("tar -C \"$1\" -cf - . | zstd -q -1 -T0 -f -o \"$2\"", &[&disk, &archive]);
        times.note("save    tar | zstd -1 -T0", begun);
        shell("sync", &[]);
        let begun = begin();
        let pipe = "tar -C \"$1\" -cf - . | zstd -q -1 -T0 -f -o \"$2\" && sync \"$2\"";
        shell(&format!("{pipe} && zstd -dc \"$2\" | tar -tf - >/dev/null"), &[&disk, &archive]);
        times.note("save    tar | zstd -1 -T0, made durable, read back", begun);

        let begun = begin();
        let reference = save(&provider, &first.id).await;
        times.note("save    outpost (made durable, read back)", begun);

        fs::create_dir(&out).unwrap();
        shell("sync", &[]);
        let begun = begin();
        shell("zstd -dc \"$2\" | tar -C \"$1\" -xf -", &[&out, &archive]);
        times.note("restore zstd | tar", begun);
        fs::remove_dir_all(&out).unwrap();

        shell("sync", &[]);
        boot += 1;
        let restored = spec(boot, Some(reference.clone()));
        let begun = begin();
        let started = provider.start(restored.clone()).await.unwrap();
        times.note("restore outpost (and its worker started)", begun);
        assert!(matches!(started, Started::Sandbox(_)));
        while provider.remove(&restored.id).await.unwrap() != outpost_core::ports::Removed::Done {}
        // The first boot's directory was moved aside for the second's; back to where the others find it.
        let aside = state.join("sandboxes").join(first.id.name(&InstanceId::new("bench").unwrap()));
        fs::rename(aside, &sandbox).unwrap();
        provider.delete_snapshot(&reference).await.unwrap();
    }
    while provider.remove(&first.id).await.unwrap() != outpost_core::ports::Removed::Done {}
    times.print(mib);
}
