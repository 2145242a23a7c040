//! Sessions through their whole life.

use outpost::sim::control::ControlExt as _;
use outpost::sim::model::ClaimOutcome;
use outpost::sim::script::Step;

use crate::common::{Playground, new_sleeper, processes, until};

#[test]
fn a_session_sleeps_and_wakes_with_its_files_and_leaves_nothing_behind() {
    let play = Playground::new();
    play.create("devin-1", new_sleeper("kept"));
    let mut outpost = play.outpost().start();
    assert_eq!(play.output_of("devin-1", 1), "kept");
    play.until_released("devin-1");
    play.until_no_process();
    play.sim().wake("devin-1").unwrap();
    assert_eq!(play.output_of("devin-1", 2), "kept");
    play.until_released("devin-1");
    play.until_no_process();
    until("its snapshot is deleted", || outpost.metric("outpost_snapshots") == Some(0.0));
    assert_eq!(play.workers_of("devin-1").len(), 2);
    assert!(outpost.stop().success());
}

#[test]
fn every_worker_mode_serves_a_session_from_beginning_to_end() {
    for mode in ["devin-remote", "cli", "cli-direct"] {
        let play = Playground::new();
        play.create("devin-1", new_sleeper(mode));
        let mut outpost = play.outpost().args(&["--worker-mode", mode]).start();
        assert_eq!(play.output_of("devin-1", 1), mode);
        outpost.until_says("boot 1 is removed");
        play.sim().wake("devin-1").unwrap();
        assert_eq!(play.output_of("devin-1", 2), mode);
        outpost.until_says("boot 2 is removed");
        play.until_no_process();
        let workers = play.workers_of("devin-1");
        assert!(workers.iter().all(|worker| worker.mode == mode && worker.repos_here), "{workers:?}");
        let with_fleet_token = workers.iter().filter(|worker| !worker.fleet_token_in.is_empty()).count();
        assert_eq!(with_fleet_token, if mode == "cli" { workers.len() } else { 0 }, "lesson 51: {workers:?}");
        assert!(outpost.stop().success());
        let warned = outpost.log().contains("code in a session can read the fleet token");
        assert_eq!(warned, mode == "cli", "{}", outpost.log());
    }
}

// lesson 16
#[test]
fn exactly_one_party_claims() {
    let play = Playground::new();
    play.create("devin-1", vec![Step::run("echo here"), Step::wait("never")]);
    let mut outpost = play.outpost().start();
    play.output_of("devin-1", 1);
    assert_eq!(play.claims("devin-1", ClaimOutcome::Won), 1);
    assert_eq!(play.claims("devin-1", ClaimOutcome::Lost), 0);
    assert_eq!(processes::workers(&play.state_dir()).len(), 1);
    assert!(outpost.stop().success());
}
