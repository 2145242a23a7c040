//! Devin sessions in containers of a Docker or podman engine.
//!
//! A sandbox is a container and a network of its own; a snapshot is an image. Both are found by their labels, so a restart
//! of Outpost finds them again, with the workers that run in them.
//!
//! # What it does not do
//!
//! * **An image with a `VOLUME` is refused**, with the paths: they would be missing in every snapshot. So are
//!   [`Settings::mounts`](Settings), by nature.
//! * **Hard links part** when, after waking, one name of a file that was saved is written to: overlay filesystems copy the
//!   file for that name.
//! * **`docker image prune --all` deletes snapshots**: for an engine they are images that no container uses. A session whose
//!   snapshot is gone starts cold, and this is reported. Keep them with `--filter "label!=dev.outpost.instance"`.
//! * What a guard stops and does not stop is said at the head of its module, in `src/guard/mod.rs`. With podman a network
//!   policy is not enforced, and a session that has one is refused.
//!
//! # Example
//!
//! ```no_run
//! use outpost_core::model::InstanceId;
//! use outpost_provider_docker::DockerProvider;
//!
//! # async fn open() -> Result<(), Box<dyn std::error::Error>> {
//! let provider = DockerProvider::builder(InstanceId::new("desk-1")?)
//!     .with(|settings| settings.image = "registry.example/our-worker:1".to_owned())
//!     .connect()
//!     .await?;
//! # Ok(())
//! # }
//! ```

mod account;
mod check;
mod container;
mod digest;
mod engine;
mod fault;
mod guard;
mod image;
mod names;
mod network;
mod program;
mod provider;
mod remove;
mod save;
mod settings;
mod start;
mod step;
mod sweep;
mod tree;

pub use provider::DockerProvider;
pub use settings::{
    Access, BuildError, Builder, DEFAULT_IMAGE, EngineAddress, ExtraMount, Network, Privileges, Pull,
    RegistryCredentials, SaveCheck, Settings, UnenforcedNetworkPolicy,
};
pub use step::Step;

const NAME: &str = "docker";
