//! A sandbox's container, as the engine shows it.

use bollard::errors::Error as Answer;
use bollard::models::{ContainerStateStatusEnum, ContainerSummary, ContainerSummaryStateEnum};
use outpost_core::model::{Sandbox, SandboxId, SandboxState, WorkerEnding};
use outpost_core::ports::ErrorKind;
use outpost_provider_kit::Fault;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::engine::Engine;
use crate::fault::Asking as _;
use crate::image::with_algorithm;
use crate::names::{Labels, Names, SandboxLabels};

/// The code of a process that was killed.
const KILLED: i32 = 137;
/// What engines note when they have lost sight of a container.
const LOST: i32 = 255;

/// How far a container is. The supervisor is its first process and ends with the worker's code, so this is the worker's
/// life, too; and when the first process ends the kernel ends all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// It was made, and has not run.
    Unborn,
    Alive,
    Ended {
        code: Option<i32>,
    },
    Leaving,
}

/// The container of a sandbox of ours.
#[derive(Debug, Clone)]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) sandbox: SandboxLabels,
    pub(crate) labels: Labels,
    /// The id of its image.
    pub(crate) image: String,
    pub(crate) life: Life,
}

impl Container {
    pub(crate) fn ending(&self) -> WorkerEnding {
        match self.life {
            Life::Ended { code: Some(KILLED | LOST) | None } => WorkerEnding::Forced,
            _ => WorkerEnding::Clean,
        }
    }

    pub(crate) fn listed(self) -> Sandbox {
        let state = match self.life {
            Life::Unborn => SandboxState::Failed { why: "its start was cut off before it ran".to_owned() },
            Life::Alive => SandboxState::Running,
            Life::Ended { code } => SandboxState::Exited { code },
            Life::Leaving => SandboxState::Stopping,
        };
        let SandboxLabels { id, started_at, restored_from } = self.sandbox;
        Sandbox { id, state, started_at, expires_at: None, restored_from }
    }

    /// Reads a line of the engine's list; `None` when it is no sandbox of ours.
    pub(crate) fn of_list(names: &Names, summary: ContainerSummary) -> Option<Self> {
        let labels = summary.labels.unwrap_or_default();
        let name = summary.names.unwrap_or_default().into_iter().next()?;
        let sandbox = names.as_sandbox(name.trim_start_matches('/'), &labels)?;
        let life = match summary.state? {
            ContainerSummaryStateEnum::CREATED => Life::Unborn,
            ContainerSummaryStateEnum::EXITED => {
                Life::Ended { code: code_in(summary.status.as_deref().unwrap_or_default()) }
            }
            ContainerSummaryStateEnum::REMOVING | ContainerSummaryStateEnum::DEAD => Life::Leaving,
            _ => Life::Alive,
        };
        Some(Self { id: summary.id?, sandbox, labels, image: with_algorithm(summary.image_id?), life })
    }
}

/// The code in the words with which engines describe a container that has ended: `Exited (137) 5 minutes ago`.
fn code_in(status: &str) -> Option<i32> {
    status.strip_prefix("Exited (")?.split(')').next()?.parse().ok()
}

/// Takes an answer that has a state which only podman knows.
pub(crate) fn understood<T: DeserializeOwned>(answer: Result<T, Answer>) -> Result<T, Answer> {
    let Err(Answer::JsonDataError { message, contents, column }) = answer else { return answer };
    let read = serde_json::from_str(&contents).and_then(|mut value: Value| {
        for container in value.as_array_mut().map_or_else(Vec::new, |list| list.iter_mut().collect()) {
            translate(&mut container["State"]);
        }
        if let Some(state) = value.get_mut("State").and_then(|state| state.get_mut("Status")) {
            translate(state);
        }
        serde_json::from_value(value)
    });
    read.map_err(|_| Answer::JsonDataError { message, contents, column })
}

/// Puts podman's word for a container's state into Docker's.
fn translate(state: &mut Value) {
    let word = match state.as_str() {
        // Between the end of its processes and the clearing up after them.
        Some("stopped") => "exited",
        Some("configured" | "initialized") => "created",
        Some("stopping") => "running",
        _ => return,
    };
    *state = word.into();
}

impl Engine {
    /// Looks at the container of this name, whoever's it is; `None` when there is none.
    ///
    /// # Errors
    /// A conflict when it is not the sandbox's.
    pub(crate) async fn sandbox(&self, names: &Names, id: &SandboxId) -> Result<Option<Container>, Fault> {
        let name = names.sandbox(id);
        let found = understood(self.quick.inspect_container(&name, None).await);
        let Some(found) = found.if_there("look at the container")? else { return Ok(None) };
        let labels = found.config.and_then(|config| config.labels).unwrap_or_default();
        let state = found.state.unwrap_or_default();
        let code = state.exit_code.and_then(|code| i32::try_from(code).ok());
        let life = match state.status {
            Some(ContainerStateStatusEnum::CREATED) => Life::Unborn,
            Some(ContainerStateStatusEnum::EXITED) => Life::Ended { code },
            Some(ContainerStateStatusEnum::REMOVING | ContainerStateStatusEnum::DEAD) => Life::Leaving,
            _ => Life::Alive,
        };
        let sandbox = names.as_sandbox(&name, &labels).filter(|sandbox| sandbox.id == *id);
        match (sandbox, found.id, found.image) {
            (Some(sandbox), Some(id), Some(image)) => {
                Ok(Some(Container { id, sandbox, labels, image: with_algorithm(image), life }))
            }
            _ => Err(Fault::new(
                ErrorKind::Conflict,
                format!("container {name} is there and is not Outpost's; remove or rename it"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // lesson 7
    #[test]
    fn a_state_that_only_podman_knows_does_not_spoil_the_list() {
        let list = r#"[{"Id":"a","State":"stopped"},{"Id":"b","State":"running"}]"#;
        let strict = |text: &str| {
            serde_json::from_str::<Vec<ContainerSummary>>(text).map_err(|error| Answer::JsonDataError {
                message: error.to_string(),
                contents: text.to_owned(),
                column: error.column(),
            })
        };
        assert!(strict(list).is_err(), "the library knows it by now: the translation can go");
        let states: Vec<_> = understood(strict(list)).unwrap().into_iter().map(|it| it.state).collect();
        let known = [ContainerSummaryStateEnum::EXITED, ContainerSummaryStateEnum::RUNNING];
        assert_eq!(states, known.map(Some));
        assert!(understood(strict(r#"[{"State":"unheard of"}]"#)).is_err());
    }

    #[test]
    fn the_code_is_read_from_the_engines_words() {
        assert_eq!(code_in("Exited (0) 2 seconds ago"), Some(0));
        assert_eq!(code_in("Exited (137) About a minute ago"), Some(137));
        for other in ["", "Up 3 minutes", "Exited () ago", "Created"] {
            assert_eq!(code_in(other), None, "{other}");
        }
    }
}
