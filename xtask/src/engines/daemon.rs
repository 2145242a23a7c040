//! An engine that we start, and stop.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::{Kind, RUN_DIR};
use crate::command::{Cmd, is_root};
use crate::context::Context;

/// How long an engine may take until it answers, and until it has stopped.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(100);
/// How much of its log is printed when it does not come.
const LOG_LINES: usize = 30;

/// A running engine, stopped when this is dropped.
#[derive(Debug)]
pub(super) struct Daemon {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Daemon {
    pub(super) fn spawn(context: &Context, kind: Kind, socket: &Path) -> Result<Self> {
        if !is_root(context)? {
            bail!("only root can start it: start it yourself, or name another in {}", kind.variable());
        }
        let dir = context.target.join("engines");
        for dir in [&dir, Path::new(RUN_DIR)] {
            fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        }
        let log = dir.join(format!("{}.log", kind.name()));
        let cmd = match kind {
            Kind::Docker => docker(context, &dir, socket),
            Kind::Podman => podman(context, &dir, socket)?,
        };
        let file = File::create(&log).with_context(|| format!("{} cannot be written", log.display()))?;
        let child = cmd.spawn(file)?;
        Ok(Self { name: kind.name(), child, log })
    }

    /// Waits until it is there.
    pub(super) fn wait(&mut self, is_there: impl Fn() -> bool) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while !is_there() {
            if let Some(status) = self.child.try_wait()? {
                self.print_tail();
                bail!("it ended at once ({status}); its log is {}", self.log.display());
            }
            if Instant::now() >= until {
                self.print_tail();
                bail!("it does not answer after {} s; its log is {}", PATIENCE.as_secs(), self.log.display());
            }
            thread::sleep(STEP);
        }
        Ok(())
    }

    fn print_tail(&self) {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
            eprintln!("{}: {line}", self.name);
        }
    }

    fn ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        eprintln!("{} is stopped", self.name);
        // Asked first: it takes its own helpers and mounts along.
        let asked = Command::new("kill").arg(self.child.id().to_string()).stdin(Stdio::null()).status();
        let until = Instant::now() + PATIENCE;
        while asked.is_ok() && !self.ended() && Instant::now() < until {
            thread::sleep(STEP);
        }
        if !self.ended() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn docker(context: &Context, dir: &Path, socket: &Path) -> Cmd {
    Cmd::new(context, "dockerd")
        // Docker 20.10 leaves the bridge's gateway blank at its first start unless it is named.
        .args(["--bip", "172.17.0.1/16"])
        .arg("--host")
        .arg(format!("unix://{}", socket.display()))
        .arg("--data-root")
        .arg(dir.join("docker"))
        .arg("--exec-root")
        .arg(Path::new(RUN_DIR).join("docker"))
        .arg("--pidfile")
        .arg(Path::new(RUN_DIR).join("docker.pid"))
}

fn podman(context: &Context, dir: &Path, socket: &Path) -> Result<Cmd> {
    let config = dir.join("containers.conf");
    fs::write(&config, podman_config(dir)).with_context(|| config.display().to_string())?;
    Ok(Cmd::new(context, "podman")
        .env("CONTAINERS_CONF", &config)
        .arg("--root")
        .arg(dir.join("podman"))
        .arg("--runroot")
        .arg(Path::new(RUN_DIR).join("podman"))
        .args(["system", "service", "--time=0"])
        .arg(format!("unix://{}", socket.display())))
}

/// What makes podman work on any machine, also one without systemd or with both kinds of control groups (which crun
/// refuses), or whose own limits are lower than those that podman would set. Nothing of it lies where an installed
/// podman has its own.
fn podman_config(dir: &Path) -> String {
    format!(
        "[containers]\n\
         default_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n\
         [engine]\n\
         runtime = \"runc\"\n\
         cgroup_manager = \"cgroupfs\"\n\
         events_logger = \"file\"\n\
         tmp_dir = \"{RUN_DIR}/libpod\"\n\
         [network]\n\
         network_backend = \"netavark\"\n\
         network_config_dir = {:?}\n",
        dir.join("networks").to_string_lossy()
    )
}
