//! Settings that make no sense are found before anything is done.

use crate::settings::{BuildError, EngineAddress, Settings};

pub(crate) fn check(settings: &Settings) -> Result<(), BuildError> {
    let wrong = |setting: &'static str, why: String| Err(BuildError::Setting { setting, why });
    if settings.image.trim().is_empty() || settings.image.contains(char::is_whitespace) {
        return wrong("image", format!("{:?} names no image", settings.image));
    }
    if settings.cpus.is_some_and(|cpus| cpus.is_nan() || cpus < 0.01) {
        return wrong("cpus", "at least 0.01".to_owned());
    }
    if settings.memory_bytes.is_some_and(|bytes| bytes < 16 << 20) {
        return wrong("memory_bytes", "at least 16 MiB".to_owned());
    }
    if settings.pids == Some(0) {
        return wrong("pids", "at least 1; none for no limit".to_owned());
    }
    if !(3..=120).contains(&settings.flatten_at) {
        return wrong(
            "flatten_at",
            "between 3 and 120: engines refuse more than about 125 layers".to_owned(),
        );
    }
    if let Some(dir) = settings.workdir.as_deref().filter(|dir| !dir.starts_with('/')) {
        return wrong("workdir", format!("{dir:?} is not an absolute path"));
    }
    for mount in &settings.mounts {
        if !mount.target.starts_with('/') || mount.source.is_empty() {
            return wrong(
                "mounts",
                format!("{:?} at {:?}: the target must be an absolute path", mount.source, mount.target),
            );
        }
        if gives_the_engine_away(&mount.source, &settings.engine) {
            let why = format!("{:?} would give sessions the engine, and with it the host", mount.source);
            return wrong("mounts", why);
        }
    }
    for (key, _) in &settings.labels {
        if key.is_empty() || key.starts_with("dev.outpost.") {
            return wrong("labels", format!("{key:?}: labels that begin with dev.outpost. are Outpost's"));
        }
    }
    crate::guard::check(settings)
}

/// Whether a mount holds an engine's socket.
fn gives_the_engine_away(source: &str, engine: &EngineAddress) -> bool {
    let mut sockets = vec!["/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock"];
    if let EngineAddress::Url(url) = engine {
        sockets.extend(url.strip_prefix("unix://"));
    }
    let source = source.trim_end_matches('/');
    sockets.into_iter().any(|socket| {
        socket.strip_prefix(source).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ExtraMount;

    #[test]
    fn a_mount_that_holds_the_engines_socket_is_refused() {
        for source in ["/var/run/docker.sock", "/var/run", "/run/", "/", "/srv/engine.sock"] {
            let settings = Settings {
                engine: EngineAddress::Url("unix:///srv/engine.sock".to_owned()),
                mounts: vec![ExtraMount::read_only(source, "/x")],
                ..Settings::default()
            };
            assert!(check(&settings).is_err(), "{source}");
        }
        let mounts = vec![ExtraMount::read_only("/var/runner", "/x"), ExtraMount::read_only("cache", "/c")];
        assert!(check(&Settings { mounts, ..Settings::default() }).is_ok());
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        type Change = fn(&mut Settings);
        let table: [(&str, Change); 6] = [
            ("image", |it| it.image = " ".to_owned()),
            ("cpus", |it| it.cpus = Some(f64::NAN)),
            ("memory_bytes", |it| it.memory_bytes = Some(1)),
            ("pids", |it| it.pids = Some(0)),
            ("flatten_at", |it| it.flatten_at = 125),
            ("workdir", |it| it.workdir = Some("work".to_owned())),
        ];
        for (name, change) in table {
            let mut settings = Settings::default();
            change(&mut settings);
            let error = check(&settings).unwrap_err().to_string();
            assert!(error.starts_with(name), "{error}");
        }
    }
}
