//! From answers that are no success to errors, without a secret in them.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use outpost_core::ports::{Error, ErrorKind};
use serde_json::Value;

use crate::transport::{Reach, TransportError};

pub(crate) const WHO: &str = "devin";

/// So much of an answer's text is shown at the most, in characters.
const SHOWN: usize = 200;

/// Whether a call changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    Reads,
    Changes,
}

/// An answer that is no success.
#[derive(Debug)]
pub(crate) struct Refusal<'a> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    /// The token that was sent, if one was: whatever it looks like, it is not shown.
    pub(crate) token: Option<&'a str>,
    pub(crate) now: Timestamp,
}

/// The error of an answer that is no success.
pub(crate) fn of_answer(operation: &'static str, nature: Nature, refusal: &Refusal<'_>) -> Error {
    let &Refusal { status, headers, body, token, now } = refusal;
    let kind = kind(status);
    let advice = match status {
        StatusCode::UNAUTHORIZED => "; the token is not accepted, check it",
        StatusCode::FORBIDDEN => {
            "; the token lacks a permission: the service user needs \"Run outpost workers\""
        }
        status if status.is_redirection() => {
            "; the address leads elsewhere, and the token does not follow: check the API's URL"
        }
        _ => "",
    };
    let error =
        Error::new(kind, WHO, operation, format!("{}{}{advice}", status.as_u16(), detail(body, token)))
            .with_retry_after(retry_after(headers, now));
    if nature == Nature::Changes && status.is_server_error() { error.may_have_been_applied() } else { error }
}

fn kind(status: StatusCode) -> ErrorKind {
    match status.as_u16() {
        401 | 403 => ErrorKind::Unauthorized,
        404 => ErrorKind::NotFound,
        408 | 500..=599 => ErrorKind::Unavailable,
        409 => ErrorKind::Conflict,
        429 => ErrorKind::RateLimited,
        400..=499 => ErrorKind::Invalid,
        _ => ErrorKind::Unexpected,
    }
}

/// The error of a call without a whole answer.
pub(crate) fn of_transport(operation: &'static str, nature: Nature, error: &TransportError) -> Error {
    let possible = nature == Nature::Changes && error.reach() == Reach::Unknown;
    let error = Error::new(ErrorKind::Unavailable, WHO, operation, error.to_string());
    if possible { error.may_have_been_applied() } else { error }
}

/// The error of an answer that makes no sense.
pub(crate) fn nonsense(operation: &'static str, what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, WHO, operation, what)
}

/// `: text` from `{"detail": …}`, or from what else there is; one line, short.
fn detail(body: &[u8], token: Option<&str>) -> String {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(object)) => match object.get("detail") {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        },
        // A page of some proxy's is no help.
        Ok(_) | Err(_) => String::new(),
    };
    let text = match token {
        Some(token) if !token.is_empty() => text.replace(token, TOKEN),
        _ => text,
    };
    let text = redact(&text);
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN).collect();
    if line.trim().is_empty() { String::new() } else { format!(": {}", line.trim()) }
}

/// What stands where a token was.
const TOKEN: &str = "<token>";

/// An answer can repeat tokens, also those of others.
fn redact(text: &str) -> String {
    let Some((before, rest)) = text.split_once("cog_") else { return text.to_owned() };
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').unwrap_or(rest.len());
    format!("{before}{TOKEN}{}", redact(&rest[end..]))
}

/// `Retry-After`: seconds, or a date.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let date = Timestamp::try_from(httpdate::parse_http_date(text).ok()?).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use outpost_core::ports::Effect;

    fn of(status: u16, body: &str) -> Error {
        let refusal = Refusal {
            status: StatusCode::from_u16(status).unwrap(),
            headers: &HeaderMap::new(),
            body: body.as_bytes(),
            token: Some("another form/of+token"),
            now: Timestamp::UNIX_EPOCH,
        };
        of_answer("claim", Nature::Changes, &refusal)
    }

    #[test]
    fn every_status_has_its_kind() {
        for (status, kind) in [
            (400, ErrorKind::Invalid),
            (401, ErrorKind::Unauthorized),
            (403, ErrorKind::Unauthorized),
            (404, ErrorKind::NotFound),
            (409, ErrorKind::Conflict),
            (422, ErrorKind::Invalid),
            (429, ErrorKind::RateLimited),
            (500, ErrorKind::Unavailable),
            (503, ErrorKind::Unavailable),
            (302, ErrorKind::Unexpected),
        ] {
            assert_eq!(of(status, "").kind(), kind, "{status}");
        }
        assert_eq!(of(500, "").effect(), Effect::Possible);
        assert_eq!(of(409, "").effect(), Effect::None);
    }

    // lesson 60
    #[test]
    fn a_long_text_of_wide_characters_is_cut_between_them() {
        let body = serde_json::json!({"detail": "🚀".repeat(600)}).to_string();
        let shown = of(500, &body).to_string();
        assert!(shown.chars().filter(|c| *c == '🚀').count() == SHOWN, "{shown}");
    }

    #[test]
    fn a_token_in_an_answer_is_not_repeated() {
        let shown = of(401, r#"{"detail": "bad token cog_sentinel-1 and cog_other"}"#).to_string();
        assert!(
            !shown.contains("sentinel") && !shown.contains("cog_") && shown.contains("<token> and <token>"),
            "{shown}"
        );
    }

    #[test]
    fn our_own_token_is_not_repeated_whatever_it_looks_like() {
        for detail in ["another form/of+token", "no: another form\\/of+token.", "another form\\u002fof+token"]
        {
            let shown = of(401, &format!(r#"{{"detail": "{detail}"}}"#)).to_string();
            assert!(!shown.contains("form") && shown.contains("<token>"), "{shown}");
        }
        let shown = of(401, r#"{"detail": [{"input": "Bearer another form/of+token"}]}"#).to_string();
        assert!(!shown.contains("form"), "{shown}");
    }

    #[test]
    fn an_answer_that_is_not_json_makes_one_short_line() {
        assert_eq!(of(502, "<html>\n<b>bad gateway</b>").to_string(), "devin: claim: 502");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = Timestamp::from_second(784_111_777).unwrap();
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers, now)
        };
        assert_eq!(of("7"), Some(Duration::from_secs(7)));
        assert_eq!(of("Sun, 06 Nov 1994 08:49:47 GMT"), Some(Duration::from_secs(10)));
        assert_eq!(of("Sun, 06 Nov 1994 08:49:27 GMT"), Some(Duration::ZERO));
        assert_eq!(of("later"), None);
    }
}
