//! Starting a sandbox.
//!
//! The worker's environment holds its token. It goes through the container's input, which is held before the container
//! runs, to a process that waits for it; so it is in no file, no configuration and no image. When this process dies the
//! engine closes the input, and the worker does not start.

use std::sync::Arc;

use bollard::container::AttachContainerResults;
use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountType, RestartPolicy,
    RestartPolicyNameEnum,
};
use bollard::query_parameters::{AttachContainerOptionsBuilder, CreateContainerOptionsBuilder};
use jiff::Timestamp;
use outpost_core::model::{MachineEnv, NetworkPolicy, SandboxId, WorkerSpec};
use outpost_core::ports::{ErrorKind, StartSpec, Started};
use outpost_provider_kit::{Cancel, Fault};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::AsyncWriteExt as _;

use crate::account::Account;
use crate::container::Life;
use crate::engine::EngineKind;
use crate::fault::{Asking as _, status};
use crate::guard;
use crate::image::Image;
use crate::names::SandboxLabels;
use crate::program::{self, Program};
use crate::provider::Inner;
use crate::settings::{Access, Network, Privileges, Pull, UnenforcedNetworkPolicy};
use crate::step::Step;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Where the supervisor writes, in memory: it is in no commit.
const RUN: &str = "/run/outpost";

pub(crate) async fn start(inner: Arc<Inner>, spec: StartSpec, cancel: Cancel) -> Result<Started, Fault> {
    let _turn = inner.turns.take(&spec.id.session).await;
    inner.refuse_what_cannot_be_enforced(&spec.network_policy)?;
    match inner.find(&spec.id).await? {
        // What never ran holds nothing.
        Some(container) if container.life == Life::Unborn => inner.clear(&spec.id).await?,
        Some(container) => return Ok(Started::Sandbox(container.listed())),
        None => {}
    }
    let image = match &spec.restore {
        None => inner.engine.base_image(&inner.settings, Pull::Missing).await?,
        Some(reference) => match inner.snapshot_image(reference.as_str()).await? {
            Some((image, snapshot)) if snapshot.session == spec.id.session => image,
            Some(_) => {
                let why = format!("snapshot {reference} is another session's");
                return Ok(Started::SnapshotUnusable { why });
            }
            None => {
                let why = format!("the engine has no snapshot {reference}");
                return Ok(Started::SnapshotUnusable { why });
            }
        },
    };
    refuse_volumes(&image)?;
    let started = inner.make(&spec, &image, &cancel).await;
    match started {
        Ok(()) => {}
        Err(fault) => {
            let cleared = inner.clear(&spec.id).await;
            return Err(match cleared {
                Ok(()) => fault,
                Err(left) => Fault {
                    message: format!("{}; and what was made is left behind: {}", fault.message, left.message),
                    ..fault.may_have_been_applied()
                },
            });
        }
    }
    let gone =
        || Fault::new(ErrorKind::Unexpected, "it was started and is not there").may_have_been_applied();
    let container = inner.find(&spec.id).await?.ok_or_else(gone)?;
    if container.image != image.id {
        inner.clear(&spec.id).await?;
        return Err(Fault::new(ErrorKind::Unexpected, "the engine has started it from another image"));
    }
    Ok(Started::Sandbox(container.listed()))
}

/// A directory that is a volume is missing in every snapshot.
pub(crate) fn refuse_volumes(image: &Image) -> Result<(), Fault> {
    let volumes = image.volumes();
    if volumes.is_empty() {
        return Ok(());
    }
    let why = format!(
        "the image declares volumes, which would be missing in every snapshot: {}; use an image without VOLUME",
        volumes.join(", ")
    );
    Err(Fault::new(ErrorKind::Unsupported, why))
}

impl Inner {
    fn refuse_what_cannot_be_enforced(&self, policy: &NetworkPolicy) -> Result<(), Fault> {
        let enforced = self.enforces_policies();
        match (policy, self.settings.unenforced_network_policy) {
            (NetworkPolicy::Unrestricted, _) | (_, UnenforcedNetworkPolicy::Allow) => Ok(()),
            (NetworkPolicy::Allow(_), UnenforcedNetworkPolicy::Refuse) if enforced => Ok(()),
            (NetworkPolicy::Allow(_), UnenforcedNetworkPolicy::Refuse) => Err(Fault::new(
                ErrorKind::Unsupported,
                "the session has a network policy, which cannot be enforced with this engine and these settings; \
                 set unenforced_network_policy to allow to run it without",
            )),
        }
    }

    pub(crate) fn enforces_policies(&self) -> bool {
        self.settings.network == Network::Guarded && self.engine.kind == EngineKind::Docker
    }

