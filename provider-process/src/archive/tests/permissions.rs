//! What permissions stand in the way of.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use outpost_core::ports::ErrorKind;
use outpost_provider_kit::Cancel;

use super::Bench;
use crate::archive::pack_to;

/// Where root has prepared what a test is to see as somebody else.
const PREPARED: &str = "OUTPOST_TEST_PREPARED";
const NOBODY: u32 = 65_534;

/// Plays a test as a user whom permissions stop. Root, whom they don't, prepares a bench and plays the test of this name
/// again as somebody else.
fn as_plain_user(test: &str, prepare: impl FnOnce(&Bench), play: impl FnOnce(&Bench)) {
    if let Some(dir) = std::env::var_os(PREPARED) {
        return play(&Bench { dir: dir.into(), _held: None });
    }
    let bench = Bench::new();
    prepare(&bench);
    if !nix::unistd::geteuid().is_root() {
        return play(&bench);
    }
    for path in [&bench.dir, &bench.tree()] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // Through the link, for its path may lead through directories that others cannot enter.
    let linked = PathBuf::from("/proc/self/exe");
    let program = if linked.exists() { linked } else { std::env::current_exe().unwrap() };
    let output = Command::new(program)
        .args(["--exact", &format!("archive::tests::permissions::{test}"), "--nocapture"])
        .env(PREPARED, &bench.dir)
        .uid(NOBODY)
        .gid(NOBODY)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return println!("skipped: nothing can be run as another user here: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn directories_that_forbid_their_owner_are_saved_with_all_that_is_in_them() {
    let play = |bench: &Bench| {
        let modes = [0o000, 0o100, 0o200, 0o400, 0o600];
        let mut closed = Vec::new();
        for mode in modes {
            let dir = bench.tree().join(format!("{mode:o}"));
            fs::create_dir_all(dir.join("inner/most")).unwrap();
            fs::write(dir.join("inner/most/file"), "deep").unwrap();
            fs::set_permissions(dir.join("inner/most/file"), Permissions::from_mode(0o000)).unwrap();
            fs::set_permissions(dir.join("inner"), Permissions::from_mode(mode)).unwrap();
            fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
            closed.push((dir, mode));
        }
        let mode_of = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
        let (packed, restored) = bench.pack_and_unpack();
        assert_eq!(packed.warnings, [] as [&str; 0]);
        for (dir, mode) in closed {
            assert_eq!(mode_of(&dir), mode, "the saved tree is as it was");
            let back = restored.join(format!("{mode:o}"));
            for dir in [&dir, &back] {
                assert_eq!(mode_of(dir), mode);
                fs::set_permissions(dir, Permissions::from_mode(0o700)).unwrap();
                assert_eq!(mode_of(&dir.join("inner")), mode);
                fs::set_permissions(dir.join("inner"), Permissions::from_mode(0o700)).unwrap();
                let file = dir.join("inner/most/file");
                assert_eq!(mode_of(&file), 0);
                fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
                assert_eq!(fs::read_to_string(&file).unwrap(), "deep");
            }
        }
    };
    as_plain_user("directories_that_forbid_their_owner_are_saved_with_all_that_is_in_them", |_| {}, play);
}

#[test]
fn what_was_lent_is_taken_back_when_the_save_is_called_off() {
    let play = |bench: &Bench| {
        let outer = bench.tree().join("outer");
        fs::create_dir_all(outer.join("inner")).unwrap();
        for name in ["file", "another"] {
            fs::write(outer.join("inner").join(name), "").unwrap();
        }
        for dir in [outer.join("inner"), outer.clone()] {
            fs::set_permissions(dir, Permissions::from_mode(0o000)).unwrap();
        }
        let cancel = Cancel::default();
        struct Canceller<'a>(&'a Path, &'a Cancel);
        impl std::io::Write for Canceller<'_> {
            fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
                // The first of the files is being written: both directories are opened up.
                if fs::symlink_metadata(self.0).is_ok() {
                    self.1.cancel();
                }
                Ok(buffer.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let file = outer.join("inner/file");
        let result =
            crate::archive::pack::pack(&bench.tree(), Path::new("-"), Canceller(&file, &cancel), &cancel);
        assert!(result.is_err());
        assert_eq!(fs::symlink_metadata(&outer).unwrap().mode() & 0o7777, 0);
        fs::set_permissions(&outer, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(fs::symlink_metadata(outer.join("inner")).unwrap().mode() & 0o7777, 0);
        fs::set_permissions(outer.join("inner"), Permissions::from_mode(0o700)).unwrap();
    };
    as_plain_user("what_was_lent_is_taken_back_when_the_save_is_called_off", |_| {}, play);
}

#[test]
fn what_only_root_can_read_is_left_out_with_a_warning() {
    if std::env::var_os(PREPARED).is_none() && !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can make such files");
        return;
    }
    let prepare = |bench: &Bench| {
        let work = bench.tree().join("work");
        fs::create_dir_all(work.join("closed")).unwrap();
        fs::write(work.join("closed/file"), "").unwrap();
        fs::write(work.join("secret"), "").unwrap();
        fs::hard_link(work.join("secret"), work.join("secret too")).unwrap();
        fs::write(work.join("plain"), "").unwrap();
        for path in ["closed", "secret"] {
            fs::set_permissions(work.join(path), Permissions::from_mode(0o000)).unwrap();
        }
    };
    let play = |bench: &Bench| {
        let (mut packed, restored) = bench.pack_and_unpack();
        packed.warnings.sort();
        let warnings = [
            "\"work/closed\" cannot be read: what is in it was left out",
            "\"work/secret too\" cannot be read and was left out",
            "\"work/secret\" cannot be read and was left out",
        ];
        assert_eq!(packed.warnings, warnings);
        let names = fs::read_dir(restored.join("work")).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["closed", "plain"]);
    };
    as_plain_user("what_only_root_can_read_is_left_out_with_a_warning", prepare, play);
}

#[test]
fn a_disk_that_cannot_be_read_at_all_is_an_error_and_no_empty_snapshot() {
    if std::env::var_os(PREPARED).is_none() && !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can make such directories");
        return;
    }
    let prepare = |bench: &Bench| {
        fs::create_dir(bench.tree().join("workspace")).unwrap();
        fs::set_permissions(bench.tree().join("workspace"), Permissions::from_mode(0o000)).unwrap();
    };
    let play = |bench: &Bench| {
        let packed = pack_to(&bench.file(), &bench.tree(), Path::new("-"), 1, &Cancel::default());
        assert!(packed.is_err_and(|fault| fault.kind == ErrorKind::Unauthorized));
        assert!(!bench.file().exists());
    };
    as_plain_user("a_disk_that_cannot_be_read_at_all_is_an_error_and_no_empty_snapshot", prepare, play);
}

