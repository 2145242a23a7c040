//! The gateway: where a stand-in worker gets its orders, by long poll, with its connect token.
//!
//! The real gateway's protocol is not public; this one is the simulator's own, and only the stand-in
//! speaks it.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::detail;
use crate::control::WorkerView;
use crate::model::Freshness;
use crate::script::Order;
use crate::sim::{Sim, State as SimState};

/// How long a poll waits for an order.
const POLL: Duration = Duration::from_secs(10);
/// How often a poll looks for what comes by the passing of time alone.
const LOOK: Duration = Duration::from_millis(20);

/// How long the end of a worker may take to show in its connection.
const GONE_WITHIN: Duration = Duration::from_millis(500);

/// The environment that the documented contract of `devin-remote serve` allows.
const REMOTE_ENV: [&str; 16] = [
    "DEVIN_OUTPOST_GATEWAY_URL",
    "DEVIN_OUTPOST_CONNECT_TOKEN",
    "DEVIN_OUTPOST_SESSION_ID",
    "DEVIN_REMOTE_STATE_DIR",
    "DEVIN_CHROME_PATH",
    "DEVIN_OUTPOST_DESKTOP",
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "LANG",
    "TZ",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
];
/// What shells and systems add by themselves.
const SHELL_ENV: [&str; 5] = ["PWD", "OLDPWD", "SHLVL", "_", "__CF_USER_TEXT_ENCODING"];

/// A worker introduces itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) mode: String,
    pub(crate) pid: u32,
    pub(crate) directory: String,
    pub(crate) repos_here: bool,
    pub(crate) env_names: Vec<String>,
    pub(crate) fleet_token_in: Vec<String>,
}

/// The answer to [`Hello`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) worker: u64,
}

/// Asks for the next order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NextOrder {
    pub(crate) worker: u64,
}

/// A command's result, or, without a number, the code that the worker leaves with.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) worker: u64,
    pub(crate) number: Option<u64>,
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
}

pub(crate) fn routes() -> Router<Sim> {
    Router::new()
        .route("/gateway/{session_id}/hello", post(hello))
        .route("/gateway/{session_id}/next", post(next))
        .route("/gateway/{session_id}/report", post(report))
}

async fn hello(
    State(sim): State<Sim>,
    Path(session_id): Path<String>,
    headers: HeaderMap,
    Json(hello): Json<Hello>,
) -> Response {
    let gone_by = Instant::now() + GONE_WITHIN;
    while sim.with(|state, _| state.alive(&session_id)).is_some() && Instant::now() < gone_by {
        tokio::time::sleep(LOOK).await;
    }
    let welcome = sim.with(|state, now| {
        let token = state.authorize(&session_id, &headers)?;
        if state.fleet.row(&session_id).is_some_and(|row| row.spec.session_status == "pending") {
            let _ = state.fleet.set_status(now, &session_id, "running");
        }
        Some(state.admit(now, session_id.clone(), hello, token))
    });
    match welcome {
        Some(welcome) => Json(welcome).into_response(),
        None => detail(StatusCode::UNAUTHORIZED, "unknown connect token"),
    }
}

async fn next(
    State(sim): State<Sim>,
    Path(session_id): Path<String>,
    headers: HeaderMap,
    Json(ask): Json<NextOrder>,
) -> Response {
    let until = Instant::now() + POLL;
    let mut changed = sim.subscribe();
    let _poll = Poll::open(&sim, ask.worker);
    loop {
        changed.borrow_and_update();
        let answer = sim.with(|state, now| {
            state.authorize(&session_id, &headers)?;
            Some(state.order(now, &session_id, ask.worker))
        });
        match answer {
            None => return detail(StatusCode::UNAUTHORIZED, "unknown connect token"),
            Some(None) => return detail(StatusCode::CONFLICT, "another worker has connected"),
            Some(Some((Order::Idle, wakes_at))) if Instant::now() < until => {
                let look = if wakes_at.is_some() { (Instant::now() + LOOK).min(until) } else { until };
                tokio::select! {
                    _ = changed.changed() => {}
                    () = tokio::time::sleep_until(look) => {}
                }
            }
            Some(Some((order, _))) => return Json(order).into_response(),
        }
    }
}

