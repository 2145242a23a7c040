//! Devin sessions as plain processes in directories of this machine.
//!
//! A sandbox is a directory and a process group under a state directory; a snapshot is a `tar.zst` beside it. A restart
//! of Outpost finds both again, with the processes that run in them.
//!
//! # What it does not do
//!
//! * **No isolation.** A session's code runs as the user that runs Outpost, with that user's rights: it can read the
//!   user's files, other sessions' directories and their processes' environments, and reach every network the machine
//!   reaches. A network policy cannot be enforced; a session that has one is refused unless
//!   [`Settings::unenforced_network_policy`] says otherwise.
//! * **Only its directory is saved**: the worker's home, its working directory with `repos/`, and its state but for its
//!   download cache. Packages that a session installs elsewhere, running processes, and `TMPDIR` are not; neither are
//!   files that a session made with `sudo` and that the user who runs Outpost cannot read. A warning names them.
//! * **No protection of its own files.** A session can damage what Outpost notes beside its disk. It harms itself only: a
//!   sandbox whose notes are damaged is not listed, with a warning in the log. Its directory stays as it is; when its
//!   session is started again, from its newest snapshot, it is moved aside under the name `.damaged-…` and is for people
//!   to look at and delete.
//! * **No limits** on memory, processor or disk.
//!
//! # Example
//!
//! ```
//! use outpost_core::model::InstanceId;
//! use outpost_core::ports::SandboxProvider;
//! use outpost_provider_process::{ProcessProvider, UnenforcedNetworkPolicy};
//!
//! # let state = tempfile::tempdir()?;
//! let provider = ProcessProvider::builder(state.path(), InstanceId::new("desk-1")?)
//!     .with(|settings| settings.unenforced_network_policy = UnenforcedNetworkPolicy::Allow)
//!     .build()?;
//! assert_eq!(provider.name(), "process");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Systems
//!
//! Linux and macOS, with `cp` in Outpost's `PATH`. Linux: `setsid` of util-linux or perl; processes are found through `/proc` and signalled through
//! handles. macOS: perl, which starts the worker's session; processes are found through `ps`, where a process that has
//! left its group, its session *and* its `TMPDIR` is not found by its working directory.

#[cfg(not(unix))]
compile_error!("outpost-provider-process runs on Linux and macOS only");

mod archive;
mod boot;
mod durable;
mod ending;
mod launch;
mod layout;
mod lock;
mod meta;
mod processes;
mod provider;
mod remove;
mod save;
mod settings;
mod small;
mod start;
mod sweep;

pub use provider::ProcessProvider;
pub use settings::{BuildError, Builder, Settings, UnenforcedNetworkPolicy};

const NAME: &str = "process";
