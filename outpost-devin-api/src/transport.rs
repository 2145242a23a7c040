//! HTTP behind one method, so that a simulator can answer in process and a Worker can bring its own `fetch`.

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use http::{Request, Response};

/// A response's body as it comes in.
pub type Body = BoxStream<'static, Result<Bytes, TransportError>>;

/// Sends requests.
///
/// # Behavior
/// * Redirects are answered as they are, not followed: the token must not go to another host.
/// * Limits on time and size are the caller's; a transport may have shorter ones of its own.
#[async_trait]
pub trait Transport: Debug + Send + Sync {
    /// The response to `request`, as soon as its head is there.
    ///
    /// # Errors
    /// When there is no response. The text holds no secret and no query string.
    ///
    /// # Cancellation
    /// The request may have been served all the same.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError>;
}

/// There was no response, or its body broke off.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    message: String,
    reach: Reach,
}

/// How far a request that failed had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// It surely was not served.
    NotSent,
    /// It may have been served.
    Unknown,
}

impl TransportError {
    /// An error with a text for people: one line, no secret, no query string.
    pub fn new(message: impl Into<String>, reach: Reach) -> Self {
        Self { message: message.into(), reach }
    }

    /// How far the request had come.
    pub const fn reach(&self) -> Reach {
        self.reach
    }
}
