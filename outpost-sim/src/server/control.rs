//! The control interface over HTTP.

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};

use super::detail;
use crate::control::{Control, ControlError, Op};
use crate::sim::Sim;

pub(crate) fn routes() -> Router<Sim> {
    Router::new().route("/_sim/op", post(carry_out))
}

async fn carry_out(State(sim): State<Sim>, op: Result<Json<Op>, JsonRejection>) -> Response {
    match op {
        Ok(Json(op)) => match sim.call(op) {
            Ok(value) => Json(value).into_response(),
            // The client says once more that it is a refusal.
            Err(ControlError::Refused(why) | ControlError::Unreachable(why)) => {
                detail(StatusCode::CONFLICT, why)
            }
        },
        Err(rejection) => detail(StatusCode::UNPROCESSABLE_ENTITY, rejection.body_text()),
    }
}
