//! The watch: the model's log as Server-Sent Events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use crate::model::{Event, Position};
use crate::sim::Sim;

/// How often a watch looks for changes that come by the passing of time alone.
const LOOK: Duration = Duration::from_millis(250);

pub(crate) fn open(sim: &Sim, outpost: Option<String>, cursor: Option<&str>) -> Response {
    let position = match sim.fleet(|fleet, now| fleet.watch_from(now, cursor)) {
        Ok(position) => position,
        Err(refusal) => return refusal.into_response(),
    };
    let (length, keep_alive) = sim.with(|state, _| (state.stream_length, state.keep_alive));
    let watcher = Watcher {
        changed: sim.subscribe(),
        sim: sim.clone(),
        outpost,
        position,
        ready: VecDeque::new(),
        ends_at: Instant::now() + length,
    };
    let keep_alive = KeepAlive::new().interval(keep_alive).text("keepalive");
    Sse::new(events(watcher)).keep_alive(keep_alive).into_response()
}

struct Watcher {
    sim: Sim,
    outpost: Option<String>,
    position: Position,
    ready: VecDeque<Event>,
    changed: Receiver<u64>,
    ends_at: Instant,
}

fn events(watcher: Watcher) -> impl Stream<Item = Result<SseEvent, Infallible>> {
    stream::unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await?;
        Some((Ok(SseEvent::default().data(event.to_json().to_string())), watcher))
    })
}

impl Watcher {
    /// The next event, or `None` when the stream's time is over.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if Instant::now() >= self.ends_at {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            self.changed.borrow_and_update();
            let (events, position) =
                self.sim.fleet(|fleet, now| fleet.events(now, self.outpost.as_deref(), self.position));
            self.position = position;
            self.ready = events.into();
            if !self.ready.is_empty() {
                continue;
            }
            let due =
                self.sim.fleet(|fleet, _| fleet.next_due().is_some() || fleet.options.sweep_after.is_some());
            let look = if due { (Instant::now() + LOOK).min(self.ends_at) } else { self.ends_at };
            tokio::select! {
                // The sender lives in the simulator, which this watcher holds.
                _ = self.changed.changed() => {}
                () = tokio::time::sleep_until(look) => {}
            }
        }
    }
}
