//! What a session may reach, as a script for nftables and arguments for dnsmasq.
//!
//! Everything here comes out of a queue: a text becomes an address, a network or a host name, or it allows nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

use outpost_core::model::{NetworkPolicy, NetworkRule, WorkerCredentials, WorkerMode, WorkerSpec};
use url::{Host, Url};

/// The port from which dnsmasq asks, and from which it alone can: it holds it, and the session cannot make packets of its
/// own.
const ASKING_PORT: u16 = 5300;

/// Where clouds tell machines their credentials, and what is only ever on this machine's own link.
const METADATA: [&str; 4] = ["169.254.0.0/16", "100.100.100.200/32", "fe80::/10", "fd00:ec2::254/128"];

/// Where Devin is unless a setting says otherwise (Devin's documentation).
const DEVIN_API: &str = "https://api.devin.ai";
const DEVIN_STATIC: &str = "https://static.devin.ai";
const DEVIN_DOMAIN: &str = "devin.ai";

/// A network, as `address/length`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cidr {
    address: IpAddr,
    length: u8,
}

impl Cidr {
    /// Reads a network in CIDR notation, or an address.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => longest,
            Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok()?,
            Some(_) => return None,
        };
        (length <= longest).then(|| Self { address: masked(address, length), length })
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    }
}

/// A host name that a policy allows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    domain: String,
    /// Whether it stands for what is below the domain, and not for the domain itself.
    below: bool,
}

impl Name {
    /// Reads a host name by RFC 1123, perhaps with a leading `*.`.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim_end_matches('.').to_ascii_lowercase();
        let (domain, below) = match text.strip_prefix("*.") {
            Some(domain) => (domain.to_owned(), true),
            None => (text, false),
        };
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        let is_name = domain.len() <= 253
            && domain.split('.').all(label)
            && !domain.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        is_name.then_some(Self { domain, below })
    }
}

/// What is true of a session's network, whatever its policy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Surroundings {
    /// The engine's host, as the session sees it.
    pub(crate) gateways: Vec<IpAddr>,
    /// Networks that no session reaches.
    pub(crate) deny: Vec<Cidr>,
    /// The servers that answer names.
    pub(crate) dns: Vec<IpAddr>,
    /// Servers for names on the engine's host that sessions ask themselves.
    pub(crate) open_dns: Vec<IpAddr>,
}

/// How a session is confined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    /// For `nft -f -`.
    pub(crate) nftables: String,
    /// dnsmasq's arguments; `None` = names are not restricted.
    pub(crate) dnsmasq: Option<Vec<String>>,
    /// What of the policy allows nothing because it cannot be understood, for people.
    pub(crate) not_understood: Vec<String>,
}

#[derive(Debug, Default)]
struct Allowed {
    networks: BTreeSet<Cidr>,
    names: BTreeSet<Name>,
    /// Address and port.
    services: BTreeSet<(IpAddr, u16)>,
}

impl Rules {
    pub(crate) fn new(worker: &WorkerSpec, policy: &NetworkPolicy, around: &Surroundings) -> Self {
        let mut allowed = Allowed::default();
        let mut not_understood = Vec::new();
        for url in needed(worker) {
            allowed.add_url(&url);
        }
        if worker.mode != WorkerMode::DevinRemote {
            allowed.names.insert(Name { domain: DEVIN_DOMAIN.to_owned(), below: true });
        }
        let restricted = match policy {
            NetworkPolicy::Unrestricted => false,
            NetworkPolicy::Allow(rules) => {
                for rule in rules {
                    if !allowed.add(rule) {
                        not_understood.push(format!("{rule:?}").chars().take(200).collect());
                    }
                }
                true
            }
        };
        Self {
            nftables: nftables(&allowed, around, restricted),
            dnsmasq: restricted.then(|| dnsmasq(&allowed.names, &around.dns)),
            not_understood,
        }
    }
}

/// The addresses that a worker cannot do without.
fn needed(worker: &WorkerSpec) -> Vec<String> {
    let settings = &worker.settings;
    let mut urls = vec![
        settings.api_origin.clone().unwrap_or_else(|| DEVIN_API.to_owned()),
        settings.static_base_url.clone().unwrap_or_else(|| DEVIN_STATIC.to_owned()),
    ];
    if let WorkerCredentials::Connect { gateway_url, .. } = &worker.credentials {
        urls.push(gateway_url.clone());
    }
    urls
}

impl Allowed {
    fn add(&mut self, rule: &NetworkRule) -> bool {
        let network = |text: &str, v4: bool| Cidr::parse(text).filter(|cidr| cidr.address.is_ipv4() == v4);
        match rule {
            NetworkRule::Hostname(text) => Name::parse(text).map(|name| self.names.insert(name)).is_some(),
            NetworkRule::Ipv4(text) => network(text, true).map(|cidr| self.networks.insert(cidr)).is_some(),
            NetworkRule::Ipv6(text) => network(text, false).map(|cidr| self.networks.insert(cidr)).is_some(),
            NetworkRule::Unknown(_) => false,
        }
    }

