//! Outpost's session model, state machine, fleet plan, ports and reconciler. No I/O.

pub mod decide;
pub mod engine;
pub mod fleet;
pub mod invariants;
pub mod model;
pub mod ports;
pub mod reconciler;
