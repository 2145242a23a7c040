//! The stand-in as a real process against a real simulator, in every mode.

use outpost_sim::control::{Checksums, ControlExt, Settings};
use outpost_sim::fault::{Endpoint, Fault, FaultRule, Times};
use outpost_sim::model::{ClaimOutcome, DEFAULT_OUTPOST, Freshness, NewRow};
use outpost_sim::script::Step;
use outpost_sim::standin::{EXIT_CHECKSUM, EXIT_LOST, EXIT_REFUSED, EXIT_USAGE};
use outpost_sim::{DEFAULT_TOKEN, publish::CLI_VERSION};

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn remote_worker_runs_its_commands_and_leaves_with_0_when_its_session_sleeps() {
    let world = World::start().await;
    let script =
        vec![Step::run("echo hello > note; cat note"), Step::run("echo bad >&2; exit 7"), Step::Suspend];
    world.sim().create_scripted(NewRow::new("devin-1"), script).unwrap();
    let mut worker = world.remote("devin-1");

    assert_eq!(worker.exit_code().await, Some(0));
    let results = world.sim().results("devin-1").unwrap();
    let results: Vec<_> = results.iter().map(|result| (result.code, &*result.output)).collect();
    assert_eq!(results, [(Some(0), "hello\n"), (Some(7), "bad\n")]);
    assert_eq!(world.sim().status("devin-1").unwrap().as_deref(), Some("suspended"));
    assert_eq!(std::fs::read_to_string(world.directory().join("note")).unwrap(), "hello\n");
    let seen = &world.sim().workers().unwrap()[0];
    assert_eq!((&*seen.mode, seen.token, seen.left_with), ("devin-remote", Freshness::Newest, Some(0)));
    assert_eq!((&seen.unexpected_env, &seen.fleet_token_in), (&vec![], &vec![]));
    assert_eq!(world.sim().count(Endpoint::Claim).unwrap(), 0, "only the orchestrator claims");
}

