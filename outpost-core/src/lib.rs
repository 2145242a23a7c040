//! Outpost's session model, state machine, fleet plan, ports and reconciler. No I/O.

pub mod model;
pub mod ports;
