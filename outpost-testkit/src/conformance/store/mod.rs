//! The contract of [`SnapshotStore`](outpost_core::ports::SnapshotStore) as a table of cases.

mod cases;
mod fixture;
mod table;

pub use fixture::StoreFixture;
pub use table::CASES;
