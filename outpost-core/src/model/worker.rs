//! What runs in a sandbox: the program, its arguments, its environment, and the supervisor around it.

use std::fmt::Write as _;
use std::path::PathBuf;

use secrecy::{ExposeSecret, SecretString};

use super::ids::{AcceptorId, OutpostId, SessionId};
use super::policy::WorkerMode;

/// The POSIX-sh supervisor that starts a worker, passes on signals, reaps, and writes down how the worker ended. Its
/// contract stands at its head.
pub const SUPERVISOR: &str = include_str!("supervisor.sh");

/// The worker's executable, as it was found by a [`WorkerPrograms`](crate::ports::WorkerPrograms).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerProgram {
    /// A file on the orchestrator's disk whose SHA-256 was checked; the provider puts it into the sandbox.
    File {
        /// Where it lies.
        path: PathBuf,
        /// Which version it is, for people and for naming copies of it.
        version: String,
    },
    /// To be fetched inside the sandbox, and checked there before it becomes executable.
    Fetch {
        /// Where it is to be had.
        url: String,
        /// Its SHA-256, in hexadecimal.
        sha256: String,
        /// Which version it is.
        version: String,
    },
    /// Already in the sandbox's image.
    Installed {
        /// Its path in the sandbox, or a name to be found on `PATH`.
        path: String,
    },
}

/// With what a worker proves that it may serve.
#[derive(Debug, Clone)]
pub enum WorkerCredentials {
    /// The fleet token: the CLI claims by itself.
    Fleet {
        /// A service user's token.
        token: SecretString,
    },
    /// What a claim answered: good for one session only.
    Connect {
        /// Where the worker connects to.
        gateway_url: String,
        /// What it shows there.
        token: SecretString,
    },
}

/// What every worker of an orchestrator is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerSettings {
    /// The origin of Devin's API, without a path; `None` = the worker's own default.
    pub api_origin: Option<String>,
    /// Where the CLI downloads `devin-remote`; `None` = the worker's own default.
    pub static_base_url: Option<String>,
    /// The browser that the worker drives; `None` = the provider's, if it has one.
    pub chrome_path: Option<String>,
    /// Whether the worker offers a desktop.
    pub desktop: bool,
    /// More variables for the worker, none of them secret. They do not replace the ones that Outpost sets.
    pub extra_env: Vec<(String, String)>,
}

/// Everything that a provider needs to run a worker. Its `Debug` shows no secret.
#[derive(Debug, Clone)]
pub struct WorkerSpec {
    /// Which of the three ways.
    pub mode: WorkerMode,
    /// The executable.
    pub program: WorkerProgram,
    /// Whom it serves.
    pub session: SessionId,
    /// The queue of that session.
    pub outpost: OutpostId,
    /// Who claims, or has claimed.
    pub acceptor: AcceptorId,
    /// With what it proves itself.
    pub credentials: WorkerCredentials,
    /// The `devin-remote` that the session wants; `None` = the newest.
    pub remote_sha: Option<String>,
    /// What every worker is told.
    pub settings: WorkerSettings,
}

/// What only the provider knows of the machine that a worker runs on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineEnv {
    /// `HOME`.
    pub home: String,
    /// `USER` and `LOGNAME`.
    pub user: String,
    /// `PATH`.
    pub path: String,
    /// `TMPDIR`.
    pub tmpdir: String,
    /// `LANG`.
    pub lang: String,
    /// `DEVIN_REMOTE_STATE_DIR` and `DEVIN_WORKER_CACHE_DIR`'s parent: one directory per session, saved with it.
    pub state_dir: String,
    /// Others that the documented contract allows, such as `TZ` or `DISPLAY`.
    pub more: Vec<(String, String)>,
}

