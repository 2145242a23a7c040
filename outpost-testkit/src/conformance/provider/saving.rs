use outpost_core::model::{Snapshot, SnapshotPurpose};
use outpost_core::ports::{AfterSave, ErrorKind, Saving};

use super::fixture::{Hindrance, ProviderFixture, SUITE_TOKEN};
use super::rig::{Rig, find, id};
use crate::conformance::{Act, Expectation, Task, Verdict, ensure, fail};

pub(super) async fn v1_a_boot_is_saved_once_however_often_that_is_asked_for(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let id = id("v1", 1);
    rig.run(&id, &Task::exit(0).write("file", "work")).await?;
    let (first, second) = futures::join!(
        rig.provider.save(&id, SnapshotPurpose::Resume),
        rig.provider.save(&id, SnapshotPurpose::Resume)
    );
    let at_once = [first?, second?];
    let saved = rig.save(&id).await?;
    for answer in at_once {
        if let Saving::Done(snapshot) = answer {
            ensure!(snapshot == saved, "two saves at once: {snapshot:?} and {saved:?}");
        }
    }
    let again = rig.save(&id).await?;
    ensure!(again == saved, "saved again, it is another: {again:?} after {saved:?}");
    rig.remove(&id).await?;
    let again = rig.save(&id).await?;
    ensure!(again == saved, "after the removal it is another: {again:?} after {saved:?}");
    let rig = rig.restart().await;
    let again = rig.save(&id).await?;
    ensure!(again == saved, "after a restart it is another: {again:?} after {saved:?}");
    let listed = rig.snapshots().await?;
    ensure!(listed.len() == 1, "{} snapshots of one boot: {listed:#?}", listed.len());
    Ok(())
}

pub(super) async fn v2_a_finished_save_survives_the_process(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (first, second) = (id("v2", 1), id("v2", 2));
    rig.run(&first, &Task::exit(0)).await?;
    let saved = rig.save(&first).await?;
    let rig = rig.restart().await;
    ensure!(rig.snapshots().await?.contains(&saved), "the snapshot is not listed after a restart");
    rig.run_restored(&second, &saved.reference, &Task::exit(0)).await
}

pub(super) async fn v3_a_live_or_unknown_sandbox_is_not_saved(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (live, unknown) = (id("v3", 1), id("v3-unknown", 1));
    rig.start(&live, &Task::stay()).await?;
    rig.until_running(&live).await?;
    match rig.provider.save(&live, SnapshotPurpose::Resume).await {
        Err(error) if error.kind() == ErrorKind::Conflict => {}
        other => fail!("saving a live sandbox is answered with {other:?}"),
    }
    ensure!(
        find(&rig.provider.list().await?, &live).is_some_and(|sandbox| sandbox.state.is_live()),
        "being asked to save it has ended its worker"
    );
    match rig.provider.save(&unknown, SnapshotPurpose::Resume).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        other => fail!("saving an unknown sandbox is answered with {other:?}"),
    }
    ensure!(rig.snapshots().await?.is_empty(), "something was saved");
    Ok(())
}

pub(super) async fn v4_a_failed_save_changes_nothing(fixture: &dyn ProviderFixture) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (first, second, third) = (id("v4", 1), id("v4", 2), id("v4", 3));
    let task = Task::exit(0).write("file", "work of the second boot");
    rig.run(&first, &Task::exit(0)).await?;
    let earlier = rig.save(&first).await?;
    rig.remove(&first).await?;
    rig.run_restored(&second, &earlier.reference, &task).await?;

    fixture.hinder(Hindrance::Save).await?;
    let failed = fails_to_save(&rig, &second).await;
    fixture.heal().await;
    failed?;
    let listed = rig.provider.list().await?;
    ensure!(find(&listed, &second).is_some(), "the sandbox went with its save: {listed:#?}");
    ensure!(listed.snapshots == [earlier], "a failed save has changed the snapshots: {listed:#?}");

    let saved = rig.save(&second).await?;
    rig.run_restored(&third, &saved.reference, &Task::exit(0).expect_file("file", "work of the second boot"))
        .await
}

async fn fails_to_save(rig: &Rig<'_>, id: &outpost_core::model::SandboxId) -> Result<(), Verdict> {
    for _ in 0..rig.fixture.patience() {
        match rig.provider.save(id, SnapshotPurpose::Resume).await {
            Err(_) => return Ok(()),
            Ok(Saving::InProgress) => rig.fixture.pause().await,
            Ok(Saving::Done(snapshot)) => fail!("a save that cannot succeed has succeeded: {snapshot:?}"),
        }
    }
    fail!("a save that cannot succeed goes on for ever")
}

pub(super) async fn v5_no_secret_of_the_start_is_in_the_snapshot(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (first, second, planted) = (id("v5", 1), id("v5", 2), "planted-Zq7-for-the-snapshot");
    rig.run(&first, &Task::exit(0).write("planted", planted)).await?;
    let saved = rig.save(&first).await?;
    rig.remove(&first).await?;
    match fixture.search(planted).await {
        Ok(found) => {
            ensure!(!found.is_empty(), "the fixture's search does not look into snapshots");
            let found = fixture.search(SUITE_TOKEN).await?;
            ensure!(found.is_empty(), "the token stands in {found:#?}");
        }
        Err(skip) => eprintln!("V5 by the worker's eyes only: {skip}"),
    }
    let look = Task::exit(0)
        .expect_file("planted", planted)
        .expect(Expectation::NoFileHolds { text: SUITE_TOKEN.to_owned() });
    rig.run_restored(&second, &saved.reference, &look).await
}

pub(super) async fn v6_contents_modes_links_and_empty_directories_are_saved(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (first, second) = (id("v6", 1), id("v6", 2));
    let work = Task::exit(0)
        .write("plain", "contents")
        .write("odd name, ünïcode/- file", "spaces")
        .act(Act::Chmod { path: "plain", mode: 0o600 })
        .write("tool", "#!/bin/sh")
        .act(Act::Chmod { path: "tool", mode: 0o755 })
        .act(Act::Symlink { path: "link", target: "plain" })
        .act(Act::Symlink { path: "dangling", target: "/nonexistent/target" })
        .act(Act::HardLink { path: "hard", target: "plain" })
        .act(Act::MakeDir { path: "empty/inner" })
        .write(".hidden", "dotted");
    rig.run(&first, &work).await?;
    let saved: Snapshot = rig.save(&first).await?;
    if rig.provider.capabilities().after_save == AfterSave::Remains {
        ensure!(find(&rig.provider.list().await?, &first).is_some(), "a sandbox that remains was consumed");
    }
    rig.remove(&first).await?;
    let look = Task::exit(0)
        .expect_file("plain", "contents")
        .expect_file("odd name, ünïcode/- file", "spaces")
        .expect(Expectation::Mode { path: "plain", mode: 0o600 })
        .expect(Expectation::Mode { path: "tool", mode: 0o755 })
        .expect(Expectation::Symlink { path: "link", target: "plain" })
        .expect(Expectation::Symlink { path: "dangling", target: "/nonexistent/target" })
        .expect(Expectation::SameFile { path: "hard", other: "plain" })
        .expect(Expectation::EmptyDir { path: "empty/inner" })
        .expect_file(".hidden", "dotted");
    rig.run_restored(&second, &saved.reference, &look).await
}
