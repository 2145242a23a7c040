//! What goes into an archive comes out of it, and nothing else does.

mod permissions;

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use outpost_core::ports::ErrorKind;
use outpost_provider_kit::Cancel;
use tempfile::TempDir;

use super::file::Packed;
use super::{UnpackError, pack_to, unpack_from, verify};

struct Bench {
    dir: PathBuf,
    _held: Option<TempDir>,
}

impl Bench {
    fn new() -> Self {
        let held = tempfile::tempdir().unwrap();
        let bench = Self { dir: held.path().to_owned(), _held: Some(held) };
        fs::create_dir(bench.tree()).unwrap();
        bench
    }

    fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    fn file(&self) -> PathBuf {
        self.dir.join("archive")
    }

    /// A fresh directory to restore into.
    fn restored(&self) -> PathBuf {
        let path = self.dir.join("restored");
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
    }

    fn pack(&self) -> Packed {
        pack_to(&self.file(), &self.tree(), Path::new("state/cache"), 2, &Cancel::default()).unwrap()
    }

    fn pack_and_unpack(&self) -> (Packed, PathBuf) {
        let packed = self.pack();
        verify(&self.file(), &packed, &Cancel::default()).unwrap();
        let restored = self.restored();
        unpack_from(&self.file(), &packed.sha256, &restored, &Cancel::default()).unwrap();
        (packed, restored)
    }

    /// An archive whose tar was made by hand, as no packing makes it.
    fn forged(&self, make: impl FnOnce(&mut tar::Builder<&mut Vec<u8>>)) -> Result<(), UnpackError> {
        let mut bytes = Vec::new();
        let mut builder = tar::Builder::new(&mut bytes);
        make(&mut builder);
        builder.into_inner().unwrap();
        let compressed = zstd::encode_all(&bytes[..], 1).unwrap();
        fs::write(self.file(), &compressed).unwrap();
        let sha256 = super::attributes::hex(&<sha2::Sha256 as sha2::Digest>::digest(&compressed));
        unpack_from(&self.file(), &sha256, &self.restored(), &Cancel::default())
    }
}

/// An entry with any name, also one that the crate would refuse to write.
fn entry(kind: tar::EntryType, name: &str, target: &str) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header.set_cksum();
    header
}

