//! From the wire to the model, row by row.
//!
//! Any enum can gain a value and any optional field can be absent or odd; a row is skipped only when it does not say whose it
//! is.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use outpost_core::model::{
    AcceptorId, Claim, NetworkPolicy, NetworkRule, OutpostId, Phase, Platform, Session, SessionId,
    SessionKind, SessionStatus,
};
use serde_json::Value;

/// A value that is no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoTime;

/// The row, if it says which session and which outpost it is about.
pub(crate) fn session(row: &Value) -> Option<Session> {
    let (metadata, spec, status) = (&row["metadata"], &row["spec"], &row["status"]);
    let id = SessionId::new(metadata["session_id"].as_str()?).ok()?;
    let outpost = metadata["outpost_id"].as_str().or_else(|| metadata["pool_id"].as_str())?;
    let outpost = OutpostId::new(outpost).ok()?;
    Some(Session {
        id,
        outpost,
        status: session_status(&status["session_status"]),
        phase: phase(&status["phase"]),
        claim: claim(status),
        kind: kind(&spec["kind"]),
        platform: platform(&spec["platform"]),
        network_policy: network_policy(&spec["network_policy"]),
        remote_binary_sha: text(&spec["remote_binary_sha"]),
        created_at: time(&metadata["created_at"]).ok().flatten(),
        updated_at: time(&metadata["updated_at"]).ok().flatten(),
    })
}

