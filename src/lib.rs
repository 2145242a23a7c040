//! Outpost as a library: the crates behind features, and what a program of one's own needs beside them.
//!
//! * [`core`]: the model, the state machine, the reconciler and its ports.
//! * [`store::FileStore`], [`clock::SystemClock`], [`instance::StateDir`]: records in files, the system's time, and a state directory that one
//!   process owns.
//! * `devin` (feature `devin-api`): Devin's fleet API as a source of sessions.
//! * `docker` (feature `docker`): sandboxes as containers of a Docker or podman engine.
//! * `process` (feature `process`): sandboxes as processes of this machine.
//! * `sim` (feature `sim`): a simulator of Devin's queue.

pub mod clock;
pub mod instance;
pub mod store;

pub use outpost_core as core;
#[cfg(feature = "devin-api")]
pub use outpost_devin_api as devin;
#[cfg(feature = "docker")]
pub use outpost_provider_docker as docker;
#[cfg(feature = "process")]
pub use outpost_provider_process as process;
#[cfg(feature = "sim")]
pub use outpost_sim as sim;

/// The command `outpost`. Not an interface for others.
#[cfg(feature = "command")]
#[doc(hidden)]
pub mod cli;
