use outpost_core::model::{MachineEnv, NetworkPolicy, NetworkRule, SandboxState, SnapshotRef};
use outpost_core::ports::{Effect, ErrorKind, Started, Support};

use super::fixture::{Damage, Hindrance, ProviderFixture, SUITE_TOKEN};
use super::rig::{Rig, find, id};
use crate::conformance::{Act, Expectation, Task, Verdict, ensure, fail};

pub(super) async fn s1_starting_a_boot_twice_makes_one_sandbox(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (id, task) = (id("s1", 1), Task::stay());
    let (first, second) = (rig.spec(&id, &task).await, rig.spec(&id, &task).await);
    let (first, second) = futures::join!(rig.provider.start(first), rig.provider.start(second));
    let (first, second) = (sandbox_of(first?)?, sandbox_of(second?)?);
    ensure!(first.started_at == second.started_at, "at the same time: {first:?} and {second:?}");
    let running = rig.until_running(&id).await?;

    let again = sandbox_of(rig.provider.start(rig.spec(&id, &Task::exit(0)).await).await?)?;
    ensure!(again.started_at == running.started_at, "it was started anew: {again:?} after {running:?}");
    let listed = rig.sandboxes().await?;
    ensure!(listed.len() == 1, "{} sandboxes: {listed:#?}", listed.len());
    ensure!(listed[0].state == SandboxState::Running, "the later start has changed it: {listed:#?}");
    Ok(())
}

fn sandbox_of(started: Started) -> Result<outpost_core::model::Sandbox, Verdict> {
    match started {
        Started::Sandbox(sandbox) => Ok(sandbox),
        Started::SnapshotUnusable { why } => fail!("no snapshot was asked for, and it is unusable: {why}"),
    }
}

pub(super) async fn s2_a_restored_disk_is_what_the_snapshot_holds_and_another_is_fresh(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (first, second, fresh) = (id("s2", 1), id("s2", 2), id("s2", 3));
    let work = Task::exit(0)
        .write("repos/a.txt", "work of the first boot")
        .act(Act::Chmod { path: "repos/a.txt", mode: 0o640 })
        .act(Act::Symlink { path: "link", target: "repos/a.txt" });
    rig.run(&first, &work).await?;
    let snapshot = rig.save(&first).await?;
    rig.remove(&first).await?;

    let look = Task::exit(0)
        .expect_file("repos/a.txt", "work of the first boot")
        .expect(Expectation::Mode { path: "repos/a.txt", mode: 0o640 })
        .expect(Expectation::Symlink { path: "link", target: "repos/a.txt" });
    let restored = rig.restore(&second, &snapshot.reference, &look).await?;
    ensure!(
        restored.restored_from.as_ref() == Some(&snapshot.reference),
        "it does not say what it was restored from: {restored:?}"
    );
    rig.until_content(&second, &look).await?;
    rig.remove(&second).await?;

    let look = Task::exit(0).expect(Expectation::Absent { path: "repos/a.txt" });
    rig.run(&fresh, &look).await
}

pub(super) async fn s3_an_unusable_snapshot_is_answered_as_such_and_leaves_nothing(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let unknown = SnapshotRef::new("outpost-suite-no-such-snapshot").expect("not empty");
    is_unusable(&rig, "unknown", &unknown).await?;
    for (name, damage) in [("corrupt", Damage::Corrupt), ("missing", Damage::Missing)] {
        let saved = id(&format!("s3-{name}"), 1);
        rig.run(&saved, &Task::exit(0).write("file", "work ".repeat(2000))).await?;
        let snapshot = rig.save(&saved).await?;
        rig.remove(&saved).await?;
        match fixture.damage(&snapshot.reference, damage).await {
            Ok(()) => is_unusable(&rig, name, &snapshot.reference).await?,
            Err(skip) => eprintln!("S3 without a {name} snapshot: {skip}"),
        }
    }
    Ok(())
}

async fn is_unusable(rig: &Rig<'_>, name: &str, reference: &SnapshotRef) -> Result<(), Verdict> {
    let id = id(&format!("s3-{name}"), 2);
    let mut spec = rig.spec(&id, &Task::stay()).await;
    spec.restore = Some(reference.clone());
    match rig.provider.start(spec).await {
        Ok(Started::SnapshotUnusable { why }) => {
            ensure!(!why.is_empty(), "the {name} snapshot is unusable without a reason");
        }
        Ok(Started::Sandbox(sandbox)) => fail!("a {name} snapshot was restored: {sandbox:?}"),
        Err(error) => fail!("a {name} snapshot is an error: {error} ({:?})", error.kind()),
    }
    let listed = rig.sandboxes().await?;
    ensure!(listed.iter().all(|sandbox| sandbox.id != id), "left behind: {listed:#?}");
    Ok(())
}

pub(super) async fn s4_a_failed_start_leaves_nothing(fixture: &dyn ProviderFixture) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (id, task) = (id("s4", 1), Task::stay());
    let spec = rig.spec(&id, &task).await;
    fixture.hinder(Hindrance::Start).await?;
    let answer = rig.provider.start(spec).await;
    fixture.heal().await;
    let Err(error) = answer else { fail!("a start that cannot succeed has succeeded") };
    if error.effect() == Effect::None {
        let listed = rig.sandboxes().await?;
        ensure!(listed.is_empty(), "{error}, and left behind: {listed:#?}");
        match fixture.leftovers(&id).await {
            Ok(left) => ensure!(left.is_empty(), "{error}, and left behind: {left:#?}"),
            Err(skip) => eprintln!("S4 without a look at leftovers: {skip}"),
        }
    }
    rig.start(&id, &task).await?;
    rig.until_running(&id).await?;
    Ok(())
}

