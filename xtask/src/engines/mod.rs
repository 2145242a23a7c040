//! The container engines of the tests: found on this machine, or started for as long as the tests run.

mod api;
mod clean;
mod daemon;
mod images;
mod rootfs;

use std::env;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::context::Context;
use daemon::Daemon;

/// Where the sockets and state of engines lie that we start: a socket's path must be short.
const RUN_DIR: &str = "/run/outpost-test";

/// What an engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Docker,
    Podman,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Docker, Self::Podman];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    /// The variable that tells tests its address.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Docker => "OUTPOST_TEST_DOCKER",
            Self::Podman => "OUTPOST_TEST_PODMAN",
        }
    }

    /// The socket of one that we start.
    fn own_socket(self) -> PathBuf {
        PathBuf::from(RUN_DIR).join(format!("{}.sock", self.name()))
    }

    /// The sockets where one may be listening. What a person has named is the only one.
    fn sockets(self) -> Vec<PathBuf> {
        let named = |variable| {
            env::var(variable).ok().and_then(|address| Some(PathBuf::from(address.strip_prefix("unix://")?)))
        };
        if env::var_os(self.variable()).is_some() {
            return named(self.variable()).into_iter().collect();
        }
        let usual = match self {
            Self::Docker => {
                named("DOCKER_HOST").into_iter().chain([PathBuf::from("/var/run/docker.sock")]).collect()
            }
            Self::Podman => vec![PathBuf::from("/run/podman/podman.sock")],
        };
        // Ours comes last: a run that was killed has left it.
        [usual, vec![self.own_socket()]].concat()
    }
}

/// An engine that answers.
#[derive(Debug)]
pub(crate) struct Engine {
    kind: Kind,
    socket: PathBuf,
    /// Ours to stop; `None` = others use it too.
    daemon: Option<Daemon>,
}

impl Engine {
    /// One that is running.
    pub(crate) fn find(context: &Context, kind: Kind) -> Option<Self> {
        kind.sockets()
            .into_iter()
            .map(|socket| Self { kind, socket, daemon: None })
            .find(|engine| engine.answers(context))
    }

    fn start(context: &Context, kind: Kind) -> Result<Self> {
        if env::var_os(kind.variable()).is_some() {
            bail!(
                "{} names no {} that answers; it takes the form unix:///path",
                kind.variable(),
                kind.name()
            );
        }
        let socket = kind.own_socket();
        let mut daemon = Daemon::spawn(context, kind, &socket)?;
        let engine = Self { kind, socket, daemon: None };
        daemon.wait(|| engine.answers(context))?;
        Ok(Self { daemon: Some(daemon), ..engine })
    }

    fn address(&self) -> String {
        format!("unix://{}", self.socket.display())
    }
}

/// One engine of each kind. Those that we started are stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Engines {
    engines: Vec<Engine>,
}

impl Engines {
    /// Finds or starts them, and makes the tests' images in each.
    pub(crate) fn have(context: &Context) -> Result<Self> {
        let mut engines = Vec::new();
        for kind in Kind::ALL {
            let engine = match Engine::find(context, kind) {
                Some(engine) => engine,
                None => Engine::start(context, kind)
                    .with_context(|| format!("there is no {}, and it cannot be started", kind.name()))?,
            };
            let how = if engine.daemon.is_some() { "started" } else { "found" };
            eprintln!("{how}: {}={}", kind.variable(), engine.address());
            engines.push(engine);
        }
        images::make(context, &engines)?;
        Ok(Self { engines })
    }

    /// The variables that tell tests where the engines are.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.engines.iter().map(|engine| (engine.kind.variable(), engine.address()))
    }

    /// Takes away what tests have left, and stops what we started.
    pub(crate) fn clean_up(self, context: &Context) -> Result<()> {
        let cleaned: Vec<Result<()>> =
            self.engines.iter().map(|engine| clean::clean(context, engine)).collect();
        drop(self);
        cleaned.into_iter().collect()
    }
}
