//! The product of everything that the table distinguishes.

use super::world::{OLDER, THIS, World, exited, secs, world};
use crate::decide::time::after;
use crate::decide::{Origin, Sight, Streak};
use crate::model::{
    AcceptorId, Boot, Phase, PinnedSnapshot, Platform, SandboxState, SessionKind, SessionStatus,
    SnapshotPurpose, Standing, WorkerMode,
};

macro_rules! dimension {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            pub(super) const ALL: &[Self] = &[$(Self::$variant),+];
        }
    };
}

dimension! {
    /// What Devin says.
    Row {
        Pending,
        Running,
        Suspended,
        Terminated,
        UnknownText,
        OtherPlatform,
        /// Known to be gone, just now.
        Gone,
        /// Known to be gone, for longer than the grace.
        GoneLong,
        /// Absent from one list.
        Absent,
        /// Absent from three lists over a minute; no look yet.
        AbsentLong,
        /// This process has not read a list yet.
        Unseen,
    }
}

dimension! {
    /// The row's phase.
    Held { Pending, Claimed, UnknownText }
}

dimension! {
    /// The row's acceptor, and what is known of it.
    Holder {
        None,
        Ours,
        /// Another, in one list.
        Another,
        /// Another, in two lists.
        AnotherByLists,
        /// Another, and a claim of ours was answered with 409.
        AnotherBy409,
        /// Ours, but a renewal was answered with 409 since.
        OursBut409,
    }
}

dimension! {
    /// What exists of the session's boots.
    Col {
        NeverStarted,
        None,
        Starting,
        StartingLate,
        RunningShort,
        /// For ten minutes.
        Running,
        /// The backend would end it in five minutes, and can put that off.
        RunningExpiring,
        /// The backend will end it in a minute, and cannot put that off.
        RunningAtLimit,
        Exited0,
        Exited1,
        ExitedUnknown,
        StoppingFresh,
        StoppingOld,
        Failed,
        /// An older boot's worker lives although a newer boot runs.
        LeftoverRunning,
        LeftoverExited,
        /// Started, says the record; one inventory has not listed it.
        UnlistedOnce,
        /// The same, for many inventories over minutes.
        UnlistedLong,
        /// Known to be over, but still listed: its removal goes on.
        ClosedFresh,
        ClosedOld,
    }
}

dimension! {
    /// Whether the newest boot has done work.
    Served {
        No,
        /// For seconds: not enough to count, enough to have written something.
        Briefly,
        Yes,
        Unknown,
    }
}

dimension! {
    /// What is saved.
    Saved {
        Nothing,
        Older,
        OlderSuperseded,
        This,
        /// Listed, but no record knows it.
        ThisUnrecorded,
        /// The older boot's, from which a restore failed.
        Pinned,
        /// This boot's, kept for people.
        Detached,
    }
}

dimension! {
    /// What the record says of starting again.
    BackOff { None, Pending, Over, GivenUp, GivenUpOver }
}

dimension! {
    /// What has been seen of `suspended`.
    Asleep { Once, OnceLongAgo, ThriceWithinGrace, ThriceAndGraceOver }
}

dimension! {
    /// How often the row was read again since the worker ended.
    Reread { Never, OnceJustNow, Once, Twice, Thrice }
}

dimension! {
    /// What the row says of the session's past.
    Kind {
        New,
        /// Resumes, and nobody has held it for a moment.
        ResumeFresh,
        /// Resumes, and nobody has held it for minutes.
        ResumeWaited,
    }
}

/// One situation in the table's terms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) mode: WorkerMode,
    pub(super) row: Row,
    pub(super) held: Held,
    pub(super) holder: Holder,
    pub(super) col: Col,
    pub(super) served: Served,
    pub(super) saved: Saved,
    pub(super) back_off: BackOff,
    pub(super) asleep: Asleep,
    pub(super) reread: Reread,
    pub(super) kind: Kind,
}

impl Row {
    /// Whether the queue showed a row at some time.
    pub(super) const fn has_row(self) -> bool {
        !matches!(self, Self::Gone | Self::GoneLong | Self::Unseen)
    }
}

impl Col {
    pub(super) const fn is_exited(self) -> bool {
        matches!(self, Self::Exited0 | Self::Exited1 | Self::ExitedUnknown)
    }

