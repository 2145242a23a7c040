//! What is left when something dies: the worker, the supervisor, Outpost itself, at any moment.
#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use outpost_core::model::{SandboxState, WorkerEnding, WorkerProgram};
use outpost_core::ports::{ErrorKind, SandboxProvider as _, Saving, Started};
use support::{
    BOUND, Desk, exited, id, kill, remove, restored, save, snapshots, start, state_of, stop, try_save, until,
};

const GRACE: Duration = Duration::from_secs(10);
const IDLE: &str = "echo ready; while :; do sleep 0.1; done";

async fn ready(desk: &Desk, session: &str) {
    let log = desk.run(session).join("log");
    until("the worker", async || fs::read_to_string(&log).is_ok_and(|text| text.contains("ready"))).await;
}

#[tokio::test]
async fn a_killed_worker_is_found_with_its_signal_and_can_be_saved() {
    let desk = Desk::new();
    let provider = desk.provider();
    let boot = id("devin-1", 1);
    start(&provider, desk.spec("devin-1", 1, IDLE)).await;
    kill(desk.pid("devin-1", "worker"));
    assert_eq!(exited(&provider, &boot).await, Some(137));
    assert_eq!(save(&provider, &boot).await.ending, WorkerEnding::Clean);
    remove(&provider, &boot).await;
    assert_eq!(desk.processes(), [] as [i32; 0]);
}

#[tokio::test]
async fn a_worker_outlives_its_supervisor_and_then_its_code_is_not_known() {
    let desk = Desk::new();
    let provider = desk.provider();
    let boot = id("devin-1", 1);
    start(&provider, desk.spec("devin-1", 1, IDLE)).await;
    let supervisor = desk.pid("devin-1", "supervisor");
    kill(supervisor);
    until("the supervisor's end", async || !desk.processes().contains(&supervisor)).await;
    assert_eq!(state_of(&provider, &boot).await, Some(SandboxState::Running));
    kill(desk.pid("devin-1", "worker"));
    assert_eq!(exited(&provider, &boot).await, None);
    remove(&provider, &boot).await;
    assert_eq!(desk.processes(), [] as [i32; 0]);
}

// lesson 23: a live worker is left alone
#[tokio::test]
async fn a_restart_finds_a_live_worker_and_starts_no_other() {
    let desk = Desk::new();
    let boot = id("devin-1", 1);
    let provider = desk.provider();
    let before = start(&provider, desk.spec("devin-1", 1, IDLE)).await;
    ready(&desk, "devin-1").await;
    let worker = desk.pid("devin-1", "worker");
    drop(provider);

    let provider = desk.provider();
    assert_eq!(provider.list().await.unwrap().sandboxes, std::slice::from_ref(&before));
    assert_eq!(start(&provider, desk.spec("devin-1", 1, "exit 1")).await, before);
    assert_eq!(desk.pid("devin-1", "worker"), worker);
    assert_eq!(stop(&provider, &boot, GRACE).await, WorkerEnding::Clean);
    assert_eq!(state_of(&provider, &boot).await, Some(SandboxState::Exited { code: Some(143) }));
    remove(&provider, &boot).await;
}

#[tokio::test]
async fn a_worker_that_ended_while_outpost_was_away_is_found_with_its_code() {
    let desk = Desk::new();
    let provider = desk.provider();
    start(&provider, desk.spec("devin-1", 1, "while [ ! -e go ]; do sleep 0.02; done; exit 6")).await;
    drop(provider);
    fs::write(desk.workspace("devin-1").join("go"), "").unwrap();
    let written = desk.run("devin-1").join("exit");
    until("the code", async || written.exists()).await;
    let provider = desk.provider();
    let found = state_of(&provider, &id("devin-1", 1)).await;
    assert_eq!(found, Some(SandboxState::Exited { code: Some(6) }));
    remove(&provider, &id("devin-1", 1)).await;
}

/// A process that has nothing to do with any sandbox.
struct Stranger(std::process::Child);

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A stranger that started at a time that neither worker nor supervisor has: the clock of starts is coarse.
fn later_stranger(desk: &Desk, session: &str) -> Stranger {
    let begun = std::time::Instant::now();
    loop {
        let stranger = Stranger(std::process::Command::new("sleep").arg("1000").spawn().unwrap());
        let number = stranger.0.id().try_into().unwrap();
        let stat = procfs::process::Process::new(number).and_then(|process| process.stat()).unwrap();
        let started = stat.starttime.to_string();
        let noted = |file| fs::read_to_string(desk.run(session).join(file)).unwrap();
        if ["worker", "supervisor"].iter().all(|file| !noted(file).trim_end().ends_with(&started)) {
            return stranger;
        }
        assert!(begun.elapsed() < BOUND, "no later stranger");
    }
}

