//! `kill -9` of Outpost at every step of a sandbox's life.

use std::process::{Child, Command, Stdio};

use outpost::core::model::InstanceId;
use outpost::docker::Step as DockerStep;
use outpost::sim::control::ControlExt as _;
use outpost::sim::script::Step;

use crate::stage::{Orchestrator, World, until};

const SESSION: &str = "devin-crash";
const SLEEPS: usize = 2;

/// Tells a child process of this test what to be.
const ROLE: &str = "OUTPOST_TEST_CRASH";

/// An orchestrator that kills itself when it reaches a step.
fn spawn(orchestrator: &Orchestrator, dies_at: Option<DockerStep>) -> Child {
    let words = [
        orchestrator.api_url.clone(),
        orchestrator.state.display().to_string(),
        orchestrator.instance.to_string(),
        orchestrator.engine.clone(),
        orchestrator.image.clone(),
        orchestrator.flatten_at.to_string(),
        dies_at.map_or_else(String::new, |step| format!("{step:?}")),
    ];
    let log = std::fs::File::options().create(true).append(true).open(orchestrator.log()).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crashes::the_orchestrator_of_the_other_tests", "--nocapture"])
        .env(ROLE, words.join("\n"))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Not a test of its own: the others run it in a process of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_orchestrator_of_the_other_tests() {
    let Ok(words) = std::env::var(ROLE) else { return };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let words: Vec<_> = words.split('\n').map(str::to_owned).collect();
    let [api_url, state, instance, engine, image, flatten_at, dies_at] = words.try_into().unwrap();
    let orchestrator = Orchestrator {
        api_url,
        state: state.into(),
        instance: InstanceId::new(instance).unwrap(),
        engine,
        image,
        flatten_at: flatten_at.parse().unwrap(),
        user: "devin".to_owned(),
        limit: 4,
    };
    let die = move |step: DockerStep| {
        if format!("{step:?}") == dies_at {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
            std::thread::park();
        }
    };
    orchestrator.serve(die, std::future::pending()).await;
}

/// Writes the file of this waking, and says which files of the ones before are not what they were.
fn work(waking: usize) -> Step {
    Step::run(format!(
        "mkdir -p repos; printf %s {waking} >repos/{waking}; i=0; while [ $i -le {waking} ]; do \
         [ \"$(cat repos/$i 2>/dev/null)\" = $i ] || echo \"lost $i\"; i=$((i+1)); done; echo checked"
    ))
}

/// A session that sleeps twice and ends, pushed on by whoever looks at it.
struct Life {
    sleeps: usize,
    hangs: bool,
    ended: bool,
}

impl Life {
    fn script(&self, waking: usize, end: Step) -> Vec<Step> {
        let mut script = vec![work(waking)];
        if self.hangs {
            script.push(Step::Hang);
        }
        script.push(end);
        script
    }

    fn push_on(&mut self, world: &World) {
        let asleep = world.status(SESSION).as_deref() == Some("suspended");
        // A worker that hangs is stopped when its session has slept for a while.
        let held = world.sim().row(SESSION).unwrap().is_some_and(|row| row.acceptor_id.is_some());
        if !asleep || self.ended || (self.hangs && held) {
            return;
        }
        self.sleeps += 1;
        self.ended = self.sleeps > SLEEPS;
        let end = if self.ended { Step::Terminate } else { Step::Suspend };
        world.sim().push(SESSION, self.script(self.sleeps, end)).unwrap();
        world.sim().wake(SESSION).unwrap();
    }
}

async fn killed_at(step: DockerStep) {
    let world = World::new().await;
    let mut orchestrator = world.orchestrator();
    if matches!(step, DockerStep::FlattenBegins | DockerStep::LayersJoined) {
        orchestrator.flatten_at = 3;
    }
    let hangs = matches!(step, DockerStep::StopBegins | DockerStep::WorkerStopped);
    let mut life = Life { sleeps: 0, hangs, ended: false };
    world.create(SESSION, life.script(0, Step::Suspend));

    let mut child = spawn(&orchestrator, Some(step));
    let mut died = None;
    until(&format!("{step:?} is reached"), || {
        life.push_on(&world);
        died = child.try_wait().unwrap();
        died.is_some()
    })
    .await;
    let signal = std::os::unix::process::ExitStatusExt::signal(&died.unwrap());
    assert_eq!(signal, Some(9), "it was killed and did not fail: {died:?}");

    let mut next = spawn(&orchestrator, None);
    until("the session has ended", || {
        life.push_on(&world);
        assert!(next.try_wait().unwrap().is_none(), "the next orchestrator has ended");
        life.ended && world.status(SESSION).is_none_or(|status| status == "terminated")
    })
    .await;
    world.until_nothing_is_left().await;
    next.kill().unwrap();
    next.wait().unwrap();

    let results = world.sim().results(SESSION).unwrap();
    assert_eq!(results.len(), SLEEPS + 2, "every command ran: {results:#?}");
    for result in results {
        assert_eq!(result.output.trim(), "checked", "{step:?}: {result:?}");
    }
    let workers = world.sim().workers().unwrap();
    let overlapping: Vec<_> = workers.iter().filter(|worker| worker.overlaps.is_some()).collect();
    assert!(overlapping.is_empty(), "two workers at once: {overlapping:#?}");
}

/// Every step once, so that a step nobody tests does not compile.
macro_rules! killed {
    ($($name:ident: $step:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                killed_at(DockerStep::$step).await;
            }
        )*

        #[test]
        fn every_step_has_its_test() {
            let tested = [$(DockerStep::$step),*];
            for step in DockerStep::ALL {
                assert!(tested.contains(&step), "{step:?}");
            }
        }
    };
}

