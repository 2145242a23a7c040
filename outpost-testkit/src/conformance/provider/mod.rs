//! The contract of [`SandboxProvider`](outpost_core::ports::SandboxProvider) as a table of cases.

mod ends;
mod fixture;
mod keeping;
mod listing;
mod removing;
mod rig;
mod saving;
mod starting;
mod stopping;
mod table;

pub use fixture::{Damage, Hindrance, ProviderFixture, SUITE_TOKEN};
pub use table::CASES;
