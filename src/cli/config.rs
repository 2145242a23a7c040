//! From settings as text to what `outpost run` goes by.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use outpost_core::model::{InstanceId, Platform, WorkerMode};
use outpost_devin_api::{BaseUrl, Hosts, UrlError};
use secrecy::SecretString;

use super::settings::{self, Given, SETTINGS, Values};

/// What `outpost run` goes by.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) outpost: String,
    pub(crate) token: SecretString,
    pub(crate) api: BaseUrl,
    /// Which hosts addresses may name, also those that a manifest brings.
    pub(crate) hosts: Hosts,
    pub(crate) worker_mode: WorkerMode,
    pub(crate) platform: Platform,
    pub(crate) limit: usize,
    pub(crate) state_dir: PathBuf,
    pub(crate) instance: Option<InstanceId>,
    pub(crate) times: Times,
    pub(crate) static_url: BaseUrl,
    pub(crate) manifest_url: BaseUrl,
    pub(crate) worker_program: Option<PathBuf>,
    pub(crate) network_policy: UnenforcedNetworkPolicy,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) log: Log,
}

/// Every setting that is a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) list_interval: Duration,
    pub(crate) inventory_interval: Duration,
    pub(crate) start_timeout: Duration,
    pub(crate) suspend_grace: Duration,
    pub(crate) stop_grace: Duration,
    pub(crate) resume_courtesy: Duration,
    pub(crate) snapshot_ttl: Duration,
}

/// How it is logged.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) filter: String,
    pub(crate) format: LogFormat,
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($variant),* }

        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(format!("must be {}", [$($text),*].join(" or "))),
                }
            }
        }
    };
}

choice! {
    /// Which hosts may get the token.
    ApiHosts { Devin = "devin", Any = "any" }
}
choice! {
    /// What to do with a session whose network policy cannot be enforced.
    UnenforcedNetworkPolicy { Refuse = "refuse", Allow = "allow" }
}
choice! {
    /// How it is logged.
    LogFormat { Text = "text", Json = "json" }
}
choice! {
    /// Where sandboxes run.
    Provider { Process = "process" }
}

impl Config {
    /// Reads all settings.
    ///
    /// # Errors
    /// Every bad setting, a line each.
    pub(crate) fn read(
        mut values: Values,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<String>> {
        let reader = &mut Reader { values: &mut values };
        let outpost = reader.required(settings::OUTPOST, "the outpost's id, as Devin's settings show it");
        let token = reader.token(&environment);
        let api_hosts = reader.parsed(settings::API_HOSTS, str::parse);
        let hosts = match api_hosts {
            Some(ApiHosts::Any) => Hosts::Any,
            Some(ApiHosts::Devin) | None => Hosts::Devin,
        };
        let api = reader.url(settings::API_URL, hosts);
        let _provider: Option<Provider> = reader.parsed(settings::PROVIDER, str::parse);
        let worker_mode = reader.parsed(settings::WORKER_MODE, worker_mode);
        let platform = reader.parsed(settings::PLATFORM, platform);
        let limit = reader.parsed(settings::LIMIT, limit);
        let state_dir = reader.state_dir(&environment, outpost.as_deref());
        let instance = reader.optional(settings::INSTANCE, |text| {
            text.parse::<InstanceId>().map_err(|error| error.to_string())
        });
        let times = reader.times();
        let static_url = reader.url(settings::STATIC_URL, hosts);
        let manifest_url = reader.url(settings::MANIFEST_URL, hosts);
        let worker_program = reader.optional(settings::WORKER_PROGRAM, program);
        let network_policy = reader.parsed(settings::NETWORK_POLICY, str::parse);
        let listen = reader.parsed(settings::LISTEN, listen);
        let filter = reader.parsed(settings::LOG, log_filter);
        let format = reader.parsed(settings::LOG_FORMAT, str::parse);
        let complete = (|| {
            Some(Self {
                outpost: outpost?,
                token: token?,
                api: api?,
                hosts,
                worker_mode: worker_mode?,
                platform: platform?,
                limit: limit?,
                state_dir: state_dir?,
                instance,
                times: times?,
                static_url: static_url?,
                manifest_url: manifest_url?,
                worker_program,
                network_policy: network_policy?,
                listen: listen?,
                log: Log { filter: filter?, format: format? },
            })
        })();
        match complete {
            Some(config) if values.problems.is_empty() => Ok(config),
            _ => Err(values.problems),
        }
    }
}

/// Reads one setting after another and collects what is wrong.
struct Reader<'a> {
    values: &'a mut Values,
}

