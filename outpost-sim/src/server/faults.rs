//! Carries out the faults of the table, around calls that know nothing of them.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::bodies::{Ending, broken, cut, split};
use super::{detail, endpoint_of};
use crate::fault::{Effect, Endpoint, ErrorBody, Fault};
use crate::sim::Sim;

pub(crate) async fn strike(State(sim): State<Sim>, request: Request, next: Next) -> Response {
    let endpoint = endpoint_of(&request);
    let path = percent_decode_str(request.uri().path()).decode_utf8_lossy().into_owned();
    let uri = request.uri().to_string();
    let (fault, wants_answers) =
        sim.with(|state, _| (state.faults.strike(endpoint, &path), state.faults.wants_answers()));
    let Some(fault) = fault else {
        let response = next.run(request).await;
        return if wants_answers && endpoint == Endpoint::List {
            remember(&sim, uri, response).await
        } else {
            response
        };
    };
    let asked = cursor_of(&request);
    match fault {
        Fault::Delay { ms } => {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            next.run(request).await
        }
        Fault::Answer { status, retry_after, body, effect } => {
            if effect == Effect::Applied {
                next.run(request).await;
            }
            error(status, retry_after.as_deref(), body)
        }
        Fault::LoseReply => {
            next.run(request).await;
            broken()
        }
        Fault::Refuse => broken(),
        Fault::CutBody { after_bytes } => cut(next.run(request).await, after_bytes, Ending::Break),
        Fault::StallBody { after_bytes } => cut(next.run(request).await, after_bytes, Ending::Stall),
        Fault::EndBody { after_bytes } => cut(next.run(request).await, after_bytes, Ending::End),
        Fault::SplitBody { chunk_bytes } => split(next.run(request).await, chunk_bytes),
        Fault::StaleList => match sim.with(|state, _| state.faults.remembered(&uri)) {
            Some(answer) => ([(header::CONTENT_TYPE, "application/json")], answer).into_response(),
            None => remember(&sim, uri, next.run(request).await).await,
        },
        Fault::Silence => cut(next.run(request).await, 0, Ending::Stall),
        Fault::RepeatCursor => {
            let asked = asked.unwrap_or_else(|| "c1again".to_owned());
            rewrite(next.run(request).await, |answer| more_follows(answer, json!(asked))).await
        }
        Fault::MissingCursor => {
            rewrite(next.run(request).await, |answer| more_follows(answer, Value::Null)).await
        }
        Fault::LoseRows { count } => {
            let lose = |answer: &mut Value| {
                if let Some(items) = answer["items"].as_array_mut() {
                    items.drain(..count.min(items.len()));
                }
            };
            rewrite(next.run(request).await, lose).await
        }
        Fault::MalformedRow => {
            let add = |answer: &mut Value| {
                if let Some(items) = answer["items"].as_array_mut() {
                    items.insert(0, json!("not a row"));
                }
            };
            rewrite(next.run(request).await, add).await
        }
        Fault::HugeBody { bytes } => {
            rewrite(next.run(request).await, |answer| answer["padding"] = "x".repeat(bytes).into()).await
        }
        Fault::SkewDeadline { secs } => rewrite(next.run(request).await, |answer| skew(answer, secs)).await,
    }
}

async fn remember(sim: &Sim, uri: String, response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let Ok(answer) = to_bytes(body, usize::MAX).await else { return broken() };
    if parts.status.is_success() {
        sim.with(|state, _| state.faults.remember(uri, answer.clone()));
    }
    Response::from_parts(parts, Body::from(answer))
}

fn error(status: u16, retry_after: Option<&str>, body: ErrorBody) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = match body {
        ErrorBody::Detail if status == StatusCode::NO_CONTENT => status.into_response(),
        ErrorBody::Detail => detail(status, "simulated fault"),
        ErrorBody::Empty => status.into_response(),
        ErrorBody::Text(text) => (status, text).into_response(),
    };
    if let Some(value) = retry_after.and_then(|value| HeaderValue::from_str(value).ok()) {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}

fn cursor_of(request: &Request) -> Option<String> {
    let cursor = request.uri().query()?.split('&').find_map(|pair| pair.strip_prefix("cursor="))?;
    Some(percent_decode_str(cursor).decode_utf8_lossy().into_owned())
}

fn more_follows(answer: &mut Value, cursor: Value) {
    answer["cursor"] = cursor;
    answer["has_next_page"] = true.into();
}

fn skew(answer: &mut Value, secs: i64) {
    let one = |entry: &mut Value| {
        if let Some(deadline) = entry.pointer_mut("/status/claim_deadline")
            && let Some(at) = deadline.as_i64()
        {
            *deadline = (at + secs).into();
        }
    };
    match answer["items"].as_array_mut() {
        Some(items) => items.iter_mut().for_each(one),
        None => one(answer),
    }
}

/// Changes a successful JSON answer; anything else, streams included, passes as it is.
async fn rewrite(response: Response, change: impl FnOnce(&mut Value)) -> Response {
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if !is_json || !response.status().is_success() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else { return broken() };
    let Ok(mut answer) = serde_json::from_slice::<Value>(&bytes) else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    if answer.is_object() {
        change(&mut answer);
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(answer.to_string()))
}