killed! {
    nothing_is_lost_when_killed_before_the_network_is_made: StartBegins,
    nothing_is_lost_when_killed_with_a_network_only: NetworkMade,
    nothing_is_lost_when_killed_with_a_container_that_never_ran: ContainerMade,
    nothing_is_lost_when_killed_before_the_program_is_sent: ProgramMissing,
    nothing_is_lost_when_killed_after_the_program_is_sent: ProgramThere,
    nothing_is_lost_when_killed_holding_the_input: InputHeld,
    nothing_is_lost_when_killed_while_the_supervisor_waits: SupervisorRuns,
    nothing_is_lost_when_killed_after_the_network_is_confined: NetworkConfined,
    nothing_is_lost_when_killed_in_the_middle_of_the_environment: EnvironmentCut,
    nothing_is_lost_when_killed_after_the_environment_is_sent: EnvironmentSent,
    nothing_is_lost_when_killed_before_a_worker_is_stopped: StopBegins,
    nothing_is_lost_when_killed_after_a_worker_is_stopped: WorkerStopped,
    nothing_is_lost_when_killed_before_a_save: SaveBegins,
    nothing_is_lost_when_killed_before_layers_are_joined: FlattenBegins,
    nothing_is_lost_when_killed_after_layers_are_joined: LayersJoined,
    nothing_is_lost_when_killed_with_an_image_that_nobody_has_checked: ImageMade,
    nothing_is_lost_when_killed_with_an_image_that_has_no_name: ImageChecked,
    nothing_is_lost_when_killed_with_a_snapshot_that_nobody_has_recorded: SnapshotNamed,
    nothing_is_lost_when_killed_before_a_removal: RemoveBegins,
    nothing_is_lost_when_killed_without_a_guard: GuardRemoved,
    nothing_is_lost_when_killed_with_a_network_left: ContainerRemoved,
    nothing_is_lost_when_killed_after_a_removal: NetworkRemoved,
    nothing_is_lost_when_killed_before_a_snapshot_is_deleted: DeleteBegins,
    nothing_is_lost_when_killed_with_a_snapshot_of_two_names: SnapshotMarked,
    nothing_is_lost_when_killed_with_a_snapshot_that_lost_its_name: SnapshotUnnamed,
    nothing_is_lost_when_killed_after_a_snapshot_is_deleted: SnapshotDeleted,
}
