use std::collections::VecDeque;

use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use outpost_core::ports::{Error, ErrorKind, WatchEvent};

use super::faults::{Faults, Interruption};

/// A watch whose items are lost, late or repeated as the plan says. Whenever one is lost a list is asked for, as the contract
/// of a watch wants; but a silent watch asks only when its silence is over.
pub(super) fn disturbed(watch: BoxStream<'_, WatchEvent>, faults: Faults) -> BoxStream<'_, WatchEvent> {
    unfold((watch, faults, VecDeque::new()), |(mut watch, faults, mut queued)| async move {
        if let Some(event) = queued.pop_front() {
            return Some((event, (watch, faults, queued)));
        }
        let event = watch.next().await?;
        let event = match faults.interruption() {
            Interruption::None => event,
            Interruption::Cut => {
                queued.push_back(WatchEvent::ListAgain);
                WatchEvent::Disrupted(Error::new(
                    ErrorKind::Unavailable,
                    "devin",
                    "watch",
                    "a fault of the plan",
                ))
            }
            Interruption::Silence(pause) => {
                faults.clock().sleep(pause).await;
                WatchEvent::ListAgain
            }
            Interruption::Repeat => {
                queued.extend(copy(&event));
                event
            }
        };
        Some((event, (watch, faults, queued)))
    })
    .boxed()
}

fn copy(event: &WatchEvent) -> Option<WatchEvent> {
    match event {
        WatchEvent::Changed(session) => Some(WatchEvent::Changed(session.clone())),
        WatchEvent::Deleted(session) => Some(WatchEvent::Deleted(session.clone())),
        _ => None,
    }
}
