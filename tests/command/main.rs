//! The command from end to end: real processes, real HTTP and SSE, a simulated queue.

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod damage;
mod demo;
mod examples;
mod help;
mod life;
mod readiness;
mod secrets;
mod signals;
