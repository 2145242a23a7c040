use outpost_core::model::SandboxState;
use outpost_core::ports::ErrorKind;

use super::fixture::ProviderFixture;
use super::rig::{Rig, find, id};
use crate::conformance::{Task, Verdict, ensure, fail};

pub(super) async fn e1_an_extension_is_what_is_listed_and_never_earlier(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let id = id("e1", 1);
    rig.start(&id, &Task::stay()).await?;
    let mut before = rig.until_running(&id).await?.expires_at;
    for _ in 0..3 {
        fixture.pause().await;
        let answer = rig.provider.extend(&id).await?;
        let listed = rig.provider.list().await?;
        let sandbox = find(&listed, &id).cloned();
        let Some(sandbox) = sandbox else { fail!("an extended sandbox is not listed") };
        ensure!(sandbox.expires_at == answer, "answered {answer:?}, listed {:?}", sandbox.expires_at);
        ensure!(sandbox.state == SandboxState::Running, "extending it has changed it: {sandbox:?}");
        let earlier = answer.is_some_and(|answer| before.is_none_or(|before| answer < before));
        ensure!(!earlier, "{answer:?} is earlier than {before:?}");
        before = answer;
    }
    match rig.provider.extend(&super::rig::id("e1-never", 1)).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => fail!("extending what does not exist is answered with {other:?}"),
    }
}
