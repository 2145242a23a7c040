//! Rows as the queue serves them, read by somebody who trusts them: `outpost-devin-api` is the one that does not.

use jiff::Timestamp;
use outpost_core::model::{
    AcceptorId, Claim, NetworkPolicy, OutpostId, Phase, Platform, Session, SessionId, SessionKind,
    SessionStatus,
};
use serde_json::Value;

pub(super) fn session(row: &Value) -> Option<Session> {
    let text = |pointer: &str| row.pointer(pointer).and_then(Value::as_str);
    let time = |pointer: &str| {
        row.pointer(pointer).and_then(Value::as_i64).and_then(|at| Timestamp::from_second(at).ok())
    };
    let acceptor = text("/status/acceptor_id").and_then(|acceptor| AcceptorId::new(acceptor).ok());
    Some(Session {
        id: SessionId::new(text("/metadata/session_id")?).ok()?,
        outpost: OutpostId::new(text("/metadata/outpost_id")?).ok()?,
        status: match text("/status/session_status")? {
            "pending" => SessionStatus::Pending,
            "running" => SessionStatus::Running,
            "suspended" => SessionStatus::Suspended,
            "terminated" => SessionStatus::Terminated,
            other => SessionStatus::Unknown(other.to_owned()),
        },
        phase: match text("/status/phase")? {
            "pending" => Phase::Pending,
            "claimed" => Phase::Claimed,
            other => Phase::Unknown(other.to_owned()),
        },
        claim: acceptor.map(|acceptor| Claim { acceptor, deadline: time("/status/claim_deadline") }),
        kind: match text("/spec/kind").unwrap_or_default() {
            "new" => SessionKind::New,
            "resume" => SessionKind::Resume,
            other => SessionKind::Unknown(other.to_owned()),
        },
        platform: text("/spec/platform").map(|platform| match platform {
            "linux" => Platform::Linux,
            "macos" => Platform::Macos,
            "windows" => Platform::Windows,
            other => Platform::Unknown(other.to_owned()),
        }),
        network_policy: NetworkPolicy::Unrestricted,
        remote_binary_sha: text("/spec/remote_binary_sha").map(str::to_owned),
        created_at: time("/metadata/created_at"),
        updated_at: time("/metadata/updated_at"),
    })
}
