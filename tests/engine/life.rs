//! Whole lives of sessions in real containers.

use outpost::sim::control::ControlExt as _;
use outpost::sim::script::Step;

use crate::stage::{World, until};

/// Something on a disk of each kind, in the workspace and outside of it.
const FURNISH: &str = "\
mkdir -p repos/app/old usr-is-not-here && echo work >repos/app/file && mv repos/app/old repos/app/renamed
ln repos/app/file repos/app/hard && ln -s file repos/app/link && mkdir -p repos/empty
echo tool >/usr/local/bin/tool && chown 1000:1000 /usr/local/bin/tool && chmod 4755 /usr/local/bin/tool
mkdir -p /opt/installed/deep && echo library >/opt/installed/deep/lib && chmod 640 /opt/installed/deep/lib
rm -f /etc/motd && echo gone >/tmp/kept && mkfifo repos/fifo && chmod 1777 repos/empty";

/// What of it can be seen, one line each.
const LOOK: &str = "\
cd repos/.. && for f in repos/app repos/app/file repos/app/hard repos/app/link repos/app/renamed repos/empty repos/fifo \
/usr/local/bin/tool /opt/installed/deep/lib /tmp/kept; do stat -c '%n %F %a %u:%g %h' $f; done; \
cat repos/app/file repos/app/hard repos/app/link /usr/local/bin/tool /opt/installed/deep/lib /tmp/kept; \
[ repos/app/file -ef repos/app/hard ] && echo one file; readlink repos/app/link; ls -A repos/app";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_wakes_with_the_disk_with_which_it_slept() {
    let world = World::new().await;
    let mut orchestrator = world.orchestrator();
    orchestrator.user = "root".to_owned();
    let script = vec![
        Step::run(FURNISH),
        Step::run(LOOK),
        Step::Suspend,
        Step::run(LOOK),
        // Not through one name of a linked file: overlay filesystems then part the names.
        Step::run("echo more >>/tmp/kept; rm repos/fifo; rmdir repos/empty"),
        Step::run(LOOK),
        Step::Suspend,
        Step::run(LOOK),
        Step::Terminate,
    ];
    world.create("devin-disk", script);
    let running = orchestrator.start();
    for sleep in 1..=2 {
        until(&format!("sleep {sleep}"), || world.status("devin-disk").as_deref() == Some("suspended")).await;
        until("it is released", || {
            world.sim().row("devin-disk").unwrap().is_none_or(|row| row.acceptor_id.is_none())
        })
        .await;
        assert!(world.containers().await.is_empty(), "it sleeps without a container");
        world.sim().wake("devin-disk").unwrap();
    }
    until("it has ended", || world.status("devin-disk").as_deref() == Some("terminated")).await;
    world.until_nothing_is_left().await;
    running.stop().await;
    let results = world.sim().results("devin-disk").unwrap();
    let looks: Vec<_> = results.iter().filter(|result| result.command == LOOK).collect();
    assert_eq!(looks.len(), 4, "{results:#?}");
    assert!(looks[0].output.contains("one file") && looks[0].output.contains("4755 1000:1000"), "{looks:#?}");
    assert_eq!(looks[0].output, looks[1].output, "after the first sleep");
    assert_ne!(looks[1].output, looks[2].output, "the change can be seen");
    assert_eq!(looks[2].output, looks[3].output, "after the second sleep");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_sessions_live_at_once() {
    const SESSIONS: usize = 20;
    let world = World::new().await;
    let name = |number: usize| format!("devin-{number}");
    for number in 0..SESSIONS {
        world.create(
            &name(number),
            vec![
                Step::run(format!("mkdir -p repos && echo mine-{number} >repos/note")),
                Step::wait("all"),
                Step::Suspend,
                Step::run("cat repos/note"),
                Step::Terminate,
            ],
        );
    }
    let running = world.orchestrator().start();
    until("all of them work at the same time", || {
        (0..SESSIONS).all(|number| world.sim().results(&name(number)).unwrap().len() == 1)
    })
    .await;
    assert_eq!(world.containers().await.len(), SESSIONS);
    for number in 0..SESSIONS {
        world.sim().go(&name(number), "all").unwrap();
    }
    let mut woken = [false; SESSIONS];
    until("all of them have slept and ended", || {
        for (number, woken) in woken.iter_mut().enumerate() {
            let asleep = world.status(&name(number)).as_deref() == Some("suspended");
            let free = world.sim().row(&name(number)).unwrap().is_none_or(|row| row.acceptor_id.is_none());
            if asleep && free && !*woken {
                *woken = true;
                world.sim().wake(&name(number)).unwrap();
            }
        }
        (0..SESSIONS).all(|number| world.status(&name(number)).as_deref() == Some("terminated"))
    })
    .await;
    for number in 0..SESSIONS {
        let results = world.sim().results(&name(number)).unwrap();
        assert_eq!(results[1].output.trim(), format!("mine-{number}"));
    }
    world.until_nothing_is_left().await;
    running.stop().await;
}

/// Each script with what it comes to: the rows of the state table that a worker's end decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_a_worker_ends_its_session_goes_on_or_sleeps_with_its_disk() {
    let world = World::new().await;
    let write = || Step::run("mkdir -p repos && echo kept >repos/note; sleep 6");
    let read = || Step::run("cat repos/note");
    let lives: [(&str, Vec<Step>); 6] = [
        ("devin-exits", vec![write(), Step::ExitWith { code: 0 }, Step::Suspend]),
        ("devin-hangs", vec![write(), Step::Hang, Step::Suspend]),
        ("devin-stubborn", vec![write(), Step::IgnoreTerm, Step::Hang, Step::Suspend]),
        ("devin-crashes", vec![write(), Step::Crash { code: 3 }, read(), Step::Suspend]),
        ("devin-is-killed", vec![write(), Step::KillSelf, read(), Step::Suspend]),
        ("devin-lags", vec![write(), Step::StatusLag { ms: 3000 }, Step::Suspend]),
    ];
    for (session, script) in &lives {
        world.create(session, script.clone());
    }
    let running = world.orchestrator().start();
    for (session, _) in &lives {
        until(&format!("{session} sleeps and is released"), || {
            world.status(session).as_deref() == Some("suspended")
                && world.sim().row(session).unwrap().is_none_or(|row| row.acceptor_id.is_none())
        })
        .await;
        world.sim().push(session, vec![read(), Step::Terminate]).unwrap();
        world.sim().wake(session).unwrap();
    }
    for (session, _) in &lives {
        until(&format!("{session} has ended"), || world.status(session).as_deref() == Some("terminated"))
            .await;
        let results = world.sim().results(session).unwrap();
        for result in &results[1..] {
            assert_eq!(result.output.trim(), "kept", "{session}: {results:#?}");
        }
    }
    world.until_nothing_is_left().await;
    running.stop().await;
}
