//! The one place where addresses are checked and made.

use std::net::IpAddr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::{Host, Url};

/// The prefix of the fleet API.
const FLEET_PREFIX: &str = "/opbeta";

/// Whose hosts a token may go to.
const DEVIN_DOMAINS: [&str; 2] = ["devin.ai", "devinenterprise.com"];

/// Which hosts an address may name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Hosts {
    /// Devin's own over https, and this machine.
    #[default]
    Devin,
    /// Any. Whoever can change the address gets the token.
    Any,
}

/// Why an address is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It is no URL.
    #[error("`{0}` is not a URL: {1}")]
    Syntax(String, String),
    /// It has a part that such an address must not have.
    #[error("the URL must not have {0}")]
    Part(&'static str),
    /// It names no host.
    #[error("the URL must name a host")]
    NoHost,
    /// It is not https, and its host is not this machine.
    #[error("the URL must be https (http is for this machine only)")]
    Scheme,
    /// Its host is not Devin's.
    #[error(
        "the host `{0}` is not Devin's: whoever runs it would get the token. If that is wanted, allow any host explicitly"
    )]
    Host(String),
}

/// An address that was checked: an origin, and perhaps a path without a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    origin: String,
    path: String,
}

impl BaseUrl {
    /// Checks an address to which a token may go.
    ///
    /// # Errors
    /// [`UrlError`], before anything was sent anywhere.
    pub fn parse(text: &str, hosts: Hosts) -> Result<Self, UrlError> {
        // A URL in an error must not show a secret that somebody put into it.
        let shown = || {
            text.split(['?', '#'])
                .next()
                .unwrap_or_default()
                .rsplit('@')
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        let url = Url::parse(text.trim()).map_err(|error| UrlError::Syntax(shown(), error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlError::Part("a user or a password"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(UrlError::Part("a query or a fragment"));
        }
        let host = url.host().ok_or(UrlError::NoHost)?;
        let local = is_this_machine(&host);
        match url.scheme() {
            "https" => {}
            "http" if local || hosts == Hosts::Any => {}
            _ => return Err(UrlError::Scheme),
        }
        if hosts == Hosts::Devin && !local {
            if !is_devins(&host) {
                return Err(UrlError::Host(host.to_string()));
            }
            if url.port().is_some() {
                return Err(UrlError::Part("a port"));
            }
        }
        let path = url.path().trim_end_matches('/').to_owned();
        Ok(Self { origin: url.origin().ascii_serialization(), path })
    }

    /// The same address as the fleet API's base: with its prefix, whether it was given or not.
    #[must_use]
    pub fn into_fleet(mut self) -> Self {
        if !self.path.ends_with(FLEET_PREFIX) {
            self.path.push_str(FLEET_PREFIX);
        }
        self
    }

    /// The address itself.
    pub fn as_url(&self) -> String {
        format!("{}{}", self.origin, self.path)
    }

    /// Scheme, host and port: what the Devin CLI wants.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The address of `segments` below this one, each escaped; `None` when one of them cannot be a segment.
    pub fn join(&self, segments: &[&str]) -> Option<String> {
        let mut url = format!("{}{}", self.origin, self.path);
        for segment in segments {
            url.push('/');
            url.push_str(&escape_segment(segment)?);
        }
        Some(url)
    }
}

fn is_this_machine(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => IpAddr::V6(*address).is_loopback(),
    }
}

fn is_devins(host: &Host<&str>) -> bool {
    let Host::Domain(name) = host else { return false };
    let below =
        |domain: &str| name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    DEVIN_DOMAINS.iter().any(|domain| below(domain)) && !name.contains("..") && !name.starts_with('.')
}

/// Unreserved characters stay as they are.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A text as one segment of a path. `.` and `..` cannot be one: also escaped they name another place.
pub(crate) fn escape_segment(text: &str) -> Option<String> {
    (!matches!(text, "" | "." | "..")).then(|| utf8_percent_encode(text, SEGMENT).to_string())
}

/// `?name=value&…`, escaped.
pub(crate) fn query(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        text.push(if text.is_empty() { '?' } else { '&' });
        text.push_str(name);
        text.push('=');
        text.extend(utf8_percent_encode(value, SEGMENT));
    }
    text
}

impl BaseUrl {
    /// Whether an address that this queue hands out for a worker may be used: encrypted, or this machine's; no user, no
    /// password. A queue that is not encrypted itself, such as a simulator, may name this machine by any of its addresses,
    /// because workers in containers do not reach its loopback.
    pub(crate) fn may_name_gateway(&self, text: &str) -> bool {
        let Ok(url) = Url::parse(text) else { return false };
        let Some(host) = url.host() else { return false };
        let plain = self.origin.starts_with("http://") && !matches!(host, Host::Domain(_));
        let scheme = match url.scheme() {
            "https" | "wss" => true,
            "http" | "ws" => is_this_machine(&host) || plain,
            _ => false,
        };
        scheme && url.username().is_empty() && url.password().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devin(text: &str) -> Result<String, UrlError> {
        BaseUrl::parse(text, Hosts::Devin)
            .map(|base| base.into_fleet().join(&["outposts", "devins"]).unwrap())
    }

    // lesson 11
    #[test]
    fn the_base_works_in_four_spellings() {
        for text in [
            "https://api.devin.ai",
            "https://api.devin.ai/",
            "https://api.devin.ai/opbeta",
            "https://api.devin.ai/opbeta/",
        ] {
            assert_eq!(devin(text).unwrap(), "https://api.devin.ai/opbeta/outposts/devins", "{text}");
        }
        assert_eq!(
            BaseUrl::parse("https://api.devin.ai/opbeta", Hosts::Devin).unwrap().origin(),
            "https://api.devin.ai"
        );
    }

    // lesson 50
    #[test]
    fn a_token_goes_to_devins_hosts_and_this_machine_only() {
        for good in [
            "https://api.devin.ai",
            "https://devin.ai",
            "https://acme.devinenterprise.com/opbeta",
            "http://127.0.0.1:8080",
            "http://localhost:8080/opbeta",
            "http://[::1]:1",
        ] {
            assert!(devin(good).is_ok(), "{good}: {:?}", devin(good));
        }
        for bad in [
            "http://api.devin.ai",
            "https://evil.example",
            "https://api.devin.ai.evil.example",
            "https://evildevin.ai",
            "https://api.devin.ai./opbeta",
            "https://api.devin.ai@evil.example/",
            "https://user:secret@api.devin.ai/",
            "https://api.devin.ai:8443/",
            "https://api.devin.ai/?x=1",
            "https://api.devin.ai/#x",
            "https://169.254.169.254/",
            "https://[::ffff:169.254.169.254]/",
            "http://localhost.evil.example",
            "http://127.0.0.1.evil.example",
            "ftp://api.devin.ai",
            "file:///etc/passwd",
            "api.devin.ai",
            "",
        ] {
            let error = devin(bad).expect_err(bad);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert!(BaseUrl::parse("http://10.0.0.1:9000/x", Hosts::Any).is_ok(), "by an explicit setting");
    }

    #[test]
    fn an_address_without_a_host_says_so() {
        for text in ["file:///etc/passwd", "mailto:people@devin.ai"] {
            assert_eq!(devin(text).unwrap_err().to_string(), "the URL must name a host", "{text}");
        }
    }

    #[test]
    fn a_hostile_id_stays_one_segment() {
        let base = BaseUrl::parse("https://api.devin.ai", Hosts::Devin).unwrap().into_fleet();
        let join = |id| base.join(&["outposts", "devins", id]);
        assert!(join("../x").unwrap().ends_with("/devins/..%2Fx"));
        assert!(join("a/b?c#d%2e").unwrap().ends_with("/devins/a%2Fb%3Fc%23d%252e"));
        assert_eq!(join("."), None);
        assert_eq!(join(".."), None);
    }

    #[test]
    fn a_gateway_is_encrypted_or_local() {
        let queue = |text: &str| BaseUrl::parse(text, Hosts::Devin).unwrap();
        let (real, simulated) = (queue("https://api.devin.ai"), queue("http://127.0.0.1:1"));
        for good in [
            "https://gateway.devin.ai/x",
            "wss://g.example",
            "http://127.0.0.1:1/gateway",
            "ws://localhost:1",
        ] {
            assert!(real.may_name_gateway(good) && simulated.may_name_gateway(good), "{good}");
        }
        for bad in ["", "http://gateway.devin.ai", "https://u:p@g.example", "file:///x", "gateway"] {
            assert!(!real.may_name_gateway(bad) && !simulated.may_name_gateway(bad), "{bad}");
        }
        let plain = "http://192.0.2.7:1/gateway";
        assert!(!real.may_name_gateway(plain) && simulated.may_name_gateway(plain));
    }
}
