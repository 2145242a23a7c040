//! A Debian to build on, without a registry.

use std::process::{Command, Stdio};

use crate::Engine;
use crate::build::hash;

const SCRIPT: &str = include_str!("base.sh");
/// The suite of the Dockerfile's own base.
const SUITE: &str = "trixie";

/// The name of an image that can stand for `debian:trixie-slim`; made unless the engine has it.
pub(crate) async fn base(engine: &Engine) -> String {
    if let Ok(named) = std::env::var("OUTPOST_TEST_IMAGE_BASE") {
        return named;
    }
    let image = Engine::name("base", &hash([SCRIPT.as_bytes(), SUITE.as_bytes()]));
    let _turn = engine.turn().await;
    if !engine.has(&image).await {
        let archive = tokio::task::spawn_blocking(make).await.unwrap();
        engine.import(archive.into(), &image).await;
        engine.remove_other_versions(&image).await;
    }
    image
}

fn make() -> Vec<u8> {
    const NEEDED: &str = "a base image is made by root with debootstrap (`apt-get install debootstrap`); \
                          or name one of Debian in OUTPOST_TEST_IMAGE_BASE, such as debian:trixie-slim";
    let made = Command::new("/bin/sh")
        .args(["-c", SCRIPT, "base.sh", SUITE])
        .stdin(Stdio::null())
        .output()
        .expect("a shell runs");
    assert!(made.status.success(), "{}\n{NEEDED}", String::from_utf8_lossy(&made.stderr));
    made.stdout
}
