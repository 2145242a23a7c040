//! Devin's and people's part: sessions come, sleep, wake and end; rivals claim; machines and snapshots break.

use std::time::Duration;

use fastrand::Rng;
use outpost_core::ports::Clock;
use outpost_sim::model::{NewRow, Waking};

use super::log::EventLog;
use super::queue::Queue;
use crate::clock::VirtualClock;
use crate::memory::{MemoryBackend, TrueSandbox, TrueSnapshot};

/// Who claims sessions before us, now and then.
pub(super) const RIVAL: &str = "rival-1";

pub(super) struct People {
    pub(super) clock: VirtualClock,
    pub(super) queue: Queue,
    pub(super) backend: MemoryBackend,
    pub(super) log: EventLog,
    pub(super) chance: Rng,
    pub(super) most: usize,
}

impl People {
    pub(super) async fn act(mut self) {
        let mut made = 0_usize;
        loop {
            let pause = Duration::from_secs_f64(self.chance.f64().powi(2) * 90.0);
            self.clock.sleep(pause).await;
            let live = self.having(|status| matches!(status, "pending" | "running")).len();
            if live < self.most && self.chance.u8(..3) == 0 {
                made += 1;
                self.create(made);
            } else {
                self.disturb();
            }
        }
    }

    fn create(&mut self, number: usize) {
        let id = format!("devin-{number}");
        let mut row = NewRow::new(&id);
        match self.chance.u8(..12) {
            // Rows are enqueued with their session already running (lesson 13).
            0..=2 => row = row.status("running"),
            3 => row = row.platform("windows"),
            // It had a machine at another host.
            4 => row = row.kind("resume"),
            _ => {}
        }
        self.log.line("people", format_args!("create {id} ({}, {})", row.session_status, row.kind));
        self.queue.with(|fleet, now| fleet.create(now, row));
    }

    fn disturb(&mut self) {
        match self.chance.u8(..20) {
            0..=4 => self.set_one(&["running"], "suspended"),
            5..=7 => self.wake(),
            8..=9 => self.set_one(&["pending", "running", "suspended"], "terminated"),
            10 => self.tombstone(),
            11 => self.set_one(&["running", "suspended"], "hibernating"),
            12 => self.set_one(&["hibernating"], "running"),
            13..=14 => self.rival(),
            15 => self.blink(),
            16 => self.break_snapshot(),
            17 => self.destroy(),
            _ => self.kill(),
        }
    }

    fn having(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        self.queue.look(|fleet| {
            let rows = fleet.rows().filter(|row| wanted(&row.spec.session_status));
            rows.map(|row| row.spec.session_id.clone()).collect()
        })
    }

    fn set_one(&mut self, from: &[&str], to: &str) {
        let sessions = self.having(|status| from.contains(&status));
        if let Some(id) = self.chance.choice(&sessions) {
            self.log.line("people", format_args!("{id} becomes {to}"));
            let _ = self.queue.with(|fleet, now| fleet.set_status(now, id, to));
        }
    }

    /// Suspended is read for a moment although the session runs on (lesson 29).
    fn blink(&mut self) {
        let sessions = self.having(|status| status == "running");
        if let Some(id) = self.chance.choice(&sessions) {
            self.log.line("people", format_args!("{id} blinks"));
            let _ = self.queue.with(|fleet, now| fleet.set_status(now, id, "suspended"));
            let back = self.clock.now() + Duration::from_millis(500);
            self.queue.with(|fleet, _| fleet.set_status_at(back, id, "running"));
        }
    }

    fn wake(&mut self) {
        let sessions = self.having(|status| status == "suspended");
        if let Some(id) = self.chance.choice(&sessions) {
            let waking = if self.chance.bool() { Waking::Pending } else { Waking::Running };
            self.log.line("people", format_args!("{id} wakes as {waking:?}"));
            let _ = self.queue.with(|fleet, now| fleet.wake(now, id, waking));
        }
    }

    fn tombstone(&mut self) {
        let sessions = self.having(|status| matches!(status, "suspended" | "terminated"));
        if let Some(id) = self.chance.choice(&sessions) {
            self.log.line("people", format_args!("{id} leaves the queue"));
            let _ = self.queue.with(|fleet, now| fleet.tombstone(now, id));
        }
    }

    fn rival(&mut self) {
        let sessions = self.having(|status| matches!(status, "pending" | "running"));
        if let Some(id) = self.chance.choice(&sessions) {
            let held = self.queue.holder(id).as_deref() == Some(RIVAL);
            let to = (!held).then_some(RIVAL);
            self.log.line("people", format_args!("{id} goes to {to:?}"));
            let _ = self.queue.with(|fleet, now| fleet.seize(now, id, to));
        }
    }

    fn kill(&mut self) {
        let sandboxes = self.backend.true_sandboxes();
        if let Some(found) = self.chance.choice(&sandboxes) {
            self.log.line("people", format_args!("the worker of {} is killed", found.sandbox.id));
            self.backend.kill_worker(&found.instance, &found.sandbox.id);
        }
    }

    fn destroy(&mut self) {
        let sandboxes = self.backend.true_sandboxes();
        if let Some(found) = self.chance.choice(&sandboxes) {
            self.log.line("people", format_args!("the sandbox {} is destroyed", found.sandbox.id));
            self.backend.destroy(&found.instance, &found.sandbox.id);
        }
    }

    /// Only a session's one snapshot breaks, and not while its sandbox is there: nobody could know that the older snapshot, or
    /// the disk, is worth something again.
    fn break_snapshot(&mut self) {
        let sandboxes = self.backend.true_sandboxes();
        let all = self.backend.true_snapshots();
        let mut snapshots = all.clone();
        snapshots.retain(|saved| {
            let (instance, session) = (&saved.instance, &saved.snapshot.session);
            let here =
                |found: &TrueSandbox| found.instance == *instance && found.sandbox.id.session == *session;
            let same =
                |other: &&TrueSnapshot| other.instance == *instance && other.snapshot.session == *session;
            !sandboxes.iter().any(here) && all.iter().filter(same).count() == 1
        });
        if let Some(found) = self.chance.choice(&snapshots) {
            let reference = &found.snapshot.reference;
            self.log.line("people", format_args!("snapshot {reference} breaks"));
            if self.chance.bool() {
                self.backend.corrupt_snapshot(reference);
            } else {
                self.backend.lose_snapshot(reference);
            }
        }
    }
}