#[test]
fn attributes_of_what_may_not_be_read_are_saved_and_those_that_cannot_be_are_a_warning() {
    let test = "attributes_of_what_may_not_be_read_are_saved_and_those_that_cannot_be_are_a_warning";
    let prepare = |bench: &Bench| {
        let foreign = bench.tree().join("dir/foreign");
        fs::create_dir_all(&foreign).unwrap();
        let _ = xattr::set(&foreign, "user.outpost", b"value");
        fs::set_permissions(&foreign, Permissions::from_mode(0o711)).unwrap();
    };
    let play = |bench: &Bench| {
        let own = bench.tree().join("own");
        fs::write(&own, "").unwrap();
        if let Err(error) = xattr::set(&own, "user.outpost", b"value") {
            println!("skipped: the file system has no extended attributes: {error}");
            return;
        }
        fs::set_permissions(&own, Permissions::from_mode(0o000)).unwrap();
        let (packed, restored) = bench.pack_and_unpack();
        // Only when root has made it can it not be opened up.
        let is_foreign = fs::metadata(bench.tree().join("dir/foreign")).unwrap().uid() == 0;
        let warning = "\"dir/foreign\" was saved without its attribute \"user.outpost\"";
        assert_eq!(packed.warnings.iter().any(|it| it == warning), is_foreign, "{:?}", packed.warnings);
        fs::set_permissions(restored.join("own"), Permissions::from_mode(0o600)).unwrap();
        let got = xattr::get(restored.join("own"), "user.outpost").unwrap();
        assert_eq!(got.as_deref(), Some(&b"value"[..]));
    };
    as_plain_user(test, prepare, play);
}
