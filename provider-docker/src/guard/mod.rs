//! The guard: confines a session's network to what it may reach.
//!
//! A guard is a container that joins the network namespace of the session's container, with the right to change that
//! namespace's rules (`NET_ADMIN`), which the session does not have. It loads them while the supervisor still waits for the
//! worker's environment, so no worker ever runs without them; and they stay for as long as the session's container lives.
//!
//! # What it stops
//!
//! * Always: connections into the session, from other sessions and from anywhere else; the engine's host, as the session
//!   sees it; cloud metadata addresses; networks that a setting denies.
//! * With a network policy: everything that the policy does not allow, by any protocol and on any port. Only the allowed
//!   names are answered, by a dnsmasq in the guard, which puts their addresses into the rules; so a question to another name
//!   server, or for another name, carries nothing out. What the worker itself needs is always allowed: Devin's API, its
//!   downloads, the claimed gateway. When the guard dies the rules stay, and names are not answered any more.
//!
//! # What it does not stop
//!
//! * An allowed address stays allowed while the sandbox lives, and with it everything else that is served there: many names
//!   share the addresses of large providers.
//! * What an allowed destination passes on: a policy that allows a proxy allows what the proxy allows.
//! * Without a policy: addresses of the engine's host other than the one on the session's network. Deny them in a setting.

mod image;
mod rules;

use std::net::IpAddr;

use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{AttachContainerOptionsBuilder, CreateContainerOptionsBuilder};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use outpost_core::model::NetworkPolicy;
use outpost_core::ports::{ErrorKind, StartSpec};
use outpost_provider_kit::Fault;
use tokio::io::AsyncWriteExt as _;

use crate::engine::EngineKind;
use crate::fault::{Asking as _, one_line};
use crate::names::{Labels, Role};
use crate::provider::Inner;
use crate::settings::{BuildError, Network, Settings};
use rules::{Cidr, Rules, Surroundings};

const MEMORY_BYTES: i64 = 64 << 20;
const READY: &str = "outpost: confined";
/// Loads the rules from its input; with arguments becomes a server for names.
const SCRIPT: &str = r#"
nft -f - || exit 1
[ "$#" -eq 0 ] || dnsmasq "$@" || exit 1
echo "outpost: confined"
[ "$#" -eq 0 ] || exec sleep 2147483647
"#;

/// What guards are made from.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The image's id.
    image: String,
    /// The servers that answer names.
    dns: Vec<IpAddr>,
}

/// Finds settings that make no sense.
pub(crate) fn check(settings: &Settings) -> Result<(), BuildError> {
    match settings.deny.iter().find(|text| Cidr::parse(text).is_none()) {
        Some(text) => {
            let why = format!("{text:?} is not a network in CIDR notation, such as 10.0.0.0/8");
            Err(BuildError::Setting { setting: "deny", why })
        }
        None => Ok(()),
    }
}

/// The servers that a sandbox is told to ask for names; `None` = the engine's own way.
pub(crate) fn name_servers(inner: &Inner, policy: &NetworkPolicy) -> Option<Vec<String>> {
    let restricted = matches!(policy, NetworkPolicy::Allow(_)) && inner.enforces_policies();
    match (restricted, inner.settings.dns.as_slice()) {
        (true, _) => Some(vec!["127.0.0.1".to_owned()]),
        (false, []) => None,
        (false, servers) => Some(servers.iter().map(ToString::to_string).collect()),
    }
}

/// Confines the running container of a session. It answers when the rules are in force.
pub(crate) async fn confine(inner: &Inner, spec: &StartSpec) -> Result<(), Fault> {
    let prepared = inner
        .prepare_guard()
        .await?
        .ok_or_else(|| Fault::new(ErrorKind::Unexpected, "the guard was not prepared"))?;
    let name = inner.names.sandbox(&spec.id);
    let gateways = inner.engine.gateways(&name).await?;
    let around = Surroundings {
        // Podman's servers for names are on the network's gateway.
        open_dns: if inner.engine.kind == EngineKind::Podman { gateways.clone() } else { vec![] },
        gateways,
        deny: inner.settings.deny.iter().filter_map(|text| Cidr::parse(text)).collect(),
        dns: prepared.dns.clone(),
    };
    let unrestricted = NetworkPolicy::Unrestricted;
    // One that cannot be enforced came this far only because a setting allows it.
    let policy = if inner.enforces_policies() { &spec.network_policy } else { &unrestricted };
    let rules = Rules::new(&spec.worker, policy, &around);
    for rule in &rules.not_understood {
        tracing::warn!(session = %spec.id.session, "a rule of the network policy is not understood and allows nothing: {rule}");
    }
    let guard = Guard {
        name: inner.names.guard(&spec.id),
        image: &prepared.image,
        network: format!("container:{name}"),
        labels: inner.names.labels_of(Role::Guard, &spec.id),
        stays: rules.dnsmasq.is_some(),
    };
    let mut command = vec!["/bin/sh".to_owned(), "-c".to_owned(), SCRIPT.to_owned(), "guard".to_owned()];
    command.extend(rules.dnsmasq.unwrap_or_default());
    let said = guard.run(inner, command, rules.nftables.as_bytes()).await?;
    if said.lines().any(|line| line == READY) {
        return Ok(());
    }
    let said = one_line(&said);
    Err(Fault::new(ErrorKind::Unexpected, format!("the session's network could not be confined: {said}")))
}

