//! What monitors are told.

use outpost::sim::control::{ControlExt as _, Settings};
use outpost::sim::fault::{Endpoint, Fault, FaultRule};
use outpost::sim::script::Step;

use crate::common::{Playground, processes, until};

// lesson 55
#[test]
fn refused_credentials_are_a_state_of_their_own_and_stop_no_session() {
    let play = Playground::new();
    play.create("devin-1", vec![Step::run("echo one"), Step::wait("go"), Step::run("echo two")]);
    let mut run = play.outpost().start();
    play.output_of("devin-1", 1);
    run.until_ready();
    let workers = processes::workers(&play.state_dir());

    play.sim().add_fault(FaultRule::everywhere(Fault::status(401))).unwrap();
    let why = run.until_not_ready("the queue refuses our credentials");
    assert!(why.contains("401"), "{why}");
    assert_eq!(run.get("/healthz").unwrap().0, 200, "it is alive all the same");
    assert_eq!(run.metric("outpost_ready"), Some(0.0));
    run.until_says("refuses our credentials");
    let lists = play.sim().count(Endpoint::List).unwrap();
    until("it has tried again", || play.sim().count(Endpoint::List).unwrap() > lists + 1);
    assert_eq!(processes::workers(&play.state_dir()), workers);

    play.sim().clear_faults().unwrap();
    run.until_ready();
    play.sim().go("devin-1", "go").unwrap();
    play.output_of("devin-1", 2);
    assert_eq!(processes::workers(&play.state_dir()), workers);
    assert!(run.stop().success());
}

// lesson 54
#[test]
fn a_token_that_stops_working_is_not_tried_in_a_hot_loop() {
    let play = Playground::new();
    let run = play.outpost().args(&["--list-interval", "1s"]).start();
    run.until_ready();
    let mut settings = Settings::default();
    settings.token = Some("cog_another".into());
    play.sim().configure(settings).unwrap();
    let refused = |endpoint: Option<Endpoint>| {
        let requests = play.sim().requests().unwrap();
        let seen =
            requests.iter().filter(|request| endpoint.is_none_or(|endpoint| request.endpoint == endpoint));
        seen.filter(|request| request.status == Some(401)).count()
    };
    until("several lists were refused", || refused(Some(Endpoint::List)) >= 4);
    let (lists, all) = (refused(Some(Endpoint::List)), refused(None));
    assert!(all <= lists * 3, "{lists} lists and {all} calls were refused");
    run.until_not_ready("the queue refuses our credentials");
    assert_eq!(run.log().matches("not ready: the queue refuses our credentials").count(), 1, "said once");
}

#[test]
fn a_queue_that_is_down_is_named_and_comes_back() {
    let play = Playground::new();
    let run = play.outpost().start();
    run.until_ready();
    play.sim().add_fault(FaultRule::always(Endpoint::List, Fault::Refuse)).unwrap();
    run.until_not_ready("the queue cannot be read");
    play.sim().clear_faults().unwrap();
    run.until_ready();
}

#[test]
fn a_queue_that_is_down_from_the_start_is_named_too() {
    let play = Playground::new();
    play.sim().add_fault(FaultRule::everywhere(Fault::status(503))).unwrap();
    let run = play.outpost().start();
    let why = run.until_not_ready("the outpost cannot be looked up");
    assert!(why.contains("503"), "{why}");
    assert_eq!(run.get("/healthz").unwrap().0, 200, "nobody needs to start it again");
    play.sim().clear_faults().unwrap();
    run.until_ready();
}

#[test]
fn metrics_count_what_happened() {
    let play = Playground::new();
    play.create("devin-1", vec![Step::run("echo one"), Step::Suspend]);
    play.create("devin-2", vec![Step::run("echo one"), Step::wait("never")]);
    let run = play.outpost().args(&["--limit", "7"]).start();
    run.until_says("boot 1 is removed");
    play.output_of("devin-2", 1);
    for (name, value) in [
        ("outpost_starts_total", 2.0),
        ("outpost_saves_total", 1.0),
        ("outpost_removals_total", 1.0),
        ("outpost_snapshots", 1.0),
        ("outpost_sandboxes{state=\"running\"}", 1.0),
        ("outpost_sandbox_limit", 7.0),
        ("outpost_sessions_claimed", 1.0),
        ("outpost_sessions_waiting", 0.0),
        ("outpost_crashes_total", 0.0),
    ] {
        until(&format!("{name} is {value}"), || run.metric(name) == Some(value));
    }
    assert!(run.get("/metrics").unwrap().1.ends_with("# EOF\n"));
    assert_eq!(run.get("/else").unwrap().0, 404);
}

#[test]
fn a_json_log_has_a_session_on_every_line_about_one() {
    let play = Playground::new();
    play.create("devin-1", vec![Step::run("echo one"), Step::Terminate]);
    let mut run = play.outpost().args(&["--log-format", "json"]).start();
    run.until_says("boot 1 is removed");
    assert!(run.stop().success());
    let log = run.log();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let about = |line: &&serde_json::Value| line["message"].as_str().unwrap().starts_with("boot 1");
    let about: Vec<_> = lines.iter().filter(about).collect();
    assert!(about.len() >= 2, "{log}");
    assert!(about.iter().all(|line| line["session"] == "devin-1"), "{log}");
}

#[test]
fn endpoints_can_be_off() {
    let play = Playground::new();
    let mut run = play.outpost().args(&["--listen", "off"]).start();
    run.until_says("ready");
    assert!(!run.log().contains("are served"));
    assert!(run.stop().success());
}
