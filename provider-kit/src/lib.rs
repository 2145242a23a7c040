//! What the native providers have in common, and nothing of any backend: [`Fault`], which all who wait for the same work
//! can be told; [`Tasks`], work that outlives the call that began it; [`Turns`], one change of a session at a time.
//!
//! It needs a tokio runtime with time.

mod fault;
mod tasks;
mod turns;

pub use fault::{During, Fault, blocking};
pub use tasks::{Cancel, Tasks};
pub use turns::{Turn, Turns};
