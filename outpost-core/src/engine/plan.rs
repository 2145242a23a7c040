//! From what is known to what is done now.

use std::time::Duration;

use jiff::Timestamp;

use super::input::{Effect, Work};
use super::tracked::{Said, Tracked};
use super::{Engine, NoticeKind};
use crate::decide::time::{after, since};
use crate::decide::{BootEvidence, Decision, Sight, Situation, StartPlan, Step, Wish, decide, jitter};
use crate::fleet::{Candidate, Room, StartClass, admit};
use crate::model::{Owner, SessionId, SessionStatus};

/// So many steps that no sandbox bounds (deleting, forgetting, writing, looking, releasing) are under way at once.
const LIGHT_STEPS: usize = 16;
/// Between two extensions of one sandbox: the first may have failed or gained nothing, and steps must get their turn.
const EXTEND_PAUSE: Duration = Duration::from_secs(60);

impl Engine {
    /// What to do now. Everything that it answers counts as under way until its input comes back.
    pub fn poll(&mut self, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.stopping {
            return effects;
        }
        if self.records.last_success.is_none() && self.records.begin(now) {
            effects.push(Effect::LoadRecords);
        }
        if self.queue.begin(now) {
            effects.push(Effect::ListSessions);
        }
        if self.inventory.begin(now) {
            self.inventory.began_clock = self.clock;
            effects.push(Effect::ListInventory);
        }
        if self.records.last_success.is_none() || self.inventory.last_success.is_none() {
            return effects;
        }
        self.wake_sessions(now);
        let mut light =
            self.sessions.values().filter(|tracked| tracked.busy.as_ref().is_some_and(is_light)).count();
        let mut steps = Vec::new();
        let mut postponed = Vec::new();
        while let Some(session) = self.dirty.pop_first() {
            let Some(decision) = self.decision(now, &session) else { continue };
            self.keep_up(now, &session, &decision, &mut effects);
            if let Some(step) = self.ready_step(now, &session, &decision) {
                if is_light(&step) && light >= LIGHT_STEPS {
                    postponed.push(session);
                    continue;
                }
                light += usize::from(is_light(&step));
                steps.push(self.begin(now, &session, step));
            }
        }
        self.dirty.extend(postponed);
        effects.extend(steps);
        self.admit(now, &mut effects);
        effects
    }

    /// When to poll again at the latest; `None` = only after an input.
    pub fn wake_at(&self) -> Option<Timestamp> {
        let pollers = [&self.queue, &self.inventory].map(super::Poller::wake_at);
        let records = if self.records.last_success.is_none() { self.records.wake_at() } else { None };
        let agenda = self.agenda.first().map(|(at, _)| *at);
        pollers.into_iter().chain([records, agenda]).flatten().min()
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        let reading =
            [&self.records, &self.queue, &self.inventory].iter().any(|poller| poller.running.is_some());
        let working = |tracked: &Tracked| {
            tracked.busy.is_some() || tracked.renewing || tracked.extending || tracked.record.reading
        };
        !reading && !self.sessions.values().any(working)
    }