    pub(super) const fn is_running(self) -> bool {
        matches!(self, Self::RunningShort | Self::Running | Self::RunningExpiring | Self::RunningAtLimit)
    }

    pub(super) const fn is_starting(self) -> bool {
        matches!(self, Self::Starting | Self::StartingLate)
    }

    pub(super) const fn is_stopping(self) -> bool {
        matches!(self, Self::StoppingFresh | Self::StoppingOld)
    }

    pub(super) const fn is_leftover(self) -> bool {
        matches!(self, Self::LeftoverRunning | Self::LeftoverExited)
    }

    pub(super) const fn is_empty(self) -> bool {
        matches!(self, Self::NeverStarted | Self::None)
    }

    /// The newest boot's worker is alive.
    const fn is_live(self) -> bool {
        self.is_running() || self.is_starting() || self.is_leftover()
    }
}

impl Case {
    /// Walks the product, without what cannot be.
    pub(super) fn walk(mode: WorkerMode, mut visit: impl FnMut(&Self, &World)) {
        for &row in Row::ALL {
            for (held, holder) in product(Held::ALL, Holder::ALL) {
                for (col, saved) in product(Col::ALL, Saved::ALL) {
                    if !row_is_possible(row, held, holder) || !things_are_possible(row, col, saved) {
                        continue;
                    }
                    let mut case = Self { mode, row, held, holder, col, saved, ..Self::PLAIN };
                    let mut world = case.world();
                    for_each_memory(row, col, |served, back_off, asleep, reread| {
                        for &kind in Kind::ALL {
                            case = Self { served, back_off, asleep, reread, kind, ..case };
                            case.remember(&mut world);
                            visit(&case, &world);
                        }
                    });
                }
            }
        }
    }

    const PLAIN: Self = Self {
        mode: WorkerMode::DevinRemote,
        row: Row::Running,
        held: Held::Claimed,
        holder: Holder::Ours,
        col: Col::Running,
        served: Served::Unknown,
        saved: Saved::Nothing,
        back_off: BackOff::None,
        asleep: Asleep::Once,
        reread: Reread::Never,
        kind: Kind::New,
    };

    /// The boot of the sandbox that is dealt with.
    pub(super) const fn boot(&self) -> Boot {
        if self.col.is_leftover() { OLDER } else { THIS }
    }

    /// The situation that the case describes.
    pub(super) fn world(&self) -> World {
        let mut world = self.with_sandboxes(world().mode(self.mode));
        world = self.with_snapshots(world);
        world = self.with_row(world);
        self.remember(&mut world);
        world
    }

    fn with_row(&self, world: World) -> World {
        let since = world.ago(600);
        let another = AcceptorId::new("another-desk").unwrap();
        let ours = world.acceptor();
        let acceptor = match self.holder {
            Holder::None => None,
            Holder::Ours | Holder::OursBut409 => Some(&ours),
            Holder::Another | Holder::AnotherByLists | Holder::AnotherBy409 => Some(&another),
        };
        let status = match self.row {
            Row::Pending | Row::OtherPlatform => SessionStatus::Pending,
            Row::Suspended => SessionStatus::Suspended,
            Row::Terminated => SessionStatus::Terminated,
            Row::UnknownText => SessionStatus::Unknown("dreaming".into()),
            _ => SessionStatus::Running,
        };
        let mut world = world.row(status).claimed_by(acceptor).with_row(|row| {
            row.phase = match self.held {
                Held::Pending => Phase::Pending,
                Held::Claimed => Phase::Claimed,
                Held::UnknownText => Phase::Unknown("shared".into()),
            };
            if self.row == Row::OtherPlatform {
                row.platform = Some(Platform::Windows);
            }
        });
        let absent = |count, seconds| Streak { count, since: Some(world.ago(seconds)) };
        match self.row {
            Row::Gone => {
                (world.sight, world.evidence.absent) = (Sight::Gone { since: world.now }, absent(9, 90))
            }
            Row::GoneLong => (world.sight, world.evidence.absent) = (Sight::Gone { since }, absent(99, 900)),
            Row::Absent | Row::AbsentLong => {
                world.evidence.absent = if self.row == Row::Absent { absent(1, 0) } else { absent(3, 70) };
                world.sight = Sight::Missing { last: world.sight.row().cloned() };
            }
            Row::Unseen => world.sight = Sight::Unseen,
            _ => {}
        }
        world
    }