// lesson 51
#[tokio::test(flavor = "multi_thread")]
async fn remote_worker_tells_names_that_do_not_belong_in_its_environment() {
    let world = World::start().await;
    world.sim().create_scripted(NewRow::new("devin-1"), vec![Step::Suspend]).unwrap();
    let entry = world.claim("devin-1");
    let variables = [
        ("DEVIN_OUTPOST_GATEWAY_URL", &*world.server().gateway_url()),
        ("DEVIN_OUTPOST_CONNECT_TOKEN", entry["status"]["connect_token"].as_str().unwrap()),
        ("DEVIN_OUTPOST_SESSION_ID", "devin-1"),
        ("DEVIN_API_TOKEN", DEFAULT_TOKEN),
        ("EDITOR", "vi"),
    ];
    let mut worker = world.start_worker(&["devin-remote", "serve"], &variables);
    assert_eq!(worker.exit_code().await, Some(0));
    let seen = &world.sim().workers().unwrap()[0];
    assert_eq!(seen.unexpected_env, ["DEVIN_API_TOKEN", "EDITOR"]);
    assert_eq!(seen.fleet_token_in, ["DEVIN_API_TOKEN"]);
    assert!(!format!("{seen:?}").contains(DEFAULT_TOKEN));
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_worker_refuses_to_start_when_one_of_the_three_is_missing() {
    let world = World::start().await;
    let all = [
        ("DEVIN_OUTPOST_GATEWAY_URL", "http://127.0.0.1:9"),
        ("DEVIN_OUTPOST_CONNECT_TOKEN", "dct_x"),
        ("DEVIN_OUTPOST_SESSION_ID", "devin-1"),
    ];
    for missing in 0..all.len() {
        let mut variables = all.to_vec();
        variables.remove(missing);
        let (code, log) = world.start_worker(&["devin-remote", "serve"], &variables).output().await;
        assert_eq!(code, Some(EXIT_USAGE.into()));
        assert!(log.contains(all[missing].0), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_with_a_token_that_was_never_issued_is_refused() {
    let world = World::start().await;
    world.sim().create(NewRow::new("devin-1")).unwrap();
    assert_eq!(world.remote_with("devin-1", "dct_made_up").exit_code().await, Some(EXIT_REFUSED.into()));
    assert!(world.sim().workers().unwrap().is_empty());
}

// lesson 23
#[tokio::test(flavor = "multi_thread")]
async fn older_token_still_works_and_is_noted() {
    let world = World::start().await;
    world.sim().create_scripted(NewRow::new("devin-1"), vec![Step::Terminate]).unwrap();
    let entry = world.claim("devin-1");
    world.claim("devin-1");
    let mut worker = world.remote_with("devin-1", entry["status"]["connect_token"].as_str().unwrap());
    assert_eq!(worker.exit_code().await, Some(0));
    assert_eq!(world.sim().workers().unwrap()[0].token, Freshness::Older);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_wakes_and_its_next_worker_goes_on_in_the_script() {
    let world = World::start().await;
    let script = vec![Step::run("echo one >> note"), Step::Suspend, Step::run("cat note"), Step::Terminate];
    world.sim().create_scripted(NewRow::new("devin-1"), script).unwrap();
    assert_eq!(world.remote("devin-1").exit_code().await, Some(0));
    world.sim().wake("devin-1").unwrap();
    assert_eq!(world.remote("devin-1").exit_code().await, Some(0));
    assert_eq!(world.sim().results("devin-1").unwrap()[1].output, "one\n");
    assert_eq!(world.sim().status("devin-1").unwrap().as_deref(), Some("terminated"));
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_runs_when_the_session_sleeps_is_ended_with_it() {
    let world = World::start().await;
    world
        .sim()
        .create_scripted(NewRow::new("devin-1"), vec![Step::run("touch began; exec sleep 600")])
        .unwrap();
    let mut worker = world.remote("devin-1");
    world.until("the command runs", |_| world.directory().join("began").exists()).await;
    world.sim().set_status("devin-1", "suspended").unwrap();
    assert_eq!(worker.exit_code().await, Some(0));
    assert!(world.sim().results("devin-1").unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_lives_on_when_only_its_row_vanishes() {
    let world = World::start().await;
    world
        .sim()
        .create_scripted(NewRow::new("devin-1"), vec![Step::wait("later"), Step::run("echo still here")])
        .unwrap();
    let mut worker = world.remote("devin-1");
    world.until("it connects", |sim| !sim.workers().unwrap().is_empty()).await;
    world.sim().tombstone("devin-1").unwrap();
    world.sim().go("devin-1", "later").unwrap();
    world.until("it works", |sim| sim.results("devin-1").unwrap().len() == 1).await;
    assert!(worker.is_alive());
    world.sim().set_status("devin-1", "suspended").unwrap();
    assert_eq!(worker.exit_code().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_that_fails_for_a_while_ends_no_worker() {
    let world = World::start().await;
    let outage = FaultRule::once(Endpoint::Gateway, Fault::status(503)).times(Times::Count(5));
    world.sim().add_fault(outage).unwrap();
    world.sim().create_scripted(NewRow::new("devin-1"), vec![Step::run("true"), Step::Suspend]).unwrap();
    assert_eq!(world.remote("devin-1").exit_code().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn cli_worker_claims_serves_and_releases_by_itself() {
    let world = World::start().await;
    std::fs::create_dir(world.directory().join("repos")).unwrap();
    world.sim().create_scripted(NewRow::new("devin-1"), vec![Step::run("pwd"), Step::Suspend]).unwrap();
    let outpost = format!("--outpost={DEFAULT_OUTPOST}");
    let (code, log) = world.cli(&["--session=devin-1", &outpost, "--acceptor-id=mine"]).output().await;
    assert_eq!((code, log.contains("serving session devin-1")), (Some(0), true), "{log}");
    let seen = &world.sim().workers().unwrap()[0];
    assert_eq!((&*seen.mode, seen.repos_here), ("cli", true));
    let claims = world.sim().claims().unwrap();
    assert!(claims.iter().all(|claim| claim.acceptor_id == "mine"));
    let outcomes: Vec<_> = claims.iter().map(|claim| claim.outcome).collect();
    assert_eq!(outcomes, [ClaimOutcome::Won, ClaimOutcome::Released]);
    let row = world.sim().row("devin-1").unwrap().unwrap();
    assert_eq!((&*row.phase, &*row.session_status), ("pending", "suspended"));
}

#[tokio::test(flavor = "multi_thread")]
async fn cli_worker_never_starts_without_a_token() {
    let world = World::start().await;
    for arguments in [["--session=devin-1"], ["--outpost=x"]] {
        let (code, log) = world.cli_with(&arguments, &[]).output().await;
        assert_eq!((code, log.contains("DEVIN_OUTPOSTS_TOKEN")), (Some(EXIT_USAGE.into()), true), "{log}");
    }
    assert!(world.sim().requests().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn cli_worker_leaves_when_the_claim_is_anothers() {
    let world = World::start().await;
    world.sim().create(NewRow::new("devin-1")).unwrap();
    world.sim().seize("devin-1", Some("rival")).unwrap();
    let mut worker = world.cli(&["--session=devin-1", "--acceptor-id=mine"]);
    assert_eq!(worker.exit_code().await, Some(EXIT_LOST.into()));
}

// lesson 16
#[tokio::test(flavor = "multi_thread")]
async fn cli_direct_worker_serves_with_the_connect_token_and_never_calls_the_queue() {
    let world = World::start().await;
    world.sim().create_scripted(NewRow::new("devin-1"), vec![Step::run("true"), Step::Terminate]).unwrap();
    let entry = world.claim("devin-1");
    let gateway = world.server().gateway_url();
    let variables = [
        ("DEVIN_REMOTE_SESSION_TOKEN", entry["status"]["connect_token"].as_str().unwrap()),
        ("DEVIN_OUTPOST_GATEWAY_URL", &gateway),
    ];
    let mut worker = world.cli_with(&["--session=devin-1"], &variables);
    assert_eq!(worker.exit_code().await, Some(0));
    let seen = &world.sim().workers().unwrap()[0];
    assert_eq!((&*seen.mode, seen.token), ("cli-direct", Freshness::Newest));
    let counts = world.sim().counts().unwrap();
    assert!(counts.keys().all(|endpoint| *endpoint == Endpoint::Gateway), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn polling_worker_serves_one_session_after_another_and_passes_by_those_that_sleep() {
    let world = World::start().await;
    world.sim().create(NewRow::new("asleep").status("suspended")).unwrap();
    for id in ["devin-1", "devin-2"] {
        world.sim().create_scripted(NewRow::new(id), vec![Step::run("true"), Step::Suspend]).unwrap();
    }
    let outpost = format!("--outpost={DEFAULT_OUTPOST}");
    let variables = [("DEVIN_OUTPOSTS_TOKEN", DEFAULT_TOKEN), ("DEVIN_STANDIN_LOG_FORMAT", "json")];
    let mut worker = world.cli_with(&[&outpost, "--poll-interval-secs=1"], &variables);
    world
        .until("both are served", |sim| {
            ["devin-1", "devin-2"]
                .iter()
                .all(|id| sim.row(id).unwrap().unwrap().session_status == "suspended")
        })
        .await;
    assert!(worker.is_alive(), "it waits for more");
    worker.signal("TERM");
    let (code, log) = worker.output().await;
    assert_eq!(code, None);
    let claimed: Vec<_> = log
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .map(|line| line["fields"]["session_id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(claimed, ["devin-1", "devin-2"]);
    assert!(world.sim().claims().unwrap().iter().all(|claim| claim.session_id != "asleep"));
}

#[tokio::test(flavor = "multi_thread")]
async fn polling_worker_serves_once_when_told_so() {
    let world = World::start().await;
    for id in ["devin-1", "devin-2"] {
        world.sim().create_scripted(NewRow::new(id), vec![Step::Suspend]).unwrap();
    }
    let outpost = format!("--outpost={DEFAULT_OUTPOST}");
    let (code, log) = world.cli(&[&outpost, "--once"]).output().await;
    assert_eq!((code, log.matches("serving session").count()), (Some(0), 1), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cli_worker_fetches_the_pinned_remote_and_refuses_a_wrong_checksum() {
    let world = World::start().await;
    let pinned = "0ddba11c0de0";
    world.sim().create_scripted(NewRow::new("devin-1").pinned(pinned), vec![Step::Suspend]).unwrap();
    let base = world.server().remote_base_url();
    let variables = [("DEVIN_OUTPOSTS_TOKEN", DEFAULT_TOKEN), ("DEVIN_WORKER_STATIC_BASE_URL", &*base)];
    world.sim().publish_checksums(Checksums::Wrong).unwrap();
    let mut worker = world.cli_with(&["--session=devin-1", "--acceptor-id=mine"], &variables);
    assert_eq!(worker.exit_code().await, Some(EXIT_CHECKSUM.into()));
    world.sim().publish_checksums(Checksums::Right).unwrap();
    let mut worker = world.cli_with(&["--session=devin-1", "--acceptor-id=mine"], &variables);
    assert_eq!(worker.exit_code().await, Some(0));
    let cache = world.directory().join(".devin/worker/cache");
    let name = std::fs::read_dir(cache).unwrap().next().unwrap().unwrap().file_name().into_string().unwrap();
    assert!(name.starts_with(&format!("devin-remote_{pinned}_")), "{name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn version_is_told_and_unknown_arguments_are_usage_errors() {
    let world = World::start().await;
    let (code, _) = world.start_worker(&["devin", "--version"], &[]).output().await;
    assert_eq!(code, Some(0));
    assert!(!CLI_VERSION.is_empty());
    for arguments in [&["devin", "worker", "start", "--odd"][..], &["odd"], &[]] {
        let (code, _) = world.start_worker(arguments, &[]).output().await;
        assert_eq!(code, Some(EXIT_USAGE.into()), "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_that_runs_out_is_renewed_by_the_cli_worker() {
    let world = World::start().await;
    let mut settings = Settings::default();
    settings.claim_ttl_ms = Some(600);
    world.sim().configure(settings).unwrap();
    world.sim().create(NewRow::new("devin-1")).unwrap();
    let _worker = world.cli(&["--session=devin-1", "--acceptor-id=mine"]);
    let renewed = |claims: Vec<outpost_sim::model::ClaimRecord>| {
        claims.iter().any(|claim| claim.outcome == ClaimOutcome::Renewed)
    };
    world.until("it renews", |sim| renewed(sim.claims().unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_write_sleep_and_wake_many_times_keep_every_line() {
    const ROUNDS: usize = 10;
    let world = World::start().await;
    let ids = ["devin-1", "devin-2", "devin-3"];
    for id in ids {
        world.sim().create(NewRow::new(id)).unwrap();
    }
    for round in 0..ROUNDS {
        let mut workers = Vec::new();
        for id in ids {
            let command = format!("echo {round} >> {id}; wc -l < {id}");
            world.sim().push(id, vec![Step::run(command), Step::Suspend]).unwrap();
            workers.push(world.remote(id));
        }
        for mut worker in workers {
            assert_eq!(worker.exit_code().await, Some(0));
        }
        for id in ids {
            world.sim().fleet(|fleet, now| fleet.release(now, id, "orchestrator")).unwrap();
            world.sim().wake(id).unwrap();
        }
    }
    for id in ids {
        let lines: Vec<_> =
            world.sim().results(id).unwrap().iter().map(|result| result.output.trim().to_owned()).collect();
        assert_eq!(lines, (1..=ROUNDS).map(|line| line.to_string()).collect::<Vec<_>>());
    }
    assert!(world.sim().workers().unwrap().iter().all(|worker| worker.overlaps.is_none()));
}