impl WorkerSpec {
    /// The worker's arguments, after the program. None of them is secret: every user of a machine can read them.
    pub fn arguments(&self) -> Vec<String> {
        let text = |parts: &[&str]| parts.iter().map(ToString::to_string).collect::<Vec<_>>();
        match self.mode {
            WorkerMode::DevinRemote => text(&["serve"]),
            WorkerMode::CliDirect => {
                let mut arguments = text(&["worker", "start"]);
                arguments.push(format!("--session={}", self.session));
                arguments
            }
            WorkerMode::Cli => {
                let mut arguments = text(&["worker", "start"]);
                arguments.push(format!("--session={}", self.session));
                arguments.push(format!("--outpost={}", self.outpost));
                arguments.push(format!("--acceptor-id={}", self.acceptor));
                arguments
            }
        }
    }

    /// The worker's whole environment, built from nothing: what Devin documents for the mode, and the machine's part.
    pub fn environment(&self, machine: &MachineEnv) -> Environment {
        let mut env = Environment::default();
        for (name, value) in [
            ("HOME", &machine.home),
            ("USER", &machine.user),
            ("LOGNAME", &machine.user),
            ("PATH", &machine.path),
            ("TMPDIR", &machine.tmpdir),
            ("LANG", &machine.lang),
        ] {
            if !value.is_empty() {
                env.set(name, value.as_str());
            }
        }
        self.set_credentials(&mut env);
        match self.mode {
            WorkerMode::DevinRemote => {
                env.set("DEVIN_OUTPOST_SESSION_ID", self.session.as_str());
                env.set("DEVIN_REMOTE_STATE_DIR", machine.state_dir.as_str());
            }
            WorkerMode::Cli | WorkerMode::CliDirect => {
                env.set("DEVIN_WORKER_CACHE_DIR", format!("{}/cache", machine.state_dir));
                if let Some(url) = &self.settings.static_base_url {
                    env.set("DEVIN_WORKER_STATIC_BASE_URL", url.as_str());
                }
                if let Some(sha) = &self.remote_sha {
                    env.set("DEVIN_WORKER_REMOTE_SHA", sha.as_str());
                }
                if let Some(origin) = &self.settings.api_origin {
                    env.set("DEVIN_API_URL", origin.as_str());
                }
            }
        }
        if let Some(path) = &self.settings.chrome_path {
            env.set("DEVIN_CHROME_PATH", path.as_str());
        }
        if self.settings.desktop {
            env.set("DEVIN_OUTPOST_DESKTOP", "true");
        }
        for (name, value) in machine.more.iter().chain(&self.settings.extra_env) {
            env.set_default(name, value.as_str());
        }
        env
    }

    fn set_credentials(&self, env: &mut Environment) {
        match (&self.credentials, self.mode) {
            (WorkerCredentials::Fleet { token }, _) => {
                env.set("DEVIN_OUTPOSTS_TOKEN", token.expose_secret());
                env.set("DEVIN_WORKER_ACCEPTOR_ID", self.acceptor.as_str());
            }
            (WorkerCredentials::Connect { gateway_url, token }, WorkerMode::DevinRemote) => {
                env.set("DEVIN_OUTPOST_GATEWAY_URL", gateway_url.as_str());
                env.set("DEVIN_OUTPOST_CONNECT_TOKEN", token.expose_secret());
            }
            (WorkerCredentials::Connect { gateway_url, token }, _) => {
                env.set("DEVIN_OUTPOST_GATEWAY_URL", gateway_url.as_str());
                env.set("DEVIN_REMOTE_SESSION_TOKEN", token.expose_secret());
            }
        }
    }
}

/// Environment variables, some of them secret, in the order in which they were set. `Debug` shows names only.
#[derive(Clone, Default)]
pub struct Environment(Vec<(String, SecretString)>);