/// Rewrites the numbers of worker and supervisor so that they are those of a living process that is not ours.
fn recycle(desk: &Desk, session: &str, foreign: u32) {
    for file in ["worker", "supervisor"] {
        let path = desk.run(session).join(file);
        let words = fs::read_to_string(&path).unwrap();
        let words: Vec<_> = words.split_whitespace().collect();
        fs::write(&path, format!("{} {foreign} {}\n", words[0], words[2])).unwrap();
    }
}

#[tokio::test]
async fn a_recycled_number_is_neither_taken_for_the_worker_nor_killed() {
    let desk = Desk::new();
    let provider = desk.provider();
    let boot = id("devin-1", 1);
    start(&provider, desk.spec("devin-1", 1, "exit 0")).await;
    exited(&provider, &boot).await;
    fs::remove_file(desk.run("devin-1").join("exit")).unwrap();
    let mut stranger = later_stranger(&desk, "devin-1");
    recycle(&desk, "devin-1", stranger.0.id());

    assert_eq!(state_of(&provider, &boot).await, Some(SandboxState::Exited { code: None }));
    stop(&provider, &boot, Duration::ZERO).await;
    remove(&provider, &boot).await;
    assert!(stranger.0.try_wait().unwrap().is_none(), "a stranger was killed");
}

#[tokio::test]
async fn a_worker_whose_end_is_written_down_is_dead_whoever_has_its_number() {
    let desk = Desk::new();
    let provider = desk.provider();
    let boot = id("devin-1", 1);
    start(&provider, desk.spec("devin-1", 1, IDLE)).await;
    fs::write(desk.run("devin-1").join("exit"), "boot-1 7 1\n").unwrap();
    assert_eq!(state_of(&provider, &boot).await, Some(SandboxState::Exited { code: Some(7) }));
    // What lives all the same is ended before anything is made of that.
    save(&provider, &boot).await;
    assert_eq!(desk.processes(), [] as [i32; 0]);
    remove(&provider, &boot).await;
}

#[tokio::test]
async fn a_supervisor_that_wrote_nothing_down_and_works_elsewhere_is_found() {
    let desk = Desk::new();
    let note = desk.state().with_file_name("number");
    let shell = format!("echo $$ >{}; cd /; exec sleep 1000", note.display());
    let WorkerProgram::File { path, .. } = desk.script(&shell) else { unreachable!() };
    let change = |settings: &mut outpost_provider_process::Settings| {
        settings.shell = path;
        settings.launch_timeout = Duration::from_secs(1);
    };
    let provider = desk.builder().with(change).build().unwrap();
    provider.start(desk.spec("devin-1", 1, "exit 0")).await.unwrap_err();
    let number = fs::read_to_string(&note).unwrap().trim().parse().unwrap();
    let program = support::command_line(number);
    support::kill_if_there(number);
    assert_eq!(program, [] as [&str; 0], "it lives");
}

#[tokio::test]
async fn a_persons_shell_in_a_sandbox_is_not_ended_with_it() {
    let desk = Desk::new();
    let provider = desk.provider();
    let boot = id("devin-1", 1);
    start(&provider, desk.spec("devin-1", 1, IDLE)).await;
    let shell = std::process::Command::new("sh")
        .args(["-c", "while :; do sleep 0.1; done"])
        .env("HOME", "/")
        .current_dir(desk.workspace("devin-1"))
        .spawn();
    let mut shell = Stranger(shell.unwrap());
    stop(&provider, &boot, Duration::ZERO).await;
    save(&provider, &boot).await;
    remove(&provider, &boot).await;
    assert!(shell.0.try_wait().unwrap().is_none(), "a person's shell was killed");
}

/// Makes a sandbox's note speak of an earlier start of the machine.
fn start_machine_anew(desk: &Desk, session: &str) {
    let meta = desk.run(session).parent().unwrap().join("meta.json");
    let text = fs::read_to_string(&meta).unwrap();
    let machine_boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert!(text.contains(machine_boot.trim()));
    fs::write(&meta, text.replace(machine_boot.trim(), "an earlier one")).unwrap();
}