/// The id of a row's session, whatever else the row holds.
pub(crate) fn session_id(row: &Value) -> Option<SessionId> {
    SessionId::new(row["metadata"]["session_id"].as_str()?).ok()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// What stood there, for the log: short, and without what a terminal would obey.
fn odd(value: &Value) -> String {
    let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    shown.chars().filter(|c| !c.is_control()).take(64).collect()
}

fn session_status(value: &Value) -> SessionStatus {
    match value.as_str() {
        Some("pending") => SessionStatus::Pending,
        Some("running") => SessionStatus::Running,
        Some("suspended") => SessionStatus::Suspended,
        Some("terminated") => SessionStatus::Terminated,
        _ => SessionStatus::Unknown(odd(value)),
    }
}

fn phase(value: &Value) -> Phase {
    match value.as_str() {
        Some("pending") => Phase::Pending,
        Some("claimed") => Phase::Claimed,
        _ => Phase::Unknown(odd(value)),
    }
}

fn kind(value: &Value) -> SessionKind {
    match value.as_str() {
        Some("new") => SessionKind::New,
        Some("resume") => SessionKind::Resume,
        _ if value.is_null() => SessionKind::Unknown(String::new()),
        _ => SessionKind::Unknown(odd(value)),
    }
}

fn platform(value: &Value) -> Option<Platform> {
    match value.as_str() {
        Some("linux") => Some(Platform::Linux),
        Some("macos") => Some(Platform::Macos),
        Some("windows") => Some(Platform::Windows),
        _ if value.is_null() => None,
        _ => Some(Platform::Unknown(odd(value))),
    }
}

/// Absent or `enabled: false` is unrestricted. Whatever cannot be understood restricts.
fn network_policy(value: &Value) -> NetworkPolicy {
    if value.is_null() || value["enabled"] == Value::Bool(false) {
        return NetworkPolicy::Unrestricted;
    }
    let rules = value["allow"].as_array().map(Vec::as_slice).unwrap_or_default();
    NetworkPolicy::Allow(rules.iter().map(network_rule).collect())
}

fn network_rule(value: &Value) -> NetworkRule {
    let single = value.as_object().filter(|rule| rule.len() == 1).and_then(|rule| rule.iter().next());
    match single.and_then(|(name, value)| Some((name.as_str(), value.as_str()?.to_owned()))) {
        Some(("hostname", name)) => NetworkRule::Hostname(name),
        Some(("ipv4", network)) => NetworkRule::Ipv4(network),
        Some(("ipv6", network)) => NetworkRule::Ipv6(network),
        _ => NetworkRule::Unknown(odd(value)),
    }
}

fn claim(status: &Value) -> Option<Claim> {
    let acceptor = AcceptorId::new(status["acceptor_id"].as_str()?).ok()?;
    Some(Claim { acceptor, deadline: time(&status["claim_deadline"]).ok().flatten() })
}

/// A point in time: null, Unix seconds or milliseconds (from 10¹² on), as a number or as text, or RFC 3339 (all observed).
pub(crate) fn time(value: &Value) -> Result<Option<Timestamp>, NoTime> {
    match value {
        Value::Null => Ok(None),
        Value::Number(number) => number.as_f64().ok_or(NoTime).and_then(unix).map(Some),
        Value::String(text) => written(text.trim()).map(Some),
        _ => Err(NoTime),
    }
}

fn written(text: &str) -> Result<Timestamp, NoTime> {
    if let Ok(number) = text.parse::<f64>() {
        return unix(number);
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    // Without an offset it is meant in UTC.
    let civil = text.parse::<DateTime>().map_err(|_| NoTime)?;
    TimeZone::UTC.to_timestamp(civil).map_err(|_| NoTime)
}

fn unix(number: f64) -> Result<Timestamp, NoTime> {
    const MILLISECONDS_FROM: f64 = 1e12;
    if !number.is_finite() || number < 0.0 {
        return Err(NoTime);
    }
    let milliseconds = if number >= MILLISECONDS_FROM { number } else { number * 1000.0 };
    if milliseconds > 253_402_207_200_000.0 {
        return Err(NoTime);
    }
    Timestamp::from_millisecond(milliseconds as i64).map_err(|_| NoTime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(status: &Value) -> Value {
        json!({
            "metadata": {"session_id": "devin-1", "outpost_id": "outpost_env-1", "created_at": 1_781_050_000},
            "spec": {"kind": "new", "platform": "linux"},
            "status": status,
        })
    }

    // lesson 9
    #[test]
    fn a_deadline_is_understood_in_every_form_and_junk_is_said_to_be_junk() {
        let expected = Timestamp::from_second(1_781_050_000).unwrap();
        for form in [
            json!(1_781_050_000),
            json!(1_781_050_000.0),
            json!("1781050000"),
            json!(1_781_050_000_000_i64),
            json!("1781050000000"),
            json!("2026-06-10T00:06:40Z"),
            json!("2026-06-10T02:06:40+02:00"),
            json!("2026-06-10T00:06:40.000Z"),
            json!("2026-06-10T00:06:40"),
        ] {
            assert_eq!(time(&form), Ok(Some(expected)), "{form}");
        }
        assert_eq!(time(&Value::Null), Ok(None));
        for junk in [
            json!("soon"),
            json!(""),
            json!(true),
            json!([1]),
            json!(-5),
            json!(1e300),
            json!("NaN"),
            json!("inf"),
        ] {
            assert_eq!(time(&junk), Err(NoTime), "{junk}");
        }
    }

    // lesson 7
    #[test]
    fn an_odd_status_is_kept_as_it_stands_and_spoils_nothing() {
        for (odd, shown) in [
            (json!("constructor"), "constructor"),
            (json!(""), ""),
            (Value::Null, "null"),
            (json!(42), "42"),
            (json!({"a": 1}), "{\"a\":1}"),
        ] {
            let row = row(&json!({"phase": "pending", "session_status": odd}));
            assert_eq!(session(&row).unwrap().status, SessionStatus::Unknown(shown.into()));
        }
    }

    // lesson 7
    #[test]
    fn everything_optional_can_be_absent() {
        let bare = json!({"metadata": {"session_id": "devin-1", "pool_id": "pool_1"}});
        let session = session(&bare).unwrap();
        assert_eq!(session.outpost.as_str(), "pool_1");
        assert_eq!(session.platform, None);
        assert_eq!(session.network_policy, NetworkPolicy::Unrestricted);
        assert_eq!(session.kind, SessionKind::Unknown(String::new()));
    }

    #[test]
    fn a_row_that_does_not_say_whose_it_is_is_no_row() {
        for bad in [
            json!({}),
            json!(null),
            json!([]),
            json!("row"),
            json!({"metadata": {"session_id": "", "outpost_id": "o"}}),
            json!({"metadata": {"session_id": 7, "outpost_id": "o"}}),
            json!({"metadata": {"session_id": "a\nb", "outpost_id": "o"}}),
            json!({"metadata": {"session_id": "devin-1"}}),
        ] {
            assert_eq!(session(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_network_policy_that_cannot_be_understood_allows_nothing() {
        let policy = |value: &Value| network_policy(value);
        assert_eq!(policy(&json!({"enabled": false, "allow": []})), NetworkPolicy::Unrestricted);
        assert_eq!(policy(&json!({"enabled": true})), NetworkPolicy::Allow(vec![]));
        assert_eq!(policy(&json!("strict")), NetworkPolicy::Allow(vec![]));
        assert_eq!(
            policy(
                &json!({"enabled": true, "allow": [{"hostname": "*.example.com"}, {"asn": 1}, {"ipv4": "10.0.0.0/8"}]})
            ),
            NetworkPolicy::Allow(vec![
                NetworkRule::Hostname("*.example.com".into()),
                NetworkRule::Unknown("{\"asn\":1}".into()),
                NetworkRule::Ipv4("10.0.0.0/8".into()),
            ])
        );
    }
}
