//! Fault injection: wrappers around the ports that fail, wait, lie a little and die, as a seeded plan says.
//!
//! Every wrapper of one orchestrator shares one [`Faults`]; the same seed makes the same faults as long as the same calls come
//! in the same order. With the faults [switched off](Faults::switch) a wrapper is what it wraps.

mod faults;
mod plan;
mod provider;
mod source;
mod store;
mod watch;

pub use faults::{Faults, Switch};
pub use plan::FaultPlan;
pub use provider::Faulty;
pub use source::FaultySource;
pub use store::FaultyStore;
