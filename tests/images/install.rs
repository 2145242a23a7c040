//! The script that installs the Devin CLI, run by a real shell. No engine is needed.

use std::path::{Path, PathBuf};

use outpost::sim::control::Checksums;
use outpost::sim::publish::CLI_VERSION;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::process::Command;
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::stage::{archive, cli, publish};

/// A place to install to, and what is there before.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn devin(&self) -> PathBuf {
        self.0.path().join("bin/devin")
    }

    /// Runs the script.
    async fn install(&self, manifest_url: &str) -> Result<String, String> {
        let ran = Command::new("/bin/sh")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("images/shared/install-devin.sh"))
            .arg(manifest_url)
            .arg(self.0.path())
            .env_remove("http_proxy")
            .output()
            .await
            .unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if ran.status.success() { Ok(text(&ran.stdout)) } else { Err(text(&ran.stderr)) }
    }

    /// Runs the script, which must fail, say why, and leave nothing behind.
    async fn refuse(&self, manifest_url: &str, says: &str) {
        let error = self.install(manifest_url).await.expect_err(says);
        assert!(error.contains(says), "expected `{says}`, got: {error}");
        assert!(
            std::fs::read_dir(self.0.path()).unwrap().next().is_none(),
            "something was installed after: {error}"
        );
    }
}

fn this_platform() -> String {
    format!("{}-unknown-linux", std::env::consts::ARCH)
}

/// Serves a manifest, and under `/devin` what it is to name.
async fn serve(manifest: impl FnOnce(String) -> Value, download: impl Into<Vec<u8>>) -> (MockServer, String) {
    let server = MockServer::start().await;
    let answer = |body: Vec<u8>| ResponseTemplate::new(200).set_body_bytes(body);
    let manifest = manifest(format!("{}/devin", server.uri())).to_string();
    Mock::given(path("/manifest.json")).respond_with(answer(manifest.into())).mount(&server).await;
    Mock::given(path("/devin")).respond_with(answer(download.into())).mount(&server).await;
    let url = format!("{}/manifest.json", server.uri());
    (server, url)
}

/// Serves a download with the checksum that it has.
async fn serve_rightly(download: impl Into<Vec<u8>>) -> (MockServer, String) {
    let download = download.into();
    let sha256 = hex(&download);
    serve(|url| json!({ "platforms": { this_platform(): { "url": url, "sha256": sha256 } } }), download).await
}

fn hex(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cli_of_this_platform_is_installed_and_runs() {
    let server = publish(Checksums::Right).await;
    let place = Place::new();
    let said = place.install(&server.manifest_url()).await.unwrap();
    assert!(said.contains(CLI_VERSION), "{said}");
    let ran = Command::new(place.devin()).arg("--version").output().await.unwrap();
    assert!(String::from_utf8_lossy(&ran.stdout).contains(CLI_VERSION), "{ran:?}");
    // Again, over the old one.
    place.install(&server.manifest_url()).await.unwrap();
    assert!(place.devin().exists() && !place.0.path().join("lib/devin/devin").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executable_without_an_archive_is_installed_too_and_other_platforms_are_passed_over() {
    let sha256 = hex(cli().as_bytes());
    let manifest = |url: String| {
        let other = json!({ "url": "https://localhost/other", "sha256": "0".repeat(64) });
        let right = json!({ "url": url, "sha256": sha256.to_uppercase() });
        json!({
            format!("{}-apple-darwin", std::env::consts::ARCH): other,
            "riscv64-unknown-linux": other,
            format!("{}-gnu", this_platform()): right,
        })
    };
    let (_server, url) = serve(manifest, cli()).await;
    let place = Place::new();
    place.install(&url).await.unwrap();
    assert!(place.devin().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_right_checksum_is_not_installed() {
    for (checksums, says) in [(Checksums::Wrong, "wrong checksum"), (Checksums::Absent, "has no SHA-256")] {
        let server = publish(checksums).await;
        Place::new().refuse(&server.manifest_url(), says).await;
    }
    for sha256 in [json!(""), json!("abc"), json!(null), json!(7), json!(format!("{}\n", "0".repeat(63)))] {
        let (_server, url) =
            serve(|url| json!({ "platforms": { this_platform(): { "url": url, "sha256": sha256 } } }), cli())
                .await;
        Place::new().refuse(&url, "has no SHA-256").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_does_not_help_is_an_error() {
    let sum = hex(b"");
    for (manifest, says) in [
        (json!({ "platforms": {} }), "no Devin CLI for Linux"),
        (
            json!({ "platforms": { "sparc-unknown-linux": { "url": "https://localhost/x", "sha256": sum } } }),
            "no Devin CLI",
        ),
        (json!({ "platforms": { this_platform(): { "sha256": sum } } }), "no Devin CLI"),
        (
            json!({ "platforms": { this_platform(): { "url": "ftp://localhost/x", "sha256": sum } } }),
            "must begin with https",
        ),
        (
            json!({ "platforms": { this_platform(): { "url": "http://192.0.2.1/x", "sha256": sum } } }),
            "must begin with https",
        ),
        (json!(["odd"]), "is not what it should be"),
        (json!("odd"), "is not what it should be"),
    ] {
        let (_server, url) = serve(|_| manifest, "").await;
        Place::new().refuse(&url, says).await;
    }
    let server = MockServer::start().await;
    Place::new().refuse(&format!("{}/manifest.json", server.uri()), "manifest cannot be had").await;
}

// lesson 56
#[tokio::test(flavor = "multi_thread")]
async fn a_cli_that_could_not_serve_is_not_installed() {
    let old = "#!/bin/sh\ncase \"$*\" in --version) echo devin 1 ;; *) echo --pool ;; esac\n";
    for (download, says) in [
        (archive(&[("bin/devin", old)]).to_vec(), "too old"),
        (archive(&[("bin/devin", "#!/bin/sh\nexit 1\n")]).to_vec(), "does not run"),
        (archive(&[("bin/devin", "#!/bin/sh\necho other 1\n")]).to_vec(), "not the Devin CLI"),
        (archive(&[("bin/other", old)]).to_vec(), "no executable bin/devin"),
        (b"<html>".to_vec(), "neither a gzip archive nor an executable"),
        (vec![], "neither a gzip archive nor an executable"),
        (b"\x1f\x8bodd".to_vec(), "cannot be unpacked"),
    ] {
        let (_server, url) = serve_rightly(download).await;
        Place::new().refuse(&url, says).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_shows_a_credential_or_can_be_read_on_the_way_is_refused() {
    for (url, says) in [
        ("http://example.com/manifest.json", "must begin with https"),
        ("http://localhost.example.com/manifest.json", "must begin with https"),
        ("file:///etc/passwd", "must begin with https"),
        ("", "must begin with https"),
        ("https://user:secret@example.com/manifest.json", "has a credential"),
        ("https://example.com/manifest.json?token=secret", "has a credential"),
    ] {
        let place = Place::new();
        place.refuse(url, says).await;
        let error = place.install(url).await.unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }
}
