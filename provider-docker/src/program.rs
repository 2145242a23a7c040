//! The worker's program and its supervisor, in a volume that sandboxes can only read.
//!
//! A volume is no part of a commit, so a program is in no snapshot; and it is sent to the engine once, however many
//! sandboxes run it. Its name is made of what it holds. It is filled through a container that is never started, and the
//! supervisor comes last: when that is whole, everything is.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use bollard::models::{ContainerCreateBody, HostConfig, Mount, MountType, VolumeCreateRequest};
use bollard::query_parameters::{
    ContainerArchiveInfoOptionsBuilder, CreateContainerOptionsBuilder, ListVolumesOptionsBuilder,
    RemoveContainerOptionsBuilder, RemoveVolumeOptions, UploadToContainerOptionsBuilder,
};
use outpost_core::model::{SUPERVISOR, WorkerProgram};
use outpost_core::ports::ErrorKind;
use outpost_provider_kit::{During as _, Fault, blocking};
use tokio_util::io::{ReaderStream, SyncIoBridge};

use crate::digest::{hex, sha256};
use crate::engine::Engine;
use crate::fault::{Asking as _, status};
use crate::names::{INSTANCE, Names, Role};

/// Where the volume lies in a sandbox.
pub(crate) const PLACE: &str = "/opt/outpost";
pub(crate) const SUPERVISOR_PATH: &str = "/opt/outpost/supervisor.sh";
const PROGRAM_PATH: &str = "/opt/outpost/worker";

/// What a sandbox runs, and the volume that it is in.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) volume: String,
    /// The path or name by which the supervisor starts it.
    pub(crate) command: String,
    file: Option<PathBuf>,
}

/// Checksums of files, by what tells that a file is another: they are as large as a hundred megabytes.
#[derive(Debug, Default)]
pub(crate) struct Checksums(Mutex<Vec<Known>>);

/// A file, its length and time of change, and its checksum.
type Known = (PathBuf, u64, Option<SystemTime>, String);