impl Reader<'_> {
    fn problem(&mut self, given: &Given, what: &str) {
        self.values.problems.push(format!("{} is `{}`; it {what}", given.origin, given.text));
    }

    /// Of a bad address only what its error says is shown: somebody may have put a secret into it.
    fn url(&mut self, name: &'static str, hosts: Hosts) -> Option<BaseUrl> {
        let given = self.values.get(name);
        let error = match BaseUrl::parse(given.map_or(default(name), |given| &given.text), hosts) {
            Ok(url) => return Some(url),
            Err(error) => error,
        };
        let origin = given.map_or_else(|| name.to_owned(), |given| given.origin.to_string());
        let hint = if matches!(error, UrlError::Host(_)) { " with api-hosts" } else { "" };
        self.values.problems.push(format!("{origin} is refused: {error}{hint}"));
        None
    }

    fn required(&mut self, name: &'static str, what: &str) -> Option<String> {
        let given =
            self.values.get(name).map(|given| given.text.trim().to_owned()).filter(|text| !text.is_empty());
        if given.is_none() {
            let env =
                SETTINGS.iter().find(|setting| setting.name == name).map_or("", |setting| setting.env[0]);
            self.values.problems.push(format!("{name} is missing; set {env} or --{name} to {what}"));
        }
        given
    }

    fn parsed<T>(&mut self, name: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        match self.values.get(name).cloned() {
            None => parse(default(name)).ok(),
            Some(given) => match parse(given.text.trim()) {
                Ok(value) => Some(value),
                Err(what) => {
                    self.problem(&given, &what);
                    None
                }
            },
        }
    }

    fn optional<T>(&mut self, name: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        self.values.get(name)?;
        self.parsed(name, parse)
    }

    fn times(&mut self) -> Option<Times> {
        // Each is read, so that each bad one is named.
        let list_interval = self.parsed(settings::LIST_INTERVAL, positive);
        let inventory_interval = self.parsed(settings::INVENTORY_INTERVAL, positive);
        let start_timeout = self.parsed(settings::START_TIMEOUT, positive);
        let suspend_grace = self.parsed(settings::SUSPEND_GRACE, time);
        let stop_grace = self.parsed(settings::STOP_GRACE, time);
        let resume_courtesy = self.parsed(settings::RESUME_COURTESY, time);
        let snapshot_ttl = self.parsed(settings::SNAPSHOT_TTL, positive);
        Some(Times {
            list_interval: list_interval?,
            inventory_interval: inventory_interval?,
            start_timeout: start_timeout?,
            suspend_grace: suspend_grace?,
            stop_grace: stop_grace?,
            resume_courtesy: resume_courtesy?,
            snapshot_ttl: snapshot_ttl?,
        })
    }

    fn state_dir(
        &mut self,
        environment: &impl Fn(&str) -> Option<String>,
        outpost: Option<&str>,
    ) -> Option<PathBuf> {
        if let Some(given) = self.values.get(settings::STATE_DIR) {
            return std::path::absolute(&given.text).ok();
        }
        let set = |name: &str| environment(name).filter(|text| !text.is_empty()).map(PathBuf::from);
        let base = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
        let Some(base) = base else {
            let problem = "state-dir is missing, and neither XDG_STATE_HOME nor HOME is set; set --state-dir";
            self.values.problems.push(problem.into());
            return None;
        };
        // An outpost's name may hold anything; the directory's name must not.
        let name: String =
            outpost?.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        Some(base.join("outpost").join(name))
    }

    fn token(&mut self, environment: &impl Fn(&str) -> Option<String>) -> Option<SecretString> {
        const NAMES: [&str; 2] = ["DEVIN_API_TOKEN", "DEVIN_OUTPOSTS_TOKEN"];
        if let Some(given) = self.values.get(settings::TOKEN_FILE).cloned() {
            return match token_from(Path::new(&given.text)) {
                Ok(token) => Some(token),
                Err(what) => {
                    self.problem(&given, &what);
                    None
                }
            };
        }
        let token = NAMES.iter().find_map(|name| environment(name).filter(|token| !token.trim().is_empty()));
        match token {
            Some(token) if token.trim().chars().any(|c| c.is_control() || c.is_whitespace()) => {
                self.values.problems.push("the token has a space or a control character in it".into());
                None
            }
            Some(token) => Some(SecretString::from(token.trim().to_owned())),
            None => {
                self.values.problems.push(
                    "the token is missing; set DEVIN_API_TOKEN, or token-file, to a service user's token with the permission \
                     \"Run outpost workers\""
                        .into(),
                );
                None
            }
        }
    }
}

