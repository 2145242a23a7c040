//! What the static host publishes: `devin-remote` by commit, and the CLI's manifest.
//!
//! The executables are shell scripts that start a stand-in, see [`launcher`].

use std::path::Path;

use axum::Json;
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use bytes::Bytes;
use serde_json::{Map, json};
use sha2::{Digest, Sha256};

use crate::control::Checksums;
use crate::sim::Sim;

/// The suffixes of `devin-remote`, and the CLI manifest's names of the same platforms.
const PLATFORMS: [(&str, &str); 4] = [
    ("linux_x64", "x86_64-unknown-linux"),
    ("linux_arm64", "aarch64-unknown-linux"),
    ("macos_arm64", "aarch64-apple-darwin"),
    ("windows_x64.exe", "x86_64-pc-windows"),
];

/// The commit that `latest_<suffix>` names unless said otherwise.
pub const DEFAULT_SHA: &str = "5f0c9d1e2b3a";

/// The version that the stand-in and the manifest say.
pub const CLI_VERSION: &str = "3000.1.18";

/// What is published. By default, executables that say that there is no stand-in, and fail.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Publication {
    /// `devin-remote`, the same for all platforms and commits.
    pub remote: Bytes,
    /// The CLI, the same for all platforms: the executable itself, where the real one is an archive.
    pub cli: Bytes,
    /// The newest commit of `devin-remote`.
    pub latest: String,
    /// Older commits that can be pinned.
    pub older: Vec<String>,
    /// Whether checksums are right.
    pub checksums: Checksums,
}

impl Default for Publication {
    fn default() -> Self {
        let none = Bytes::from_static(b"#!/bin/sh\necho 'no stand-in was published' >&2\nexit 70\n");
        Self {
            remote: none.clone(),
            cli: none,
            latest: DEFAULT_SHA.to_owned(),
            older: vec!["0ddba11c0de0".to_owned()],
            checksums: Checksums::Right,
        }
    }
}

impl Publication {
    /// Publishes the stand-in: `binary` is started with `leading` arguments, then `devin` or
    /// `devin-remote`, then the arguments of the caller, which is what
    /// [`standin::main`](crate::standin::main) takes after `leading`.
    #[must_use]
    pub fn standin(binary: &Path, leading: &[&str]) -> Self {
        let script = |persona| {
            let mut arguments = leading.to_vec();
            arguments.push(persona);
            Bytes::from(launcher(binary, &arguments))
        };
        Self { remote: script("devin-remote"), cli: script("devin"), ..Self::default() }
    }

    fn knows(&self, sha: &str) -> bool {
        self.latest == sha || self.older.iter().any(|older| older == sha)
    }

    fn checksum(&self, content: &[u8]) -> Option<String> {
        match self.checksums {
            Checksums::Right => Some(hex(content)),
            Checksums::Wrong => Some(hex(b"something else")),
            Checksums::Absent => None,
        }
    }
}

/// A `#!/bin/sh` script that becomes `binary` with `leading` arguments before its own.
#[must_use]
pub fn launcher(binary: &Path, leading: &[&str]) -> String {
    let quote = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    let mut command = quote(&binary.to_string_lossy());
    for argument in leading {
        command.push(' ');
        command.push_str(&quote(argument));
    }
    format!("#!/bin/sh\nexec {command} \"$@\"\n")
}

fn hex(content: &[u8]) -> String {
    Sha256::digest(content).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

pub(crate) fn routes() -> Router<Sim> {
    Router::new()
        .route("/devin-rs/remote/{file}", get(remote_file))
        .route("/cli/current/manifest.json", get(manifest))
        .route("/cli/current/{file}", get(cli_file))
}

async fn remote_file(State(sim): State<Sim>, UrlPath(file): UrlPath<String>) -> Response {
    let publication = sim.with(|state, _| state.publication.clone());
    find_remote(&publication, &file).unwrap_or_else(|| StatusCode::NOT_FOUND.into_response())
}

fn find_remote(publication: &Publication, file: &str) -> Option<Response> {
    let known = |suffix: &str| PLATFORMS.iter().any(|(known, _)| *known == suffix);
    if let Some(suffix) = file.strip_prefix("latest_") {
        return known(suffix).then(|| format!("{}\n", publication.latest).into_response());
    }
    let (name, wants_checksum) = match file.strip_suffix(".sha256") {
        Some(name) => (name, true),
        None => (file, false),
    };
    let (sha, suffix) = name.strip_prefix("devin-remote_")?.split_once('_')?;
    if !publication.knows(sha) || !known(suffix) {
        return None;
    }
    if wants_checksum {
        let checksum = publication.checksum(&publication.remote)?;
        return Some(format!("{checksum}  {name}\n").into_response());
    }
    Some(binary(publication.remote.clone()))
}

async fn manifest(State(sim): State<Sim>, headers: HeaderMap) -> Response {
    let publication = sim.with(|state, _| state.publication.clone());
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1");
    let mut platforms = Map::new();
    for (suffix, name) in PLATFORMS {
        let mut entry = json!({ "url": format!("http://{host}/cli/current/devin_{suffix}") });
        if let Some(checksum) = publication.checksum(&publication.cli) {
            entry["sha256"] = checksum.into();
        }
        platforms.insert(name.to_owned(), entry);
    }
    Json(json!({ "version": CLI_VERSION, "platforms": platforms })).into_response()
}

async fn cli_file(State(sim): State<Sim>, UrlPath(file): UrlPath<String>) -> Response {
    let known =
        file.strip_prefix("devin_").is_some_and(|suffix| PLATFORMS.iter().any(|(known, _)| *known == suffix));
    if !known {
        return StatusCode::NOT_FOUND.into_response();
    }
    binary(sim.with(|state, _| state.publication.cli.clone()))
}

fn binary(content: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/octet-stream")], content).into_response()
}
