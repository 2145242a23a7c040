use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Calls that block, with a bearer token.
#[derive(Debug, Clone)]
pub(super) struct Http {
    agent: ureq::Agent,
    token: SecretString,
}

/// Why a call gave nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("answered {0}")]
    Status(u16),
    #[error("{0}")]
    Transport(String),
}

impl HttpError {
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Status(status) if (400..500).contains(status) && *status != 429)
    }
}

impl Http {
    pub(super) fn new(token: SecretString) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(40)))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        Self { agent: config.into(), token }
    }

    pub(super) fn get(&self, url: &str) -> Result<Vec<u8>, HttpError> {
        let request = self.agent.get(url).header("authorization", self.bearer());
        finish(request.call())
    }

    pub(super) fn post(&self, url: &str, body: &impl Serialize) -> Result<Vec<u8>, HttpError> {
        let body = serde_json::to_vec(body).map_err(transport)?;
        let request = self.agent.post(url).header("authorization", self.bearer());
        finish(request.header("content-type", "application/json").send(&body[..]))
    }

    pub(super) fn post_for<T: DeserializeOwned>(
        &self,
        url: &str,
        body: &impl Serialize,
    ) -> Result<T, HttpError> {
        serde_json::from_slice(&self.post(url, body)?).map_err(transport)
    }

    pub(super) fn get_json(&self, url: &str) -> Result<Value, HttpError> {
        serde_json::from_slice(&self.get(url)?).map_err(transport)
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.token.expose_secret())
    }
}

fn finish(result: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Vec<u8>, HttpError> {
    let mut response = result.map_err(transport)?;
    let status = response.status();
    if !status.is_success() {
        return Err(HttpError::Status(status.as_u16()));
    }
    response.body_mut().with_config().limit(256 << 20).read_to_vec().map_err(transport)
}

fn transport(error: impl std::fmt::Display) -> HttpError {
    HttpError::Transport(error.to_string())
}
