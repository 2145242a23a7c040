//! Calls that a service of this process answers.

use std::fmt;
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt as _, BodyStream, Full};
use tower::{Service, ServiceExt as _};

use crate::transport::{Body, Reach, Transport, TransportError};

/// Lets a tower service, such as an axum router, answer calls, without a socket.
pub struct TowerTransport<S> {
    service: Mutex<S>,
}

impl<S> TowerTransport<S> {
    /// Calls answered by `service`, a clone of it each.
    pub const fn new(service: S) -> Self {
        Self { service: Mutex::new(service) }
    }
}

impl<S> fmt::Debug for TowerTransport<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TowerTransport").finish_non_exhaustive()
    }
}

#[async_trait]
impl<S, B> Transport for TowerTransport<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send,
    S::Future: Send,
    S::Error: fmt::Display,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Display,
{
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        let service = self.service.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let response = service.oneshot(request.map(Full::new)).await;
        let response = response.map_err(|error| TransportError::new(error.to_string(), Reach::Unknown))?;
        Ok(response.map(|body| {
            let body = body.map_err(|error| TransportError::new(error.to_string(), Reach::Unknown));
            let data = |frame: Result<http_body::Frame<Bytes>, TransportError>| async move {
                match frame {
                    Ok(frame) => frame.into_data().ok().map(Ok),
                    Err(error) => Some(Err(error)),
                }
            };
            BodyStream::new(body).filter_map(data).boxed()
        }))
    }
}