#[tokio::test]
async fn a_restored_disk_that_was_not_durable_when_the_machine_stopped_is_not_saved() {
    let desk = Desk::new();
    let provider = desk.provider();
    let (first, second) = (id("devin-1", 1), id("devin-1", 2));
    start(&provider, desk.spec("devin-1", 1, "exit 0")).await;
    exited(&provider, &first).await;
    let snapshot = save(&provider, &first).await;
    remove(&provider, &first).await;
    start(&provider, restored(desk.spec("devin-1", 2, "exit 0"), &snapshot)).await;
    exited(&provider, &second).await;
    let durable = desk.run("devin-1").with_file_name("synced");
    until("the disk is durable", async || durable.exists()).await;

    // Outpost was ended before it was, and the next one makes it so.
    fs::remove_file(&durable).unwrap();
    drop(provider);
    let provider = desk.provider();
    until("the disk is durable", async || durable.exists()).await;

    start_machine_anew(&desk, "devin-1");
    assert_eq!(state_of(&provider, &second).await, Some(SandboxState::Exited { code: Some(0) }));
    fs::remove_file(&durable).unwrap();
    drop(provider);
    let provider = desk.provider();
    let found = state_of(&provider, &second).await;
    assert!(matches!(found, Some(SandboxState::Failed { .. })), "{found:?}");
    assert!(!durable.exists(), "what was lost cannot be made durable");
    assert_eq!(try_save(&provider, &second).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(snapshots(&provider).await, [snapshot.reference]);
    remove(&provider, &second).await;
}

#[tokio::test]
async fn numbers_from_before_the_machine_was_started_anew_are_nobody() {
    let desk = Desk::new();
    let provider = desk.provider();
    let boot = id("devin-1", 1);
    start(&provider, desk.spec("devin-1", 1, IDLE)).await;
    assert_eq!(state_of(&provider, &boot).await, Some(SandboxState::Running));
    start_machine_anew(&desk, "devin-1");
    assert_eq!(state_of(&provider, &boot).await, Some(SandboxState::Exited { code: None }));
    // Here the processes live on, and are found by their marks.
    remove(&provider, &boot).await;
    assert_eq!(desk.processes(), [] as [i32; 0]);
}

// lesson 36
#[tokio::test]
async fn strays_that_left_everything_are_found_and_ended_also_after_a_restart() {
    let desk = Desk::new();
    let provider = desk.provider();
    let boot = id("devin-1", 1);
    let worker = "
        setsid sh -c 'cd /; exec sleep 1001' &
        setsid env -i PATH=\"$PATH\" sh -c 'exec sleep 1002' &
        setsid env TMPDIR=/tmp sh -c 'cd /; exec sleep 1003' &
        setsid sh -c 'trap \"\" TERM; cd /; echo ready; while :; do sleep 0.1; done' &
        exit 3";
    start(&provider, desk.spec("devin-1", 1, worker)).await;
    assert_eq!(exited(&provider, &boot).await, Some(3));
    ready(&desk, "devin-1").await;
    until("the strays", async || desk.processes().len() >= 4).await;
    let strays = desk.processes();
    drop(provider);

    let provider = desk.provider();
    let ending = stop(&provider, &boot, Duration::from_millis(300)).await;
    assert_eq!(ending, WorkerEnding::Forced, "one of them ignores TERM");
    let alive: Vec<_> =
        strays.iter().filter(|pid| fs::exists(format!("/proc/{pid}/cwd")).unwrap_or(false)).collect();
    assert!(desk.processes().is_empty(), "{:?} {alive:?}", desk.processes());
    assert_eq!(state_of(&provider, &boot).await, Some(SandboxState::Exited { code: Some(3) }));
    remove(&provider, &boot).await;
}

#[tokio::test]
async fn what_a_worker_left_running_is_ended_before_its_disk_is_read() {
    let desk = Desk::new();
    let provider = desk.provider();
    let boot = id("devin-1", 1);
    let writer = "setsid sh -c 'echo ready; while :; do date >>repos/log; sleep 0.01; done' & exit 0";
    start(&provider, desk.spec("devin-1", 1, writer)).await;
    exited(&provider, &boot).await;
    ready(&desk, "devin-1").await;
    save(&provider, &boot).await;
    assert_eq!(desk.processes(), [] as [i32; 0]);
    remove(&provider, &boot).await;
}

#[tokio::test]
async fn the_processes_of_two_boots_are_told_apart() {
    let desk = Desk::new();
    let provider = desk.provider();
    let (first, second) = (id("devin-1", 1), id("devin-1", 2));
    start(&provider, desk.spec("devin-1", 1, IDLE)).await;
    ready(&desk, "devin-1").await;
    start(&provider, desk.spec("devin-1", 2, IDLE)).await;
    ready(&desk, "devin-1").await;
    remove(&provider, &first).await;
    assert_eq!(state_of(&provider, &first).await, None);
    assert_eq!(state_of(&provider, &second).await, Some(SandboxState::Running));
    remove(&provider, &second).await;
    assert_eq!(desk.processes(), [] as [i32; 0]);
}

#[tokio::test]
async fn what_outpost_was_in_the_middle_of_is_cleared_away_at_the_next_start() {
    let desk = Desk::new();
    let provider = desk.provider();
    let boot = id("devin-1", 1);
    start(&provider, desk.spec("devin-1", 1, "exit 0")).await;
    exited(&provider, &boot).await;
    let kept = save(&provider, &boot).await;
    drop(provider);

    let state = desk.state();
    let name = boot.name(&support::instance());
    let unfinished = id("devin-2", 1).name(&support::instance());
    // A start before the directory moved into place, a removal after it moved away, saves before each of their steps.
    for dir in [format!(".new-{name}.0000aaaa"), format!(".gone-{name}.0000bbbb")] {
        fs::create_dir_all(state.join("sandboxes").join(dir).join("disk/home")).unwrap();
    }
    fs::create_dir_all(state.join("tmp").join(&unfinished)).unwrap();
    for file in [".tar.zst.part", ".tar.zst", ".json.part"] {
        fs::write(state.join("snapshots").join(format!("{unfinished}{file}")), "half").unwrap();
    }
    // A start between the move and the first process.
    let meta = fs::read_to_string(desk.run("devin-1").parent().unwrap().join("meta.json")).unwrap();
    let prepared = meta.replace("devin-1", "devin-3");
    let dir = desk.disk("devin-3").parent().unwrap().to_owned();
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("meta.json"), prepared).unwrap();
    // Another instance's things are none of ours.
    let others = id("devin-1", 1).name(&outpost_core::model::InstanceId::new("desk-2").unwrap());
    fs::write(state.join("snapshots").join(format!("{others}.tar.zst.part")), "theirs").unwrap();
    fs::create_dir(state.join("sandboxes").join(format!(".new-{others}.0000cccc"))).unwrap();

    let provider = desk.provider();
    let inventory = provider.list().await.unwrap();
    assert_eq!(inventory.sandboxes.iter().map(|sandbox| &sandbox.id).collect::<Vec<_>>(), [&boot]);
    assert_eq!(inventory.snapshots, std::slice::from_ref(&kept));
    let names = |dir: &str| {
        let mut names: Vec<_> = fs::read_dir(state.join(dir))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let newest = desk.disk("devin-1").parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(names("sandboxes"), [format!(".new-{others}.0000cccc"), newest]);
    assert_eq!(names("tmp"), std::slice::from_ref(&name));
    assert_eq!(
        names("snapshots"),
        [format!("{name}.json"), format!("{name}.tar.zst"), format!("{others}.tar.zst.part")]
    );
    remove(&provider, &boot).await;
}

#[tokio::test]
async fn a_removal_that_was_cut_off_is_listed_as_such_and_goes_on() {
    let desk = Desk::new();
    let provider = desk.provider();
    let boot = id("devin-1", 1);
    start(&provider, desk.spec("devin-1", 1, IDLE)).await;
    let sandbox = desk.run("devin-1").parent().unwrap().to_owned();
    drop(provider);
    fs::write(sandbox.join("removing"), "").unwrap();

    let provider = desk.provider();
    assert_eq!(state_of(&provider, &boot).await, Some(SandboxState::Stopping));
    assert_eq!(try_save(&provider, &boot).await.unwrap_err().kind(), ErrorKind::Conflict);
    remove(&provider, &boot).await;
    assert_eq!(desk.processes(), [] as [i32; 0]);
}

// lesson 57: the answer to a start is lost
#[tokio::test]
async fn a_start_whose_caller_gave_up_goes_on_and_is_joined() {
    let desk = Desk::new();
    let provider = desk.provider();
    let spec = desk.spec("devin-1", 1, IDLE);
    {
        let lost = provider.start(spec.clone());
        tokio::pin!(lost);
        // Polled once: it has begun.
        assert!(futures::poll!(&mut lost).is_pending());
    }
    let listed = provider.list().await.unwrap().sandboxes;
    assert_eq!(listed.len(), 1, "what was begun is listed");
    let joined = start(&provider, spec).await;
    assert_eq!(provider.list().await.unwrap().sandboxes, [joined]);
    remove(&provider, &id("devin-1", 1)).await;
}

// lesson 42: a suspend step that is run again and again
#[tokio::test]
async fn saving_twenty_times_makes_one_snapshot() {
    let desk = Desk::new();
    let provider = desk.provider();
    let boot = id("devin-1", 1);
    start(&provider, desk.spec("devin-1", 1, "exit 0")).await;
    exited(&provider, &boot).await;
    let first = save(&provider, &boot).await;
    for _ in 0..20 {
        assert_eq!(save(&provider, &boot).await, first);
    }
    assert_eq!(snapshots(&provider).await, [first.reference]);
    remove(&provider, &boot).await;
}

// lesson 41: what a boot was restored from is not what it is saved as
#[tokio::test]
async fn each_boot_is_saved_as_a_snapshot_of_its_own() {
    let desk = Desk::new();
    let provider = desk.provider();
    let (first, second) = (id("devin-1", 1), id("devin-1", 2));
    start(&provider, desk.spec("devin-1", 1, "echo one >file; exit 0")).await;
    exited(&provider, &first).await;
    let one = save(&provider, &first).await;
    remove(&provider, &first).await;
    start(&provider, restored(desk.spec("devin-1", 2, "echo two >file; exit 0"), &one)).await;
    exited(&provider, &second).await;
    let two = save(&provider, &second).await;
    assert_ne!(one.reference, two.reference);
    remove(&provider, &second).await;
    start(&provider, restored(desk.spec("devin-1", 3, "exit 0"), &two)).await;
    assert_eq!(fs::read_to_string(desk.workspace("devin-1").join("file")).unwrap(), "two\n");
    remove(&provider, &id("devin-1", 3)).await;
}

// lesson 44
#[tokio::test]
async fn a_snapshot_that_is_lost_or_damaged_is_unusable_and_is_kept() {
    let desk = Desk::new();
    let provider = desk.provider();
    let boot = id("devin-1", 1);
    start(&provider, desk.spec("devin-1", 1, "exit 0")).await;
    exited(&provider, &boot).await;
    let snapshot = save(&provider, &boot).await;
    remove(&provider, &boot).await;
    let archive = desk.state().join(format!("snapshots/{}.tar.zst", snapshot.reference));
    support::flip_a_byte(&archive);
    let spec = restored(desk.spec("devin-1", 2, "exit 0"), &snapshot);
    let answer = provider.start(spec.clone()).await.unwrap();
    assert!(matches!(answer, Started::SnapshotUnusable { .. }), "{answer:?}");
    assert!(archive.exists(), "it was deleted");
    assert!(provider.list().await.unwrap().sandboxes.is_empty());

    // One that cannot be read just now may be good.
    fs::remove_file(&archive).unwrap();
    fs::create_dir(&archive).unwrap();
    provider.start(spec.clone()).await.unwrap_err();
    fs::remove_dir(&archive).unwrap();

    let answer = provider.start(spec).await.unwrap();
    assert!(matches!(answer, Started::SnapshotUnusable { .. }), "{answer:?}");
    assert_eq!(fs::read_dir(desk.state().join("sandboxes")).unwrap().count(), 0, "something is left behind");
}

#[tokio::test]
async fn a_snapshot_without_its_whole_archive_is_not_listed_and_is_unusable_to_whoever_names_it() {
    let desk = Desk::new();
    let provider = desk.provider();
    let boot = id("devin-1", 1);
    start(&provider, desk.spec("devin-1", 1, "exit 0")).await;
    exited(&provider, &boot).await;
    let snapshot = save(&provider, &boot).await;
    let archive = desk.state().join(format!("snapshots/{}.tar.zst", snapshot.reference));
    let whole = fs::read(&archive).unwrap();
    for left in [Some(&whole[..whole.len() - 1]), None] {
        match left {
            Some(bytes) => fs::write(&archive, bytes).unwrap(),
            None => fs::remove_file(&archive).unwrap(),
        }
        assert!(snapshots(&provider).await.is_empty());
        let spec = restored(desk.spec("devin-1", 2, "exit 0"), &snapshot);
        let answer = provider.start(spec).await.unwrap();
        assert!(matches!(answer, Started::SnapshotUnusable { .. }), "{answer:?}");
    }
    let again = save(&provider, &boot).await;
    assert_eq!(snapshots(&provider).await, [again.reference]);
    remove(&provider, &boot).await;
}

#[tokio::test]
async fn another_sessions_snapshot_is_never_restored() {
    let desk = Desk::new();
    let provider = desk.provider();
    start(&provider, desk.spec("devin-1", 1, "exit 0")).await;
    exited(&provider, &id("devin-1", 1)).await;
    let snapshot = save(&provider, &id("devin-1", 1)).await;
    let answer = provider.start(restored(desk.spec("devin-2", 1, "exit 0"), &snapshot)).await.unwrap();
    assert!(matches!(answer, Started::SnapshotUnusable { .. }), "{answer:?}");
    remove(&provider, &id("devin-1", 1)).await;
}

/// Enough small files that a save or a restore takes a while.
const MANY_FILES: &str = "i=0; while [ $i -lt 3000 ]; do echo $i >repos/$i; i=$((i+1)); done; exit 0";

// The next provider waits for the first one's task, so there must be a thread for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_save_that_is_called_off_by_outposts_end_leaves_nothing_and_is_done_by_the_next() {
    let desk = Desk::new();
    let provider = desk.builder().with(|settings| settings.patience = Duration::ZERO).build().unwrap();
    let boot = id("devin-1", 1);
    start(&provider, desk.spec("devin-1", 1, MANY_FILES)).await;
    exited(&provider, &boot).await;
    let first = provider.save(&boot, outpost_core::model::SnapshotPurpose::Resume).await.unwrap();
    assert_eq!(first, Saving::InProgress);
    drop(provider);

    let provider = desk.provider();
    let snapshot = save(&provider, &boot).await;
    assert_eq!(snapshots(&provider).await, std::slice::from_ref(&snapshot.reference));
    assert_eq!(fs::read_dir(desk.state().join("snapshots")).unwrap().count(), 2);
    remove(&provider, &boot).await;
    start(&provider, restored(desk.spec("devin-1", 2, "exit 0"), &snapshot)).await;
    assert_eq!(fs::read_dir(desk.workspace("devin-1").join("repos")).unwrap().count(), 3000);
    remove(&provider, &id("devin-1", 2)).await;
}

