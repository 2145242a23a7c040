//! What the CLI does before it serves: fetch `devin-remote`, check it, keep it in the cache.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::EXIT_CHECKSUM;
use super::http::Http;

/// Fetches the pinned or newest `devin-remote` into `cache`, unless it is there.
///
/// It is not run: the stand-in serves by itself.
pub(super) fn fetch(base: &str, pinned: Option<&str>, cache: &Path) -> Result<PathBuf, u8> {
    let http = Http::new(String::new().into());
    let base = base.trim_end_matches('/');
    let suffix = suffix();
    let get = |name: &str| {
        http.get(&format!("{base}/{name}")).map_err(|error| {
            eprintln!("{name}: {error}");
            1u8
        })
    };
    let sha = match pinned {
        Some(sha) => sha.to_owned(),
        None => String::from_utf8_lossy(&get(&format!("latest_{suffix}"))?).trim().to_owned(),
    };
    let name = format!("devin-remote_{sha}_{suffix}");
    let path = cache.join(&name);
    if path.is_file() {
        return Ok(path);
    }
    let published = String::from_utf8_lossy(&get(&format!("{name}.sha256"))?).into_owned();
    let content = get(&name)?;
    let actual = Sha256::digest(&content).iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    });
    if published.split_whitespace().next() != Some(&actual) {
        eprintln!("{name}: checksum mismatch");
        return Err(EXIT_CHECKSUM);
    }
    keep(&path, &content).map_err(|error| {
        eprintln!("cache: {error}");
        1
    })?;
    Ok(path)
}

fn keep(path: &Path, content: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, content)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn suffix() -> &'static str {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("macos", _) => "macos_arm64",
        ("windows", _) => "windows_x64.exe",
        (_, "aarch64") => "linux_arm64",
        _ => "linux_x64",
    }
}
