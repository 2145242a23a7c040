use outpost_core::model::SandboxState;
use outpost_core::ports::Saving;

use super::fixture::{Hindrance, ProviderFixture};
use super::rig::{Rig, find, id};
use crate::conformance::{Task, Verdict, ensure, fail};

pub(super) async fn l1_a_listing_is_complete_or_an_error(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let ids: Vec<_> = (0..5).map(|n| id(&format!("l1-{n}"), 1)).collect();
    for id in &ids {
        rig.start(id, &Task::stay()).await?;
    }
    for id in &ids {
        rig.until_running(id).await?;
    }
    let missing = |listed: &outpost_core::ports::Inventory| {
        ids.iter().filter(|id| find(listed, id).is_none()).map(ToString::to_string).collect::<Vec<_>>()
    };
    let listed = rig.provider.list().await?;
    ensure!(missing(&listed).is_empty(), "not listed: {:?}", missing(&listed));
    ensure!(listed.sandboxes.len() == ids.len(), "listed is more than was started: {listed:#?}");

    fixture.hinder(Hindrance::List).await?;
    let hindered = rig.provider.list().await;
    fixture.heal().await;
    if let Ok(listed) = hindered {
        ensure!(missing(&listed).is_empty(), "a part of the listing passes for the whole: {listed:#?}");
    }
    let listed = rig.provider.list().await?;
    ensure!(missing(&listed).is_empty(), "not listed any more: {:?}", missing(&listed));
    Ok(())
}

pub(super) async fn l2_a_started_sandbox_is_listed_until_it_is_removed(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (id, task) = (id("l2", 1), Task::stay());
    rig.start(&id, &task).await?;
    ensure!(find(&rig.provider.list().await?, &id).is_some(), "start has answered and it is not listed");
    rig.until("the worker while the sandbox stays listed", |listed| match find(listed, &id) {
        None => Some(Err(())),
        Some(sandbox) => (sandbox.state == SandboxState::Running).then_some(Ok(())),
    })
    .await?
    .or_else(|()| fail!("it left the listing before its worker ran"))?;
    rig.stop(&id).await?;
    ensure!(find(&rig.provider.list().await?, &id).is_some(), "its worker has ended and it is not listed");
    rig.remove(&id).await?;
    ensure!(find(&rig.provider.list().await?, &id).is_none(), "it was removed and is listed");
    Ok(())
}

pub(super) async fn l3_a_snapshot_is_listed_when_it_is_complete_and_not_before(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (id, task) = (id("l3", 1), Task::exit(0).write("file", "work"));
    rig.run(&id, &task).await?;
    ensure!(rig.snapshots().await?.is_empty(), "a snapshot is listed and nothing was saved");
    for _ in 0..fixture.patience() {
        let first = rig.provider.save(&id, outpost_core::model::SnapshotPurpose::Resume).await?;
        match first {
            Saving::Done(snapshot) => {
                let listed = rig.snapshots().await?;
                ensure!(listed == [snapshot.clone()], "saved is {snapshot:#?}, listed {listed:#?}");
                return Ok(());
            }
            Saving::InProgress => {
                // Between the answer and the listing the save can have ended; what is listed then is complete.
                if let [early] = &rig.snapshots().await?[..] {
                    match rig.provider.save(&id, early.purpose).await? {
                        Saving::Done(snapshot) if snapshot == *early => return Ok(()),
                        _ => fail!("listed before it is complete: {early:#?}"),
                    }
                }
            }
        }
        fixture.pause().await;
    }
    fail!("saving does not end")
}

pub(super) async fn l4_nothing_of_another_instance_or_role_is_listed(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let neighbour = Rig { fixture, provider: fixture.open_neighbour().await? };
    let (shared, theirs) = (id("l4", 1), id("l4-other", 1));
    rig.run(&shared, &Task::exit(0)).await?;
    neighbour.start(&shared, &Task::exit(3)).await?;
    neighbour.until_exited(&shared).await?;
    neighbour.run(&theirs, &Task::exit(0)).await?;
    neighbour.save(&theirs).await?;
    let console = id("l4-console", 1);
    match fixture.plant_console(&console).await {
        Ok(()) => {}
        Err(skip) => eprintln!("L4 without other roles: {skip}"),
    }

    let listed = rig.provider.list().await?;
    let ids: Vec<_> = listed.sandboxes.iter().map(|sandbox| &sandbox.id).collect();
    ensure!(ids == [&shared], "of another instance or role: {listed:#?}");
    ensure!(listed.snapshots.is_empty(), "snapshots of another instance: {listed:#?}");
    ensure!(
        listed.sandboxes[0].state == SandboxState::Exited { code: Some(0) },
        "the neighbour's sandbox of the same session and boot shows through: {listed:#?}"
    );
    Ok(())
}

pub(super) async fn l5_what_was_there_before_this_process_is_listed(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (live, ended, saved) = (id("l5-live", 1), id("l5-ended", 2), id("l5-saved", 3));
    rig.start(&live, &Task::stay()).await?;
    rig.until_running(&live).await?;
    rig.run(&ended, &Task::exit(0)).await?;
    rig.run(&saved, &Task::exit(0)).await?;
    rig.save(&saved).await?;
    rig.remove(&saved).await?;
    let mut before = rig.provider.list().await?;

    let rig = rig.restart().await;
    let mut after = rig.provider.list().await?;
    for inventory in [&mut before, &mut after] {
        inventory.sandboxes.sort_by(|a, b| a.id.cmp(&b.id));
        inventory.snapshots.sort_by(|a, b| a.reference.cmp(&b.reference));
    }
    ensure!(before == after, "before the restart {before:#?}, after it {after:#?}");
    ensure!(
        find(&after, &live).is_some_and(|sandbox| sandbox.state == SandboxState::Running)
            && find(&after, &ended).is_some()
            && after.snapshots.len() == 1,
        "not everything is listed: {after:#?}"
    );
    Ok(())
}
