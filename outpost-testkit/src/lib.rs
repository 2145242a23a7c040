//! What Outpost is tested with, and what you test your own backend with.
//!
//! * [`conformance`]: the contracts of [`SandboxProvider`](outpost_core::ports::SandboxProvider) and
//!   [`SnapshotStore`](outpost_core::ports::SnapshotStore) as one test per case, for any implementation.
//! * [`memory`]: a backend and a store in memory, under virtual time.
//! * [`fault`]: fault injection around any implementation of the ports.
//! * [`clock`]: virtual time.
//! * [`world`]: the simulated world: a queue, backends and orchestrators under virtual time, by seed.

pub mod clock;
pub mod conformance;
pub mod fault;
pub mod journal;
pub mod memory;
pub mod world;
