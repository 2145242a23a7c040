use std::time::Duration;

use serde_json::Value;

use super::{Control, ControlError, Op};

/// Operations over HTTP, for a simulator in another process.
///
/// It blocks while a call is under way; loopback answers in well under a millisecond, and async code
/// that minds uses `spawn_blocking`.
#[derive(Debug, Clone)]
pub struct ControlClient {
    url: String,
    agent: ureq::Agent,
}

impl ControlClient {
    /// For the control listener at `base`, such as `http://127.0.0.1:4000`.
    #[must_use]
    pub fn new(base: &str) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(30)))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        Self { url: format!("{}/_sim/op", base.trim_end_matches('/')), agent: config.into() }
    }
}

impl Control for ControlClient {
    fn call(&self, op: Op) -> Result<Value, ControlError> {
        let unreachable = |error: ureq::Error| ControlError::Unreachable(error.to_string());
        let nonsense = |error: serde_json::Error| ControlError::Unreachable(error.to_string());
        let body = serde_json::to_vec(&op).map_err(nonsense)?;
        let request = self.agent.post(&self.url).header("content-type", "application/json");
        let mut response = request.send(&body[..]).map_err(unreachable)?;
        let text = response.body_mut().with_config().limit(1 << 30).read_to_string().map_err(unreachable)?;
        let answer: Value = serde_json::from_str(&text).map_err(nonsense)?;
        if response.status().is_success() {
            return Ok(answer);
        }
        let detail = answer["detail"].as_str().map_or_else(|| answer["detail"].to_string(), str::to_owned);
        Err(ControlError::Refused(detail))
    }
}