    /// Makes everything that a sandbox is made of, up to the running worker.
    async fn make(&self, spec: &StartSpec, image: &Image, cancel: &Cancel) -> Result<(), Fault> {
        let (engine, names, id) = (&self.engine, &self.names, &spec.id);
        let program = Program::new(names, &spec.worker.program, &self.checksums).await?;
        engine.make_volume(names, &program).await?;
        self.reached(Step::StartBegins);
        engine.make_network(names, id).await?;
        self.reached(Step::NetworkMade);
        cancel.check()?;

        let user =
            self.settings.user.clone().unwrap_or_else(|| image.config.user.clone().unwrap_or_default());
        let name = names.sandbox(id);
        let account = self.account(image, &user).await?;
        let workdir = self.workdir(image, &account);
        let body = self.container(spec, image, &program, &user, &workdir);
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        match engine.quick.create_container(Some(options), body).await {
            Err(answer) if status(&answer) == Some(409) => {
                let why = format!("a container {name} is there already");
                return Err(Fault::new(ErrorKind::Conflict, why));
            }
            made => made.changing("make the container")?,
        };
        self.reached(Step::ContainerMade);
        self.provide(&program, &name, image).await?;
        cancel.check()?;

        let input = self.attach(&name).await?;
        self.reached(Step::InputHeld);
        engine.quick.start_container(&name, None).await.changing("start the container")?;
        self.reached(Step::SupervisorRuns);
        if self.settings.network == Network::Guarded {
            guard::confine(self, spec).await?;
        }
        self.reached(Step::NetworkConfined);
        cancel.check()?;
        let environment = environment(&spec.worker, &self.machine(image, &account));
        self.send(input, &environment).await
    }

    /// Has the program in the volume that the container mounts.
    async fn provide(&self, program: &Program, container: &str, image: &Image) -> Result<(), Fault> {
        if self.engine.has_program(container).await? {
            return Ok(());
        }
        // One after the other: the second one finds it there.
        let _filling = self.filling.lock().await;
        if self.engine.has_program(container).await? {
            return Ok(());
        }
        self.reached(Step::ProgramMissing);
        self.engine.fill_volume(&self.names, program, &image.id).await?;
        self.reached(Step::ProgramThere);
        if self.engine.has_program(container).await? {
            return Ok(());
        }
        Err(Fault::new(ErrorKind::Unexpected, "the worker's program was sent to the engine and is not there"))
    }

    /// Looks up who the worker is, once for each image.
    async fn account(&self, image: &Image, user: &str) -> Result<Account, Fault> {
        let key = (image.id.clone(), user.to_owned());
        if let Some(account) = self.accounts().get(&key) {
            return Ok(account.clone());
        }
        // One after the other: they look through the same container.
        let _looking = self.filling.lock().await;
        if let Some(account) = self.accounts().get(&key) {
            return Ok(account.clone());
        }
        let account = self.engine.account_of_image(&self.names, &image.id, user).await?;
        let mut accounts = self.accounts();
        if accounts.len() >= 64 {
            accounts.clear();
        }
        accounts.insert(key, account.clone());
        Ok(account)
    }

    fn workdir(&self, image: &Image, account: &Account) -> String {
        let of_image = image.config.working_dir.as_deref().filter(|dir| !dir.is_empty() && *dir != "/");
        let chosen = self.settings.workdir.as_deref().or(of_image);
        chosen.unwrap_or(&account.home).to_owned()
    }

    fn machine(&self, image: &Image, account: &Account) -> MachineEnv {
        let mut machine = MachineEnv::default();
        machine.home.clone_from(&account.home);
        machine.user.clone_from(&account.name);
        machine.path = image.variable("PATH").unwrap_or(DEFAULT_PATH).to_owned();
        machine.tmpdir = "/tmp".to_owned();
        machine.lang = image.variable("LANG").unwrap_or("C.UTF-8").to_owned();
        machine.state_dir = format!("{}/.local/state/devin", account.home.trim_end_matches('/'));
        machine.more.clone_from(&self.settings.machine_env);
        if let Some(path) = image.variable("DEVIN_CHROME_PATH") {
            machine.more.push(("DEVIN_CHROME_PATH".to_owned(), path.to_owned()));
        }
        machine
    }