#[test]
fn everything_that_a_tree_can_hold_comes_back() {
    let bench = Bench::new();
    let tree = bench.tree();
    let long = format!("{}/{}", "d".repeat(200), "f".repeat(200));
    fs::create_dir_all(tree.join("empty/inner")).unwrap();
    fs::create_dir_all(tree.join(&long).parent().unwrap()).unwrap();
    fs::write(tree.join(&long), "long").unwrap();
    let odd = OsStr::from_bytes(b"not \xff utf-8\nwith a line break");
    fs::write(tree.join(odd), "odd").unwrap();
    fs::write(tree.join("plain"), vec![7; 100_001]).unwrap();
    fs::set_permissions(tree.join("plain"), Permissions::from_mode(0o4751)).unwrap();
    fs::hard_link(tree.join("plain"), tree.join("second name")).unwrap();
    symlink("/nowhere/at all", tree.join("dangling")).unwrap();
    symlink("t".repeat(300), tree.join("to a long name")).unwrap();
    fs::write(tree.join("read only"), "").unwrap();
    filetime::set_file_mtime(tree.join("plain"), filetime::FileTime::from_unix_time(1_000, 123_456_789))
        .unwrap();
    filetime::set_file_mtime(tree.join("empty"), filetime::FileTime::from_unix_time(2_000, 5)).unwrap();
    fs::set_permissions(tree.join("empty"), Permissions::from_mode(0o555)).unwrap();

    let (packed, restored) = bench.pack_and_unpack();
    assert_eq!(packed.warnings, [] as [&str; 0]);
    let metadata = |name: &str| fs::symlink_metadata(restored.join(name)).unwrap();
    assert_eq!(fs::read_to_string(restored.join(&long)).unwrap(), "long");
    assert_eq!(fs::read_to_string(restored.join(odd)).unwrap(), "odd");
    assert_eq!(fs::read(restored.join("plain")).unwrap(), vec![7; 100_001]);
    assert_eq!(metadata("plain").mode() & 0o7777, 0o4751);
    assert_eq!((metadata("plain").mtime(), metadata("plain").mtime_nsec()), (1_000, 123_456_789));
    assert_eq!(metadata("plain").ino(), metadata("second name").ino());
    assert_eq!(fs::read_link(restored.join("dangling")).unwrap(), Path::new("/nowhere/at all"));
    assert_eq!(fs::read_link(restored.join("to a long name")).unwrap(), PathBuf::from("t".repeat(300)));
    assert!(metadata("empty/inner").is_dir());
    assert_eq!(metadata("empty").mode() & 0o7777, 0o555);
    assert_eq!((metadata("empty").mtime(), metadata("empty").mtime_nsec()), (2_000, 5));
    for root in [&tree, &restored] {
        fs::set_permissions(root.join("empty"), Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn extended_attributes_come_back_where_the_file_system_has_them() {
    let bench = Bench::new();
    let file = bench.tree().join("file");
    fs::write(&file, "").unwrap();
    if let Err(error) = xattr::set(&file, "user.outpost", b"two\nlines \xff") {
        println!("skipped: the file system has no extended attributes: {error}");
        return;
    }
    xattr::set(&file, "user.plain", b"text").unwrap();
    xattr::set(bench.tree(), "user.root", b"is not saved").unwrap();
    let (_, restored) = bench.pack_and_unpack();
    let got = |name| xattr::get(restored.join("file"), name).unwrap();
    assert_eq!(got("user.outpost").as_deref(), Some(&b"two\nlines \xff"[..]));
    assert_eq!(got("user.plain").as_deref(), Some(&b"text"[..]));
}

#[test]
fn the_target_of_a_link_comes_back_as_it_stands() {
    let bench = Bench::new();
    let long = format!("{}//./b/", "a".repeat(120));
    let targets =
        ["a//b", "./a", "a/./b/", "/", "..", &"x".repeat(99), &"x".repeat(100), &"x".repeat(101), &long];
    for (n, target) in targets.iter().enumerate() {
        symlink(target, bench.tree().join(n.to_string())).unwrap();
    }
    let (_, restored) = bench.pack_and_unpack();
    for (n, target) in targets.iter().enumerate() {
        // Paths are compared without regard to doubled slashes.
        let back = fs::read_link(restored.join(n.to_string())).unwrap();
        assert_eq!(back.as_os_str(), OsStr::new(target));
    }
}

#[test]
fn owners_come_back_where_that_is_allowed() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root may give files away");
        return;
    }
    let bench = Bench::new();
    let file = bench.tree().join("file");
    fs::write(&file, "").unwrap();
    std::os::unix::fs::chown(&file, Some(12_345), Some(3_000_000)).unwrap();
    let (_, restored) = bench.pack_and_unpack();
    let metadata = fs::metadata(restored.join("file")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (12_345, 3_000_000));
}

#[test]
fn holes_stay_holes_and_cost_nothing() {
    let bench = Bench::new();
    let path = bench.tree().join("disk image");
    let mut file = File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    for at in [0, 5 << 30, (1 << 40) - 5] {
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(b"data!").unwrap();
    }
    File::create(bench.tree().join("only a hole")).unwrap().set_len(1 << 30).unwrap();
    if fs::metadata(&path).unwrap().blocks() > 10_000 {
        println!("skipped: the file system has no holes");
        return;
    }
    let (packed, restored) = bench.pack_and_unpack();
    assert!(packed.size_bytes < 100_000, "{packed:?}");
    let metadata = fs::metadata(restored.join("disk image")).unwrap();
    assert_eq!(metadata.len(), 1 << 40);
    assert!(metadata.blocks() < 10_000, "{} blocks", metadata.blocks());
    let mut file = File::open(restored.join("disk image")).unwrap();
    for at in [0, 5 << 30, (1 << 40) - 5] {
        let mut data = [0; 5];
        file.seek(SeekFrom::Start(at)).unwrap();
        std::io::Read::read_exact(&mut file, &mut data).unwrap();
        assert_eq!(&data, b"data!", "at {at}");
    }
    assert_eq!(fs::metadata(restored.join("only a hole")).unwrap().len(), 1 << 30);
}

#[test]
fn the_download_cache_is_left_out_and_nothing_else() {
    let bench = Bench::new();
    for dir in ["state/cache/inner", "state/caches", "home/state/cache"] {
        fs::create_dir_all(bench.tree().join(dir)).unwrap();
        fs::write(bench.tree().join(dir).join("file"), "").unwrap();
    }
    let (_, restored) = bench.pack_and_unpack();
    assert!(restored.join("state/cache").is_dir());
    assert!(!restored.join("state/cache/inner").exists());
    assert!(restored.join("state/caches/file").exists());
    assert!(restored.join("home/state/cache/file").exists());
}

#[test]
fn sockets_and_pipes_are_left_out_with_a_warning_and_never_waited_for() {
    let bench = Bench::new();
    let _socket = std::os::unix::net::UnixListener::bind(bench.tree().join("socket")).unwrap();
    nix::unistd::mkfifo(&bench.tree().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(bench.tree().join("file"), "").unwrap();
    let (packed, restored) = bench.pack_and_unpack();
    let mut warnings = packed.warnings;
    warnings.sort();
    assert_eq!(warnings, ["\"pipe\" is a pipe and was left out", "\"socket\" is a socket and was left out"]);
    assert_eq!(fs::read_dir(restored).unwrap().count(), 1);
}

#[test]
fn a_file_that_grows_or_shrinks_while_it_is_read_is_a_warning() {
    let bench = Bench::new();
    let (growing, shrinking) = (bench.tree().join("growing"), bench.tree().join("shrinking"));
    fs::write(&growing, vec![1; 1000]).unwrap();
    fs::write(&shrinking, vec![1; 1000]).unwrap();
    // Written through while the archive is: the writer changes the files when their headers have been written.
    struct Meddler<'a>(&'a Path, &'a Path, usize);
    impl std::io::Write for Meddler<'_> {
        fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
            self.2 += 1;
            fs::write(self.0, vec![2; 2000 + self.2]).unwrap();
            fs::write(self.1, "").unwrap();
            Ok(buffer.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let meddler = Meddler(&growing, &shrinking, 0);
    let (_, report) = super::pack::pack(&bench.tree(), Path::new("-"), meddler, &Cancel::default()).unwrap();
    let warnings = report.into_warnings();
    assert!(warnings.iter().any(|warning| warning.starts_with("\"growing\" changed")), "{warnings:?}");
    assert!(!warnings.is_empty());
}

#[test]
fn a_file_that_lost_bytes_is_filled_up_so_that_the_archive_stays_whole() {
    let bench = Bench::new();
    fs::write(bench.tree().join("file"), vec![1; 10]).unwrap();
    struct Cutter<'a>(&'a Path, Vec<u8>);
    impl std::io::Write for Cutter<'_> {
        fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
            fs::write(self.0, "").unwrap();
            self.1.extend_from_slice(buffer);
            Ok(buffer.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let file = bench.tree().join("file");
    let cutter = Cutter(&file, Vec::new());
    let (cutter, report) =
        super::pack::pack(&bench.tree(), Path::new("-"), cutter, &Cancel::default()).unwrap();
    assert_eq!(report.into_warnings(), ["\"file\" changed while it was saved"]);
    let mut tar = tar::Archive::new(&cutter.1[..]);
    let sizes: Vec<_> = tar.entries().unwrap().map(|entry| entry.unwrap().size()).collect();
    assert_eq!(sizes, [10]);
}

#[test]
fn gnu_tar_restores_what_was_saved() {
    let has =
        |tool: &str| Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !has("tar") || !has("zstd") {
        println!("skipped: tar or zstd is not here");
        return;
    }
    let bench = Bench::new();
    let tree = bench.tree();
    fs::create_dir(tree.join("dir")).unwrap();
    fs::write(tree.join("dir/file"), "text").unwrap();
    fs::hard_link(tree.join("dir/file"), tree.join("second")).unwrap();
    symlink("dir/file", tree.join("link")).unwrap();
    let mut sparse = File::create(tree.join("sparse")).unwrap();
    sparse.set_len(10 << 20).unwrap();
    sparse.write_all(b"head").unwrap();
    bench.pack();
    let restored = bench.restored();
    let script = "zstd -dc \"$1\" | tar -xf - -C \"$2\"";
    let status =
        Command::new("sh").args(["-c", script, "sh"]).args([bench.file(), restored.clone()]).status();
    assert!(status.unwrap().success());
    let status = Command::new("diff").arg("-r").arg("--no-dereference").args([&tree, &restored]).status();
    assert!(status.unwrap().success());
}

#[test]
fn a_damaged_archive_is_found_out_wherever_the_damage_is() {
    let bench = Bench::new();
    for n in 0..20_u8 {
        fs::write(bench.tree().join(format!("file-{n}")), vec![n; 3000 + usize::from(n)]).unwrap();
    }
    let packed = bench.pack();
    let good = fs::read(bench.file()).unwrap();
    let attempt = |bytes: &[u8]| {
        fs::write(bench.file(), bytes).unwrap();
        let restored = unpack_from(&bench.file(), &packed.sha256, &bench.restored(), &Cancel::default());
        (restored, verify(&bench.file(), &packed, &Cancel::default()))
    };
    for at in (0..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let (restored, verified) = attempt(&bad);
        assert!(matches!(restored, Err(UnpackError::Archive(_))), "byte {at}: {restored:?}");
        assert!(verified.is_err(), "byte {at}");
    }
    for length in (0..good.len()).step_by(11) {
        let (restored, verified) = attempt(&good[..length]);
        assert!(matches!(restored, Err(UnpackError::Archive(_))), "cut at {length}: {restored:?}");
        assert!(verified.is_err(), "cut at {length}");
    }
    let (restored, verified) = attempt(&[&good[..], b"more"].concat());
    assert!(matches!(restored, Err(UnpackError::Archive(_))) && verified.is_err());
    let (restored, verified) = attempt(&good);
    assert!(restored.is_ok() && verified.is_ok());
}

#[test]
fn a_sound_archive_that_is_another_one_is_found_out() {
    let bench = Bench::new();
    fs::write(bench.tree().join("file"), "one").unwrap();
    let packed = bench.pack();
    fs::write(bench.tree().join("file"), "two").unwrap();
    bench.pack();
    let restored = unpack_from(&bench.file(), &packed.sha256, &bench.restored(), &Cancel::default());
    assert!(matches!(restored, Err(UnpackError::Archive(_))), "{restored:?}");
    assert!(verify(&bench.file(), &packed, &Cancel::default()).is_err());
}

#[test]
fn an_archive_that_cannot_be_read_is_not_called_damaged() {
    let bench = Bench::new();
    // A directory opens and does not read.
    fs::create_dir(bench.file()).unwrap();
    let result = unpack_from(&bench.file(), "", &bench.restored(), &Cancel::default());
    assert!(matches!(result, Err(UnpackError::Other(_))), "{result:?}");
}

#[test]
fn no_entry_is_made_outside_of_the_sandbox() {
    use tar::EntryType as Kind;
    let bench = Bench::new();
    let outside = bench.dir.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    let to_outside = outside.to_str().unwrap().to_owned();
    let table: Vec<(&str, Vec<tar::Header>)> = vec![
        ("up", vec![entry(Kind::Regular, "../outside/new", "")]),
        ("up in the middle", vec![entry(Kind::Regular, "a/../../outside/new", "")]),
        ("absolute", vec![entry(Kind::Regular, &format!("{to_outside}/new"), "")]),
        (
            "through a link",
            vec![entry(Kind::Symlink, "link", &to_outside), entry(Kind::Regular, "link/new", "")],
        ),
        (
            "through a relative link",
            vec![entry(Kind::Symlink, "link", "../outside"), entry(Kind::Directory, "link/new", "")],
        ),
        (
            "a directory that is a link",
            vec![entry(Kind::Symlink, "link", &to_outside), entry(Kind::Directory, "link", "")],
        ),
        ("a hard link up", vec![entry(Kind::Link, "new", "../outside/secret")]),
        ("a hard link to an absolute name", vec![entry(Kind::Link, "new", &format!("{to_outside}/secret"))]),
        (
            "a hard link through a link",
            vec![entry(Kind::Symlink, "link", &to_outside), entry(Kind::Link, "new", "link/secret")],
        ),
        ("a device", vec![entry(Kind::Char, "device", "")]),
        ("no name", vec![entry(Kind::Regular, "./", "")]),
    ];
    for (what, headers) in table {
        let result = bench.forged(|builder| {
            for header in &headers {
                builder.append(header, std::io::empty()).unwrap();
            }
        });
        assert!(matches!(result, Err(UnpackError::Archive(_))), "{what}: {result:?}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{what}");
        assert_eq!(fs::metadata(outside.join("secret")).unwrap().nlink(), 1, "{what}");
    }
}

#[test]
fn a_file_where_a_link_was_replaces_the_link_and_not_its_target() {
    let bench = Bench::new();
    let target = bench.dir.join("target");
    fs::write(&target, "kept").unwrap();
    bench
        .forged(|builder| {
            let link = entry(tar::EntryType::Symlink, "name", target.to_str().unwrap());
            builder.append(&link, std::io::empty()).unwrap();
            builder.append(&entry(tar::EntryType::Regular, "name", ""), std::io::empty()).unwrap();
        })
        .unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    assert!(fs::symlink_metadata(bench.dir.join("restored/name")).unwrap().is_file());
}

#[test]
fn work_that_is_called_off_stops_and_leaves_no_file() {
    let bench = Bench::new();
    fs::write(bench.tree().join("file"), "").unwrap();
    let packed = bench.pack();
    let cancel = Cancel::default();
    cancel.cancel();
    let unpacked = unpack_from(&bench.file(), &packed.sha256, &bench.restored(), &cancel);
    assert!(matches!(unpacked, Err(UnpackError::Other(fault)) if fault.kind == ErrorKind::Conflict));
    let other = bench.dir.join("other");
    assert!(pack_to(&other, &bench.tree(), Path::new("-"), 1, &cancel).is_err());
    assert!(!other.exists());
}