impl Environment {
    /// Sets a variable, replacing an earlier value.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), SecretString::from(value.into()));
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some(entry) => entry.1 = value,
            None => self.0.push((name, value)),
        }
    }

    /// Sets a variable that has no value yet.
    pub fn set_default(&mut self, name: &str, value: impl Into<String>) {
        if !self.names().any(|known| known == name) {
            self.set(name, value);
        }
    }

    /// The variables' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &SecretString)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Lines `export NAME='value'` for a POSIX shell to read from its standard input. Names that no shell takes are left
    /// out: they can come from a setting.
    pub fn to_shell(&self) -> SecretString {
        let mut text = String::new();
        for (name, value) in self.0.iter().filter(|(name, _)| is_shell_name(name)) {
            let quoted = value.expose_secret().replace('\'', r"'\''");
            let _ = writeln!(text, "export {name}='{quoted}'");
        }
        SecretString::from(text)
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

fn is_shell_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(mode: WorkerMode) -> WorkerSpec {
        let token = SecretString::from("sentinel-token".to_owned());
        let credentials = if mode.claims() {
            WorkerCredentials::Connect { gateway_url: "https://gateway.example".into(), token }
        } else {
            WorkerCredentials::Fleet { token }
        };
        WorkerSpec {
            mode,
            program: WorkerProgram::Installed { path: "devin".into() },
            session: SessionId::new("devin-1").unwrap(),
            outpost: OutpostId::new("outpost_env-1").unwrap(),
            acceptor: AcceptorId::new("desk-1").unwrap(),
            credentials,
            remote_sha: Some("abc1234".into()),
            settings: WorkerSettings::default(),
        }
    }

    // lesson 51: nothing secret in argv or Debug, and a clean environment of the documented names
    #[test]
    fn no_mode_shows_its_token_in_arguments_or_debug() {
        for mode in WorkerMode::ALL {
            let spec = spec(mode);
            let env = spec.environment(&MachineEnv::default());
            let shown = format!("{:?} {:?} {:?}", spec, env, spec.arguments());
            assert!(!shown.contains("sentinel"), "{mode:?}: {shown}");
            assert!(
                env.to_shell().expose_secret().contains("sentinel"),
                "{mode:?}: the worker gets its token"
            );
        }
    }

    // lesson 51
    #[test]
    fn devin_remote_gets_exactly_the_documented_environment() {
        let machine = MachineEnv {
            home: "/h".into(),
            user: "u".into(),
            path: "/bin".into(),
            tmpdir: "/tmp".into(),
            lang: "C.UTF-8".into(),
            state_dir: "/s".into(),
            more: vec![],
        };
        let mut names: Vec<_> =
            spec(WorkerMode::DevinRemote).environment(&machine).names().map(str::to_owned).collect();
        names.sort();
        assert_eq!(
            names,
            [
                "DEVIN_OUTPOST_CONNECT_TOKEN",
                "DEVIN_OUTPOST_GATEWAY_URL",
                "DEVIN_OUTPOST_SESSION_ID",
                "DEVIN_REMOTE_STATE_DIR",
                "HOME",
                "LANG",
                "LOGNAME",
                "PATH",
                "TMPDIR",
                "USER",
            ]
        );
    }

    // lesson 16: exactly one party claims, and the pinned sha is passed on (lesson 56)
    #[test]
    fn cli_direct_gets_the_connect_token_and_the_pinned_sha_and_no_fleet_token() {
        let env = spec(WorkerMode::CliDirect).environment(&MachineEnv::default());
        let names: Vec<_> = env.names().collect();
        assert!(names.contains(&"DEVIN_REMOTE_SESSION_TOKEN"));
        assert!(names.contains(&"DEVIN_WORKER_REMOTE_SHA"));
        assert!(!names.contains(&"DEVIN_OUTPOSTS_TOKEN"));
    }

    #[test]
    fn an_extra_variable_never_replaces_one_of_outposts() {
        let mut spec = spec(WorkerMode::DevinRemote);
        spec.settings.extra_env = vec![("DEVIN_OUTPOST_SESSION_ID".into(), "other".into())];
        let env = spec.environment(&MachineEnv::default());
        let (_, value) = env.iter().find(|(name, _)| *name == "DEVIN_OUTPOST_SESSION_ID").unwrap();
        assert_eq!(value.expose_secret(), "devin-1");
    }
}
