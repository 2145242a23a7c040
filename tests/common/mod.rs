//! What end-to-end tests share: a simulated queue, `outpost run` as a real process, and looks at what lives on this machine.

#![allow(dead_code, unused_imports, reason = "a test binary uses what it needs of it")]

mod outpost;
mod playground;
pub(crate) mod processes;
mod wait;

pub(crate) use outpost::{Outpost, Running};
pub(crate) use playground::{Playground, new_sleeper};
pub(crate) use wait::{BOUND, until, until_some};
