//! What the demo plays.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use outpost_core::ports::Clock as _;
use outpost_sim::control::ControlExt as _;
use outpost_sim::fault::{Endpoint, Fault, FaultRule};
use outpost_sim::model::NewRow;
use outpost_sim::script::{RunResult, Script, Step};

use super::checks::Checks;
use super::stage::{LIMIT, Stage};
use super::view::View;
use crate::clock::SystemClock;

/// So many sessions come at once in the burst.
const BURST: usize = LIMIT * 2 + 1;

/// Writes files of every kind that a repository has.
const WRITE: &str = "mkdir -p repos/app/src repos/app/empty && cd repos/app && git init -q . 2>/dev/null; \
    echo 'fn main() {}' > src/main.rs && printf '#!/bin/sh\\n' > build.sh && chmod 750 build.sh && \
    ln -s src/main.rs link && ln src/main.rs hard && head -c 3000000 /dev/urandom > blob && cd ../.. && ";

/// Says what is there, contents, modes and links, in one line.
const LOOK: &str = "cd repos/app && (find . -path ./.git -prune -o -print | LC_ALL=C sort | while read -r f; do \
    if [ -L \"$f\" ]; then echo \"$f -> $(readlink \"$f\")\"; elif [ -f \"$f\" ]; then echo \"$f $(cksum < \"$f\") \
    $(ls -ld \"$f\" | cut -c1-10) $(ls -l \"$f\" | awk '{print $2}')\"; else echo \"$f/\"; fi; done) | cksum";

pub(super) async fn play(stage: &Stage, view: &View, checks: &mut Checks) -> Result<()> {
    let scene = Scene { stage, view };
    scene.new_work(checks).await?;
    scene.sleep_and_wake(checks).await?;
    scene.crash(checks).await?;
    scene.ends_while_starting(checks).await?;
    scene.burst(checks).await
}

struct Scene<'a> {
    stage: &'a Stage,
    view: &'a View,
}

