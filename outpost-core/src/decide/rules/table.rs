//! The state table as an ordered list of rules, written by hand from what was promised; the first that fits decides.

use super::cases::{Asleep, BackOff, Case, Col, Held, Holder, Kind, Reread, Row, Saved, Served};
use super::world::{OLDER, THIS};
use crate::decide::StopReason;
use crate::model::{Boot, SnapshotPurpose};

/// The step that a rule demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Do {
    Nothing,
    Look,
    /// A boot, from the snapshot of another or from the image.
    Start(Boot, Option<Boot>),
    Stop(Boot, StopReason),
    Save(Boot, SnapshotPurpose),
    Remove(Boot),
    /// The record names this boot's snapshot from now on.
    Adopt(Boot),
    /// The record says that the session has gone on elsewhere since its snapshot.
    Supersede,
    /// The snapshot of a boot.
    Delete(Boot),
    Forget,
    Release,
}

/// Whether our claim is renewed beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renew {
    Yes,
    No,
    /// The table leaves it open.
    Open,
}

pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) when: fn(&Case) -> bool,
    pub(super) then: fn(&Case) -> (Do, Renew),
}

/// Whether a sandbox may hold what neither its snapshot nor its image holds. A worker that left content did something.
fn worked(c: &Case) -> bool {
    c.served != Served::No || c.col == Col::Exited0
}

/// The row shows our claim, and nothing said otherwise since.
fn ours(c: &Case) -> bool {
    c.row.has_row() && c.held == Held::Claimed && c.holder == Holder::Ours
}

/// Another has the session, and that is confirmed.
fn anothers(c: &Case) -> bool {
    matches!(c.holder, Holder::AnotherByLists | Holder::AnotherBy409 | Holder::OursBut409)
}

fn nobodys(c: &Case) -> bool {
    c.held == Held::Pending && !anothers(c)
}

/// Somebody else has it, says one list.
fn perhaps_anothers(c: &Case) -> bool {
    !ours(c) && !anothers(c) && !nobodys(c)
}

fn works(c: &Case) -> bool {
    matches!(c.row, Row::Pending | Row::Running) && c.held != Held::UnknownText
}

fn sleeps(c: &Case) -> bool {
    c.row == Row::Suspended
}

fn ended(c: &Case) -> bool {
    c.row == Row::Terminated
}

fn gone(c: &Case) -> bool {
    matches!(c.row, Row::Gone | Row::GoneLong)
}

/// Nothing is known that would justify anything that cannot be undone.
fn unclear(c: &Case) -> bool {
    !works(c) && !sleeps(c) && !ended(c) && !gone(c) && c.row != Row::OtherPlatform
}

fn claims(c: &Case) -> bool {
    c.mode.claims()
}

/// "A claim is renewed through saving and stopping while the row shows us."
fn kept(c: &Case) -> Renew {
    if claims(c) && ours(c) { Renew::Yes } else { Renew::No }
}

/// After a lapse the claim is taken back while the worker goes on.
fn kept_or_regained(c: &Case) -> Renew {
    if claims(c) && (ours(c) || nobodys(c)) { Renew::Yes } else { Renew::No }
}

/// The snapshot that the session resumes from.
fn restore(c: &Case) -> Option<Boot> {
    match c.saved {
        Saved::Older | Saved::OlderSuperseded => Some(OLDER),
        Saved::This => Some(THIS),
        Saved::Nothing | Saved::ThisUnrecorded | Saved::Pinned | Saved::Detached => None,
    }
}

fn next(c: &Case) -> Boot {
    if c.col == Col::NeverStarted { OLDER } else { THIS.next() }
}

fn start(c: &Case) -> (Do, Renew) {
    (
        Do::Start(next(c), restore(c)),
        if ours(c) && c.back_off != BackOff::GivenUpOver { kept(c) } else { Renew::Open },
    )
}

const RESUME: SnapshotPurpose = SnapshotPurpose::Resume;
const DETACHED: SnapshotPurpose = SnapshotPurpose::Detached;

macro_rules! rules {
    ($($name:literal: $when:expr => $then:expr;)+) => {
        &[$(Rule { name: $name, when: $when, then: $then }),+]
    };
}

