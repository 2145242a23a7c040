//! One session that sleeps and wakes 150 times.

mod support;

use std::time::Duration;

use outpost_core::model::{
    AcceptorId, Boot, NetworkPolicy, OutpostId, SandboxId, SandboxState, SessionId, SnapshotPurpose,
    SnapshotRef, WorkerCredentials, WorkerMode, WorkerProgram, WorkerSettings, WorkerSpec,
};
use outpost_core::ports::{Removed, SandboxProvider, Saving, StartSpec, Started};
use outpost_provider_docker::DockerProvider;
use support::{Kind, Stage, everything};

const CYCLES: u64 = 150;
const FLATTEN_AT: usize = 20;
const PATIENCE: u32 = 2000;

fn spec(id: &SandboxId, restore: Option<SnapshotRef>, program: WorkerProgram) -> StartSpec {
    StartSpec {
        id: id.clone(),
        restore,
        worker: WorkerSpec {
            mode: WorkerMode::DevinRemote,
            program,
            session: id.session.clone(),
            outpost: OutpostId::new("outpost_env-test").unwrap(),
            acceptor: AcceptorId::new("test").unwrap(),
            credentials: WorkerCredentials::Connect {
                gateway_url: "http://127.0.0.1:9".to_owned(),
                token: "none".to_owned().into(),
            },
            remote_sha: None,
            settings: WorkerSettings::default(),
        },
        network_policy: NetworkPolicy::Unrestricted,
    }
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// Starts a sandbox, waits for its worker's end, saves it, and removes it; answers the snapshot.
async fn cycle(
    provider: &DockerProvider,
    id: &SandboxId,
    restore: Option<SnapshotRef>,
    program: &WorkerProgram,
) -> SnapshotRef {
    match provider.start(spec(id, restore, program.clone())).await.unwrap() {
        Started::Sandbox(_) => {}
        Started::SnapshotUnusable { why } => panic!("{id}: {why}"),
    }
    let mut code = None;
    for _ in 0..PATIENCE {
        let listed = provider.list().await.unwrap();
        let state = listed.sandboxes.into_iter().find(|it| it.id == *id).map(|it| it.state);
        if let Some(SandboxState::Exited { code: ended }) = state {
            code = ended;
            break;
        }
        pause().await;
    }
    assert_eq!(code, Some(0), "{id}: the worker found other files than the last one left");
    let mut saved = None;
    for _ in 0..PATIENCE {
        if let Saving::Done(snapshot) = provider.save(id, SnapshotPurpose::Resume).await.unwrap() {
            saved = Some(snapshot.reference);
            break;
        }
    }
    for _ in 0..PATIENCE {
        if provider.remove(id).await.unwrap() == Removed::Done {
            return saved.expect("it was saved");
        }
    }
    panic!("{id} is not removed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_sleeps_150_times_keeps_its_files_and_needs_no_more_room() {
    let stage = Stage::new(Kind::Docker);
    let docker = stage.docker().negotiate_version().await.unwrap();
    let provider = stage.builder().with(|settings| settings.flatten_at = FLATTEN_AT).connect().await.unwrap();
    // Each boot finds what the ones before it wrote, changes one file, and adds one of 100 kB in the place of the last.
    let program = stage.script(
        "#!/bin/sh\nset -e\nn=$(cat count 2>/dev/null || echo 0)\n[ \"$n\" = \"$(wc -l <journal 2>/dev/null || echo 0)\" ]\n\
         [ \"$n\" = 0 ] || [ -e big-$n ]\nrm -f big-*\nn=$((n+1))\necho $n >count\necho $n >>journal\n\
         head -c 100000 /dev/urandom >big-$n\n",
    );
    let session = SessionId::new("devin-cycles").unwrap();
    let (mut newest, mut most_layers, mut most_images, mut sizes) = (None, 0, 0, Vec::new());
    for number in 1..=CYCLES {
        let id = SandboxId::new(session.clone(), Boot::new(number));
        let snapshot = cycle(&provider, &id, newest.clone(), &program).await;
        if let Some(superseded) = newest.replace(snapshot.clone()) {
            provider.delete_snapshot(&superseded).await.unwrap();
        }
        let image = docker.inspect_image(snapshot.as_str()).await.unwrap();
        most_layers = most_layers.max(image.root_fs.unwrap().layers.unwrap().len());
        most_images = most_images.max(
            everything(&docker, &stage.instance).await.iter().filter(|it| it.starts_with("image")).count(),
        );
        sizes.push(image.size.unwrap());
    }
    let listed = provider.list().await.unwrap();
    assert_eq!(listed.snapshots.len(), 1, "{listed:#?}");
    println!(
        "{CYCLES} cycles: at most {most_layers} layers, {most_images} images, {} kB at most",
        sizes.iter().max().unwrap() / 1000
    );
    assert!(most_layers <= FLATTEN_AT, "{most_layers} layers");
    assert!(most_images <= FLATTEN_AT + 2, "{most_images} images");
    let most = *sizes.iter().max().unwrap();
    assert!(most < sizes[0] + 110_000 * FLATTEN_AT as i64, "{sizes:?}");
    provider.delete_snapshot(&newest.unwrap()).await.unwrap();
    let left = everything(&docker, &stage.instance).await;
    assert!(left.iter().all(|it| it.starts_with("volume")), "{left:#?}");
}
