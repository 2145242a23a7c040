//! Names and labels: what makes a thing of the engine's ours.

use std::collections::HashMap;

use jiff::Timestamp;
use outpost_core::model::{
    Boot, InstanceId, SandboxId, SessionId, SnapshotPurpose, SnapshotRef, WorkerEnding,
};

pub(crate) const INSTANCE: &str = "dev.outpost.instance";
pub(crate) const ROLE: &str = "dev.outpost.role";
const SESSION: &str = "dev.outpost.session";
const BOOT: &str = "dev.outpost.boot";
const STARTED_AT: &str = "dev.outpost.started-at";
const RESTORED_FROM: &str = "dev.outpost.restored-from";
const IMAGE: &str = "dev.outpost.image";
const PURPOSE: &str = "dev.outpost.snapshot.purpose";
const TAKEN_AT: &str = "dev.outpost.snapshot.taken-at";
const ENDING: &str = "dev.outpost.snapshot.ending";
const BASE_BYTES: &str = "dev.outpost.snapshot.base-bytes";

pub(crate) type Labels = HashMap<String, String>;

/// What a thing of ours is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A session's sandbox, and its network.
    Session,
    /// What confines a session's network.
    Guard,
    /// Holds a worker's program.
    Program,
    /// Lives for the length of one operation.
    Helper,
}

impl Role {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Guard => "guard",
            Self::Program => "program",
            Self::Helper => "helper",
        }
    }
}

/// Makes the names of one instance.
///
/// A label alone makes nothing ours: an image hands its labels on to every container and image that people make from it.
/// What is listed and removed must have the name that its labels say, too.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    instance: InstanceId,
}

/// A container that is a sandbox, as its labels say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SandboxLabels {
    pub(crate) id: SandboxId,
    pub(crate) started_at: Timestamp,
    pub(crate) restored_from: Option<SnapshotRef>,
}

/// An image that is a snapshot, as its labels say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotLabels {
    pub(crate) id: SandboxId,
    pub(crate) purpose: SnapshotPurpose,
    pub(crate) taken_at: Timestamp,
    pub(crate) ending: WorkerEnding,
    /// How much of the image's size is its base's.
    pub(crate) base_bytes: u64,
}

impl Names {
    pub(crate) const fn new(instance: InstanceId) -> Self {
        Self { instance }
    }

    pub(crate) fn instance(&self) -> &str {
        self.instance.as_str()
    }

    /// Of the sandbox's container, and of its network.
    pub(crate) fn sandbox(&self, id: &SandboxId) -> String {
        id.name(&self.instance)
    }

    pub(crate) fn guard(&self, id: &SandboxId) -> String {
        format!("{}-guard", self.sandbox(id))
    }

    /// Of the volume that holds a worker's program and its supervisor.
    pub(crate) fn program(&self, content: &str) -> String {
        format!("outpost-{}-program-{content}", self.instance)
    }

    /// Where the snapshots of a session are, as `(repository, tag)`. No registry has this name, so that nobody pushes one
    /// by accident.
    pub(crate) fn snapshot(&self, id: &SandboxId, purpose: SnapshotPurpose) -> (String, String) {
        (self.repository(&id.session), format!("{}-{}", id.boot, purpose_word(purpose)))
    }

    pub(crate) fn repository(&self, session: &SessionId) -> String {
        format!("localhost/outpost-{}/{}", self.instance, session.stable_hash())
    }

    pub(crate) fn labels(&self, role: Role) -> Labels {
        Labels::from([
            (INSTANCE.to_owned(), self.instance.to_string()),
            (ROLE.to_owned(), role.as_str().to_owned()),
        ])
    }

    /// Of what belongs to a sandbox.
    pub(crate) fn labels_of(&self, role: Role, id: &SandboxId) -> Labels {
        let mut labels = self.labels(role);
        labels.insert(SESSION.to_owned(), id.session.to_string());
        labels.insert(BOOT.to_owned(), id.boot.to_string());
        labels
    }