    fn container(
        &self,
        spec: &StartSpec,
        image: &Image,
        program: &Program,
        user: &str,
        workdir: &str,
    ) -> ContainerCreateBody {
        let settings = &self.settings;
        let sandbox = SandboxLabels {
            id: spec.id.clone(),
            started_at: Timestamp::now(),
            restored_from: spec.restore.clone(),
        };
        let mut labels: crate::names::Labels = settings.labels.iter().cloned().collect();
        labels.extend(self.names.sandbox_labels(&sandbox, &image.digest));
        let mut command: Vec<_> =
            [RUN, workdir, &boot_word(&spec.id), "container", &program.command].map(str::to_owned).to_vec();
        command.extend(spec.worker.arguments());
        ContainerCreateBody {
            image: Some(image.id.clone()),
            entrypoint: Some(vec!["/bin/sh".to_owned(), program::SUPERVISOR_PATH.to_owned()]),
            cmd: Some(command),
            user: Some(user.to_owned()),
            working_dir: Some(workdir.to_owned()),
            labels: Some(labels),
            attach_stdin: Some(true),
            open_stdin: Some(true),
            stdin_once: Some(true),
            tty: Some(false),
            host_config: Some(self.host_config(spec, program)),
            ..ContainerCreateBody::default()
        }
    }

    fn host_config(&self, spec: &StartSpec, program: &Program) -> HostConfig {
        let settings = &self.settings;
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let mut mounts = vec![program::mount(&program.volume)];
        mounts.extend(settings.mounts.iter().map(|mount| Mount {
            target: Some(mount.target.clone()),
            source: Some(mount.source.clone()),
            typ: Some(if mount.source.starts_with('/') { MountType::BIND } else { MountType::VOLUME }),
            read_only: Some(mount.access == Access::Read),
            ..Mount::default()
        }));
        let available = self.engine.cpus.map_or(f64::MAX, |cpus| cpus as f64);
        let memory = settings.memory_bytes.map(bytes);
        HostConfig {
            nano_cpus: settings.cpus.map(|cpus| (cpus.min(available) * 1e9) as i64),
            memory,
            memory_swap: memory,
            pids_limit: settings.pids.map(i64::from),
            shm_size: Some(bytes(settings.shm_bytes)),
            privileged: Some(false),
            cap_drop: (settings.network == Network::Guarded).then(|| vec!["NET_RAW".to_owned()]),
            security_opt: (settings.privileges == Privileges::Fixed)
                .then(|| vec!["no-new-privileges:true".to_owned()]),
            network_mode: Some(self.names.sandbox(&spec.id)),
            dns: guard::name_servers(self, &spec.network_policy),
            restart_policy: Some(RestartPolicy {
                name: Some(RestartPolicyNameEnum::NO),
                maximum_retry_count: None,
            }),
            log_config: Some(HostConfigLogConfig {
                typ: Some("json-file".to_owned()),
                config: Some(
                    [("max-size", settings.log_bytes.to_string()), ("max-file", "2".to_owned())]
                        .map(|(key, value)| (key.to_owned(), value))
                        .into(),
                ),
            }),
            mounts: Some(mounts),
            tmpfs: Some([(RUN.to_owned(), "rw,nosuid,nodev,noexec,size=1m,mode=1777".to_owned())].into()),
            runtime: settings.runtime.clone(),
            ..HostConfig::default()
        }
    }

    async fn attach(&self, container: &str) -> Result<AttachContainerResults, Fault> {
        let options = AttachContainerOptionsBuilder::default().stdin(true).stream(true).build();
        self.engine
            .quick
            .attach_container(container, Some(options))
            .await
            .changing("hold the container's input")
    }

    async fn send(&self, input: AttachContainerResults, environment: &SecretString) -> Result<(), Fault> {
        let AttachContainerResults { output, mut input } = input;
        let sending = async {
            let text = environment.expose_secret().as_bytes();
            let (first, second) = text.split_at(text.len() / 2);
            input.write_all(first).await?;
            input.flush().await?;
            self.reached(Step::EnvironmentCut);
            input.write_all(second).await?;
            input.flush().await?;
            input.shutdown().await
        };
        let within = tokio::time::timeout(self.settings.answer_timeout, sending).await;
        let sent = within.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        drop(output);
        self.reached(Step::EnvironmentSent);
        sent.map_err(|error| {
            let why = format!("hand the worker its environment: {error}");
            Fault::new(ErrorKind::Unavailable, why).may_have_been_applied()
        })
    }
}

/// The lines that the supervisor's child reads before it becomes the worker.
fn environment(worker: &WorkerSpec, machine: &MachineEnv) -> SecretString {
    let lines = worker.environment(machine).to_shell();
    let state_dir = machine.state_dir.replace('\'', r"'\''");
    SecretString::from(format!("{}mkdir -p '{state_dir}'\n#end\n", lines.expose_secret()))
}

/// A word that names the boot to the supervisor.
fn boot_word(id: &SandboxId) -> String {
    format!("boot-{}", id.boot)
}