fn default(name: &str) -> &'static str {
    SETTINGS.iter().find(|setting| setting.name == name).map_or("", |setting| setting.default)
}

fn token_from(path: &Path) -> Result<SecretString, String> {
    use std::os::unix::fs::PermissionsExt as _;
    let meta = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
    if meta.permissions().mode() & 0o077 != 0 {
        return Err("can be read by others; make it private: chmod 600".into());
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    let token = text.trim();
    if token.is_empty() || token.chars().any(char::is_whitespace) {
        return Err("does not hold a token: one line, without spaces".into());
    }
    Ok(SecretString::from(token.to_owned()))
}

fn worker_mode(text: &str) -> Result<WorkerMode, String> {
    match text {
        "devin-remote" => Ok(WorkerMode::DevinRemote),
        "cli" => Ok(WorkerMode::Cli),
        "cli-direct" => Ok(WorkerMode::CliDirect),
        _ => Err("must be devin-remote, cli or cli-direct".into()),
    }
}

fn platform(text: &str) -> Result<Platform, String> {
    match text {
        "linux" => Ok(Platform::Linux),
        "macos" => Ok(Platform::Macos),
        "windows" => Ok(Platform::Windows),
        "this machine's" if cfg!(target_os = "macos") => Ok(Platform::Macos),
        "this machine's" => Ok(Platform::Linux),
        _ => Err("must be linux, macos or windows".into()),
    }
}

fn limit(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(limit) if (1..=10_000).contains(&limit) => Ok(limit),
        _ => Err("must be a whole number from 1 to 10000".into()),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    const WHAT: &str = "must be a time with its unit, such as 500ms, 30s, 5m or 720h";
    // The library takes a bare number for nothing, and so do people.
    let time = text.parse::<SignedDuration>().map_err(|_| WHAT.to_owned())?;
    Duration::try_from(time).map_err(|_| "must not be negative".to_owned())
}

fn positive(text: &str) -> Result<Duration, String> {
    match time(text)? {
        time if time < Duration::from_millis(10) => Err("must be at least 10ms".into()),
        time => Ok(time),
    }
}

fn program(text: &str) -> Result<PathBuf, String> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = PathBuf::from(text);
    let meta = std::fs::metadata(&path).map_err(|error| format!("cannot be run: {error}"))?;
    if !meta.is_file() || meta.permissions().mode() & 0o111 == 0 {
        return Err("is not an executable file".into());
    }
    std::path::absolute(path).map_err(|error| format!("cannot be run: {error}"))
}

fn listen(text: &str) -> Result<Option<SocketAddr>, String> {
    match text {
        "off" => Ok(None),
        _ => text
            .parse()
            .map(Some)
            .map_err(|_| "must be an address with a port, such as 127.0.0.1:8787, or off".into()),
    }
}

