//! What the core asks of the world. Everything else depends on this crate; it depends on nothing of theirs.

mod clock;
mod error;
mod programs;
mod provider;
mod source;
mod store;

pub use clock::Clock;
pub use error::{Effect, Error, ErrorKind};
pub use programs::{FixedProgram, WorkerPrograms};
pub use provider::{
    AfterSave, Capabilities, Inventory, ListScope, Removed, SandboxProvider, Saving, StartSpec, Started,
    Stopped, Support,
};
pub use source::{Claimed, Cursor, Listing, SessionSource, WatchEvent};
pub use store::{SnapshotStore, Stored, Version};
