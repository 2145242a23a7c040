//! A backend and a store in memory: models that the core is tested against, cheap enough for thousands of simulated runs.
//!
//! Nothing here waits by itself. What takes time on a real backend is over when the [`VirtualClock`](crate::clock::VirtualClock)
//! has come to its end.

mod backend;
mod disk;
mod fixture;
mod options;
mod provider;
mod state;
mod store;
mod store_fixture;
mod worker;

pub use backend::{MemoryBackend, TrueSandbox, TrueSnapshot};
pub use disk::{Disk, Node};
pub use fixture::MemoryFixture;
pub use options::{BackendOptions, Expiry};
pub use provider::MemoryProvider;
pub use store::MemoryStore;
pub use store_fixture::MemoryStoreFixture;