fn log_filter(text: &str) -> Result<String, String> {
    match tracing_subscriber::EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("must be a filter: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        flags: &[(&'static str, &str)],
        env: &[(&str, &str)],
        file: Option<&Path>,
    ) -> Result<Config, Vec<String>> {
        let environment =
            |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
        let flags = flags.iter().map(|(name, text)| (*name, (*text).to_owned()));
        Config::read(Values::gather(flags, environment, file), environment)
    }

    const ENOUGH: &[(&str, &str)] =
        &[("DEVIN_OUTPOST_ID", "outpost_env-1"), ("DEVIN_API_TOKEN", "cog_x"), ("HOME", "/home/u")];

    #[test]
    fn the_least_that_is_needed_is_an_outpost_and_a_token() {
        let config = read(&[], ENOUGH, None).unwrap();
        assert_eq!(config.api.as_url(), "https://api.devin.ai/opbeta");
        assert_eq!(config.times.list_interval, Duration::from_secs(10));
        assert_eq!(config.state_dir, Path::new("/home/u/.local/state/outpost/outpost-env-1"));
    }

    #[test]
    fn flags_beat_environment_beat_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "limit = 1\nlist-interval = \"1s\"\nstop_grace = \"7s\"\n").unwrap();
        let env = [ENOUGH, &[("OUTPOST_LIMIT", "2"), ("DEVIN_RECONCILE_INTERVAL_MS", "2500")]].concat();
        let config = read(&[("limit", "3")], &env, Some(file.path())).unwrap();
        assert_eq!(config.limit, 3);
        assert_eq!(config.times.list_interval, Duration::from_millis(2500));
        assert_eq!(config.times.stop_grace, Duration::from_secs(7));
    }

    #[test]
    fn one_message_names_every_bad_setting_and_where_it_stands() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "limmit = 1\nstop-grace = 30\ntoken = \"x\"\n").unwrap();
        let env = [("OUTPOST_LISTEN", "8787"), ("HOME", "/h")];
        let problems = read(&[("worker-mode", "docker")], &env, Some(file.path())).unwrap_err().join("\n");
        for part in [
            "limmit is not a setting; did you mean limit?",
            "stop-grace is `30`; it must be a time with its unit",
            "a token does not belong into this file",
            "OUTPOST_LISTEN is `8787`",
            "--worker-mode is `docker`",
            "outpost is missing; set DEVIN_OUTPOST_ID",
            "the token is missing; set DEVIN_API_TOKEN",
        ] {
            assert!(problems.contains(part), "{part}\nis not in\n{problems}");
        }
    }

    #[test]
    fn a_token_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "cog_sentinel\n").unwrap();
        let path = file.path().to_str().unwrap();
        let env = [("DEVIN_OUTPOST_ID", "o"), ("HOME", "/h"), ("OUTPOST_TOKEN_FILE", path)];
        assert!(read(&[], &env, None).is_ok());
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let problems = read(&[], &env, None).unwrap_err().join("\n");
        assert!(problems.contains("can be read by others") && !problems.contains("sentinel"), "{problems}");
    }

    // lesson 50
    #[test]
    fn an_address_that_is_not_devins_is_refused_without_showing_what_is_in_it() {
        let url = "https://user:sentinel@evil.example/?token=sentinel";
        let problems = read(&[("api-url", url)], ENOUGH, None).unwrap_err().join("\n");
        assert!(problems.contains("--api-url is refused") && !problems.contains("sentinel"), "{problems}");
        let elsewhere = [("static-url", "https://mirror.example/")];
        let problems = read(&elsewhere, ENOUGH, None).unwrap_err().join("\n");
        assert!(problems.contains("--static-url is refused: the host `mirror.example`"), "{problems}");
        assert!(read(&[elsewhere[0], ("api-hosts", "any")], ENOUGH, None).is_ok());
    }

    #[test]
    fn no_token_shows_in_debug() {
        let env = [("DEVIN_OUTPOST_ID", "o"), ("DEVIN_API_TOKEN", "cog_sentinel"), ("HOME", "/h")];
        assert!(!format!("{:?}", read(&[], &env, None).unwrap()).contains("sentinel"));
    }

    #[test]
    fn every_default_in_the_table_can_be_read() {
        assert!(read(&[], ENOUGH, None).is_ok());
        let names: std::collections::BTreeSet<_> = SETTINGS.iter().map(|setting| setting.name).collect();
        assert_eq!(names.len(), SETTINGS.len(), "each setting stands once");
    }

    #[test]
    fn the_example_file_has_every_setting_with_its_default() {
        const EXAMPLE: &str = include_str!("../../outpost.example.toml");
        let lines = EXAMPLE.lines().map(|line| line.strip_prefix("# ").unwrap_or(line));
        let shown: Vec<_> = lines.filter_map(|line| line.split_once(" = ")).collect();
        let names: std::collections::BTreeSet<_> = shown.iter().map(|(name, _)| *name).collect();
        let known: std::collections::BTreeSet<_> = SETTINGS.iter().map(|setting| setting.name).collect();
        assert_eq!(names, known);
        // These have no default that could stand in a file.
        const EXAMPLES: [&str; 6] = [
            settings::OUTPOST,
            settings::TOKEN_FILE,
            settings::PLATFORM,
            settings::STATE_DIR,
            settings::INSTANCE,
            settings::WORKER_PROGRAM,
        ];
        for (name, value) in shown.iter().filter(|(name, _)| !EXAMPLES.contains(name)) {
            assert_eq!(value.trim_matches('"'), default(name), "{name}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), EXAMPLE).unwrap();
        read(&[], ENOUGH, Some(file.path())).unwrap();
    }
}