    /// Of a sandbox. Every label that an image could hand on is set.
    pub(crate) fn sandbox_labels(&self, sandbox: &SandboxLabels, image: &str) -> Labels {
        let mut labels = self.labels_of(Role::Session, &sandbox.id);
        let restored_from = sandbox.restored_from.as_ref().map_or("", SnapshotRef::as_str);
        labels.insert(STARTED_AT.to_owned(), sandbox.started_at.to_string());
        labels.insert(RESTORED_FROM.to_owned(), restored_from.to_owned());
        labels.insert(IMAGE.to_owned(), image.to_owned());
        labels
    }

    /// Reads a container's labels; `None` when it is no sandbox of ours.
    pub(crate) fn as_sandbox(&self, name: &str, labels: &Labels) -> Option<SandboxLabels> {
        let id = self.id_of(labels)?;
        if labels.get(ROLE)? != Role::Session.as_str() || name != self.sandbox(&id) {
            return None;
        }
        let started_at = labels.get(STARTED_AT)?.parse().ok()?;
        let restored_from = labels.get(RESTORED_FROM).and_then(SnapshotRef::new);
        Some(SandboxLabels { id, started_at, restored_from })
    }

    /// Reads an image's labels; `None` when it is no snapshot of ours, or one that was not published.
    pub(crate) fn as_snapshot(&self, tags: &[String], labels: &Labels) -> Option<SnapshotLabels> {
        let snapshot = self.as_snapshot_of_any_name(labels)?;
        let (repository, tag) = self.snapshot(&snapshot.id, snapshot.purpose);
        tags.contains(&format!("{repository}:{tag}")).then_some(snapshot)
    }

    fn as_snapshot_of_any_name(&self, labels: &Labels) -> Option<SnapshotLabels> {
        let purpose = match labels.get(PURPOSE)?.as_str() {
            "resume" => SnapshotPurpose::Resume,
            "detached" => SnapshotPurpose::Detached,
            _ => return None,
        };
        let ending = match labels.get(ENDING)?.as_str() {
            "clean" => WorkerEnding::Clean,
            _ => WorkerEnding::Forced,
        };
        let taken_at = labels.get(TAKEN_AT)?.parse().ok()?;
        let base_bytes = labels.get(BASE_BYTES)?.parse().ok()?;
        Some(SnapshotLabels { id: self.id_of(labels)?, purpose, taken_at, ending, base_bytes })
    }

    /// Whether this is an image of ours that has no name: a save that did not come to its end, or a snapshot that was
    /// deleted while something still needed its layers.
    pub(crate) fn is_nameless(&self, tags: &[String], labels: &Labels) -> bool {
        let named = tags.iter().any(|tag| !tag.contains("<none>") && !self.is_mark(tag));
        let ours = labels.get(INSTANCE).is_some_and(|instance| *instance == self.instance.as_str());
        ours && !named
    }

    /// Whether this is an image of a boot's that was never published, or is not any more.
    pub(crate) fn is_unpublished(&self, id: &SandboxId, tags: &[String], labels: &Labels) -> bool {
        self.is_nameless(tags, labels) && self.id_of(labels).is_some_and(|of| of == *id)
    }

    /// The name of a snapshot that was deleted while something still needed its layers.
    pub(crate) fn mark_of(&self, image: &str) -> String {
        let digits = image.rsplit(':').next().unwrap_or(image);
        format!("{}{digits}", self.marks())
    }

    pub(crate) fn is_mark(&self, tag: &str) -> bool {
        tag.starts_with(&self.marks())
    }

    fn marks(&self) -> String {
        format!("localhost/outpost-{}/deleted:", self.instance)
    }

    fn id_of(&self, labels: &Labels) -> Option<SandboxId> {
        if *labels.get(INSTANCE)? != self.instance.as_str() {
            return None;
        }
        let session = SessionId::new(labels.get(SESSION)?).ok()?;
        let boot = labels.get(BOOT)?.parse().ok()?;
        Some(SandboxId::new(session, Boot::new(boot)))
    }
}

