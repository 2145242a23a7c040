//! A simulator of Devin's control plane, and a stand-in `devin` worker, for tests, demos and embedders.
//!
//! * [`model`]: the queue, pure; time comes in. Simulated worlds drive a [`model::Fleet`] directly.
//! * [`Sim`]: the queue with scripted sessions, workers, faults and a log of requests, and its HTTP faces
//!   as axum routers, which can be called in process under paused tokio time.
//! * [`serve()`]: all of that on loopback ports.
//! * [`control`]: what a test does to it, in process or over HTTP.
//! * [`script`] and [`fault`]: what sessions do, and what goes wrong.
//! * [`standin`] and [`publish`]: the worker, and the host that it is downloaded from.
//!
//! It depends on no other crate of Outpost, so that a mistake there is not repeated here.
//!
//! # What it does not do
//!
//! There is no TLS, no v3 API and no agent. The gateway's protocol is its own, because the real one is
//! not public.
//!
//! # Example
//!
//! ```
//! use outpost_sim::control::ControlExt;
//! use outpost_sim::model::NewRow;
//! use outpost_sim::script::Step;
//! use outpost_sim::{ServeOptions, serve};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = serve(ServeOptions::default()).await?;
//! let script = vec![Step::run("echo hello"), Step::Suspend];
//! server.sim().create_scripted(NewRow::new("devin-1"), script)?;
//! println!("an orchestrator can work at {}", server.api_url());
//! assert_eq!(server.sim().row("devin-1")?.unwrap().session_status, "pending");
//! server.stop().await;
//! # Ok(())
//! # }
//! ```

mod clock;
pub mod control;
pub mod fault;
pub mod model;
pub mod publish;
mod requests;
pub mod script;
mod serve;
pub mod server;
mod sim;
pub mod standin;

pub use clock::Clock;
pub use requests::RequestSeen;
pub use serve::{ServeOptions, SimServer, serve};
pub use sim::{DEFAULT_TOKEN, Sim, SimOptions};