    fn wake_sessions(&mut self, now: Timestamp) {
        while self.agenda.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, session)) = self.agenda.pop_first() else { break };
            if let Some(tracked) = self.sessions.get_mut(&session) {
                tracked.agenda_at = None;
            }
            self.dirty.insert(session);
        }
    }

    /// Decides upon a session, and puts it on the agenda.
    fn decision(&mut self, now: Timestamp, session: &SessionId) -> Option<Decision> {
        let tracked = self.sessions.get(session)?;
        let situation = self.situation(now, session, tracked);
        let decision = decide(&situation);
        let wish = situation.wish();
        self.candidates.remove(session);
        let mut look_again = decision.look_again;
        if let Some(not_before) = tracked.not_before.filter(|at| *at > now) {
            look_again = Some(look_again.map_or(not_before, |at| at.min(not_before)));
        }
        self.put_on_agenda(session, look_again);
        self.say_once(session, wish, &decision);
        self.tracked(session).decision = Some(decision.clone());
        Some(decision)
    }

    fn situation<'a>(
        &'a self,
        now: Timestamp,
        session: &'a SessionId,
        tracked: &'a Tracked,
    ) -> Situation<'a> {
        Situation {
            now,
            session,
            sight: &tracked.sight,
            evidence: &tracked.evidence,
            sandboxes: &tracked.sandboxes,
            snapshots: &tracked.snapshots,
            record: &tracked.record.record,
            recorded: tracked.record.version.is_some(),
            policy: &self.policy,
            capabilities: &self.capabilities,
            jitter: jitter(&self.policy.instance, session, &tracked.record.record),
        }
    }

    /// Renewals and extensions, which also go on while a step is under way. A renewal never runs beside a start or a
    /// release: it could claim again what these give back.
    fn keep_up(
        &mut self,
        now: Timestamp,
        session: &SessionId,
        decision: &Decision,
        effects: &mut Vec<Effect>,
    ) {
        let tracked = self.tracked(session);
        let exclusive = matches!(tracked.busy, Some(Step::Start(_) | Step::Release));
        if decision.upkeep.renew && !tracked.renewing && !exclusive {
            tracked.renewing = true;
            effects.push(Effect::Renew(session.clone()));
        }
        if let Some(boot) = decision.upkeep.extend
            && !tracked.extending
            && tracked.busy.is_none()
            && tracked.extend_at.is_none_or(|at| at <= now)
        {
            tracked.extending = true;
            tracked.extend_at = Some(after(now, EXTEND_PAUSE));
            effects.push(Effect::Extend(session.clone(), boot));
        }
    }

    /// The decision's step, if it can be begun now.
    fn ready_step(&mut self, now: Timestamp, session: &SessionId, decision: &Decision) -> Option<Step> {
        let step = decision.step.clone()?;
        let clock = self.inventory_clock;
        let tracked = self.tracked(session);
        if tracked.busy.is_some()
            || tracked.extending
            || tracked.record.reading
            || tracked.needs_clock > clock
        {
            return None;
        }
        if tracked.not_before.is_some_and(|at| at > now) {
            return None;
        }
        match step {
            Step::Start(_) => {
                self.candidates.insert(session.clone());
                None
            }
            // It would be undone by a renewal that is under way.
            Step::Release if tracked.renewing => None,
            step => Some(step),
        }
    }

    fn begin(&mut self, now: Timestamp, session: &SessionId, step: Step) -> Effect {
        let instance = self.policy.instance.clone();
        let tracked = self.tracked(session);
        if tracked.record.lost {
            tracked.record.reading = true;
            return Effect::LoadRecord(session.clone());
        }
        match &step {
            Step::Start(plan) => tracked.evidence.boot = BootEvidence::started_here(plan.boot, now),
            Step::Save { .. } => {
                tracked.evidence.boot.saving_since.get_or_insert(now);
            }
            _ => {}
        }
        tracked.busy = Some(step.clone());
        Effect::Perform(Box::new(Work {
            session: session.clone(),
            step,
            record: tracked.record.record.clone(),
            version: tracked.record.version,
            row: tracked.sight.row().cloned(),
            jitter: jitter(&instance, session, &tracked.record.record),
        }))
    }

    /// Gives the room that there is to the sessions that wait for it. While the queue cannot be read nothing is started: a
    /// start would only find that out again, for every session.
    fn admit(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        if self.candidates.is_empty() || self.queue.failures > 0 {
            return;
        }
        let room = self.room();
        if room.occupied >= room.limit {
            self.give_up_claims(now, effects);
            return;
        }
        let candidates: Vec<Candidate<'_>> =
            self.candidates.iter().filter_map(|session| self.candidate(session)).collect();
        let admitted: Vec<SessionId> = admit(candidates, room).into_iter().cloned().collect();
        for session in admitted {
            self.candidates.remove(&session);
            let step = self.tracked(&session).decision.as_ref().and_then(|decision| decision.step.clone());
            if let Some(step @ Step::Start(_)) = step {
                effects.push(self.begin(now, &session, step));
            }
        }
    }

    /// A claim that there is no room to serve (more were ours before a restart, or the limit was lowered) is given back, so
    /// that others may serve the session.
    fn give_up_claims(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        if !self.policy.worker_mode.claims() {
            return;
        }
        let held = |session: &&SessionId| {
            self.sessions
                .get(*session)
                .is_some_and(|tracked| !tracked.renewing && self.is_ours(session, tracked))
        };
        let held: Vec<SessionId> = self.candidates.iter().filter(held).cloned().collect();
        for session in held {
            self.candidates.remove(&session);
            effects.push(self.begin(now, &session, Step::Release));
        }
    }

    fn candidate<'a>(&'a self, session: &'a SessionId) -> Option<Candidate<'a>> {
        let tracked = self.sessions.get(session)?;
        let Some(Step::Start(StartPlan { restore, .. })) = &tracked.decision.as_ref()?.step else {
            return None;
        };
        let class = if self.is_ours(session, tracked) {
            StartClass::Restart
        } else if restore.is_some() {
            StartClass::Resume
        } else {
            StartClass::New
        };
        Some(Candidate { session, class, waiting_since: self.waiting_since(session)? })
    }

    pub(super) fn waiting_since(&self, session: &SessionId) -> Option<Timestamp> {
        let tracked = self.sessions.get(session)?;
        let row = tracked.sight.row()?;
        let since = tracked.evidence.free_since.or(tracked.first_seen)?;
        Some(
            row.created_at.filter(|_| row.status == SessionStatus::Pending).map_or(since, |at| at.min(since)),
        )
    }

    fn is_ours(&self, session: &SessionId, tracked: &Tracked) -> bool {
        let acceptor = self.policy.acceptor(session);
        tracked.sight.row().is_some_and(|row| row.owner(&acceptor) == Owner::Us)
    }

    fn room(&self) -> Room {
        let occupies = |tracked: &Tracked| tracked.is_here();
        let reserves = |session: &SessionId, tracked: &Tracked| {
            !tracked.is_here()
                && !tracked.record.record.given_up()
                && !self.candidates.contains(session)
                && self.is_ours(session, tracked)
                && matches!(&tracked.sight, Sight::Listed(row)
                    if matches!(row.status, SessionStatus::Pending | SessionStatus::Running))
        };
        Room {
            limit: self.policy.limit,
            occupied: self.sessions.values().filter(|tracked| occupies(tracked)).count(),
            reserved: self.sessions.iter().filter(|(session, tracked)| reserves(session, tracked)).count(),
        }
    }

    /// Tells people once of what they would not find out otherwise.
    fn say_once(&mut self, session: &SessionId, wish: Wish, decision: &Decision) {
        let overdue = decision.step.as_ref().is_some_and(|step| matches!(step, Step::Save { .. }))
            && decision.why.starts_with("saving its disk takes far longer");
        let tracked = self.tracked(session);
        let status = match (&tracked.sight, wish) {
            (Sight::Listed(row), Wish::Unclear) => Some(format!("{:?} ({:?})", row.status, row.phase)),
            _ => None,
        };
        let said = Said { unclear: status, elsewhere: wish == Wish::Elsewhere, save_overdue: overdue };
        if said == tracked.said {
            return;
        }
        let before = std::mem::replace(&mut tracked.said, said);
        let said = &tracked.said;
        let unclear = said.unclear.clone().filter(|_| said.unclear != before.unclear);
        let elsewhere = said.elsewhere && !before.elsewhere;
        let save_overdue = said.save_overdue && !before.save_overdue;
        if let Some(status) = unclear {
            let text = format!("its status is not known to this version: {status}; it is left as it is");
            self.notice(Some(session), NoticeKind::Unclear, text);
        }
        if elsewhere {
            self.notice(
                Some(session),
                NoticeKind::Elsewhere,
                "it asks for another platform; it is left alone",
            );
        }
        if save_overdue {
            self.notice(Some(session), NoticeKind::SaveOverdue, decision.why.clone());
        }
    }

    /// How long the session's newest worker has been asked to be saved.
    pub(super) fn is_save_overdue(&self, now: Timestamp, tracked: &Tracked) -> bool {
        let first = tracked.evidence.boot.saving_since;
        first.is_some_and(|first| since(now, first) >= self.policy.save_timeout)
    }
}

const fn is_light(step: &Step) -> bool {
    match step {
        Step::Look | Step::Write(_) | Step::DeleteSnapshot { .. } | Step::Forget | Step::Release => true,
        Step::Start(_) | Step::StopWorker { .. } | Step::Save { .. } | Step::Remove { .. } => false,
    }
}
