//! What end-to-end tests share: a simulated queue, `outpost run` as a real process, and looks at what lives on this machine.

#![allow(dead_code, unused_imports, reason = "a test binary uses what it needs of it")]

mod outpost;
mod playground;
pub mod processes;
mod wait;

pub use outpost::{Outpost, Running};
pub use playground::{Playground, new_sleeper};
pub use wait::{BOUND, until, until_some};
