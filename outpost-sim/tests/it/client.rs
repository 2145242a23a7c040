//! A client of the fleet API that calls the router in process.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, Response, header};
use futures::StreamExt;
use jiff::Timestamp;
use outpost_sim::{Clock, Sim, SimOptions};
use serde_json::Value;
use sse_stream::{Sse, SseStream};
use tower::ServiceExt;

pub(crate) fn bearer() -> Option<&'static str> {
    Some("Bearer cog_simulated")
}

pub(crate) struct Client {
    pub(crate) sim: Sim,
    router: Router,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The whole body, or nothing when it broke.
    pub(crate) body: Option<Vec<u8>>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(self.body.as_deref().expect("the body broke")).expect("the body is not JSON")
    }
}

impl Client {
    pub(crate) fn start() -> Self {
        let clock = Clock::tokio(Timestamp::constant(1_781_050_000, 0));
        let sim = Sim::new(SimOptions::default(), clock);
        let router = sim.fleet_router();
        Self { sim, router }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, bearer(), None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, bearer(), Some(&body.to_string())).await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<&str>,
    ) -> Answer {
        let (parts, body) = self.open(method, path, token, body).await.into_parts();
        let body = to_bytes(body, usize::MAX).await.ok().map(Vec::from);
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(crate) async fn watch(&self, path: &str) -> Watch {
        let response = self.open("GET", path, bearer(), None).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        Watch { stream: SseStream::new(response.into_body()) }
    }

    pub(crate) async fn open(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<&str>,
    ) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Body::from(body.unwrap_or_default().to_owned())).unwrap();
        self.router.clone().oneshot(request).await.unwrap()
    }
}

pub(crate) struct Watch {
    stream: SseStream<Body>,
}

impl Watch {
    /// The data of the next event; `None` when the stream ends, an error when it breaks.
    pub(crate) async fn try_event(&mut self) -> Result<Option<Value>, String> {
        loop {
            match self.stream.next().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(error.to_string()),
                Some(Ok(Sse { data: Some(data), .. })) => {
                    return Ok(Some(serde_json::from_str(&data).unwrap()));
                }
                Some(Ok(_)) => {}
            }
        }
    }

    pub(crate) async fn event(&mut self) -> Option<Value> {
        self.try_event().await.expect("the stream broke")
    }
}
