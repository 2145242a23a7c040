//! One call: sent with the token, bounded in time and size.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::future::{Either, select};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use outpost_core::ports::{Clock, Error, ErrorKind};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::fault::{self, Nature, Refusal, WHO};
use crate::transport::{Body, Reach, Transport, TransportError};

/// How long an answer's head may take, and after it the whole body.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
const BODY_WITHIN: Duration = Duration::from_secs(60);
/// The largest body of an answer that is no list.
pub(crate) const SMALL_BODY: usize = 1 << 20;

/// What stands before the token.
const SCHEME: &str = "Bearer ";

/// A call.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) operation: &'static str,
    pub(crate) nature: Nature,
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) body: Option<&'a Value>,
    /// The largest body that is taken, in bytes.
    pub(crate) cap: usize,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Makes calls. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Client {
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    authorization: Option<Arc<SecretString>>,
    calls: Arc<AtomicU64>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("transport", &self.transport).finish_non_exhaustive()
    }
}

impl Client {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
        token: Option<&SecretString>,
    ) -> Self {
        let authorization =
            token.map(|token| Arc::new(SecretString::from(format!("{SCHEME}{}", token.expose_secret()))));
        Self { transport, clock, authorization, calls: Arc::default() }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn clock_arc(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The answer to a call, if it is a success.
    pub(crate) async fn succeed(&self, call: Call<'_>) -> Result<Answer, Error> {
        let (operation, nature) = (call.operation, call.nature);
        let answer = self.call(call).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        Err(self.refused(operation, nature, &answer))
    }

    /// The answer to a call, whatever its status.
    pub(crate) async fn call(&self, call: Call<'_>) -> Result<Answer, Error> {
        let Call { operation, nature, cap, .. } = call;
        let response = self.open(&call, "application/json").await?;
        let (head, body) = response.into_parts();
        let body = self.read(body, cap).await.map_err(|error| match error {
            // A success whose body is too large or broken was applied all the same.
            BodyFault::Broken(error) => fault::of_transport(operation, nature, &error),
            BodyFault::TooLarge => too_large(operation, nature, cap),
        })?;
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    /// The error of an answer that is no success.
    pub(crate) fn refused(&self, operation: &'static str, nature: Nature, answer: &Answer) -> Error {
        let authorization = self.authorization.as_ref().map(|authorization| authorization.expose_secret());
        let refusal = Refusal {
            status: answer.status,
            headers: &answer.headers,
            body: &answer.body,
            token: authorization.and_then(|authorization| authorization.strip_prefix(SCHEME)),
            now: self.clock.now(),
        };
        fault::of_answer(operation, nature, &refusal)
    }

    /// The response to a call, its body still to be read.
    pub(crate) async fn open(&self, call: &Call<'_>, accept: &'static str) -> Result<Response<Body>, Error> {
        let request = self.request(call, accept)?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        let sent = pin!(self.transport.send(request));
        let response = match select(sent, self.clock.sleep(HEAD_WITHIN)).await {
            Either::Left((response, _)) => response,
            Either::Right(_) => Err(TransportError::new("no answer within 30 seconds", Reach::Unknown)),
        };
        response.map_err(|error| fault::of_transport(call.operation, call.nature, &error))
    }

    fn request(&self, call: &Call<'_>, accept: &'static str) -> Result<Request<Bytes>, Error> {
        let invalid = |what: &str| Error::new(ErrorKind::Invalid, WHO, call.operation, what);
        let mut request =
            Request::builder().method(&call.method).uri(&call.url).header(header::ACCEPT, accept);
        if let Some(authorization) = &self.authorization {
            let mut value = HeaderValue::from_str(authorization.expose_secret())
                .map_err(|_| invalid("the token has a character that no header can hold"))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        let body = match call.body {
            Some(json) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Bytes::from(json.to_string())
            }
            None => Bytes::new(),
        };
        request.body(body).map_err(|_| invalid("the address cannot be called"))
    }

    async fn read(&self, mut body: Body, cap: usize) -> Result<Bytes, BodyFault> {
        let mut whole = BytesMut::new();
        let mut limit = self.clock.sleep(BODY_WITHIN);
        loop {
            let chunk = match select(body.next(), limit).await {
                Either::Left((None, _)) => return Ok(whole.freeze()),
                Either::Left((Some(chunk), rest)) => {
                    limit = rest;
                    chunk.map_err(BodyFault::Broken)?
                }
                Either::Right(_) => {
                    let error = TransportError::new("the answer did not end within a minute", Reach::Unknown);
                    return Err(BodyFault::Broken(error));
                }
            };
            if whole.len() + chunk.len() > cap {
                return Err(BodyFault::TooLarge);
            }
            whole.extend_from_slice(&chunk);
        }
    }
}

enum BodyFault {
    Broken(TransportError),
    TooLarge,
}

fn too_large(operation: &'static str, nature: Nature, cap: usize) -> Error {
    let error = fault::nonsense(operation, format!("the answer is larger than {} KiB", cap >> 10));
    if nature == Nature::Changes { error.may_have_been_applied() } else { error }
}
