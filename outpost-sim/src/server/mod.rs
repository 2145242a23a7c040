//! The simulator's HTTP faces, as axum routers: on a loopback listener, or called in process under
//! paused tokio time.
//!
//! The fleet API, the static host, the workers' gateway and the control interface are separate routers,
//! so that a client of the fleet API finds nothing that the real one does not have.

mod bodies;
mod control;
mod faults;
mod fleet;
mod gateway;
mod watch;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::fault::Endpoint;
use crate::model::Refusal;
use crate::publish;
use crate::requests::RequestSeen;
use crate::sim::Sim;

pub(crate) use gateway::{Hello, NextOrder, Report, Welcome};

/// The prefix of the fleet API, as in `https://api.devin.ai/opbeta`.
pub const FLEET_PREFIX: &str = "/opbeta";

impl Sim {
    /// The fleet API, under [`FLEET_PREFIX`].
    pub fn fleet_router(&self) -> Router {
        let api = fleet::routes().layer(middleware::from_fn_with_state(self.clone(), fleet::authorize));
        self.face(Router::new().nest(FLEET_PREFIX, api))
    }

    /// The static host.
    pub fn static_router(&self) -> Router {
        self.face(publish::routes())
    }

    /// The gateway that workers connect to.
    pub fn gateway_router(&self) -> Router {
        self.face(gateway::routes())
    }

    /// The control interface: `POST /_sim/op` with an [`Op`](crate::control::Op).
    pub fn control_router(&self) -> Router {
        control::routes().with_state(self.clone())
    }

    fn face(&self, routes: Router<Self>) -> Router {
        routes
            .fallback(|| async { detail(StatusCode::NOT_FOUND, "Not Found") })
            .method_not_allowed_fallback(|| async {
                detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
            })
            .layer(middleware::from_fn_with_state(self.clone(), faults::strike))
            .layer(middleware::from_fn_with_state(self.clone(), record))
            .with_state(self.clone())
    }
}

async fn record(State(sim): State<Sim>, request: Request, next: Next) -> Response {
    let endpoint = endpoint_of(&request);
    let method = request.method().to_string();
    let path = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let number =
        sim.with(|state, at| state.requests.came(RequestSeen { at, endpoint, method, path, status: None }));
    let response = next.run(request).await;
    sim.with(|state, _| state.requests.answered(number, response.status().as_u16()));
    response
}

fn endpoint_of(request: &Request) -> Endpoint {
    let path = request.uri().path();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts[..] {
        ["devin-rs" | "cli", ..] => Endpoint::Static,
        ["gateway", ..] => Endpoint::Gateway,
        ["opbeta", "outposts", "devins"] => {
            let watches = request.uri().query().is_some_and(|query| query.split('&').any(is_watch));
            if watches { Endpoint::Watch } else { Endpoint::List }
        }
        ["opbeta", "outposts", "devins", _] => Endpoint::Get,
        ["opbeta", "outposts", "devins", _, "claim"] => Endpoint::Claim,
        ["opbeta", "outposts", "devins", _, "release"] => Endpoint::Release,
        ["opbeta", "outposts", ..] => Endpoint::Outposts,
        _ => Endpoint::Other,
    }
}

fn is_watch(pair: &str) -> bool {
    matches!(pair, "watch=true" | "watch=1" | "watch=True")
}

fn detail(status: StatusCode, detail: impl Into<Value>) -> Response {
    (status, Json(json!({ "detail": detail.into() }))).into_response()
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.body())).into_response()
    }
}