    fn with_sandboxes(&self, world: World) -> World {
        let late = world.ago(241);
        let recent = world.ago(20);
        let mut world = match self.col {
            Col::NeverStarted => return world,
            Col::None | Col::UnlistedOnce | Col::UnlistedLong => {
                let mut world = world.sandbox(THIS, SandboxState::Running);
                world.sandboxes.clear();
                world
            }
            Col::Starting | Col::StartingLate => world.sandbox(THIS, SandboxState::Starting),
            Col::RunningShort | Col::Running | Col::RunningExpiring | Col::RunningAtLimit => {
                world.sandbox(THIS, SandboxState::Running)
            }
            Col::Exited0 => world.sandbox(THIS, exited(0)),
            Col::Exited1 | Col::ClosedFresh | Col::ClosedOld => world.sandbox(THIS, exited(1)),
            Col::ExitedUnknown => world.sandbox(THIS, SandboxState::Exited { code: None }),
            Col::StoppingFresh | Col::StoppingOld => world.sandbox(THIS, SandboxState::Stopping),
            Col::Failed => world.sandbox(THIS, SandboxState::Failed { why: "no such image".into() }),
            Col::LeftoverRunning | Col::LeftoverExited => {
                let state = if self.col == Col::LeftoverRunning { SandboxState::Running } else { exited(1) };
                let mut world = world.sandbox(OLDER, state).sandbox(THIS, SandboxState::Running);
                world.record.closed_boot = Boot::NONE;
                world
            }
        };
        let newest = world.sandboxes.last_mut();
        match (self.col, newest) {
            (Col::Starting | Col::RunningShort, Some(sandbox)) => sandbox.started_at = recent,
            (Col::StartingLate, Some(sandbox)) => sandbox.started_at = late,
            (Col::RunningExpiring, Some(sandbox)) => sandbox.expires_at = Some(after(world.now, secs(300))),
            (Col::RunningAtLimit, Some(sandbox)) => {
                sandbox.expires_at = Some(after(world.now, secs(60)));
                world.capabilities.lifetime_limit = Some(secs(660));
            }
            _ => {}
        }
        match self.col {
            Col::None | Col::ClosedFresh | Col::ClosedOld => world.record.closed_boot = THIS,
            _ => {}
        }
        world
    }

    fn with_snapshots(&self, world: World) -> World {
        match self.saved {
            Saved::Nothing => world,
            Saved::Older => world.saved(OLDER, Standing::Verified),
            Saved::OlderSuperseded => world.saved(OLDER, Standing::Superseded),
            Saved::This => world.saved(THIS, Standing::Verified),
            Saved::ThisUnrecorded => world.listed(THIS, SnapshotPurpose::Resume),
            Saved::Detached => world.listed(self.boot(), SnapshotPurpose::Detached),
            Saved::Pinned => {
                let mut world = world.saved(OLDER, Standing::Verified);
                let snapshot = world.record.newest_snapshot.take().expect("just recorded");
                world.record.pinned =
                    vec![PinnedSnapshot { snapshot, since: world.now, why: "corrupt".into() }];
                world
            }
        }
    }

