//! Calls over reqwest.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};

use crate::transport::{Body, Reach, Transport, TransportError};

/// Calls over reqwest: rustls with ring, no redirects, connections within ten seconds.
#[derive(Debug, Clone)]
pub struct ReqwestTransport {
    client: reqwest::Client,
}

impl ReqwestTransport {
    /// Opens nothing yet. Installs ring as the process's crypto provider unless there is one.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new() -> Result<Self, TransportError> {
        // An error says that one was installed before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(10))
            .tcp_keepalive(Duration::from_secs(30))
            .user_agent(concat!("outpost/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| TransportError::new(chain(&error), Reach::NotSent))?;
        Ok(Self { client })
    }
}

#[async_trait]
impl Transport for ReqwestTransport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        let request = reqwest::Request::try_from(request).map_err(|error| failed(error, Reach::NotSent))?;
        let response = self.client.execute(request).await.map_err(|error| {
            let reach =
                if error.is_connect() || error.is_builder() { Reach::NotSent } else { Reach::Unknown };
            failed(error, reach)
        })?;
        let (parts, body) = Response::<reqwest::Body>::from(response).into_parts();
        let frames = http_body_util::BodyDataStream::new(body);
        let body = frames.map(|chunk| chunk.map_err(|error| failed(error, Reach::Unknown))).boxed();
        Ok(Response::from_parts(parts, body))
    }
}

/// The address can hold what logs must not.
fn failed(error: reqwest::Error, reach: Reach) -> TransportError {
    TransportError::new(chain(&error.without_url()), reach)
}

/// reqwest's own text says little; the cause says what is wrong.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
