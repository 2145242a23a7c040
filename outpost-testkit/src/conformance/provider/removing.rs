use futures::future::{Either, select};
use outpost_core::model::SnapshotPurpose;

use super::fixture::ProviderFixture;
use super::rig::{Rig, find, id};
use crate::conformance::{Act, Task, Verdict, ensure};

pub(super) async fn r1_nothing_of_a_removed_sandbox_is_left(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (id, mark) = (id("r1", 1), "outpost-suite-r1");
    let task = Task::stay()
        .write("file", "work")
        .act(Act::IgnoreTerm)
        .act(Act::Spawn { mark: mark.to_owned() })
        .act(Act::Mark { mark: mark.to_owned() });
    rig.start(&id, &task).await?;
    rig.until_running(&id).await?;
    match fixture.processes(mark).await {
        Ok(_) => rig.until_processes(mark, 2).await?,
        Err(skip) => eprintln!("R1 without a look at processes: {skip}"),
    }
    rig.remove(&id).await?;
    ensure!(find(&rig.provider.list().await?, &id).is_none(), "it was removed and is listed");
    if let Ok(left) = fixture.processes(mark).await {
        ensure!(left == 0, "{left} of its processes live on");
    }
    match fixture.leftovers(&id).await {
        Ok(left) => ensure!(left.is_empty(), "the backend still holds {left:#?}"),
        Err(skip) => eprintln!("R1 without a look at leftovers: {skip}"),
    }
    Ok(())
}

pub(super) async fn r2_removing_what_does_not_exist_is_success(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    rig.remove(&id("r2-never", 1)).await?;
    let once = id("r2", 1);
    rig.run(&once, &Task::exit(0)).await?;
    rig.remove(&once).await?;
    rig.remove(&once).await
}

pub(super) async fn r3_snapshots_outlive_their_sandbox(fixture: &dyn ProviderFixture) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let mut saved = Vec::new();
    for (name, purpose) in [("resume", SnapshotPurpose::Resume), ("detached", SnapshotPurpose::Detached)] {
        let id = id(&format!("r3-{name}"), 1);
        rig.run(&id, &Task::exit(0).write("file", name)).await?;
        let snapshot = rig.save_for(&id, purpose).await?;
        ensure!(snapshot.purpose == purpose, "saved as {purpose:?}, listed as {snapshot:?}");
        rig.remove(&id).await?;
        saved.push(snapshot);
    }
    let listed = rig.snapshots().await?;
    for snapshot in &saved {
        ensure!(listed.contains(snapshot), "{snapshot:?} went with its sandbox; left are {listed:#?}");
    }
    Ok(())
}

pub(super) async fn r4_a_removal_ends_a_start_that_is_under_way(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (id, other) = (id("r4", 1), id("r4-other", 1));
    let spec = rig.spec(&id, &Task::stay()).await;
    let start = rig.provider.start(spec);
    let listed = rig.until("the sandbox that starts", |listed| find(listed, &id).map(|_| ()));
    futures::pin_mut!(listed);
    match select(start, listed).await {
        Either::Left((answer, _)) => {
            answer?;
            rig.remove(&id).await?;
        }
        Either::Right((listed, start)) => {
            listed?;
            // Either answer is right: the removal may come after the start's last step or before it.
            let (removed, _started) = futures::join!(rig.remove(&id), start);
            removed?;
        }
    }
    ensure!(
        find(&rig.provider.list().await?, &id).is_none(),
        "it was removed while it started, and is listed"
    );
    // What still went on behind the removal would show by the time that another sandbox has come to run.
    rig.start(&other, &Task::stay()).await?;
    rig.until_running(&other).await?;
    ensure!(find(&rig.provider.list().await?, &id).is_none(), "the start went on behind its removal");
    Ok(())
}