    /// Sets everything that does not depend on what is listed.
    fn remember(&self, world: &mut World) {
        let now = world.now;
        if let Sight::Listed(row) | Sight::Missing { last: Some(row) } = &mut world.sight {
            row.kind = if self.kind == Kind::New { SessionKind::New } else { SessionKind::Resume };
        }
        let free = self.held == Held::Pending && matches!(world.sight, Sight::Listed(_));
        let free_since = world.ago(if self.kind == Kind::ResumeFresh { 5 } else { 600 });
        world.evidence.free_since = free.then_some(free_since);
        let (count, since) = match self.asleep {
            Asleep::Once => (1, world.ago(0)),
            Asleep::OnceLongAgo => (1, world.ago(600)),
            Asleep::ThriceWithinGrace => (3, world.ago(20)),
            Asleep::ThriceAndGraceOver => (3, world.ago(61)),
        };
        if self.row == Row::Suspended {
            world.evidence.suspended = Streak { count, since: Some(since) };
        }
        let another = matches!(self.holder, Holder::Another | Holder::AnotherByLists | Holder::AnotherBy409);
        if self.held != Held::Pending && another && !matches!(self.row, Row::Absent | Row::AbsentLong) {
            let count = if self.holder == Holder::AnotherByLists { 2 } else { 1 };
            world.evidence.foreign = Streak { count, since: Some(world.ago(10)) };
        }
        world.evidence.claim_lost = matches!(self.holder, Holder::AnotherBy409 | Holder::OursBut409);
        let serving_since = Some(world.ago(300));
        let (failures, retry_at) = match self.back_off {
            BackOff::None => (0, None),
            BackOff::Pending => (2, Some(after(now, secs(7)))),
            BackOff::Over => (2, Some(world.ago(7))),
            BackOff::GivenUp => (5, Some(after(now, secs(600)))),
            BackOff::GivenUpOver => (5, Some(world.ago(7))),
        };
        (world.record.failures, world.record.retry_at) = (failures, retry_at);
        let (rereads, reread_at) = match self.reread {
            Reread::Never => (0, None),
            Reread::OnceJustNow => (1, Some(now)),
            Reread::Once => (1, Some(world.ago(2))),
            Reread::Twice => (2, Some(world.ago(2))),
            Reread::Thrice => (3, Some(world.ago(2))),
        };
        let removal = match self.col {
            Col::StoppingFresh | Col::ClosedFresh => Some((THIS, world.ago(5))),
            Col::StoppingOld | Col::ClosedOld => Some((THIS, world.ago(61))),
            _ => None,
        };
        let unlisted = match self.col {
            Col::UnlistedOnce => Streak { count: 1, since: Some(now) },
            Col::UnlistedLong => Streak { count: 40, since: Some(world.ago(300)) },
            _ => Streak::default(),
        };
        world.evidence.removal_asked = removal;
        let boot = &mut world.evidence.boot;
        boot.unlisted = unlisted;
        (boot.rereads, boot.reread_at) = (rereads, reread_at);
        (boot.origin, boot.served) = match self.served {
            Served::No | Served::Briefly => (Origin::Here, false),
            Served::Yes => (Origin::Here, true),
            Served::Unknown => (Origin::Before, false),
        };
        boot.served_for = secs(if self.served == Served::Briefly { 6 } else { 0 });
        boot.serving_since = boot.served.then_some(serving_since).flatten();
    }
}

fn product<A: Copy, B: Copy>(left: &[A], right: &[B]) -> impl Iterator<Item = (A, B)> {
    left.iter().flat_map(|&a| right.iter().map(move |&b| (a, b)))
}

/// What the queue cannot show, or cannot have shown.
fn row_is_possible(row: Row, held: Held, holder: Holder) -> bool {
    if !row.has_row() {
        // Without a row there is nothing to read a phase or an acceptor from; a 409 may still be remembered.
        return held == Held::Pending && matches!(holder, Holder::None | Holder::AnotherBy409);
    }
    // A row that reads `pending`, or that is absent, ends the count of lists in which another held it.
    let counted = held != Held::Pending && !matches!(row, Row::Absent | Row::AbsentLong);
    holder != Holder::AnotherByLists || counted
}

/// What cannot exist together.
fn things_are_possible(row: Row, col: Col, saved: Saved) -> bool {
    // Nothing is started for another platform.
    let platform = row != Row::OtherPlatform || col.is_empty();
    // No snapshot without a boot.
    let boot = col != Col::NeverStarted || saved == Saved::Nothing;
    // No snapshot is taken of a live worker (V3).
    let this = matches!(saved, Saved::This | Saved::ThisUnrecorded | Saved::Detached);
    let live = !(this && col.is_live()) || (saved == Saved::Detached && col == Col::LeftoverExited);
    platform && boot && live
}

/// What is remembered only where something can have been seen.
fn for_each_memory(row: Row, col: Col, mut visit: impl FnMut(Served, BackOff, Asleep, Reread)) {
    // Without a boot nothing was served, nothing has failed; without an end nothing was read again.
    let served = if col.is_empty() { &Served::ALL[..1] } else { Served::ALL };
    let back_off = if col == Col::NeverStarted { &BackOff::ALL[..1] } else { BackOff::ALL };
    let asleep = if row == Row::Suspended { Asleep::ALL } else { &Asleep::ALL[..1] };
    let reread = if col.is_exited() { Reread::ALL } else { &Reread::ALL[..1] };
    for &served in served {
        for &back_off in back_off {
            for &asleep in asleep {
                for &reread in reread {
                    visit(served, back_off, asleep, reread);
                }
            }
        }
    }
}
