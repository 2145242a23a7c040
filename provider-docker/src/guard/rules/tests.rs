use outpost_core::model::{AcceptorId, OutpostId, SessionId, WorkerProgram, WorkerSettings};
use secrecy::SecretString;

use super::*;

fn worker(mode: WorkerMode, gateway: &str) -> WorkerSpec {
    WorkerSpec {
        mode,
        program: WorkerProgram::Installed { path: "devin".into() },
        session: SessionId::new("devin-1").unwrap(),
        outpost: OutpostId::new("outpost_env-1").unwrap(),
        acceptor: AcceptorId::new("desk-1").unwrap(),
        credentials: WorkerCredentials::Connect {
            gateway_url: gateway.into(),
            token: SecretString::from("sentinel-token".to_owned()),
        },
        remote_sha: None,
        settings: WorkerSettings::default(),
    }
}

fn around() -> Surroundings {
    Surroundings {
        gateways: vec!["172.18.0.1".parse().unwrap()],
        deny: vec![Cidr::parse("10.9.0.0/16").unwrap()],
        dns: vec!["10.0.0.53".parse().unwrap()],
        open_dns: vec![],
    }
}

fn allow(rules: Vec<NetworkRule>) -> Rules {
    let worker = worker(WorkerMode::DevinRemote, "https://gateway.example/x");
    Rules::new(&worker, &NetworkPolicy::Allow(rules), &around())
}

#[test]
fn a_network_is_read_strictly() {
    for (text, read) in [
        ("10.1.2.3/8", Some("10.0.0.0/8")),
        ("1.2.3.4", Some("1.2.3.4/32")),
        ("0.0.0.0/0", Some("0.0.0.0/0")),
        ("fd00::1/8", Some("fd00::/8")),
        ("::/0", Some("::/0")),
        ("10.0.0.0/33", None),
        ("10.0.0.0/+8", None),
        ("10.0.0.0/8; flush ruleset", None),
        ("10.0.0/8", None),
        ("", None),
    ] {
        assert_eq!(Cidr::parse(text).map(|cidr| cidr.to_string()).as_deref(), read, "{text:?}");
    }
}

#[test]
fn a_hostile_name_allows_nothing_and_stands_in_no_script() {
    let hostile = [
        "a b",
        "a/b",
        "a#b",
        "a\n}",
        "",
        "*",
        "*.",
        "a..b",
        "-a.b",
        "a.*.b",
        "é.example",
        "1.2.3.4",
        "a\"",
        "$(x)",
    ];
    let rules = allow(hostile.iter().map(|name| NetworkRule::Hostname((*name).to_owned())).collect());
    assert_eq!(rules.not_understood.len(), hostile.len());
    assert_eq!(rules, Rules { not_understood: rules.not_understood.clone(), ..allow(vec![]) });
}

#[test]
fn what_this_version_does_not_know_allows_nothing_and_is_told() {
    let rules = allow(vec![
        NetworkRule::Unknown("asn 64512".to_owned()),
        NetworkRule::Ipv4("fd00::/8".to_owned()),
        NetworkRule::Ipv6("10.0.0.0/8".to_owned()),
    ]);
    assert_eq!(rules.not_understood.len(), 3);
    assert_eq!(rules.nftables, allow(vec![]).nftables);
}

#[test]
fn the_worker_reaches_its_gateway_whatever_the_policy() {
    let policy = NetworkPolicy::Allow(vec![]);
    let named = Rules::new(&worker(WorkerMode::DevinRemote, "https://gw.example/x"), &policy, &around());
    let arguments = named.dnsmasq.unwrap();
    for name in ["gw.example", "api.devin.ai", "static.devin.ai"] {
        assert!(arguments.contains(&format!("--server=/{name}/10.0.0.53")), "{arguments:?}");
    }
    let literal =
        Rules::new(&worker(WorkerMode::DevinRemote, "http://172.18.0.1:8080/x"), &policy, &around());
    let accepted = literal.nftables.find("ip daddr 172.18.0.1 tcp dport 8080 accept").unwrap();
    assert!(accepted < literal.nftables.find("@denied4 reject").unwrap(), "before the host is denied");
}

#[test]
fn the_cli_reaches_all_of_devin() {
    let policy = NetworkPolicy::Allow(vec![]);
    for (mode, reaches) in
        [(WorkerMode::DevinRemote, false), (WorkerMode::Cli, true), (WorkerMode::CliDirect, true)]
    {
        let arguments = Rules::new(&worker(mode, "https://gw.example"), &policy, &around()).dnsmasq.unwrap();
        assert_eq!(arguments.contains(&"--server=/*.devin.ai/10.0.0.53".to_owned()), reaches, "{mode:?}");
    }
}

#[test]
fn no_script_holds_a_secret() {
    let rules = allow(vec![NetworkRule::Hostname("a.example".to_owned())]);
    assert!(!format!("{rules:?}").contains("sentinel"));
}

// lesson 58
#[test]
fn the_real_nft_takes_every_script() {
    if std::process::Command::new("nft").arg("--version").output().is_err() {
        println!("skipped: nft is not here; the tests of guards run it in a container");
        return;
    }
    let everything = NetworkPolicy::Allow(vec![
        NetworkRule::Ipv4("10.0.0.0/8".to_owned()),
        NetworkRule::Ipv4("10.0.0.0/9".to_owned()),
        NetworkRule::Ipv6("fd00::/8".to_owned()),
        NetworkRule::Hostname("*.example.com".to_owned()),
    ]);
    for policy in [NetworkPolicy::Unrestricted, NetworkPolicy::Allow(vec![]), everything] {
        for gateway in ["https://gw.example", "http://1.2.3.4:5", "http://[fd00::7]:9"] {
            let rules = Rules::new(&worker(WorkerMode::DevinRemote, gateway), &policy, &around());
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &rules.nftables).unwrap();
            let checked =
                std::process::Command::new("nft").arg("-c").arg("-f").arg(file.path()).output().unwrap();
            let said = String::from_utf8_lossy(&checked.stderr);
            if said.contains("Operation not permitted") {
                println!("skipped: nft needs root to check");
                return;
            }
            assert!(checked.status.success(), "{said}\n{}", rules.nftables);
        }
    }
}
