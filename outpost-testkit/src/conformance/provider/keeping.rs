use outpost_core::model::SnapshotRef;
use outpost_core::ports::{ErrorKind, Started, Support};

use super::fixture::ProviderFixture;
use super::rig::{Rig, id};
use crate::conformance::{Task, Verdict, ensure, fail};

pub(super) async fn d1_a_deleted_snapshot_is_gone_for_good(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (first, second) = (id("d1", 1), id("d1", 2));
    rig.run(&first, &Task::exit(0)).await?;
    let saved = rig.save(&first).await?;
    rig.remove(&first).await?;
    if rig.provider.capabilities().delete_snapshots == Support::No {
        return match rig.provider.delete_snapshot(&saved.reference).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
            other => fail!("it cannot delete snapshots, and answers {other:?}"),
        };
    }
    rig.provider.delete_snapshot(&saved.reference).await?;
    ensure!(rig.snapshots().await?.is_empty(), "it was deleted and is listed");
    let mut spec = rig.spec(&second, &Task::exit(0)).await;
    spec.restore = Some(saved.reference.clone());
    if let Ok(Started::Sandbox(sandbox)) = rig.provider.start(spec).await {
        fail!("a deleted snapshot was restored: {sandbox:?}");
    }
    rig.provider.delete_snapshot(&saved.reference).await?;
    let unknown = SnapshotRef::new("outpost-suite-no-such-snapshot").expect("not empty");
    rig.provider.delete_snapshot(&unknown).await?;
    let rig = rig.restart().await;
    ensure!(rig.snapshots().await?.is_empty(), "it came back with a restart");
    Ok(())
}

pub(super) async fn d2_sandboxes_outlive_the_snapshot_they_came_from(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    if rig.provider.capabilities().delete_snapshots == Support::No {
        return Err(crate::conformance::Skip::because("the backend cannot delete snapshots").into());
    }
    let (first, second) = (id("d2", 1), id("d2", 2));
    rig.run(&first, &Task::exit(0).write("file", "work")).await?;
    let saved = rig.save(&first).await?;
    rig.remove(&first).await?;
    rig.restore(&second, &saved.reference, &Task::stay()).await?;
    rig.until_running(&second).await?;
    rig.provider.delete_snapshot(&saved.reference).await?;
    rig.until_running(&second).await?;
    rig.stop(&second).await?;
    rig.save(&second).await?;
    Ok(())
}
