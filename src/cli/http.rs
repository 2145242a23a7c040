//! `/healthz`, `/readyz` and `/metrics`.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State as Extract;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use super::metrics;
use super::observe::State;

/// Binds `address`.
///
/// # Errors
/// One that says what to do about it.
pub(super) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let what = format!(
            "{address} cannot be listened on ({error}); choose another with --listen, or --listen off"
        );
        io::Error::new(error.kind(), what)
    })
}

/// Serves the endpoints until `until` is ready.
pub(super) async fn serve(
    listener: TcpListener,
    state: Arc<State>,
    until: impl Future<Output = ()> + Send + 'static,
) {
    let router = router(state);
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(until).await {
        tracing::warn!("the endpoints are not served any more: {error}");
    }
}

fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .with_state(state)
}

async fn readyz(Extract(state): Extract<Arc<State>>) -> impl IntoResponse {
    match state.ready() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn metrics_text(Extract(state): Extract<Arc<State>>) -> impl IntoResponse {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let text = state.report().map_or_else(|| "# EOF\n".to_owned(), |report| metrics::text(&report));
    ([(header::CONTENT_TYPE, TYPE)], text)
}
