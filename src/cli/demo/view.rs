//! Progress as it happens: a live line per session on a terminal, plain lines otherwise.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use outpost_core::engine::{Notice, Report};
use outpost_core::model::{SandboxState, SessionId};
use outpost_core::reconciler::Observer;

/// Shows what happens. Cheap to clone; clones are the same view.
#[derive(Debug, Clone)]
pub(super) struct View {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    began: Instant,
    live: Option<MultiProgress>,
    lines: Mutex<BTreeMap<SessionId, ProgressBar>>,
    newest: Mutex<Option<Report>>,
    /// The most sandboxes that were seen at once.
    peak: Mutex<usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl View {
    pub(super) fn new() -> Self {
        let live = std::io::stdout().is_terminal().then(MultiProgress::new);
        let shared = Shared {
            began: Instant::now(),
            live,
            lines: Mutex::default(),
            newest: Mutex::default(),
            peak: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A line that stays.
    pub(super) fn say(&self, text: &str) {
        let line = format!("{:5.1}s  {text}", self.shared.began.elapsed().as_secs_f64());
        match &self.shared.live {
            // Nobody can be told that nobody can be told.
            Some(live) => drop(live.println(line)),
            None => println!("{line}"),
        }
    }

    /// Takes the live lines away.
    pub(super) fn end(&self) {
        if let Some(live) = &self.shared.live {
            drop(live.clear());
        }
        lock(&self.shared.lines).clear();
    }

    /// The newest report.
    pub(super) fn report(&self) -> Option<Report> {
        lock(&self.shared.newest).clone()
    }

    /// The most sandboxes that were seen at once.
    pub(super) fn peak(&self) -> usize {
        *lock(&self.shared.peak)
    }

    fn draw(&self, live: &MultiProgress, report: &Report) {
        let mut lines = lock(&self.shared.lines);
        lines.retain(|session, line| {
            let stays = report.lines.iter().any(|shown| shown.session == *session);
            if !stays {
                line.finish_and_clear();
            }
            stays
        });
        for shown in &report.lines {
            let line = lines.entry(shown.session.clone()).or_insert_with(|| {
                let style = ProgressStyle::with_template("        {spinner} {wide_msg}");
                let line = live.add(ProgressBar::new_spinner());
                line.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
                line.enable_steady_tick(Duration::from_millis(120));
                line
            });
            let state = match &shown.sandbox {
                None => "none    ",
                Some(SandboxState::Starting) => "starting",
                Some(SandboxState::Running) => "running ",
                Some(SandboxState::Exited { .. }) => "exited  ",
                Some(SandboxState::Stopping) => "stopping",
                Some(SandboxState::Failed { .. }) => "failed  ",
            };
            line.set_message(format!("{:16} {state}  {}", shown.session.to_string(), shown.why));
        }
    }
}

impl Observer for View {
    fn report(&self, report: &Report) {
        let mut peak = lock(&self.shared.peak);
        *peak = (*peak).max(report.sandboxes.total());
        drop(peak);
        if let Some(live) = &self.shared.live {
            self.draw(live, report);
        }
        *lock(&self.shared.newest) = Some(report.clone());
    }

    fn notice(&self, notice: &Notice) {
        let session = notice.session.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        self.say(&format!("{session:16} {}", notice.text));
    }
}