impl Checksums {
    async fn of(&self, path: &Path) -> Result<String, Fault> {
        let reading = || format!("read the worker's program {}", path.display());
        let metadata = std::fs::metadata(path).during(reading)?;
        let (length, modified) = (metadata.len(), metadata.modified().ok());
        let known = |entries: &[Known]| {
            let same = entries.iter().find(|it| it.0 == path && it.1 == length && it.2 == modified)?;
            Some(same.3.clone())
        };
        if let Some(sum) = known(&self.lock()) {
            return Ok(sum);
        }
        let file = path.to_owned();
        let sum = blocking(move || {
            let opened = std::fs::File::open(&file).during(|| format!("open {}", file.display()))?;
            sha256(opened).map(|sum| hex(&sum)).during(|| "read the worker's program")
        })
        .await?;
        let mut entries = self.lock();
        entries.retain(|entry| entry.0 != path);
        entries.push((path.to_owned(), length, modified, sum.clone()));
        Ok(sum)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Known>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Program {
    /// Finds out which volume holds `program`.
    pub(crate) async fn new(names: &Names, program: &WorkerProgram, sums: &Checksums) -> Result<Self, Fault> {
        let (file, sum, command) = match program {
            WorkerProgram::File { path, .. } => {
                (Some(path.clone()), sums.of(path).await?, PROGRAM_PATH.to_owned())
            }
            WorkerProgram::Installed { path } => (None, String::new(), path.clone()),
            WorkerProgram::Fetch { .. } => return Err(cannot_fetch()),
            _ => return Err(cannot_fetch()),
        };
        let content =
            hex(&sha256(format!("{sum}\n{SUPERVISOR}").as_bytes()).during(|| "name the program's volume")?);
        Ok(Self { volume: names.program(&content[..20]), command, file })
    }
}

fn cannot_fetch() -> Fault {
    Fault::new(ErrorKind::Unsupported, "the worker's program must be a file of Outpost's or in the image")
}

/// The mount through which sandboxes see a program's volume.
pub(crate) fn mount(volume: &str) -> Mount {
    Mount {
        target: Some(PLACE.to_owned()),
        source: Some(volume.to_owned()),
        typ: Some(MountType::VOLUME),
        read_only: Some(true),
        ..Mount::default()
    }
}

impl Engine {
    /// Makes the volume, which may be empty.
    pub(crate) async fn make_volume(&self, names: &Names, program: &Program) -> Result<(), Fault> {
        let request = VolumeCreateRequest {
            name: Some(program.volume.clone()),
            labels: Some(names.labels(Role::Program)),
            ..VolumeCreateRequest::default()
        };
        self.quick.create_volume(request).await.changing("make the program's volume").map(drop)
    }

    /// Whether all of the program is in its volume, seen from a container that mounts it.
    pub(crate) async fn has_program(&self, container: &str) -> Result<bool, Fault> {
        let options = ContainerArchiveInfoOptionsBuilder::default().path(SUPERVISOR_PATH).build();
        let found = self.quick.get_container_archive_info(container, Some(options)).await;
        let found = found.if_there("look for the program in its volume")?;
        Ok(found.is_some_and(|found| found.size == SUPERVISOR.len() as i64))
    }

    /// Fills the volume, through a container of `image` that is never started.
    pub(crate) async fn fill_volume(
        &self,
        names: &Names,
        program: &Program,
        image: &str,
    ) -> Result<(), Fault> {
        let name = format!("{}-fill", program.volume);
        let mount = Mount { read_only: Some(false), ..mount(&program.volume) };
        let container = ContainerCreateBody {
            image: Some(image.to_owned()),
            entrypoint: Some(vec!["/nothing".to_owned()]),
            labels: Some(names.labels(Role::Helper)),
            host_config: Some(HostConfig { mounts: Some(vec![mount]), ..HostConfig::default() }),
            ..ContainerCreateBody::default()
        };
        // One that an earlier process left there mounts the same volume.
        self.discard(&name).await?;
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        let made = self.quick.create_container(Some(options), container).await;
        made.changing("make a container for the program")?;
        let sent = self.send_program(&name, program).await;
        let discarded = self.discard(&name).await;
        sent.and(discarded)
    }

    async fn send_program(&self, container: &str, program: &Program) -> Result<(), Fault> {
        let (from, to) = tokio::io::duplex(256 << 10);
        let (file, to) = (program.file.clone(), SyncIoBridge::new(to));
        let packing = blocking(move || pack(file.as_deref(), to));
        let options = UploadToContainerOptionsBuilder::default().path(PLACE).build();
        let body = bollard::body_try_stream(ReaderStream::new(from));
        let upload = self.patient.upload_to_container(container, Some(options), body);
        let (packed, uploaded) = futures::join!(packing, upload);
        uploaded.changing("send the worker's program to the engine")?;
        packed
    }

    /// Removes a container of ours, whatever it does; none is fine, and one that is being removed is as good as gone.
    pub(crate) async fn discard(&self, container: &str) -> Result<(), Fault> {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        match self.patient.remove_container(container, Some(options)).await {
            Err(answer) if matches!(status(&answer), Some(404 | 409)) => Ok(()),
            result => result.changing("remove a container"),
        }
    }

    /// Removes the volumes of programs that nothing runs any more. The engine keeps those that are in use.
    pub(crate) async fn sweep_volumes(&self, names: &Names) -> Result<(), Fault> {
        let filters = std::collections::HashMap::from([(
            "label".to_owned(),
            vec![format!("{INSTANCE}={}", names.instance())],
        )]);
        let options = ListVolumesOptionsBuilder::default().filters(&filters).build();
        let listed = self.quick.list_volumes(Some(options)).await.asking("list volumes")?;
        for volume in listed.volumes.unwrap_or_default() {
            if volume.name.starts_with(&names.program(""))
                && let Err(answer) = self.quick.remove_volume(&volume.name, None::<RemoveVolumeOptions>).await
                && !matches!(status(&answer), Some(404 | 409))
            {
                Err::<(), _>(answer).changing("remove a program's volume")?;
            }
        }
        Ok(())
    }
}

/// Writes the archive that the volume is filled from.
fn pack(file: Option<&Path>, to: impl Write) -> Result<(), Fault> {
    let mut archive = tar::Builder::new(to);
    let header = |size: u64| {
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o755);
        header
    };
    let packing = || "pack the worker's program";
    if let Some(path) = file {
        let file = std::fs::File::open(path).during(packing)?;
        let size = file.metadata().during(packing)?.len();
        archive.append_data(&mut header(size), "worker", file).during(packing)?;
    }
    let supervisor = SUPERVISOR.as_bytes();
    archive.append_data(&mut header(supervisor.len() as u64), "supervisor.sh", supervisor).during(packing)?;
    archive.into_inner().and_then(|mut to| to.flush()).during(packing)
}
