//! Virtual time: a [`Clock`](outpost_core::ports::Clock) that a harness advances, and an executor that jumps from one wake-up
//! to the next.
//!
//! Nothing here waits for real, so an hour of a simulated life costs what its events cost.

mod executor;
mod virtual_clock;

pub(crate) use executor::yield_once;
pub use executor::{Executor, Livelock, TaskId, Turn};
pub(crate) use virtual_clock::later;
pub use virtual_clock::{EPOCH, VirtualClock};
