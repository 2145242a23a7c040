//! The full worker image.

use outpost::sim::control::Checksums;

use crate::Engine;
use crate::base::base;
use crate::build::{Build, hash};
use crate::check::{FULL, Promised, SCRIPT, check_worker_image};
use crate::engine::Rights;
use crate::proxy::{AUTHORIZATION, PASSWORD, Proxy};
use crate::scan::parts_with;
use crate::stage;

/// A build on the base of these tests.
fn build(base: &str, image: &str) -> Build {
    // Packages never come through the proxy of a test. Said in every build: Docker keeps layers of builds with and without a variable
    // for proxies apart, though not by its value.
    Build::ours("worker", image).arg("BASE", base).arg("no_proxy", "debian.org,.debian.org")
}

/// The worker image with all its defaults; built unless the engine has one of the same files on the same base.
async fn image(engine: &Engine) -> String {
    let base = base(engine).await;
    let id = engine.id(&base).await;
    let image = Engine::name(
        "worker",
        &hash([&build(&base, "").context[..], id.as_bytes(), stage::cli().as_bytes()]),
    );
    let _turn = engine.turn().await;
    if !engine.has(&image).await {
        let server = stage::publish(Checksums::Right).await;
        let build = build(&base, &image).arg("MANIFEST_URL", &server.manifest_url());
        engine.build(build).await.unwrap_or_else(|log| panic!("{log}"));
        engine.remove_other_versions(&image).await;
        server.stop().await;
    }
    image
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_image_is_what_a_session_needs() {
    let engine = Engine::connect().await;
    let image = image(&engine).await;
    check_worker_image(&engine, &image, &FULL).await;

    let ended =
        engine.run(&image, Rights::Default, &["/bin/sh", "-c", SCRIPT, "check.sh", "browser", "sudo"]).await;
    assert_eq!(ended.code, 0, "with an engine's own defaults: {}", ended.output);
}

// A check that cannot fail proves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_not_for_workers_fails_every_check_that_it_should() {
    let engine = Engine::connect().await;
    let base = base(&engine).await;
    let all = ["cli", "git", "ffmpeg", "browser", "workspace", "sudo", "no-sudo"];
    let command = [&["/bin/sh", "-c", SCRIPT, "check.sh"], &all[..]].concat();
    let ended = engine.run(&base, Rights::Default, &command).await;
    assert_eq!(ended.code, 1, "{}", ended.output);
    let failed: Vec<&str> =
        ended.output.lines().filter_map(|line| line.strip_prefix("FAILED ")?.split(':').next()).collect();
    assert_eq!(failed, all, "{}", ended.output);

    let image = image(&engine).await;
    let no_browser = "export DEVIN_CHROME_PATH=/bin/true; exec /bin/sh -c \"$0\" check.sh browser";
    let ended = engine.run(&image, Rights::Session, &["/bin/sh", "-c", no_browser, SCRIPT]).await;
    assert_eq!(ended.code, 1, "{}", ended.output);
    assert!(ended.output.contains("it did not show the page"), "{}", ended.output);
}

// lesson 56
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_checksum_fails_the_build_and_says_so() {
    let engine = Engine::connect().await;
    let base = base(&engine).await;
    // Its layers are this build's, too.
    image(&engine).await;
    for (checksums, says) in
        [(Checksums::Wrong, "wrong checksum of the Devin CLI"), (Checksums::Absent, "no SHA-256")]
    {
        let server = stage::publish(checksums).await;
        let image = Engine::name("unchecked", "none");
        let build = build(&base, &image).arg("MANIFEST_URL", &server.manifest_url());
        let log = engine.build(build).await.expect_err("a build whose download cannot be trusted fails");
        assert!(log.contains(says), "{log}");
        assert!(!engine.has(&image).await);
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_image_runs_as_root_or_without_sudo_when_it_is_built_so() {
    let engine = Engine::connect().await;
    let base = base(&engine).await;
    image(&engine).await;
    let server = stage::publish(Checksums::Right).await;
    let build =
        |name: &str| build(&base, &Engine::name(name, "tried")).arg("MANIFEST_URL", &server.manifest_url());

    let without_sudo = Engine::name("without-sudo", "tried");
    engine.build(build("without-sudo").arg("SUDO", "0")).await.unwrap();
    check_worker_image(&engine, &without_sudo, &Promised { user: "devin", checks: &["workspace"] }).await;
    let ended =
        engine.run(&without_sudo, Rights::Default, &["/bin/sh", "-c", SCRIPT, "check.sh", "no-sudo"]).await;
    assert_eq!(ended.code, 0, "{}", ended.output);
    engine.remove(&without_sudo).await;

    let as_root = Engine::name("as-root", "tried");
    engine.build(build("as-root").arg("WORKER_USER", "root")).await.unwrap();
    check_worker_image(&engine, &as_root, &Promised { user: "root", ..FULL }).await;
    engine.remove(&as_root).await;

    let log = engine.build(build("odd").arg("SUDO", "yes")).await.unwrap_err();
    assert!(log.contains("SUDO is 0 or 1"), "{log}");
    server.stop().await;
}

// lesson 51
#[tokio::test(flavor = "multi_thread")]
async fn no_layer_holds_the_credential_that_a_build_used() {
    let engine = Engine::connect().await;
    let base = base(&engine).await;
    image(&engine).await;
    let server = stage::publish(Checksums::Right).await;
    let proxy = Proxy::start().await;
    let scanned = Engine::name("scanned", "tried");
    let build =
        build(&base, &scanned).arg("MANIFEST_URL", &server.manifest_url()).arg("http_proxy", &proxy.url());
    engine.build(build).await.unwrap_or_else(|log| panic!("{log}"));
    assert!(proxy.served() > 0, "the build used the credential");

    let planted = Engine::name("planted", "tried");
    let dockerfile = format!(
        "FROM {scanned}\nUSER root\nCOPY planted /planted\nRUN rm /planted\nENV PLANTED={PASSWORD}\n"
    );
    let plant = Build::written(&dockerfile, ("planted", AUTHORIZATION.as_bytes()), &planted);
    engine.build(plant).await.unwrap_or_else(|log| panic!("{log}"));
    let found = parts_with(&engine, &planted, [AUTHORIZATION, "no such text"]).await;
    assert_eq!(found.len(), 1, "a file that a later layer removes: {found:?}");
    let found = parts_with(&engine, &planted, [PASSWORD, "no such text"]).await;
    assert!(
        found.iter().any(|part| part.ends_with(".json") || part.contains("blobs")),
        "a configuration: {found:?}"
    );

    let found = parts_with(&engine, &scanned, [PASSWORD, AUTHORIZATION]).await;
    assert!(found.is_empty(), "{found:?}");
    engine.remove(&planted).await;
    engine.remove(&scanned).await;
    server.stop().await;
}
