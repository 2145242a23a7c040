use std::collections::BTreeMap;

use futures::future::join_all;
use jiff::Timestamp;
use outpost_core::model::{Boot, PinnedSnapshot, Record, RecordedSnapshot, SessionId, SnapshotRef, Standing};
use outpost_core::ports::{ErrorKind, SnapshotStore, Version};

use super::fixture::StoreFixture;
use crate::conformance::{Verdict, ensure, fail};

fn session(text: &str) -> SessionId {
    SessionId::new(text).expect("a valid id")
}

/// A record with something in every field, that `n` tells from others.
fn record(n: u64) -> Record {
    let snapshot = |name: &str| RecordedSnapshot {
        reference: SnapshotRef::new(format!("{name}-{n}")).expect("not empty"),
        boot: Boot::new(n),
        taken_at: Timestamp::constant(1_796_083_200, 123_456_000),
        standing: Standing::Unverified,
    };
    Record {
        newest_boot: Boot::new(n + 1),
        closed_boot: Boot::new(n),
        newest_snapshot: Some(snapshot("newest")),
        pinned: vec![PinnedSnapshot {
            snapshot: snapshot("pinned"),
            since: Timestamp::constant(1_796_083_250, 0),
            why: "it was corrupt: \"✗\"".to_owned(),
        }],
        undeletable: vec![SnapshotRef::new("undeletable").expect("not empty")],
        failures: 3,
        retry_at: Some(Timestamp::constant(1_796_083_300, 0)),
        last_seen: Some(Timestamp::constant(1_796_083_100, 0)),
    }
}

async fn is(store: &dyn SnapshotStore, session: &SessionId, record: &Record) -> Result<Version, Verdict> {
    match store.get(session).await? {
        Some(stored) if stored.record == *record => Ok(stored.version),
        other => fail!("put was {record:?}, got {other:?}"),
    }
}

pub(super) async fn k1_what_was_put_last_is_got_also_after_a_kill(
    fixture: &dyn StoreFixture,
) -> Result<(), Verdict> {
    let store = fixture.open().await;
    let (a, b) = (session("devin-a"), session("devin-b"));
    let first = store.put(&a, &record(1), None).await?;
    let second = store.put(&a, &record(2), Some(first)).await?;
    ensure!(first != second, "two writings have one version");
    store.put(&b, &record(3), None).await?;
    ensure!(is(&*store, &a, &record(2)).await? == second, "got is another version than put answered");

    let store = fixture.restart(store).await;
    let version = is(&*store, &a, &record(2)).await?;
    is(&*store, &b, &record(3)).await?;
    store.put(&a, &record(4), Some(version)).await?;
    is(&*store, &a, &record(4)).await?;
    Ok(())
}

pub(super) async fn k2_no_record_is_none_and_an_unreadable_one_is_an_error(
    fixture: &dyn StoreFixture,
) -> Result<(), Verdict> {
    let store = fixture.open().await;
    let a = session("devin-a");
    let none = store.get(&a).await?;
    ensure!(none.is_none(), "never put, and got {none:?}");
    store.put(&a, &record(1), None).await?;
    match fixture.spoil(&a).await {
        Err(skip) => eprintln!("K2 without an unreadable record: {skip}"),
        Ok(()) => {
            let got = fixture.restart(store).await.get(&a).await;
            ensure!(got.is_err(), "an unreadable record is answered with {got:?}");
        }
    }
    Ok(())
}

pub(super) async fn k3_of_puts_with_one_expectation_exactly_one_succeeds(
    fixture: &dyn StoreFixture,
) -> Result<(), Verdict> {
    let store = fixture.open().await;
    let a = session("devin-a");
    let mut expected = None;
    for round in 0..4_u64 {
        let records: Vec<_> = (0..8).map(|n| record(10 * round + n)).collect();
        let answers = join_all(records.iter().map(|record| store.put(&a, record, expected))).await;
        let mut won = None;
        for (record, answer) in records.iter().zip(answers) {
            match answer {
                Ok(version) => {
                    ensure!(won.is_none(), "two of eight puts that expected {expected:?} have succeeded");
                    won = Some((record, version));
                }
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error.into()),
            }
        }
        let Some((record, version)) = won else { fail!("none of eight puts has succeeded") };
        ensure!(is(&*store, &a, record).await? == version, "stored is another than the one that succeeded");
        expected = Some(version);
    }
    Ok(())
}

