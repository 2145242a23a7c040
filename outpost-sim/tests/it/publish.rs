//! The static host: the documented layout, checksums, and launchers that real shells run.

use std::process::Command;

use outpost_sim::control::{Checksums, ControlExt};
use outpost_sim::fault::{Endpoint, Fault, FaultRule};
use outpost_sim::publish::{CLI_VERSION, DEFAULT_SHA, launcher};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::world::World;

/// Status and body.
async fn get(url: String) -> (u16, Vec<u8>) {
    let call = move || {
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
        let mut response = ureq::Agent::from(config).get(&url).call().unwrap();
        (response.status().as_u16(), response.body_mut().read_to_vec().unwrap())
    };
    tokio::task::spawn_blocking(call).await.unwrap()
}

fn hex(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_is_published_by_commit_with_a_checksum_that_is_right_or_wrong_on_request() {
    let world = World::start().await;
    let base = world.server().remote_base_url();
    for suffix in ["linux_x64", "linux_arm64", "macos_arm64", "windows_x64.exe"] {
        let (_, latest) = get(format!("{base}latest_{suffix}")).await;
        assert_eq!(String::from_utf8(latest).unwrap().trim(), DEFAULT_SHA);
        let file = format!("{base}devin-remote_{DEFAULT_SHA}_{suffix}");
        let (status, binary) = get(file.clone()).await;
        assert_eq!(status, 200);
        let (_, checksum) = get(format!("{file}.sha256")).await;
        assert_eq!(String::from_utf8(checksum).unwrap().split(' ').next().unwrap(), hex(&binary));
    }
    let file = format!("{base}devin-remote_{DEFAULT_SHA}_linux_x64");
    world.sim().publish_checksums(Checksums::Wrong).unwrap();
    assert!(
        !String::from_utf8(get(format!("{file}.sha256")).await.1).unwrap().starts_with(&hex(&get(
            file.clone()
        )
        .await
        .1))
    );
    world.sim().publish_checksums(Checksums::Absent).unwrap();
    assert_eq!(get(format!("{file}.sha256")).await.0, 404);
    for odd in ["devin-remote_fff_linux_x64", "latest_beos", "devin-remote", "odd"] {
        assert_eq!(get(format!("{base}{odd}")).await.0, 404, "{odd}");
    }
    world.sim().add_fault(FaultRule::once(Endpoint::Static, Fault::status(503))).unwrap();
    assert_eq!(get(file.clone()).await.0, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn manifest_names_a_cli_that_runs() {
    let world = World::start().await;
    let manifest: Value = serde_json::from_slice(&get(world.server().manifest_url()).await.1).unwrap();
    let entry = &manifest["platforms"]["x86_64-unknown-linux"];
    let (_, cli) = get(entry["url"].as_str().unwrap().to_owned()).await;
    assert_eq!(entry["sha256"], hex(&cli));
    let path = world.directory().join("devin");
    std::fs::write(&path, cli).unwrap();
    let output = Command::new("/bin/sh").arg(&path).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("devin {CLI_VERSION}\n"));
}

// lesson 58
#[test]
fn launcher_passes_odd_paths_and_arguments_through_a_real_shell() {
    let folder = tempfile::TempDir::new().unwrap();
    let binary = folder.path().join("it's a $(false) \"bin\"");
    std::fs::copy("/bin/echo", &binary).unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, launcher(&binary, &["lead 'er", "$HOME"])).unwrap();
    let output = Command::new("/bin/sh").arg(&script).args(["a b", "", "*"]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "lead 'er $HOME a b  *\n");
}
