//! What a session's network lets through, tried from inside a session on real engines.

mod support;

use std::net::IpAddr;
use std::time::Duration;

use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::query_parameters::{ListContainersOptionsBuilder, RemoveContainerOptionsBuilder};
use futures::StreamExt as _;
use outpost_core::model::{
    AcceptorId, Boot, NetworkPolicy, NetworkRule, OutpostId, SandboxId, SessionId, WorkerCredentials,
    WorkerMode, WorkerSettings, WorkerSpec,
};
use outpost_core::ports::{ErrorKind, SandboxProvider, StartSpec, Started};
use outpost_provider_docker::{DockerProvider, Network};
use support::{Kind, Stage, label_filter};

/// Listens on an address and takes every connection.
async fn listen(address: IpAddr) -> u16 {
    let listener = tokio::net::TcpListener::bind((address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    port
}

/// The address by which one leaves this machine.
fn outside() -> IpAddr {
    // Nothing is sent.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").unwrap();
    socket.local_addr().unwrap().ip()
}

async fn provider(stage: &Stage, network: Network) -> DockerProvider {
    let builder = stage.builder().with(|settings| {
        settings.user = Some("root".to_owned());
        settings.network = network;
    });
    builder.connect().await.unwrap()
}

fn spec(stage: &Stage, id: &SandboxId, policy: NetworkPolicy) -> StartSpec {
    StartSpec {
        id: id.clone(),
        restore: None,
        worker: WorkerSpec {
            mode: WorkerMode::DevinRemote,
            program: stage.script("#!/bin/sh\nexec nc -ll -p 7777 -e /bin/true\n"),
            session: id.session.clone(),
            outpost: OutpostId::new("outpost_env-test").unwrap(),
            acceptor: AcceptorId::new("test").unwrap(),
            credentials: WorkerCredentials::Connect {
                gateway_url: "http://127.0.0.1:9".to_owned(),
                token: "none".to_owned().into(),
            },
            remote_sha: None,
            settings: WorkerSettings::default(),
        },
        network_policy: policy,
    }
}

async fn start(stage: &Stage, provider: &DockerProvider, name: &str, policy: NetworkPolicy) -> SandboxId {
    let id = SandboxId::new(SessionId::new(name).unwrap(), Boot::new(1));
    match provider.start(spec(stage, &id, policy)).await.unwrap() {
        Started::Sandbox(_) => id,
        Started::SnapshotUnusable { why } => panic!("{why}"),
    }
}

/// What a command says inside a session.
async fn inside(stage: &Stage, id: &SandboxId, command: &str) -> String {
    let docker = stage.docker().negotiate_version().await.unwrap();
    let exec = CreateExecOptions {
        user: Some("0"),
        cmd: Some(vec!["/bin/sh", "-c", command]),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        ..CreateExecOptions::default()
    };
    let exec = docker.create_exec(&id.name(&stage.instance), exec).await.unwrap();
    let mut said = String::new();
    if let StartExecResults::Attached { mut output, .. } = docker.start_exec(&exec.id, None).await.unwrap() {
        while let Some(Ok(part)) = output.next().await {
            said.push_str(&part.to_string());
        }
    }
    said
}

/// Whether a session can connect.
async fn reaches(stage: &Stage, id: &SandboxId, address: IpAddr, port: u16) -> bool {
    let said = inside(stage, id, &format!("nc -w 2 {address} {port} </dev/null && echo yes")).await;
    said.contains("yes")
}

async fn address_of(stage: &Stage, id: &SandboxId) -> (IpAddr, IpAddr) {
    let docker = stage.docker().negotiate_version().await.unwrap();
    let seen = docker.inspect_container(&id.name(&stage.instance), None).await.unwrap();
    let networks = seen.network_settings.unwrap().networks.unwrap();
    let network = networks.into_values().next().unwrap();
    (network.ip_address.unwrap().parse().unwrap(), network.gateway.unwrap().parse().unwrap())
}

/// Whether this machine can connect to a session's listener.
async fn is_reached(address: IpAddr) -> bool {
    let connecting = tokio::net::TcpStream::connect((address, 7777));
    matches!(tokio::time::timeout(Duration::from_secs(2), connecting).await, Ok(Ok(_)))
}

async fn nothing_comes_in_and_the_host_stays_out_of_reach(kind: Kind) {
    for network in [Network::Unguarded, Network::Guarded] {
        let open = network == Network::Unguarded;
        let stage = Stage::new(kind);
        let provider = provider(&stage, network.clone()).await;
        let id = start(&stage, &provider, "devin-a", NetworkPolicy::Unrestricted).await;
        let (address, gateway) = address_of(&stage, &id).await;
        let out = outside();
        let port = listen(out).await;
        assert!(reaches(&stage, &id, out, port).await, "outbound is allowed, {network:?}");
        let port = listen(gateway).await;
        assert_eq!(reaches(&stage, &id, gateway, port).await, open, "the host's gateway, {network:?}");
        let own = IpAddr::from([127, 0, 0, 1]);
        let mut listens = false;
        for _ in 0..100 {
            listens = reaches(&stage, &id, own, 7777).await;
            if listens {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(listens, "the session's worker listens, {network:?}");
        let reached = is_reached(address).await;
        assert_eq!(reached, open, "from the host into the session, {network:?}");
        let said = inside(
            &stage,
            &id,
            "ls /var/run/docker.sock /run/podman/podman.sock; grep CapEff /proc/self/status",
        )
        .await;
        let bits = said.split("CapEff:").nth(1).and_then(|it| it.split_whitespace().next()).unwrap();
        let bits = u64::from_str_radix(bits, 16).unwrap();
        // 12 is NET_ADMIN, 13 is NET_RAW (capabilities(7)).
        let forbidden = if open { 1 << 12 } else { 1 << 12 | 1 << 13 };
        assert_eq!(bits & forbidden, 0, "NET_ADMIN or NET_RAW, {network:?}: {said}");
        assert_eq!(said.matches("No such file").count(), 2, "an engine's socket: {said}");
    }
}

#[tokio::test]
async fn nothing_comes_into_a_session_on_docker_and_it_does_not_reach_its_host() {
    nothing_comes_in_and_the_host_stays_out_of_reach(Kind::Docker).await;
}

#[tokio::test]
async fn nothing_comes_into_a_session_on_podman_and_it_does_not_reach_its_host() {
    nothing_comes_in_and_the_host_stays_out_of_reach(Kind::Podman).await;
}

#[tokio::test]
async fn an_allowed_network_is_reached_and_no_other_address_is() {
    let stage = Stage::new(Kind::Docker);
    let provider = provider(&stage, Network::Guarded).await;
    let out = outside();
    let port = listen(out).await;
    let rule = NetworkRule::Ipv4(format!("{out}/32"));
    let allowed = start(&stage, &provider, "devin-a", NetworkPolicy::Allow(vec![rule])).await;
    let rule = NetworkRule::Ipv4("198.51.100.0/24".to_owned());
    let other = start(&stage, &provider, "devin-b", NetworkPolicy::Allow(vec![rule])).await;
    assert!(reaches(&stage, &allowed, out, port).await);
    assert!(!reaches(&stage, &other, out, port).await);
}

#[tokio::test]
async fn an_exact_name_lets_nothing_below_it_be_answered_and_a_wildcard_only_what_is_below() {
    let stage = Stage::new(Kind::Docker);
    let upstream = upstream(outside()).await;
    let builder = stage.builder().with(|settings| {
        settings.user = Some("root".to_owned());
        settings.dns = vec![upstream];
    });
    let provider = builder.connect().await.unwrap();
    let rules = ["one.test", "*.wild.test"].map(|name| NetworkRule::Hostname(name.to_owned()));
    let id = start(&stage, &provider, "devin-a", NetworkPolicy::Allow(rules.to_vec())).await;
    for (name, answered) in [
        ("one.test", true),
        ("sub.one.test", false),
        ("notone.test", false),
        ("two.test", false),
        ("wild.test", false),
        ("x.wild.test", true),
        ("y.x.wild.test", true),
    ] {
        let said = inside(&stage, &id, &format!("nslookup -type=a {name} 127.0.0.1")).await;
        assert_eq!(said.contains("203.0.113.9"), answered, "{name}: {said}");
        let said = inside(&stage, &id, &format!("timeout 2 nslookup -type=a {name} {upstream}")).await;
        assert!(!said.contains("203.0.113.9"), "{name}, asked upstream directly: {said}");
    }
}

/// A server for names that answers every question with 203.0.113.9.
async fn upstream(address: IpAddr) -> IpAddr {
    let socket = tokio::net::UdpSocket::bind((address, 53)).await.unwrap();
    tokio::spawn(async move {
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet).await {
            let question = packet[12..length].iter().position(|byte| *byte == 0).map(|end| 12 + end + 5);
            let Some(end) = question.filter(|end| *end <= length) else { continue };
            // The same id; one question, one answer (RFC 1035, 4.1.1).
            let mut answer = packet[..2].to_vec();
            answer.extend([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
            answer.extend(&packet[12..end]);
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 203, 0, 113, 9]);
            let _ = socket.send_to(&answer, from).await;
        }
    });
    address
}

#[tokio::test]
async fn names_are_not_answered_and_addresses_stay_closed_when_the_guard_is_killed() {
    let stage = Stage::new(Kind::Docker);
    let provider = provider(&stage, Network::Guarded).await;
    let out = outside();
    let port = listen(out).await;
    let rule = NetworkRule::Hostname("one.test".to_owned());
    let id = start(&stage, &provider, "devin-a", NetworkPolicy::Allow(vec![rule])).await;
    // Whom nobody has allowed is answered too, as long as somebody answers.
    let ask = "timeout 3 nslookup -type=a two.test 127.0.0.1 2>&1";
    assert!(inside(&stage, &id, ask).await.contains("NXDOMAIN"));
    let docker = stage.docker().negotiate_version().await.unwrap();
    let mut filters = label_filter(&stage.instance);
    filters.get_mut("label").unwrap().push("dev.outpost.role=guard".to_owned());
    let options = ListContainersOptionsBuilder::default().filters(&filters).build();
    let guards = docker.list_containers(Some(options)).await.unwrap();
    assert_eq!(guards.len(), 1);
    let options = RemoveContainerOptionsBuilder::default().force(true).build();
    docker.remove_container(guards[0].id.as_ref().unwrap(), Some(options)).await.unwrap();
    assert!(!inside(&stage, &id, ask).await.contains("NXDOMAIN"));
    assert!(!reaches(&stage, &id, out, port).await);
}

#[tokio::test]
async fn podman_refuses_a_session_with_a_network_policy() {
    let stage = Stage::new(Kind::Podman);
    let provider = provider(&stage, Network::Guarded).await;
    let id = SandboxId::new(SessionId::new("devin-a").unwrap(), Boot::new(1));
    let refused = provider.start(spec(&stage, &id, NetworkPolicy::Allow(vec![]))).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
}