pub(super) async fn k4_a_failed_put_changes_nothing(fixture: &dyn StoreFixture) -> Result<(), Verdict> {
    let store = fixture.open().await;
    let (a, b) = (session("devin-a"), session("devin-b"));
    let old = store.put(&a, &record(1), None).await?;
    let new = store.put(&a, &record(2), Some(old)).await?;
    is_conflict(store.put(&a, &record(3), Some(old)).await)?;
    ensure!(is(&*store, &a, &record(2)).await? == new, "a failed put has changed the version");
    is_conflict(store.put(&b, &record(3), Some(new)).await)?;
    ensure!(store.get(&b).await?.is_none(), "a put that expected a record has made one");
    match fixture.hinder_writes().await {
        Err(skip) => eprintln!("K4 without hindered writes: {skip}"),
        Ok(()) => {
            let answers = [store.put(&a, &record(4), Some(new)).await, store.put(&b, &record(4), None).await];
            fixture.heal().await;
            ensure!(answers.iter().all(Result::is_err), "a write that cannot succeed has: {answers:?}");
            is(&*store, &a, &record(2)).await?;
            ensure!(store.get(&b).await?.is_none(), "a failed put has made a record");
            let store = fixture.restart(store).await;
            is(&*store, &a, &record(2)).await?;
            ensure!(store.list().await?.len() == 1, "a failed put shows after a restart");
        }
    }
    Ok(())
}

fn is_conflict<T: std::fmt::Debug>(answer: Result<T, outpost_core::ports::Error>) -> Result<(), Verdict> {
    match answer {
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        other => fail!("a conflict is answered with {other:?}"),
    }
}

pub(super) async fn k5_any_id_can_be_stored_and_none_reaches_anothers_record(
    fixture: &dyn StoreFixture,
) -> Result<(), Verdict> {
    let store = fixture.open().await;
    let ids: Vec<_> = [
        "devin-a",
        "devin-A",
        "DEVIN-A",
        "devin-a.json",
        "devin-a/",
        "devin-a/b",
        "../devin-a",
        "..",
        ".",
        "/",
        "/etc/passwd",
        "~",
        "-",
        "--help",
        " ",
        "devin a",
        "devin%2fa",
        "devin\\a",
        "con",
        "NUL",
        "a:b",
        "a*?",
        "\"'",
        "$(id)",
        "é",
        "e\u{301}",
        "🚀",
        "*",
        "_",
        "%",
        "a'; drop table records; --",
    ]
    .into_iter()
    .map(session)
    .chain([session(&"x".repeat(512)), session(&format!("{}y", "x".repeat(511)))])
    .collect();
    for (n, id) in (1..).zip(&ids) {
        let answer = store.put(id, &record(n), None).await;
        if let Err(error) = answer {
            fail!("{id:?} cannot be stored, or is another's: {error}");
        }
    }
    for (n, id) in (1..).zip(&ids) {
        is(&*store, id, &record(n)).await?;
    }
    let store = fixture.restart(store).await;
    let listed: BTreeMap<_, _> = store.list().await?.into_iter().collect();
    for (n, id) in (1..).zip(&ids) {
        let found = listed.get(id).map(|stored| &stored.record);
        ensure!(found == Some(&record(n)), "{id:?} is listed as {found:?}");
    }
    let version = is(&*store, &ids[0], &record(1)).await?;
    store.delete(&ids[0], version).await?;
    for (n, id) in (1..).zip(&ids).skip(1) {
        is(&*store, id, &record(n)).await?;
    }
    Ok(())
}

pub(super) async fn k6_the_list_is_complete_or_an_error(fixture: &dyn StoreFixture) -> Result<(), Verdict> {
    let store = fixture.open().await;
    ensure!(store.list().await?.is_empty(), "an empty store lists something");
    let ids: Vec<_> = (0..60).map(|n| session(&format!("devin-{n}"))).collect();
    for (n, id) in (0..).zip(&ids) {
        store.put(id, &record(n), None).await?;
    }
    let listed: BTreeMap<_, _> = store.list().await?.into_iter().collect();
    ensure!(listed.len() == ids.len(), "{} of {} records are listed", listed.len(), ids.len());
    for (n, id) in (0..).zip(&ids) {
        let version = is(&*store, id, &record(n)).await?;
        let found = listed.get(id);
        ensure!(
            found.is_some_and(|stored| stored.record == record(n) && stored.version == version),
            "{id} is listed as {found:?}"
        );
    }
    match fixture.spoil(&ids[7]).await {
        Err(skip) => eprintln!("K6 without an unreadable record: {skip}"),
        Ok(()) => {
            let listed = fixture.restart(store).await.list().await;
            ensure!(listed.is_err(), "a list without its unreadable record passes for complete");
        }
    }
    Ok(())
}

pub(super) async fn k7_deleting_the_absent_is_success_and_the_changed_a_conflict(
    fixture: &dyn StoreFixture,
) -> Result<(), Verdict> {
    let store = fixture.open().await;
    let (a, never) = (session("devin-a"), session("devin-never"));
    let old = store.put(&a, &record(1), None).await?;
    let new = store.put(&a, &record(2), Some(old)).await?;
    is_conflict(store.delete(&a, old).await)?;
    is(&*store, &a, &record(2)).await?;
    store.delete(&a, new).await?;
    ensure!(store.list().await?.is_empty(), "it was deleted and is listed");
    store.delete(&a, new).await?;
    store.delete(&never, new).await?;
    let store = fixture.restart(store).await;
    ensure!(store.list().await?.is_empty(), "it came back with a restart");
    let anew = store.put(&a, &record(3), None).await?;
    ensure!(anew != old && anew != new, "a record made anew has a version of its forerunner");
    Ok(())
}
