//! The engine in a small world. Every test is a lesson from another orchestrator, or a promise of this one.

mod claims;
mod fake;
mod life;
mod outages;
mod queue;
mod saving;
