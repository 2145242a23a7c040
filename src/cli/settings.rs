//! Every setting of `outpost run`: one table, read from flags, the environment and a TOML file.
//!
//! Everything is taken as text first, so that one message can name every bad setting, and where it stands.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// A setting: its name is its key in the file; its flag is the name with `--`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    /// Environment variables, the first that is set wins.
    pub(crate) env: &'static [&'static str],
    pub(crate) value: &'static str,
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
}

macro_rules! settings {
    ($($constant:ident = $name:literal, env $env:expr, value $value:literal, default $default:literal, $help:literal;)*) => {
        $(pub(crate) const $constant: &str = $name;)*
        /// Every setting, in the order of `--help`.
        pub(crate) const SETTINGS: &[Setting] = &[
            $(Setting { name: $name, env: &$env, value: $value, default: $default, help: $help },)*
        ];
    };
}

settings! {
    OUTPOST = "outpost", env ["DEVIN_OUTPOST_ID"], value "ID|NAME", default "",
        "The outpost to serve: its id (outpost_env-…) or its name. Required";
    TOKEN_FILE = "token-file", env ["OUTPOST_TOKEN_FILE"], value "PATH", default "",
        "A file that holds the service user's token and that only its owner can read; else the token is taken from DEVIN_API_TOKEN or DEVIN_OUTPOSTS_TOKEN";
    API_URL = "api-url", env ["DEVIN_API_URL"], value "URL", default "https://api.devin.ai/opbeta",
        "Devin's fleet API";
    API_HOSTS = "api-hosts", env ["OUTPOST_API_HOSTS"], value "devin|any", default "devin",
        "Which hosts may get the token: Devin's own (and loopback), or any that the URL names";
    PROVIDER = "provider", env ["OUTPOST_PROVIDER"], value "process", default "process",
        "Where sandboxes run. `process`: as processes of this machine, without any isolation";
    WORKER_MODE = "worker-mode", env ["OUTPOST_WORKER_MODE"], value "devin-remote|cli|cli-direct", default "devin-remote",
        "Who claims sessions and what runs in a sandbox. In `cli` mode code in a session can read the token";
    PLATFORM = "platform", env ["OUTPOST_PLATFORM"], value "linux|macos|windows", default "this machine's",
        "The platform of the sandboxes; sessions that ask for another are left alone";
    LIMIT = "limit", env ["OUTPOST_LIMIT"], value "N", default "10",
        "The most sandboxes that may exist at once";
    STATE_DIR = "state-dir", env ["OUTPOST_STATE_DIR"], value "PATH", default "~/.local/state/outpost/<outpost>",
        "Where records, sandboxes and snapshots are kept. One process at a time may use it";
    INSTANCE = "instance", env ["OUTPOST_INSTANCE"], value "NAME", default "random, kept in the state directory",
        "The name of this orchestrator: a-z, 0-9 and dashes. No two may share one";
    LIST_INTERVAL = "list-interval", env ["OUTPOST_LIST_INTERVAL"], value "TIME", default "10s",
        "How often the queue is listed, besides being watched (DEVIN_RECONCILE_INTERVAL_MS: the same in milliseconds)";
    INVENTORY_INTERVAL = "inventory-interval", env ["OUTPOST_INVENTORY_INTERVAL"], value "TIME", default "2s",
        "How often sandboxes are looked at when nothing else asks for it";
    START_TIMEOUT = "start-timeout", env ["OUTPOST_START_TIMEOUT"], value "TIME", default "4m",
        "How long a worker may take to run";
    SUSPEND_GRACE = "suspend-grace", env ["OUTPOST_SUSPEND_GRACE"], value "TIME", default "1m",
        "How long a worker may go on after its session is known to sleep";
    STOP_GRACE = "stop-grace", env ["OUTPOST_STOP_GRACE"], value "TIME", default "30s",
        "How long a worker has between SIGTERM and SIGKILL";
    RESUME_COURTESY = "resume-courtesy", env ["OUTPOST_RESUME_COURTESY"], value "TIME", default "1m",
        "How long a resumed session whose snapshot is not here is left to another host. 0s where this is the only one";
    SNAPSHOT_TTL = "snapshot-ttl", env ["OUTPOST_SNAPSHOT_TTL"], value "TIME", default "720h",
        "How long a snapshot outlives the last sight of its session";
    STATIC_URL = "static-url", env ["OUTPOST_STATIC_URL"], value "URL", default "https://static.devin.ai/devin-rs/remote/",
        "Where `devin-remote` is downloaded from";
    MANIFEST_URL = "manifest-url", env ["OUTPOST_MANIFEST_URL"], value "URL", default "https://static.devin.ai/cli/current/manifest.json",
        "The manifest by which the Devin CLI is downloaded, in the modes that run it";
    WORKER_PROGRAM = "worker-program", env ["OUTPOST_WORKER_PROGRAM"], value "PATH", default "downloaded",
        "An installed `devin-remote` (or, in the `cli` modes, `devin`) to run instead of downloading one";
    NETWORK_POLICY = "unenforced-network-policy", env ["OUTPOST_UNENFORCED_NETWORK_POLICY"], value "refuse|allow", default "refuse",
        "What to do with a session whose network policy the provider cannot enforce";
    LISTEN = "listen", env ["OUTPOST_LISTEN"], value "ADDRESS|off", default "127.0.0.1:8787",
        "Where /healthz, /readyz and /metrics are served";
    LOG = "log", env ["OUTPOST_LOG"], value "FILTER", default "info",
        "What is logged: error, warn, info, debug, trace, or a filter such as `info,outpost_core=debug`";
    LOG_FORMAT = "log-format", env ["OUTPOST_LOG_FORMAT"], value "text|json", default "text",
        "How it is logged";
}