pub(super) async fn s5_a_worker_gets_exactly_its_environment_and_no_secret_shows(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let ended = id("s5-ended", 1);
    let awkward = "it's \"quoted\" $HOME `id` \\ ünïcode";
    let env = |name: &str, value: &str| Expectation::Env { name: name.into(), value: value.into() };
    let mut spec = rig.spec(&ended, &Task::stay()).await;
    spec.worker.settings.extra_env = vec![("OUTPOST_SUITE".to_owned(), awkward.to_owned())];
    let mut names: Vec<String> =
        spec.worker.environment(&every_variable()).names().map(str::to_owned).collect();
    names.extend(fixture.machine_variables());
    let task = Task::exit(0)
        .expect(env("DEVIN_OUTPOST_CONNECT_TOKEN", SUITE_TOKEN))
        .expect(env("DEVIN_OUTPOST_SESSION_ID", ended.session.as_str()))
        .expect(env("DEVIN_OUTPOST_GATEWAY_URL", "http://127.0.0.1:9/gateway"))
        .expect(env("OUTPOST_SUITE", awkward))
        .expect(Expectation::EnvOnly { names });
    spec.worker.program = fixture.program(&task).await;
    sandbox_of(rig.provider.start(spec).await?)?;
    rig.until_content(&ended, &task).await?;

    let (live, planted) = (id("s5-live", 1), "planted-Zq7-for-the-scanner");
    let task = Task::stay().act(Act::Mark { mark: planted.to_owned() });
    let started = rig.start(&live, &task).await?;
    rig.until_running(&live).await?;
    let shown = format!("{started:?} {:?}", rig.provider.list().await?);
    ensure!(!shown.contains(SUITE_TOKEN), "an answer holds the token: {shown}");
    match fixture.search(planted).await {
        Err(skip) => eprintln!("S5 without a search of the backend: {skip}"),
        Ok(mut found) => {
            for _ in 0..fixture.patience() {
                if !found.is_empty() {
                    break;
                }
                fixture.pause().await;
                found = fixture.search(planted).await?;
            }
            ensure!(!found.is_empty(), "the fixture's search does not find a live worker's own argument");
            let found = fixture.search(SUITE_TOKEN).await?;
            ensure!(found.is_empty(), "the token stands in {found:#?}");
        }
    }
    Ok(())
}

/// A machine of which everything is set, so that every documented name is in the environment it makes.
fn every_variable() -> MachineEnv {
    let mut machine = MachineEnv::default();
    for part in [
        &mut machine.home,
        &mut machine.user,
        &mut machine.path,
        &mut machine.tmpdir,
        &mut machine.lang,
        &mut machine.state_dir,
    ] {
        *part = "x".to_owned();
    }
    machine
}

pub(super) async fn s6_a_boot_starts_while_an_older_one_is_being_removed(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let (old, new) = (id("s6", 1), id("s6", 2));
    let stubborn = Task::stay().act(Act::IgnoreTerm);
    rig.start(&old, &stubborn).await?;
    rig.until_running(&old).await?;
    let spec = rig.spec(&new, &Task::stay()).await;
    let (removed, started) = futures::join!(rig.provider.remove(&old), rig.provider.start(spec));
    removed?;
    sandbox_of(started?)?;
    rig.until_running(&new).await?;
    rig.remove(&old).await?;
    rig.until_gone(&old).await?;
    ensure!(
        find(&rig.provider.list().await?, &new).is_some_and(|sandbox| sandbox.state == SandboxState::Running),
        "removing the old boot has ended the new one"
    );
    Ok(())
}

pub(super) async fn s7_a_network_policy_is_enforced_or_refused(
    fixture: &dyn ProviderFixture,
) -> Result<(), Verdict> {
    let rig = Rig::new(fixture).await;
    let id = id("s7", 1);
    let nothing = NetworkPolicy::Allow(vec![NetworkRule::Unknown("from the future".to_owned())]);
    match rig.provider.capabilities().network_policy {
        Support::No => {
            let mut spec = rig.spec(&id, &Task::stay()).await;
            spec.network_policy = nothing;
            match rig.provider.start(spec).await {
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                Err(error) => fail!("refused as {:?}: {error}", error.kind()),
                Ok(started) => fail!("started although it cannot enforce the policy: {started:?}"),
            }
            let listed = rig.sandboxes().await?;
            ensure!(listed.is_empty(), "refused, and left behind: {listed:#?}");
        }
        Support::Yes => {
            fixture.network_probe()?;
            let task = Task::exit(0).expect(Expectation::Offline);
            let mut spec = rig.spec(&id, &task).await;
            spec.network_policy = nothing;
            sandbox_of(rig.provider.start(spec).await?)?;
            rig.until_content(&id, &task).await?;
            let (open, task) = (super::rig::id("s7-open", 1), Task::exit(0).expect(Expectation::Offline));
            rig.start(&open, &task).await?;
            let code = rig.until_exited(&open).await?;
            ensure!(
                task.explain(code).is_err(),
                "the probe cannot tell: it is offline without a policy, too"
            );
        }
    }
    Ok(())
}
