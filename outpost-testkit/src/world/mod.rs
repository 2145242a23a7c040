//! The simulated world: Devin's queue, people, workers, a backend, and one or two orchestrators with faults, all by seed and
//! under virtual time.
//!
//! # Expected flow
//! [`simulate`] makes a [`Scenario`] from a seed, lets everybody loose for half an hour of virtual time, then switches the faults
//! off and looks whether everything comes to rest. The promises are checked after every step; the first that is broken ends
//! the run.
//!
//! # Guarantees
//! The same scenario gives the same log, line by line, on every machine: that is what makes a failure playable again.
//!
//! # Assumptions
//! The orchestrator under test is a future that is made from its ports by an [`Assemble`]; it spawns nothing, reads no clock
//! but the one it was given, and takes chance from nowhere.

mod calm;
mod decode;
mod log;
mod orchestrator;
mod people;
mod queue;
mod run;
mod scenario;
mod source;
mod watchers;
mod witness;
mod workers;

pub use log::EventLog;
pub use orchestrator::{Assemble, Parts, reconciler};
pub use queue::Queue;
pub use run::{Failure, Outcome, simulate, simulate_with};
pub use scenario::Scenario;
pub use source::ModelSource;