/// Where a value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag(&'static str),
    Environment(&'static str),
    File(PathBuf, &'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "--{name}"),
            Self::Environment(name) => f.write_str(name),
            Self::File(path, name) => write!(f, "{}: {name}", path.display()),
        }
    }
}

/// A value, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

/// Everything that was given, the strongest origin of each setting, and what is wrong with it so far.
#[derive(Debug, Default)]
pub(crate) struct Values {
    given: BTreeMap<&'static str, Given>,
    pub(crate) problems: Vec<String>,
}

impl Values {
    /// Flags beat environment beat file.
    pub(crate) fn gather(
        flags: impl IntoIterator<Item = (&'static str, String)>,
        environment: impl Fn(&str) -> Option<String>,
        file: Option<&Path>,
    ) -> Self {
        let mut values = Self::default();
        if let Some(path) = file {
            values.read_file(path);
        }
        for setting in SETTINGS {
            let set = setting.env.iter().find_map(|name| environment(name).map(|text| (*name, text)));
            if let Some((name, text)) = set.filter(|(_, text)| !text.is_empty()) {
                values.set(setting.name, text, Origin::Environment(name));
            }
        }
        values.read_interval_ms(&environment);
        for (name, text) in flags {
            values.set(name, text, Origin::Flag(name));
        }
        values
    }

    pub(crate) fn get(&self, name: &'static str) -> Option<&Given> {
        self.given.get(name)
    }

    fn set(&mut self, name: &'static str, text: String, origin: Origin) {
        self.given.insert(name, Given { text, origin });
    }

    /// Devin's own name for the interval, in milliseconds; a name of ours beats it.
    fn read_interval_ms(&mut self, environment: &impl Fn(&str) -> Option<String>) {
        const NAME: &str = "DEVIN_RECONCILE_INTERVAL_MS";
        let from_file = |given: &Given| matches!(given.origin, Origin::File(..));
        let weaker = self.get(LIST_INTERVAL).is_none_or(from_file);
        let Some(text) = environment(NAME).filter(|text| !text.is_empty() && weaker) else { return };
        match text.trim().parse::<u32>() {
            Ok(ms) if ms > 0 => self.set(LIST_INTERVAL, format!("{ms}ms"), Origin::Environment(NAME)),
            _ => self.problems.push(format!(
                "{NAME} is `{text}`; it must be a whole number of milliseconds, such as 10000"
            )),
        }
    }

    fn read_file(&mut self, path: &Path) {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                self.problems.push(format!("{} cannot be read: {error}", path.display()));
                return;
            }
        };
        let table = match text.parse::<toml::Table>() {
            Ok(table) => table,
            Err(error) => {
                let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
                self.problems.push(format!("{}, line {line}: {}", path.display(), error.message()));
                return;
            }
        };
        for (key, value) in table {
            self.read_key(path, &key, &value);
        }
    }

    fn read_key(&mut self, path: &Path, key: &str, value: &toml::Value) {
        let known = SETTINGS.iter().find(|setting| setting.name == key.replace('_', "-"));
        let text = match value {
            toml::Value::String(text) => Some(text.clone()),
            toml::Value::Integer(number) => Some(number.to_string()),
            _ => None,
        };
        match (known, text) {
            (Some(setting), Some(text)) => {
                let origin = Origin::File(path.to_owned(), setting.name);
                self.set(setting.name, text, origin);
            }
            (Some(setting), None) => {
                self.problems.push(format!("{}: {key} must be {}", path.display(), setting.value));
            }
            (None, _) if key.contains("token") => self.problems.push(format!(
                "{}: {key} is not a setting; a token does not belong into this file: use DEVIN_API_TOKEN, or token-file",
                path.display()
            )),
            (None, _) => self.problems.push(match nearest(key) {
                Some(name) => format!("{}: {key} is not a setting; did you mean {name}?", path.display()),
                None => format!("{}: {key} is not a setting; `outpost run --help` lists them", path.display()),
            }),
        }
    }
}

/// A setting whose name has at most two letters that differ.
fn nearest(key: &str) -> Option<&'static str> {
    let key = key.replace('_', "-");
    let distance = |name: &str| {
        let mut row: Vec<usize> = (0..=name.chars().count()).collect();
        for (i, a) in key.chars().enumerate() {
            let mut diagonal = std::mem::replace(&mut row[0], i + 1);
            for (j, b) in name.chars().enumerate() {
                let changed = diagonal + usize::from(a != b);
                diagonal = row[j + 1];
                row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
            }
        }
        row.last().copied().unwrap_or_default()
    };
    let best = SETTINGS.iter().map(|setting| (distance(setting.name), setting.name)).min()?;
    (best.0 <= 2).then_some(best.1)
}
