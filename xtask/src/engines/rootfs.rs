//! The file tree of an image, made of programs of this machine.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::command::Cmd;
use crate::context::Context;
use crate::tools::program;

/// The user `devin`, whose home is the one thing in an image that is not root's.
const DEVIN: &str = "1000";
const HOME: &str = "./home/devin";
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
    devin:x:1000:1000::/home/devin:/bin/sh\n\
    nobody:x:65534:65534::/:/bin/false\n";
const GROUP: &str = "root:x:0:\ndevin:x:1000:\nnogroup:x:65534:\n";
const DIRS: &[&str] =
    &["bin", "dev", "etc", "home/devin", "proc", "root", "run", "sys", "usr/local/bin", "var"];

/// Makes `archive`: a busybox with all its commands, and `programs` with the libraries that they are linked to. The
/// same programs make the same bytes.
pub(super) fn pack(context: &Context, dir: &Path, programs: &[&str], archive: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(dir);
    for name in DIRS {
        make_dir(&dir.join(name), 0o755)?;
    }
    make_dir(&dir.join("tmp"), 0o1777)?;
    fs::write(dir.join("etc/passwd"), PASSWD)?;
    fs::write(dir.join("etc/group"), GROUP)?;
    copy(context, "busybox", dir, "bin")?;
    for command in Cmd::new(context, dir.join("bin/busybox")).arg("--list").read()?.lines() {
        if command != "busybox" {
            symlink("busybox", dir.join("bin").join(command))?;
        }
    }
    for name in programs {
        copy(context, name, dir, "usr/sbin")?;
    }
    let _ = fs::remove_file(archive);
    let tar = |mode: &str, owner: &str| {
        Cmd::new(context, "tar")
            .args([mode, "--sort=name", "--mtime=@0", "--numeric-owner"])
            .args(["--owner", owner, "--group", owner, "--directory"])
            .arg(dir)
            .arg("--file")
            .arg(archive)
    };
    tar("--create", "0").args(["--exclude", HOME, "."]).read()?;
    tar("--append", DEVIN).arg(HOME).read()?;
    Ok(())
}

fn make_dir(dir: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(dir)?;
    // Whatever this process's umask is.
    fs::set_permissions(dir, Permissions::from_mode(mode)).with_context(|| dir.display().to_string())
}

fn copy(context: &Context, name: &str, dir: &Path, place: &str) -> Result<()> {
    let from = program(name).with_context(|| format!("{name} is missing"))?;
    put(&from, &dir.join(place).join(name))?;
    // It fails for a program that needs none.
    let linked = Cmd::new(context, "ldd").arg(&from).read().unwrap_or_default();
    for library in libraries(&linked) {
        put(library, &dir.join(library.strip_prefix("/")?))?;
    }
    Ok(())
}

fn put(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
    fs::copy(from, to).with_context(|| format!("{} cannot be copied", from.display()))?;
    Ok(fs::set_permissions(to, Permissions::from_mode(0o755))?)
}

/// The files in what ldd says: `libc.so.6 => /lib/libc.so.6 (0x…)` and `/lib64/ld-linux.so.2 (0x…)`.
fn libraries(said: &str) -> BTreeSet<&Path> {
    said.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn the_files_that_a_program_is_linked_to_are_read_from_what_ldd_says() {
        let said = "\tlinux-vdso.so.1 (0x00007f25af491000)\n\
            \tlibc.so.6 => /lib/libc.so.6 (0x00007f25af182000)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f25af493000)\n";
        let found: Vec<PathBuf> = libraries(said).into_iter().map(Path::to_path_buf).collect();
        assert_eq!(found, [Path::new("/lib/libc.so.6"), Path::new("/lib64/ld-linux-x86-64.so.2")]);
    }
}
