//! The contracts of the ports as tests: one case for each bullet with an id in the documentation of
//! [`SandboxProvider`](outpost_core::ports::SandboxProvider) and [`SnapshotStore`](outpost_core::ports::SnapshotStore).
//!
//! An implementor writes a fixture ([`ProviderFixture`](provider::ProviderFixture), [`StoreFixture`](store::StoreFixture)) and one
//! line, which expands to one test a case:
//!
//! ```
//! # mod t {
//! use outpost_testkit::memory::MemoryFixture;
//!
//! outpost_testkit::provider_conformance!(MemoryFixture::new());
//! # }
//! ```
//!
//! A case that the fixture cannot play is *skipped*, with a reason that is printed; if every case is skipped, the test
//! `at_least_one_case_runs` fails. Cases wait for conditions with a bound and never for fixed times.

mod macros;
pub mod provider;
mod run;
pub mod store;
mod task;
mod task_sh;
mod verdict;

pub use run::{Case, Flavor, Report, run_cases};
pub use task::{Act, CheckFailed, End, Expectation, Task};
pub use verdict::{Skip, Verdict};

#[doc(hidden)]
pub use run::{at_least_one, run_as_test};
pub(crate) use verdict::{ensure, fail};
