//! The points at which this process may die.

/// Something that the engine has just done, or is about to be told. A process that is killed at any of them leaves
/// nothing that the next one does not find and finish or clear away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// A start is about to make its network.
    StartBegins,
    /// The session's network is there.
    NetworkMade,
    /// The container is there, and does not run.
    ContainerMade,
    /// The program's volume is about to be filled.
    ProgramMissing,
    /// The program is in its volume.
    ProgramThere,
    /// The container's input is held.
    InputHeld,
    /// The supervisor runs, and waits for the worker's environment.
    SupervisorRuns,
    /// The network is confined.
    NetworkConfined,
    /// A part of the environment was sent.
    EnvironmentCut,
    /// The whole environment was sent.
    EnvironmentSent,
    /// A worker is about to be told to end.
    StopBegins,
    /// A worker has ended.
    WorkerStopped,
    /// A save is about to be made.
    SaveBegins,
    /// A disk is about to be written as one layer.
    FlattenBegins,
    /// The one layer is an image.
    LayersJoined,
    /// The image is there, and has no name.
    ImageMade,
    /// The image is what the sandbox's disk is.
    ImageChecked,
    /// The image has the snapshot's name.
    SnapshotNamed,
    /// A sandbox is about to be removed.
    RemoveBegins,
    /// The guard is gone.
    GuardRemoved,
    /// The container is gone.
    ContainerRemoved,
    /// The network is gone.
    NetworkRemoved,
    /// A snapshot is about to be deleted.
    DeleteBegins,
    /// It has a second name.
    SnapshotMarked,
    /// It has the second name only.
    SnapshotUnnamed,
    /// It is gone, or will be when nothing needs it.
    SnapshotDeleted,
}

impl Step {
    /// Every step.
    pub const ALL: [Self; 26] = [
        Self::StartBegins,
        Self::NetworkMade,
        Self::ContainerMade,
        Self::ProgramMissing,
        Self::ProgramThere,
        Self::InputHeld,
        Self::SupervisorRuns,
        Self::NetworkConfined,
        Self::EnvironmentCut,
        Self::EnvironmentSent,
        Self::StopBegins,
        Self::WorkerStopped,
        Self::SaveBegins,
        Self::FlattenBegins,
        Self::LayersJoined,
        Self::ImageMade,
        Self::ImageChecked,
        Self::SnapshotNamed,
        Self::RemoveBegins,
        Self::GuardRemoved,
        Self::ContainerRemoved,
        Self::NetworkRemoved,
        Self::DeleteBegins,
        Self::SnapshotMarked,
        Self::SnapshotUnnamed,
        Self::SnapshotDeleted,
    ];
}
