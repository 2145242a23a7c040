//! The Devin APIs that Outpost speaks: the fleet queue, outposts and worker downloads.
//!
//! * [`DevinQueue`]: one outpost's queue, as a [`SessionSource`](outpost_core::ports::SessionSource).
//! * [`Outposts`]: which outposts there are.
//! * `RemotePrograms` and `CliPrograms` (feature `reqwest`): the worker's executable, its SHA-256 checked.
//! * [`Transport`]: HTTP behind one method. `ReqwestTransport` (feature `reqwest`, on by default) speaks it for real;
//!   `TowerTransport` (feature `tower`) lets a service of this process answer.
//!
//! Without default features it needs no runtime and builds for `wasm32-unknown-unknown`.
//!
//! What the API does is taken from Devin's public documentation (outposts: overview, orchestration, reference) and, where the code
//! says *observed*, from what public orchestrators had to handle.
//!
//! # What it does not do
//!
//! It decides nothing, keeps nothing, and logs no token. It follows no redirect.

mod claim;
mod client;
mod fault;
mod list;
mod outposts;
mod queue;
mod transport;
mod url;
mod watch;
mod wire;

#[cfg(feature = "reqwest")]
mod programs;
#[cfg(feature = "reqwest")]
mod reqwest_transport;
#[cfg(feature = "tower")]
mod tower_transport;

pub use outposts::{Outpost, Outposts, Resolved};
#[cfg(feature = "reqwest")]
pub use programs::{CliPrograms, RemotePrograms};
pub use queue::{DevinQueue, Stats};
#[cfg(feature = "reqwest")]
pub use reqwest_transport::ReqwestTransport;
#[cfg(feature = "tower")]
pub use tower_transport::TowerTransport;
pub use transport::{Body, Reach, Transport, TransportError};
pub use url::{BaseUrl, Hosts, UrlError};

/// Decodes one page of a list, for benchmarks.
#[doc(hidden)]
pub fn decode_page(body: &[u8]) -> Option<usize> {
    let page = list::page(body).ok()?;
    Some(page.items.iter().filter_map(wire::session).count())
}
