//! The fleet API: a thin layer between HTTP and the model.

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::Value;

use super::{detail, watch};
use crate::model::{ListQuery, NewOutpost, Refusal, Spelling};
use crate::sim::Sim;

pub(crate) fn routes() -> Router<Sim> {
    Router::new()
        .route("/outposts/devins", get(list))
        .route("/outposts/devins/{session_id}", get(get_row))
        .route("/outposts/devins/{session_id}/claim", post(claim))
        .route("/outposts/devins/{session_id}/release", post(release))
        .merge(outposts("/outposts/outposts", Spelling::Outposts))
        .merge(outposts("/outposts/pools", Spelling::Pools))
        .merge(outposts("/outposts", Spelling::Bare))
}

fn outposts(path: &str, spelling: Spelling) -> Router<Sim> {
    Router::new()
        .route(path, get(list_outposts).post(create_outpost))
        .route(&format!("{path}/{{outpost_id}}"), get(get_outpost).delete(delete_outpost))
        .route_layer(axum::Extension(spelling))
}

pub(crate) async fn authorize(State(sim): State<Sim>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer "));
    if given.is_some_and(|token| sim.with(|state, _| state.token.expose_secret() == token)) {
        return next.run(request).await;
    }
    detail(StatusCode::UNAUTHORIZED, "invalid or missing credentials")
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DevinsQuery {
    outpost: Option<String>,
    pool: Option<String>,
    phase: Option<String>,
    acceptor_id: Option<String>,
    first: Option<u32>,
    cursor: Option<String>,
    watch: Option<String>,
}

async fn list(State(sim): State<Sim>, query: Result<Query<DevinsQuery>, QueryRejection>) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(rejection) => return Refusal::invalid("query", rejection.body_text()).into_response(),
    };
    let outpost = query.outpost.or(query.pool);
    if query.watch.as_deref().is_some_and(|watch| matches!(watch, "true" | "True" | "1")) {
        return watch::open(&sim, outpost, query.cursor.as_deref());
    }
    let query = ListQuery {
        outpost,
        phase: query.phase,
        acceptor_id: query.acceptor_id,
        first: query.first,
        cursor: query.cursor,
    };
    answer(sim.fleet(|fleet, now| fleet.list(now, &query)).map(|page| page.to_json()))
}

async fn get_row(State(sim): State<Sim>, Path(session_id): Path<String>) -> Response {
    answer(sim.fleet(|fleet, now| fleet.get(now, &session_id)))
}

#[derive(Debug, Deserialize)]
struct Acceptor {
    acceptor_id: String,
}

type AcceptorBody = Result<Json<Acceptor>, JsonRejection>;

async fn claim(State(sim): State<Sim>, Path(session_id): Path<String>, body: AcceptorBody) -> Response {
    let acceptor = match acceptor(body) {
        Ok(acceptor) => acceptor,
        Err(refusal) => return refusal.into_response(),
    };
    answer(sim.fleet(|fleet, now| fleet.claim(now, &session_id, &acceptor)))
}

async fn release(State(sim): State<Sim>, Path(session_id): Path<String>, body: AcceptorBody) -> Response {
    let acceptor = match acceptor(body) {
        Ok(acceptor) => acceptor,
        Err(refusal) => return refusal.into_response(),
    };
    answer(sim.fleet(|fleet, now| fleet.release(now, &session_id, &acceptor)))
}

fn acceptor(body: AcceptorBody) -> Result<String, Refusal> {
    match body {
        Ok(Json(body)) => Ok(body.acceptor_id),
        Err(rejection) => Err(Refusal::invalid("body", rejection.body_text())),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutpostsQuery {
    first: Option<u32>,
    after: Option<String>,
}

type Spelled = axum::Extension<Spelling>;

async fn list_outposts(
    State(sim): State<Sim>,
    spelled: Spelled,
    query: Result<Query<OutpostsQuery>, QueryRejection>,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(rejection) => return Refusal::invalid("query", rejection.body_text()).into_response(),
    };
    spoken(&sim, spelled, |spelling| {
        sim.fleet(|fleet, _| fleet.list_outposts(query.first, query.after.as_deref(), spelling))
            .map(|page| page.to_json())
    })
}

async fn create_outpost(
    State(sim): State<Sim>,
    spelled: Spelled,
    body: Result<Json<NewOutpost>, JsonRejection>,
) -> Response {
    spoken(&sim, spelled, |spelling| {
        let Json(spec) = body.map_err(|rejection| Refusal::invalid("body", rejection.body_text()))?;
        sim.fleet(|fleet, now| fleet.create_outpost(now, spec, spelling))
    })
}

async fn get_outpost(State(sim): State<Sim>, spelled: Spelled, Path(outpost_id): Path<String>) -> Response {
    spoken(&sim, spelled, |spelling| sim.fleet(|fleet, _| fleet.get_outpost(&outpost_id, spelling)))
}

async fn delete_outpost(
    State(sim): State<Sim>,
    spelled: Spelled,
    Path(outpost_id): Path<String>,
) -> Response {
    if !speaks(&sim, spelled.0) {
        return detail(StatusCode::NOT_FOUND, "Not Found");
    }
    match sim.fleet(|fleet, _| fleet.delete_outpost(&outpost_id)) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// A deployment knows some spellings only; the others are paths like any that it does not have.
fn spoken(
    sim: &Sim,
    axum::Extension(spelling): Spelled,
    act: impl FnOnce(Spelling) -> Result<Value, Refusal>,
) -> Response {
    if speaks(sim, spelling) { answer(act(spelling)) } else { detail(StatusCode::NOT_FOUND, "Not Found") }
}

fn speaks(sim: &Sim, spelling: Spelling) -> bool {
    sim.fleet(|fleet, _| fleet.options.spellings.contains(&spelling))
}

fn answer(result: Result<Value, Refusal>) -> Response {
    match result {
        Ok(value) => Json(value).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}