/// Puts an archive without an end in the place of one: what restores it ends when it is called off, and never else.
fn make_endless(archive: PathBuf) {
    fs::remove_file(&archive).unwrap();
    nix::unistd::mkfifo(&archive, nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::thread::spawn(move || {
        // Waits for the reader.
        let pipe = fs::OpenOptions::new().write(true).open(archive).unwrap();
        let mut tar = tar::Builder::new(zstd::Encoder::new(pipe, 1).unwrap());
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o600);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        // An error when the reader has gone.
        while tar.append_data(&mut header, "workspace/file", std::io::empty()).is_ok() {}
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_ends_a_restore_that_is_under_way() {
    let desk = Desk::new();
    let provider = desk.provider();
    start(&provider, desk.spec("devin-1", 1, "exit 0")).await;
    exited(&provider, &id("devin-1", 1)).await;
    let snapshot = save(&provider, &id("devin-1", 1)).await;
    remove(&provider, &id("devin-1", 1)).await;
    make_endless(desk.state().join(format!("snapshots/{}.tar.zst", snapshot.reference)));

    let second = id("devin-1", 2);
    let spec = restored(desk.spec("devin-1", 2, IDLE), &snapshot);
    let (started, ()) = tokio::join!(provider.start(spec), async {
        until("the start", async || state_of(&provider, &second).await.is_some()).await;
        tokio::time::timeout(BOUND, remove(&provider, &second)).await.unwrap();
    });
    assert_eq!(started.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(provider.list().await.unwrap().sandboxes.is_empty());
    assert_eq!(fs::read_dir(desk.state().join("sandboxes")).unwrap().count(), 0);
    assert_eq!(desk.processes(), [] as [i32; 0]);
}