impl SnapshotLabels {
    /// The labels that a snapshot has beside those of its container, as instructions for the engine, which takes them in
    /// the form of a Dockerfile: nothing that could need quoting is in them.
    pub(crate) fn as_changes(&self) -> Vec<String> {
        let ending = match self.ending {
            WorkerEnding::Clean => "clean",
            WorkerEnding::Forced => "forced",
        };
        [
            (PURPOSE, purpose_word(self.purpose).to_owned()),
            (TAKEN_AT, self.taken_at.to_string()),
            (ENDING, ending.to_owned()),
            (BASE_BYTES, self.base_bytes.to_string()),
        ]
        .into_iter()
        .map(|(key, value)| format!("LABEL {key}={value}"))
        .collect()
    }
}

const fn purpose_word(purpose: SnapshotPurpose) -> &'static str {
    match purpose {
        SnapshotPurpose::Resume => "resume",
        SnapshotPurpose::Detached => "detached",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new(InstanceId::new("desk-1").unwrap())
    }

    fn sandbox() -> SandboxLabels {
        SandboxLabels {
            id: SandboxId::new(SessionId::new("a \"b\" $c ü").unwrap(), Boot::new(3)),
            started_at: "2026-12-01T10:00:00.123456Z".parse().unwrap(),
            restored_from: SnapshotRef::new("sha256:ab"),
        }
    }

    #[test]
    fn labels_say_what_was_written_into_them() {
        let (names, sandbox) = (names(), sandbox());
        let labels = names.sandbox_labels(&sandbox, "sha256:cd");
        assert_eq!(names.as_sandbox(&names.sandbox(&sandbox.id), &labels), Some(sandbox));
    }

    #[test]
    fn a_container_that_people_make_from_a_snapshot_is_not_ours() {
        let (names, sandbox) = (names(), sandbox());
        let inherited = names.sandbox_labels(&sandbox, "sha256:cd");
        assert_eq!(names.as_sandbox("quizzical_kepler", &inherited), None);
    }

    #[test]
    fn nothing_of_another_instance_or_another_role_is_a_sandbox() {
        let (names, sandbox) = (names(), sandbox());
        let name = names.sandbox(&sandbox.id);
        let labels = names.sandbox_labels(&sandbox, "sha256:cd");
        for (key, value) in [(INSTANCE, "desk-2"), (ROLE, "console")] {
            let mut other = labels.clone();
            other.insert(key.to_owned(), value.to_owned());
            assert_eq!(names.as_sandbox(&name, &other), None, "{key}={value}");
        }
    }

    #[test]
    fn an_image_is_a_snapshot_only_under_the_name_that_its_labels_say() {
        let (names, sandbox) = (names(), sandbox());
        let snapshot = SnapshotLabels {
            id: sandbox.id.clone(),
            purpose: SnapshotPurpose::Detached,
            taken_at: sandbox.started_at,
            ending: WorkerEnding::Forced,
            base_bytes: 7,
        };
        let mut labels = names.sandbox_labels(&sandbox, "sha256:cd");
        for change in snapshot.as_changes() {
            let (key, value) = change.strip_prefix("LABEL ").unwrap().split_once('=').unwrap();
            labels.insert(key.to_owned(), value.to_owned());
        }
        let (repository, tag) = names.snapshot(&snapshot.id, snapshot.purpose);
        assert_eq!(names.as_snapshot(&[format!("{repository}:{tag}")], &labels), Some(snapshot));
        assert_eq!(names.as_snapshot(&["mine:latest".to_owned()], &labels), None);
        assert!(names.is_nameless(&["<none>:<none>".to_owned()], &labels));
        assert!(!names.is_nameless(&["mine:latest".to_owned()], &labels), "a person has named it");
        assert!(names.is_unpublished(&sandbox.id, &[], &labels));
        let next = SandboxId::new(sandbox.id.session, Boot::new(4));
        assert!(!names.is_unpublished(&next, &[], &labels), "another boot's");
    }

    #[test]
    fn names_are_what_an_engine_takes() {
        let name = names().guard(&sandbox().id);
        assert!(
            name.len() < 100
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        );
    }
}
