//! `kill -9` of `outpost run` at random moments, over and over, while sessions write, sleep and wake.

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use outpost::sim::control::ControlExt as _;
use outpost::sim::script::Step;

use common::{Playground, until};

const SESSIONS: usize = 5;
const KILLS: usize = 50;

/// What the harness knows of one session.
#[derive(Debug, Default)]
struct Life {
    /// Sleeps that it was told to take.
    sleeps: usize,
}

fn name(number: usize) -> String {
    format!("devin-{number}")
}

/// Writes the file of this waking, and says which files of it and of every one before are not what they were.
fn work(waking: usize) -> Step {
    let check = format!(
        "printf %s {waking} >repos/{waking}; i=0; while [ $i -le {waking} ]; do \
         [ \"$(cat repos/$i 2>/dev/null)\" = $i ] || echo \"lost $i\"; i=$((i+1)); done; echo checked"
    );
    Step::run(format!("mkdir -p repos && {check}"))
}

/// Wakes every session that sleeps, with its next file to write.
fn wake_sleepers(play: &Playground, lives: &mut BTreeMap<String, Life>) {
    for (session, life) in lives {
        if play.sim().status(session).unwrap().as_deref() == Some("suspended") {
            life.sleeps += 1;
            play.sim().push(session, vec![work(life.sleeps), Step::Suspend]).unwrap();
            play.sim().wake(session).unwrap();
        }
    }
}

#[test]
fn no_file_is_lost_and_no_session_has_two_sandboxes_when_outpost_is_killed_fifty_times() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let play = Playground::new();
    let mut lives: BTreeMap<String, Life> =
        (0..SESSIONS).map(|number| (name(number), Life::default())).collect();
    for session in lives.keys() {
        play.create(session, vec![work(0), Step::Suspend]);
    }
    for _ in 0..KILLS {
        let mut outpost = play.outpost().start();
        // The moment is what is random here, so it is a time.
        let moment = Instant::now() + Duration::from_millis(rng.u64(5..400) * [1, 2, 4, 12][rng.usize(..4)]);
        while Instant::now() < moment {
            wake_sleepers(&play, &mut lives);
            std::thread::sleep(Duration::from_millis(10));
        }
        outpost.kill();
    }
    let mut outpost = play.outpost().start();
    until("every session has slept again", || {
        lives.keys().all(|session| play.sim().status(session).unwrap().as_deref() == Some("suspended"))
    });
    for (session, life) in &lives {
        play.sim().push(session, vec![work(life.sleeps + 1), Step::Terminate]).unwrap();
        play.sim().wake(session).unwrap();
    }
    for session in lives.keys() {
        until(&format!("{session} has ended"), || {
            play.sim().status(session).unwrap().as_deref() == Some("terminated")
        });
    }
    play.until_no_process();
    let mut wakings = 0;
    for (session, life) in &lives {
        let results = play.sim().results(session).unwrap();
        wakings += results.len();
        assert_eq!(results.len(), life.sleeps + 2, "{session} ran every command");
        for result in results {
            assert_eq!(result.output.trim(), "checked", "{session}, command {}: {result:?}", result.number);
        }
    }
    let overlapping: Vec<_> =
        play.sim().workers().unwrap().into_iter().filter(|worker| worker.overlaps.is_some()).collect();
    assert!(overlapping.is_empty(), "two workers of one session were alive at once: {overlapping:?}");
    until("no snapshot and no sandbox is left", || {
        outpost.metric("outpost_snapshots") == Some(0.0)
            && outpost.metric("outpost_sandboxes{state=\"running\"}") == Some(0.0)
    });
    assert!(outpost.stop().success());
    println!("{KILLS} kills, {wakings} wakings of {SESSIONS} sessions, every file there");
    assert!(wakings > 2 * SESSIONS, "the sessions lived while it was killed: {wakings}");
}