    fn add_url(&mut self, text: &str) {
        let Ok(url) = Url::parse(text) else { return };
        let port = url.port_or_known_default().unwrap_or(443);
        match url.host() {
            Some(Host::Ipv4(address)) => drop(self.services.insert((address.into(), port))),
            Some(Host::Ipv6(address)) => drop(self.services.insert((address.into(), port))),
            Some(Host::Domain(name)) => self.names.extend(Name::parse(name)),
            None => {}
        }
    }
}

fn nftables(allowed: &Allowed, around: &Surroundings, restricted: bool) -> String {
    let mut denied: BTreeSet<Cidr> = METADATA.iter().filter_map(|text| Cidr::parse(text)).collect();
    denied.extend(&around.deny);
    denied.extend(around.gateways.iter().filter_map(|address| Cidr::parse(&address.to_string())));
    let mut script = String::from("table inet outpost\ndelete table inet outpost\ntable inet outpost {\n");
    for (version, kind) in [(4, "ipv4_addr"), (6, "ipv6_addr")] {
        set(&mut script, &format!("denied{version}"), kind, &denied, version == 4);
        set(&mut script, &format!("allowed{version}"), kind, &allowed.networks, version == 4);
        // dnsmasq adds what names stand for. An address stays: programs remember answers for longer than they are good.
        let _ = writeln!(script, "  set named{version} {{ type {kind}; size 65536; }}");
    }
    script.push_str(
        "  chain inbound {\n    type filter hook input priority 0; policy drop;\n    iifname \"lo\" accept\n    \
         ct state established,related accept\n    \
         icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-advert } accept\n  }\n  \
         chain through {\n    type filter hook forward priority 0; policy drop;\n  }\n  \
         chain outbound {\n    type filter hook output priority 0; policy drop;\n    oifname \"lo\" accept\n    \
         icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit } accept\n    \
         ct state established,related accept\n",
    );
    for (address, port) in &allowed.services {
        let _ = writeln!(script, "    {} daddr {address} tcp dport {port} accept", family(*address));
    }
    if restricted {
        for address in &around.dns {
            let ip = family(*address);
            let _ = writeln!(script, "    {ip} daddr {address} udp sport {ASKING_PORT} udp dport 53 accept");
        }
    } else {
        for address in around.open_dns.iter().chain(&around.dns) {
            let ip = family(*address);
            let _ =
                writeln!(script, "    {ip} daddr {address} meta l4proto {{ tcp, udp }} th dport 53 accept");
        }
    }
    script.push_str("    ip daddr @denied4 reject\n    ip6 daddr @denied6 reject\n");
    if restricted {
        script.push_str(
            "    ip daddr @allowed4 accept\n    ip6 daddr @allowed6 accept\n    ip daddr @named4 accept\n    \
             ip6 daddr @named6 accept\n    meta l4proto tcp reject with tcp reset\n    reject\n  }\n}\n",
        );
    } else {
        script.push_str("    accept\n  }\n}\n");
    }
    script
}

const fn family(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "ip",
        IpAddr::V6(_) => "ip6",
    }
}

fn set(script: &mut String, name: &str, kind: &str, networks: &BTreeSet<Cidr>, v4: bool) {
    let _ = write!(script, "  set {name} {{ type {kind}; flags interval; auto-merge;");
    let elements: Vec<_> =
        networks.iter().filter(|cidr| cidr.address.is_ipv4() == v4).map(Cidr::to_string).collect();
    if !elements.is_empty() {
        let _ = write!(script, " elements = {{ {} }};", elements.join(", "));
    }
    script.push_str(" }\n");
}

/// dnsmasq answers the allowed names and no others, and puts what they stand for into the sets.
fn dnsmasq(names: &BTreeSet<Name>, dns: &[IpAddr]) -> Vec<String> {
    let mut arguments: Vec<String> = [
        "--conf-file=/dev/null",
        "--no-resolv",
        "--no-hosts",
        "--no-poll",
        "--listen-address=127.0.0.1",
        "--bind-interfaces",
        "--port=53",
        // Every answer puts its addresses into the sets.
        "--cache-size=0",
        "--user=root",
        "--group=root",
        "--pid-file",
        "--log-facility=-",
        // Also what nobody has allowed is answered: that it does not exist.
        "--address=/#/",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.push(format!("--query-port={ASKING_PORT}"));
    for Name { domain, below } in names {
        let pattern = if *below { format!("*.{domain}") } else { domain.clone() };
        for server in dns {
            arguments.push(format!("--server=/{pattern}/{server}"));
        }
        arguments.push(format!("--nftset=/{domain}/4#inet#outpost#named4,6#inet#outpost#named6"));
        // Without this a name would stand for everything below it, too.
        let everything_below = Name { domain: domain.clone(), below: true };
        if !below && !names.contains(&everything_below) {
            arguments.push(format!("--address=/*.{domain}/"));
        }
    }
    arguments
}

#[cfg(test)]
mod tests;
