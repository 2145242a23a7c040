//! An engine's HTTP API, spoken by curl: <https://docs.docker.com/reference/api/engine/>.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::{Engine, Kind};
use crate::command::Cmd;
use crate::context::Context;

/// The longest that an engine may take for one answer; an image of gigabytes is removed within it.
const PATIENCE_SECS: &str = "300";

impl Engine {
    /// True when it is there, and of its kind: podman also listens on Docker's socket on some systems.
    pub(super) fn answers(&self, context: &Context) -> bool {
        if !self.socket.exists() {
            return false;
        }
        let asked = self.curl(context, "GET", "/_ping").args(["--include", "--fail", "--max-time", "10"]);
        asked.read().is_ok_and(|said| {
            let is_podman = said.to_ascii_lowercase().contains("\nlibpod-api-version:");
            is_podman == (self.kind == Kind::Podman)
        })
    }

    /// What it answers to a question; `None` = it has no such thing.
    pub(super) fn get(&self, context: &Context, path: &str) -> Result<Option<Value>> {
        match self.ask(self.curl(context, "GET", path))? {
            (404, _) => Ok(None),
            (200, body) => Ok(Some(serde_json::from_str(&body).with_context(|| format!("GET {path}"))?)),
            (code, body) => bail!("{} answered {code} to GET {path}: {}", self.kind.name(), body.trim()),
        }
    }

    /// Removes something; that it is gone already is as good.
    pub(super) fn delete(&self, context: &Context, path: &str) -> Result<()> {
        match self.ask(self.curl(context, "DELETE", path))? {
            (200..300 | 404, _) => Ok(()),
            (code, body) => bail!("{} answered {code} to DELETE {path}: {}", self.kind.name(), body.trim()),
        }
    }

    /// Sends a file, or nothing, and hands back the answer as it is.
    pub(super) fn post(&self, context: &Context, path: &str, file: Option<&Path>) -> Result<String> {
        let mut cmd = self.curl(context, "POST", path);
        if let Some(file) = file {
            cmd = cmd.args(["--header", "Content-Type: application/x-tar", "--data-binary"]);
            cmd = cmd.arg(format!("@{}", file.display()));
        }
        match self.ask(cmd)? {
            (200..300, body) => Ok(body),
            (code, body) => bail!("{} answered {code} to POST {path}: {}", self.kind.name(), body.trim()),
        }
    }

    fn curl(&self, context: &Context, method: &str, path: &str) -> Cmd {
        Cmd::new(context, "curl")
            .args(["--silent", "--show-error", "--request", method, "--unix-socket"])
            .arg(&self.socket)
            .arg(format!("http://engine{path}"))
    }

    fn ask(&self, cmd: Cmd) -> Result<(u16, String)> {
        let said = cmd.args(["--max-time", PATIENCE_SECS, "--write-out", "\n%{http_code}"]).read()?;
        let (body, code) = said.rsplit_once('\n').context("curl says no status")?;
        Ok((code.parse().context("curl says no status")?, body.to_owned()))
    }
}

/// A value as a query takes it.
pub(super) fn escape(value: &str) -> String {
    utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()
}