/// Order matters: the first rule that fits is the one that holds.
pub(super) const RULES: &[Rule] = rules! {
    // Before the columns: what is known is written down, what is left over is ended.
    "a snapshot that is complete but unknown to the record is recorded first (lesson 42)":
        |c| c.saved == Saved::ThisUnrecorded && !ended(c) => |_| (Do::Adopt(THIS), Renew::Open);
    "a removal that goes on is asked for again after a minute":
        |c| c.col == Col::ClosedOld => |_| (Do::Remove(THIS), Renew::Open);
    "a removal that goes on is waited for":
        |c| c.col == Col::ClosedFresh && !ended(c) => |_| (Do::Nothing, Renew::Open);
    "of two live sandboxes of a session the older one is ended, whatever the row says":
        |c| c.col == Col::LeftoverRunning => |_| (Do::Stop(OLDER, StopReason::Leftover), Renew::Open);

    "a worker is rolled over before the backend ends its sandbox, whatever the row says (lesson 48)":
        |c| c.col == Col::RunningAtLimit && !ended(c) && !(works(c) && anothers(c))
        => |c| (Do::Stop(THIS, StopReason::Lifetime), if works(c) { kept_or_regained(c) } else { kept_open(c) });

    // pending, running
    "a session that nobody has is started, from its newest snapshot":
        |c| works(c) && c.col.is_empty() && nobodys(c) && !held_back(c) && !courteous(c) => start;
    "a resumed session without a snapshot here is left to the host that has it, for a minute":
        |c| works(c) && c.col.is_empty() && nobodys(c) && !held_back(c) => |_| (Do::Nothing, Renew::No);
    "our session without a sandbox is started again":
        |c| works(c) && c.col.is_empty() && ours(c) && !held_back(c) => start;
    "after five failures the claim is given back":
        |c| works(c) && c.col.is_empty() && ours(c) && c.back_off == BackOff::GivenUp && claims(c)
        => |_| (Do::Release, Renew::No);
    "a session that failed waits, and keeps its claim":
        |c| works(c) && c.col.is_empty() && (ours(c) || nobodys(c)) => |c| (Do::Nothing, kept(c));
    "what another has is not touched, and our snapshot of it is superseded":
        |c| works(c) && c.col.is_empty() && anothers(c) && matches!(c.saved, Saved::Older | Saved::This)
        => |_| (Do::Supersede, Renew::No);
    "what another has is not touched":
        |c| works(c) && c.col.is_empty() => |_| (Do::Nothing, Renew::No);
    "a start that is late is ended":
        |c| works(c) && c.col == Col::StartingLate
        => |c| (Do::Stop(THIS, StopReason::StartTimeout), kept_or_regained(c));
    "a start is waited for":
        |c| works(c) && c.col == Col::Starting => |c| (Do::Nothing, kept_or_regained(c));
    "a worker whose session is another's is ended":
        |c| works(c) && c.col.is_running() && anothers(c)
        => |_| (Do::Stop(THIS, StopReason::ClaimLost), Renew::No);
    "the CLI that has not claimed its session in four minutes is ended":
        |c| works(c) && c.col.is_running() && c.col != Col::RunningShort && !claims(c) && nobodys(c)
            && c.served != Served::Yes
        => |_| (Do::Stop(THIS, StopReason::Unclaimed), Renew::No);
    "a worker is left alone and its claim kept":
        |c| works(c) && c.col.is_running() => |c| (Do::Nothing, kept_or_regained(c));
    "while it is not confirmed that another has it, an ended worker waits":
        |c| works(c) && c.col.is_exited() && perhaps_anothers(c) => |_| (Do::Nothing, Renew::No);
    "what is another's now is kept for people":
        |c| works(c) && c.col.is_exited() && anothers(c) && worked(c)
            && !matches!(c.saved, Saved::Detached | Saved::This)
        => |_| (Do::Save(THIS, DETACHED), Renew::No);
    "what is another's now is removed when it is kept for people, or has done nothing":
        |c| works(c) && c.col.is_exited() && anothers(c) => |_| (Do::Remove(THIS), Renew::No);
    "after a clean end the row is read again, two seconds apart":
        |c| works(c) && c.col == Col::Exited0 && c.reread == Reread::OnceJustNow => |c| (Do::Nothing, kept_open(c));
    "after a clean end the row is read three times":
        |c| works(c) && c.col == Col::Exited0 && c.reread != Reread::Thrice => |c| (Do::Look, kept_open(c));
    "a saved sandbox is removed":
        |c| works(c) && c.col.is_exited() && c.saved == Saved::This => |c| (Do::Remove(THIS), kept_open(c));
    "an ended worker's disk is saved":
        |c| works(c) && c.col.is_exited() && worked(c) => |c| (Do::Save(THIS, RESUME), kept_open(c));
    "what has done nothing is not saved (lesson 45)":
        |c| works(c) && c.col.is_exited() => |c| (Do::Remove(THIS), kept_open(c));

    // suspended
    "a session that sleeps is released when nothing is left, and only then (lesson 37)":
        |c| sleeps(c) && c.col.is_empty() && ours(c) && claims(c) => |_| (Do::Release, Renew::No);
    "what another had meanwhile is superseded, also when it sleeps":
        |c| sleeps(c) && c.col.is_empty() && anothers(c) && matches!(c.saved, Saved::Older | Saved::This)
        => |_| (Do::Supersede, Renew::No);
    "a session that sleeps is not claimed (lesson 12)":
        |c| sleeps(c) && c.col.is_empty() => |_| (Do::Nothing, Renew::No);
    "a worker has its grace to leave by itself":
        |c| sleeps(c) && c.col.is_running() && c.asleep != Asleep::ThriceAndGraceOver
        => |c| (Do::Nothing, kept(c));
    "a worker that goes on while its session sleeps is ended (lesson 36)":
        |c| sleeps(c) && c.col.is_running() && c.asleep == Asleep::ThriceAndGraceOver
        => |c| (Do::Stop(THIS, StopReason::Suspended), kept(c));

    // gone
    "a session that is gone keeps its snapshot (lesson 31)":
        |c| gone(c) && c.col.is_empty() => |_| (Do::Nothing, Renew::No);
    "a worker whose session is gone has its grace":
        |c| c.row == Row::Gone && c.col.is_running() => |_| (Do::Nothing, Renew::No);
    "a worker that goes on although its session is gone is ended":
        |c| c.row == Row::GoneLong && c.col.is_running() => |_| (Do::Stop(THIS, StopReason::Gone), Renew::No);

    // suspended, gone
    "a late start is ended, and its outcome is what is waited for":
        |c| (sleeps(c) || gone(c)) && c.col == Col::StartingLate
        => |c| (Do::Stop(THIS, StopReason::StartTimeout), kept(c));
    "the outcome of a start is waited for":
        |c| (sleeps(c) || gone(c)) && c.col == Col::Starting => |c| (Do::Nothing, kept(c));
    "a sandbox is removed when its snapshot is durable and recorded (lesson 41)":
        |c| (sleeps(c) || gone(c)) && c.col.is_exited() && (c.saved == Saved::This || !worked(c))
        => |c| (Do::Remove(THIS), kept_open(c));
    "what another has had meanwhile is kept for people, and not restored silently":
        |c| sleeps(c) && c.col.is_exited() && anothers(c) && c.saved != Saved::Detached => |_| (Do::Save(THIS, DETACHED), Renew::No);
    "what another has had meanwhile is removed when it is kept for people":
        |c| sleeps(c) && c.col.is_exited() && anothers(c) => |_| (Do::Remove(THIS), Renew::No);
    "a sandbox is saved, claim or not (lesson 33)":
        |c| (sleeps(c) || gone(c)) && c.col.is_exited() => |c| (Do::Save(THIS, RESUME), kept_open(c));

    // terminated
    "a worker whose session has ended is ended at once (lesson 40)":
        |c| ended(c) && c.col.is_running() => |c| (Do::Stop(THIS, StopReason::Terminated), kept_open(c));
    "a late start of a session that has ended is ended":
        |c| ended(c) && c.col == Col::StartingLate => |c| (Do::Stop(THIS, StopReason::StartTimeout), kept_open(c));
    "the outcome of a start is waited for, also when its session has ended":
        |c| ended(c) && c.col == Col::Starting => |c| (Do::Nothing, kept_open(c));
    "a sandbox whose session has ended is removed unsaved":
        |c| ended(c) && c.col.is_exited() => |c| (Do::Remove(THIS), kept_open(c));
    "snapshots of a session that has ended are deleted":
        |c| ended(c) && c.col.is_empty() && !matches!(c.saved, Saved::Nothing | Saved::Detached) => |c| {
            let boot = if matches!(c.saved, Saved::This | Saved::ThisUnrecorded) { THIS } else { OLDER };
            (Do::Delete(boot), Renew::Open)
        };
    "the record of a session that has ended is forgotten when no snapshot is left":
        |c| ended(c) && c.col == Col::None && c.saved == Saved::Nothing => |_| (Do::Forget, Renew::Open);
    "a session that has ended is released last":
        |c| ended(c) && c.col.is_empty() && ours(c) && claims(c) => |_| (Do::Release, Renew::No);
    "a session that has ended is not claimed (lesson 12)":
        |c| ended(c) && c.col.is_empty() => |_| (Do::Nothing, Renew::No);

    // unknown text, absent, not read yet
    "what is unclear is looked at when it has been absent for long enough":
        |c| c.row == Row::AbsentLong && is_here(c) && !to_be_saved(c) => |_| (Do::Look, Renew::Open);
    "what is unclear keeps its claim and its life":
        |c| unclear(c) && c.col.is_running() => |c| (Do::Nothing, kept(c));
    "what is unclear is saved once":
        |c| unclear(c) && to_be_saved(c)
        => |_| (Do::Save(THIS, RESUME), Renew::Open);
    "what is unclear stays as it is":
        |c| unclear(c) && !is_unlisted(c) && c.col != Col::LeftoverExited => |_| (Do::Nothing, Renew::Open);

    // Any row.
    "what asks for another platform is left alone":
        |c| c.row == Row::OtherPlatform => |_| (Do::Nothing, Renew::No);
    "a removal is repeated after a minute":
        |c| c.col == Col::StoppingOld => |c| (Do::Remove(THIS), kept_open(c));
    "a removal is waited for":
        |c| c.col == Col::StoppingFresh || c.col == Col::ClosedFresh => |c| (Do::Nothing, kept_open(c));
    "what has no disk is removed":
        |c| c.col == Col::Failed => |c| (Do::Remove(THIS), kept_open(c));
    "a leftover is kept for people, and removed":
        |c| c.col == Col::LeftoverExited && !matches!(c.saved, Saved::Older | Saved::OlderSuperseded | Saved::Pinned | Saved::Detached) && !ended(c)
        => |_| (Do::Save(OLDER, DETACHED), Renew::Open);
    "a leftover is removed":
        |c| c.col == Col::LeftoverExited => |_| (Do::Remove(OLDER), Renew::Open);
    "a boot that is not listed because it has become its snapshot is over":
        |c| is_unlisted(c) && c.saved == Saved::This => |c| (Do::Remove(THIS), kept_open(c));
    "a boot that is not listed for long is over":
        |c| c.col == Col::UnlistedLong => |c| (Do::Remove(THIS), kept_open(c));
    "a boot that is not listed is waited for":
        |c| c.col == Col::UnlistedOnce => |c| (Do::Nothing, kept_open(c));
};

/// Renewed while the row shows us; where it does not, the table leaves open whether the claim is taken back.
fn kept_open(c: &Case) -> Renew {
    if kept(c) == Renew::Yes {
        Renew::Yes
    } else if nobodys(c) && claims(c) {
        Renew::Open
    } else {
        Renew::No
    }
}

fn held_back(c: &Case) -> bool {
    matches!(c.back_off, BackOff::Pending | BackOff::GivenUp)
}

/// Only where several hosts can serve one outpost, and only before somebody has waited.
fn courteous(c: &Case) -> bool {
    claims(c) && c.kind == Kind::ResumeFresh && matches!(c.saved, Saved::Nothing | Saved::Detached)
}

/// The sandbox of the newest boot is listed, and not known to be over.
fn is_here(c: &Case) -> bool {
    c.col.is_starting()
        || c.col.is_running()
        || c.col.is_exited()
        || c.col.is_stopping()
        || c.col == Col::Failed
}

fn to_be_saved(c: &Case) -> bool {
    c.col.is_exited() && worked(c) && c.saved != Saved::This
}

fn is_unlisted(c: &Case) -> bool {
    matches!(c.col, Col::UnlistedOnce | Col::UnlistedLong)
}