async fn report(
    State(sim): State<Sim>,
    Path(session_id): Path<String>,
    headers: HeaderMap,
    Json(report): Json<Report>,
) -> Response {
    let known = sim.with(|state, now| {
        let known = state.authorize(&session_id, &headers).is_some();
        if known {
            state.take_report(now, &session_id, report);
        }
        known
    });
    sim.announce();
    if known {
        StatusCode::NO_CONTENT.into_response()
    } else {
        detail(StatusCode::UNAUTHORIZED, "unknown connect token")
    }
}

/// An open poll: proof that its worker is alive, as its connection falls with its process.
struct Poll {
    sim: Sim,
    worker: u64,
}

impl Poll {
    fn open(sim: &Sim, worker: u64) -> Self {
        sim.with(|state, _| state.polling.insert(worker));
        Self { sim: sim.clone(), worker }
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        self.sim.with(|state, _| state.polling.remove(&self.worker));
    }
}

impl SimState {
    fn alive(&self, session_id: &str) -> Option<u64> {
        let here = |seen: &&WorkerView| seen.session_id == session_id && self.polling.contains(&seen.worker);
        self.workers.iter().rev().find(here).map(|seen| seen.worker)
    }

    fn authorize(&self, session_id: &str, headers: &HeaderMap) -> Option<Freshness> {
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        self.fleet.check_token(session_id, value.strip_prefix("Bearer ")?)
    }

    fn admit(&mut self, now: Timestamp, session_id: String, hello: Hello, token: Freshness) -> Welcome {
        let worker = self.workers.len() as u64 + 1;
        let overlaps = self.alive(&session_id);
        let allowed = |name: &str| REMOTE_ENV.contains(&name) || SHELL_ENV.contains(&name);
        self.workers.push(WorkerView {
            worker,
            session_id,
            mode: hello.mode,
            pid: hello.pid,
            directory: hello.directory,
            repos_here: hello.repos_here,
            connected_at: now,
            token,
            overlaps,
            unexpected_env: hello.env_names.iter().filter(|name| !allowed(name)).cloned().collect(),
            env_names: hello.env_names,
            fleet_token_in: hello.fleet_token_in,
            last_seen: now,
            left_with: None,
        });
        Welcome { worker }
    }

    /// The worker's next order and when asking again can help; `None` when a later worker has taken over.
    fn order(&mut self, now: Timestamp, session_id: &str, worker: u64) -> Option<(Order, Option<Timestamp>)> {
        self.fleet.settle(now);
        let newest = self.workers.iter_mut().rev().find(|seen| seen.session_id == session_id)?;
        if newest.worker != worker {
            return None;
        }
        newest.last_seen = now;
        let status = self.fleet.status(session_id).map(str::to_owned);
        let playback = self.playbacks.entry(session_id.to_owned()).or_default();
        let (order, changes) = playback.next(now, worker, status.as_deref());
        let wakes_at = playback.wakes_at().or(self.fleet.next_due());
        self.apply_changes(now, session_id, changes);
        Some((order, wakes_at))
    }

    fn take_report(&mut self, now: Timestamp, session_id: &str, report: Report) {
        if let Some(seen) = self.workers.iter_mut().find(|seen| seen.worker == report.worker) {
            seen.last_seen = now;
            if report.number.is_none() {
                seen.left_with = report.code.and_then(|code| u8::try_from(code).ok());
            }
        }
        if let (Some(number), Some(playback)) = (report.number, self.playbacks.get_mut(session_id)) {
            playback.report(number, report.code, report.output);
        }
    }
}
