//! What the reconciler says, as log lines and as the state that the HTTP endpoints show.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use outpost_core::engine::{Notice, NoticeKind, Report};
use outpost_core::model::SessionId;
use outpost_core::reconciler::Observer;

/// The newest report, and the log.
#[derive(Debug, Default)]
pub(super) struct State {
    report: Mutex<Option<Report>>,
    /// Why each session is as it is, as it was last logged.
    said: Mutex<HashMap<SessionId, String>>,
    ready: Mutex<Option<Result<(), String>>>,
    /// Why there is no report yet.
    waits_for: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// The newest report, once there is one.
    pub(super) fn report(&self) -> Option<Report> {
        lock(&self.report).clone()
    }

    /// Notes what is waited for before there can be a report.
    pub(super) fn not_started_yet(&self, why: String) {
        *lock(&self.waits_for) = Some(why);
    }

    /// `Ok` when sessions are served; else why not, in words.
    pub(super) fn ready(&self) -> Result<(), String> {
        match self.report() {
            Some(report) => report.ready(),
            None => {
                Err(lock(&self.waits_for).clone().unwrap_or_else(|| "nothing has been read yet".to_owned()))
            }
        }
    }

    fn log_readiness(&self, report: &Report) {
        let now = report.ready();
        let mut before = lock(&self.ready);
        if before.as_ref() == Some(&now) {
            return;
        }
        match &now {
            Ok(()) => tracing::info!(listed = report.listed, sandboxes = report.sandboxes.total(), "ready"),
            // Before the first readings nothing is wrong.
            Err(_) if before.is_none() => {}
            Err(why) => tracing::warn!("not ready: {why}"),
        }
        *before = Some(now);
    }

    fn log_sessions(&self, report: &Report) {
        let mut said = lock(&self.said);
        said.retain(|session, _| report.lines.iter().any(|line| line.session == *session));
        for line in &report.lines {
            if said.get(&line.session).is_none_or(|before| *before != line.why) {
                tracing::debug!(session = %line.session, "{}", line.why);
                said.insert(line.session.clone(), line.why.to_string());
            }
        }
    }
}

impl Observer for State {
    fn report(&self, report: &Report) {
        self.log_readiness(report);
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.log_sessions(report);
        }
        *lock(&self.report) = Some(report.clone());
    }

    fn notice(&self, notice: &Notice) {
        let kind = kind(notice.kind);
        match (&notice.session, notice.kind.is_warning()) {
            (Some(session), true) => tracing::warn!(%session, kind, "{}", notice.text),
            (Some(session), false) => tracing::info!(%session, kind, "{}", notice.text),
            (None, true) => tracing::warn!(kind, "{}", notice.text),
            (None, false) => tracing::info!(kind, "{}", notice.text),
        }
    }
}

/// A notice's kind as one word, by which logs can be searched.
fn kind(kind: NoticeKind) -> String {
    let name = format!("{kind:?}");
    let mut word = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(c.to_ascii_lowercase());
    }
    word
}
