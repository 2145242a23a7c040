//! What the engine's answers mean.

use std::io;

use bollard::errors::Error as Answer;
use outpost_core::ports::ErrorKind;
use outpost_provider_kit::Fault;

/// Says what was being done when the engine answered with an error.
pub(crate) trait Asking<T> {
    /// Turns the error into a fault that begins with `what`.
    fn asking(self, what: &str) -> Result<T, Fault>;

    /// Like [`asking`](Self::asking), for what changes something: without an answer it may have done so.
    fn changing(self, what: &str) -> Result<T, Fault>;

    /// Like [`changing`](Self::changing); `None` when there is no such thing.
    fn if_there(self, what: &str) -> Result<Option<T>, Fault>;
}

impl<T> Asking<T> for Result<T, Answer> {
    fn asking(self, what: &str) -> Result<T, Fault> {
        self.map_err(|answer| Fault::new(kind_of(&answer), format!("{what}: {}", words(&answer))))
    }

    fn changing(self, what: &str) -> Result<T, Fault> {
        self.map_err(|answer| {
            let fault = Fault::new(kind_of(&answer), format!("{what}: {}", words(&answer)));
            if is_definite(&answer) { fault } else { fault.may_have_been_applied() }
        })
    }

    fn if_there(self, what: &str) -> Result<Option<T>, Fault> {
        match self {
            Err(answer) if status(&answer) == Some(404) => Ok(None),
            result => result.changing(what).map(Some),
        }
    }
}

/// The HTTP status of the engine's answer, if it has answered.
pub(crate) fn status(answer: &Answer) -> Option<u16> {
    match answer {
        Answer::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// Whether the engine has said that it did nothing. What it says with 500 can come after half the work.
fn is_definite(answer: &Answer) -> bool {
    status(answer).is_some_and(|status| status < 500)
}

fn kind_of(answer: &Answer) -> ErrorKind {
    match answer {
        Answer::DockerResponseServerError { status_code, message } => of_status(*status_code, message),
        Answer::DockerStreamError { error } => of_words(error).unwrap_or(ErrorKind::Unexpected),
        Answer::IOError { err } => of_io(err),
        Answer::RequestTimeoutError | Answer::HyperResponseError { .. } | Answer::HyperLegacyError { .. } => {
            ErrorKind::Unavailable
        }
        Answer::JsonDataError { .. } | Answer::JsonSerdeError { .. } => ErrorKind::Invalid,
        _ => ErrorKind::Unexpected,
    }
}

fn of_status(status: u16, message: &str) -> ErrorKind {
    match status {
        400 => ErrorKind::Invalid,
        401 | 403 => ErrorKind::Unauthorized,
        404 => ErrorKind::NotFound,
        409 | 304 => ErrorKind::Conflict,
        429 => ErrorKind::RateLimited,
        502..=504 => ErrorKind::Unavailable,
        507 => ErrorKind::Capacity,
        // The engine says with 500 what has a status of its own elsewhere.
        _ => of_words(message).unwrap_or(ErrorKind::Unexpected),
    }
}

fn of_words(message: &str) -> Option<ErrorKind> {
    let message = message.to_ascii_lowercase();
    let any = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if any(&["no space left", "disk quota", "cannot allocate memory", "address pool", "no free", "subnet"]) {
        Some(ErrorKind::Capacity)
    } else if any(&["unauthorized", "authentication required", "denied"]) {
        Some(ErrorKind::Unauthorized)
    } else if any(&["toomanyrequests"]) {
        Some(ErrorKind::RateLimited)
    } else if any(&["not found", "manifest unknown", "no such"]) {
        Some(ErrorKind::NotFound)
    } else if any(&["timeout", "connection refused", "connection reset", "shutting down", "i/o timeout"]) {
        Some(ErrorKind::Unavailable)
    } else {
        None
    }
}

fn of_io(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ErrorKind::Unauthorized,
        io::ErrorKind::StorageFull | io::ErrorKind::OutOfMemory => ErrorKind::Capacity,
        _ => ErrorKind::Unavailable,
    }
}

/// The engine's words as one line without a query string, cut to a length for logs.
fn words(answer: &Answer) -> String {
    let text = match answer {
        Answer::DockerResponseServerError { message, .. } => message.clone(),
        Answer::DockerStreamError { error } => error.clone(),
        Answer::RequestTimeoutError => "the engine does not answer".to_owned(),
        // Its own words repeat what was received.
        Answer::JsonDataError { column, .. } => {
            format!("the engine's answer makes no sense at column {column}")
        }
        Answer::HyperLegacyError { .. } | Answer::HyperResponseError { .. } => {
            format!("the engine cannot be reached: {}", root_cause(answer))
        }
        other => root_cause(other),
    };
    one_line(&text)
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Text of the engine or of a container on one line, at most 500 characters of it.
pub(crate) fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(500) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use outpost_core::ports::Effect;

    use super::*;

    fn answer(status_code: u16, message: &str) -> Answer {
        Answer::DockerResponseServerError { status_code, message: message.to_owned() }
    }

    #[test]
    fn what_the_engine_answers_has_the_kind_by_which_the_planner_decides() {
        let table = [
            (404, "No such container: x", ErrorKind::NotFound),
            (409, "name in use", ErrorKind::Conflict),
            (500, "write /var: no space left on device", ErrorKind::Capacity),
            (500, "could not find an available, non-overlapping IPv4 address pool", ErrorKind::Capacity),
            (500, "unauthorized: authentication required", ErrorKind::Unauthorized),
            (500, "something else", ErrorKind::Unexpected),
            (503, "", ErrorKind::Unavailable),
        ];
        for (status, message, kind) in table {
            let fault = Err::<(), _>(answer(status, message)).changing("do it").unwrap_err();
            assert_eq!(fault.kind, kind, "{status} {message}");
            assert_eq!(fault.effect == Effect::Possible, status >= 500, "{status} {message}");
        }
    }

    #[test]
    fn an_answer_that_was_lost_may_have_been_applied() {
        let fault = Err::<(), _>(Answer::RequestTimeoutError).changing("do it").unwrap_err();
        assert_eq!((fault.kind, fault.effect), (ErrorKind::Unavailable, Effect::Possible));
    }

    // lesson 60
    #[test]
    fn a_long_answer_is_cut_between_characters_and_stays_on_one_line() {
        let fault = Err::<(), _>(answer(500, &"ünï\n".repeat(600))).asking("do it").unwrap_err();
        assert!(!fault.message.contains('\n') && fault.message.chars().count() < 520, "{}", fault.message);
    }
}
