//! The parts of `cargo xtask test`, in the order they run: what fails fast comes first, and what shares build
//! artefacts comes one after the other.

mod bench;
mod engines;
mod machine;
mod package;
mod rust;
mod simulate;
mod tree;
mod wasm;

use anyhow::Result;

pub(crate) use bench::bench;
pub(crate) use simulate::{SEEDS as SIMULATED_SEEDS, simulate};

use crate::context::Context;
use crate::tools::Tool;

/// One check.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) needs: &'static [Tool],
    pub(crate) run: fn(&Context) -> Result<()>,
    pub(crate) place: Place,
}

/// What a part has to do with container engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nothing.
    Plain,
    /// It has them ready for the others.
    Engines,
    /// It runs on them.
    OnEngines,
}

const fn part(
    name: &'static str,
    about: &'static str,
    needs: &'static [Tool],
    run: fn(&Context) -> Result<()>,
) -> Part {
    Part { name, about, needs, run, place: Place::Plain }
}

impl Part {
    const fn placed(self, place: Place) -> Self {
        Self { place, ..self }
    }
}

pub(crate) const PARTS: &[Part] = &[
    part("fmt", "the code is formatted", &[], rust::fmt),
    part(
        "machine",
        "nothing of a workplace, no secret and no dead link is in the repository",
        &[],
        machine::run,
    ),
    part("tree", "dependencies point one way, and core pulls in no I/O", &[], tree::run),
    part("deny", "licences, sources, and one crypto provider", &[Tool::Deny], rust::deny),
    part("clippy", "no lint and no compiler warning, with all features", &[], rust::clippy),
    part("features", "each feature compiles by itself", &[], rust::features),
    part("docs", "the documentation builds without a warning", &[], rust::docs),
    part(
        "engines",
        "a Docker and a podman are there, or are started for the time of the run",
        &[Tool::Docker, Tool::Podman, Tool::ImageParts],
        engines::engines,
    )
    .placed(Place::Engines),
    part("tests", "the unit, property and end-to-end tests", &[Tool::Nextest], rust::tests),
    part("docker", "the tests on container engines", &[Tool::Nextest], engines::docker)
        .placed(Place::OnEngines),
    part("doctests", "the examples in the documentation", &[], rust::doctests),
    part("wasm", "core and the API client compile for wasm32", &[Tool::Wasm], wasm::run),
    part("package", "every crate packages, and a stranger's crate builds on the packages", &[], package::run),
    part(
        "images",
        "worker images build and hold what a session needs",
        &[Tool::Nextest, Tool::ImageTools],
        engines::images,
    )
    .placed(Place::OnEngines),
    part("demo", "`outpost demo` plays all of its sessions through", &[], rust::demo),
    part("simulate", "seeded runs of the simulated world keep the invariants", &[], simulate::part),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_name_of_its_own() {
        let mut names: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PARTS.len());
    }
}