struct Guard<'a> {
    name: String,
    image: &'a str,
    network: String,
    labels: Labels,
    stays: bool,
}

impl Guard<'_> {
    /// Runs it, and answers what it has said when it is ready or has ended.
    async fn run(self, inner: &Inner, command: Vec<String>, input: &[u8]) -> Result<String, Fault> {
        let docker = &inner.engine.quick;
        inner.engine.discard(&self.name).await?;
        let body = ContainerCreateBody {
            image: Some(self.image.to_owned()),
            entrypoint: Some(command),
            user: Some("0".to_owned()),
            labels: Some(self.labels),
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            open_stdin: Some(true),
            stdin_once: Some(true),
            host_config: Some(HostConfig {
                network_mode: Some(self.network),
                cap_drop: Some(vec!["ALL".to_owned()]),
                cap_add: Some(
                    ["NET_ADMIN", "NET_BIND_SERVICE", "SETGID", "SETPCAP", "SETUID"]
                        .map(str::to_owned)
                        .to_vec(),
                ),
                security_opt: Some(vec!["no-new-privileges:true".to_owned()]),
                readonly_rootfs: Some(true),
                memory: Some(MEMORY_BYTES),
                memory_swap: Some(MEMORY_BYTES),
                pids_limit: Some(32),
                auto_remove: Some(!self.stays),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptionsBuilder::default().name(&self.name).build();
        docker.create_container(Some(options), body).await.changing("make the guard")?;
        let options = AttachContainerOptionsBuilder::default()
            .stdin(true)
            .stdout(true)
            .stderr(true)
            .stream(true)
            .build();
        let attached = docker.attach_container(&self.name, Some(options)).await;
        let mut attached = attached.changing("hold the guard's input")?;
        docker.start_container(&self.name, None).await.changing("start the guard")?;
        let talking = async {
            attached.input.write_all(input).await?;
            attached.input.shutdown().await?;
            Ok::<_, std::io::Error>(read_until_ready(attached.output).await)
        };
        match tokio::time::timeout(inner.settings.answer_timeout, talking).await {
            Ok(Ok(said)) => Ok(said),
            Ok(Err(error)) => {
                Err(Fault::new(ErrorKind::Unavailable, format!("hand the guard its rules: {error}")))
            }
            Err(_) => Err(Fault::new(ErrorKind::Unavailable, "the guard does not get ready")),
        }
    }
}

async fn read_until_ready(
    output: impl Stream<Item = Result<bollard::container::LogOutput, bollard::errors::Error>>,
) -> String {
    let mut said = String::new();
    let mut output = std::pin::pin!(output);
    while let Some(Ok(part)) = output.next().await {
        said.push_str(&part.to_string());
        if said.lines().any(|line| line == READY) || said.len() > 64 << 10 {
            break;
        }
    }
    said
}

impl Inner {
    /// Has what guards are made from; `None` where sandboxes have none.
    pub(crate) async fn prepare_guard(&self) -> Result<Option<&Prepared>, Fault> {
        if self.settings.network != Network::Guarded {
            return Ok(None);
        }
        let prepared = self.guard.get_or_try_init(|| async {
            let image = image::have(self).await?;
            let dns = match self.settings.dns.as_slice() {
                [] if self.engine.kind == EngineKind::Docker => self.engines_dns(&image).await?,
                given => given.to_vec(),
            };
            Ok::<_, Fault>(Prepared { image, dns })
        });
        prepared.await.map(Some)
    }

    /// The servers that the engine gives containers on its default network, where it puts none of its own before them.
    async fn engines_dns(&self, image: &str) -> Result<Vec<IpAddr>, Fault> {
        let guard = Guard {
            name: format!("outpost-{}-dns", self.names.instance()),
            image,
            network: "bridge".to_owned(),
            labels: self.names.labels(Role::Helper),
            stays: false,
        };
        let command = ["/bin/cat", "/etc/resolv.conf"].map(str::to_owned).to_vec();
        let said = guard.run(self, command, b"").await?;
        Ok(said
            .lines()
            .filter_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok())
            .collect())
    }
}

async fn collect<T>(
    stream: impl Stream<Item = Result<T, bollard::errors::Error>>,
    what: &str,
) -> Result<Vec<T>, Fault> {
    stream.try_collect().await.changing(what)
}