impl Scene<'_> {
    async fn new_work(&self, checks: &mut Checks) -> Result<()> {
        self.view.say("1. a new session does its work and ends");
        let script = vec![Step::run("echo done > result && cat result"), Step::Terminate];
        self.create("devin-new", script)?;
        self.until("the new session has ended", || Ok(self.status("devin-new")? == "terminated")).await?;
        self.until_empty().await?;
        checks.check("new work: what its command printed", "done", &self.output("devin-new", 0)?);
        self.until("its claim is given back", || Ok(self.claim_of("devin-new")? == "nobody")).await?;
        checks.check("new work: who holds its claim afterwards", "nobody", &self.claim_of("devin-new")?);
        checks.check("new work: snapshots of it afterwards", "0", &self.snapshots());
        Ok(())
    }

    async fn sleep_and_wake(&self, checks: &mut Checks) -> Result<()> {
        self.view.say("2. a session sleeps and wakes up again");
        let script = vec![
            Step::run(format!("{WRITE}{LOOK}")),
            Step::Suspend,
            Step::run(LOOK),
            Step::run("echo more >> repos/app/src/main.rs && wc -l < repos/app/src/main.rs"),
            Step::Suspend,
            Step::run("wc -l < repos/app/src/main.rs"),
            Step::Terminate,
        ];
        self.create("devin-sleeper", script)?;
        for what in ["sleep: snapshots, and no sandbox", "second sleep: snapshots, and no sandbox"] {
            self.until("the session sleeps", || Ok(self.status("devin-sleeper")? == "suspended")).await?;
            self.until_empty().await?;
            checks.check(what, "1", &self.snapshots());
            self.sim()?.wake("devin-sleeper")?;
        }
        self.until("the session has ended", || Ok(self.status("devin-sleeper")? == "terminated")).await?;
        self.until_empty().await?;
        let before = self.output("devin-sleeper", 0)?;
        let after = self.output("devin-sleeper", 1)?;
        let seen =
            if after == before { "the same".to_owned() } else { format!("{before} before, {after} after") };
        checks.check("waking: files, modes and links", "the same", &seen);
        checks.check("waking twice: lines of work so far", "2", &self.output("devin-sleeper", 3)?);
        Ok(())
    }

    async fn crash(&self, checks: &mut Checks) -> Result<()> {
        self.view.say("3. a worker crashes while its session runs");
        let script = vec![
            Step::run("echo precious > work && cat work"),
            Step::Pause { ms: 6_500 },
            Step::Crash { code: 9 },
            Step::run("cat work"),
            Step::Terminate,
        ];
        self.create("devin-crash", script)?;
        self.until("the session has ended", || Ok(self.status("devin-crash")? == "terminated")).await?;
        self.until_empty().await?;
        checks.check(
            "crash: the file that the next worker found",
            "precious",
            &self.output("devin-crash", 1)?,
        );
        let workers =
            self.sim()?.workers()?.iter().filter(|worker| worker.session_id == "devin-crash").count();
        checks.check("crash: workers it took", "2", &workers.to_string());
        Ok(())
    }

    async fn ends_while_starting(&self, checks: &mut Checks) -> Result<()> {
        self.view.say("4. a session ends while its sandbox starts");
        // Its claim is answered late, and meanwhile it ends.
        let delay = Fault::Delay { ms: 1_500 };
        self.sim()?.add_fault(FaultRule::once(Endpoint::Claim, delay).session("devin-early"))?;
        self.create("devin-early", vec![Step::run("echo never")])?;
        self.until("the session is being claimed", || {
            let claims = self.sim()?.requests()?;
            Ok(claims.iter().any(|request| request.path.contains("devin-early/claim")))
        })
        .await?;
        self.sim()?.set_status("devin-early", "terminated")?;
        self.until_empty().await?;
        self.until("its claim is given back", || Ok(self.claim_of("devin-early")? == "nobody")).await?;
        checks.check("end while starting: sandboxes left", "0", &self.sandboxes());
        Ok(())
    }

    async fn burst(&self, checks: &mut Checks) -> Result<()> {
        self.view.say(&format!("5. {BURST} sessions come at once, and there is room for {LIMIT}"));
        let name = |number: usize| format!("devin-burst-{number}");
        for number in 0..BURST {
            let script = vec![Step::run(format!("echo {number}")), Step::Pause { ms: 700 }, Step::Terminate];
            self.create(&name(number), script)?;
        }
        let ended = || {
            let all: Result<Vec<String>> = (0..BURST).map(|number| self.status(&name(number))).collect();
            Ok(all?.iter().all(|status| status == "terminated"))
        };
        self.until("all sessions of the burst have ended", ended).await?;
        self.until_empty().await?;
        let served: Result<Vec<String>> = (0..BURST).map(|number| self.output(&name(number), 0)).collect();
        let right =
            served?.iter().enumerate().filter(|(number, output)| number.to_string() == **output).count();
        checks.check("burst: sessions served", &BURST.to_string(), &right.to_string());
        checks.check(
            "burst: sandboxes at once, at the most",
            &LIMIT.to_string(),
            &self.view.peak().to_string(),
        );
        let overlaps = self.sim()?.workers()?.iter().filter(|worker| worker.overlaps.is_some()).count();
        checks.check("all: workers beside another of their session", "0", &overlaps.to_string());
        let leaks = self.sim()?.workers()?.iter().filter(|worker| !worker.fleet_token_in.is_empty()).count();
        checks.check("all: workers that could read the fleet token", "0", &leaks.to_string());
        let stale = self.sim()?.workers()?.iter().filter(|worker| !worker.unexpected_env.is_empty()).count();
        checks.check("all: workers with undocumented variables", "0", &stale.to_string());
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "it stands in chains of what can fail")]
    fn sim(&self) -> Result<&outpost_sim::Sim> {
        Ok(self.stage.sim())
    }

    fn create(&self, session: &str, script: Script) -> Result<()> {
        Ok(self.sim()?.create_scripted(NewRow::new(session), script)?)
    }

    fn status(&self, session: &str) -> Result<String> {
        self.sim()?.status(session)?.ok_or_else(|| anyhow!("{session} is not there"))
    }

    /// The output of a session's command, by its place in the script.
    fn output(&self, session: &str, number: usize) -> Result<String> {
        let results: Vec<RunResult> = self.sim()?.results(session)?;
        let result = results.get(number).ok_or_else(|| anyhow!("{session} has not run command {number}"))?;
        if result.code != Some(0) {
            bail!("command {number} of {session} failed: {}", result.output);
        }
        Ok(result.output.trim().to_owned())
    }

    fn claim_of(&self, session: &str) -> Result<String> {
        let row = self.sim()?.row(session)?;
        Ok(row.and_then(|row| row.acceptor_id).unwrap_or_else(|| "nobody".to_owned()))
    }

    fn snapshots(&self) -> String {
        self.view.report().map_or_else(|| "unknown".to_owned(), |report| report.snapshots.to_string())
    }

    fn sandboxes(&self) -> String {
        self.view.report().map_or_else(|| "unknown".to_owned(), |report| report.sandboxes.total().to_string())
    }

    /// Waits until nothing of any session is left or under way, by a report from after now.
    async fn until_empty(&self) -> Result<()> {
        let now = SystemClock.now();
        self.until("no sandbox is left", || {
            let report = self.view.report();
            Ok(report.is_some_and(|report| report.at > now && report.lines.is_empty()))
        })
        .await
    }

    async fn until(&self, what: &str, holds: impl Fn() -> Result<bool> + Send) -> Result<()> {
        const BOUND: Duration = Duration::from_secs(60);
        let wait = async move {
            while !holds()? {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        };
        match tokio::time::timeout(BOUND, wait).await {
            Ok(done) => done,
            Err(_) => bail!("after a minute it does not hold that {what}"),
        }
    }
}
