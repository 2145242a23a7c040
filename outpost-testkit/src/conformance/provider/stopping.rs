use outpost_core::model::{SandboxState, WorkerEnding};
use outpost_core::ports::Stopped;

use super::fixture::ProviderFixture;
use super::rig::{Rig, find, id};
use crate::conformance::{Act, Task, Verdict, ensure};

pub(super) async fn w1_a_stopped_worker_leaves_a_disk_and_no_process(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (first, second, mark) = (id("w1", 1), id("w1", 2), "outpost-suite-w1");
    let task = Task::stay()
        .write("file", "work")
        .act(Act::Spawn { mark: mark.to_owned() })
        .act(Act::Mark { mark: mark.to_owned() });
    rig.start(&first, &task).await?;
    rig.until_running(&first).await?;
    rig.until_processes(mark, 2).await?;
    rig.stop(&first).await?;
    let listed = rig.provider.list().await?;
    ensure!(
        find(&listed, &first).is_some_and(|sandbox| matches!(sandbox.state, SandboxState::Exited { .. })),
        "it was stopped and is not listed as exited: {listed:#?}"
    );
    let left = fixture.processes(mark).await?;
    ensure!(left == 0, "{left} of its processes live on");
    let snapshot = rig.save(&first).await?;
    rig.run_restored(&second, &snapshot.reference, &Task::exit(0).expect_file("file", "work")).await
}

pub(super) async fn w2_stopping_what_has_ended_or_never_was_is_success(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    rig.stop(&id("w2-never", 1)).await?;
    let ended = id("w2", 1);
    rig.run(&ended, &Task::exit(0)).await?;
    rig.stop(&ended).await?;
    rig.stop(&ended).await?;
    let listed = rig.provider.list().await?;
    ensure!(
        find(&listed, &ended).is_some_and(|sandbox| sandbox.state == SandboxState::Exited { code: Some(0) }),
        "stopping it has changed how it ended: {listed:#?}"
    );
    Ok(())
}

pub(super) async fn w3_a_worker_that_ignores_term_is_killed_and_its_save_says_forced(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (stubborn, meek, mark) = (id("w3-stubborn", 1), id("w3-meek", 1), "outpost-suite-w3");
    let task = Task::stay().act(Act::IgnoreTerm).act(Act::Mark { mark: mark.to_owned() });
    rig.start(&stubborn, &task).await?;
    rig.until_running(&stubborn).await?;
    // A worker that runs may not have come to ignoring yet.
    match fixture.processes(mark).await {
        Ok(_) => rig.until_processes(mark, 1).await?,
        Err(skip) => eprintln!("W3 without a look at processes: {skip}"),
    }
    let stopped = rig.stop(&stubborn).await?;
    ensure!(
        stopped == Stopped::Done { ending: WorkerEnding::Forced },
        "it was killed, and that is {stopped:?}"
    );
    let snapshot = rig.save(&stubborn).await?;
    ensure!(snapshot.ending == WorkerEnding::Forced, "its save does not say forced: {snapshot:?}");

    rig.run(&meek, &Task::exit(0)).await?;
    let snapshot = rig.save(&meek).await?;
    ensure!(snapshot.ending == WorkerEnding::Clean, "a clean end is saved as {snapshot:?}");
    Ok(())
}
