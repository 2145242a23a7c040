//! The small worker image, on a base like the one that Devin publishes.

use crate::base::base;
use crate::build::Build;
use crate::check::{Promised, check_worker_image};
use crate::{Engine, stage};

#[tokio::test(flavor = "multi_thread")]
async fn small_image_on_devins_base_is_what_a_session_without_a_browser_needs() {
    let engine = Engine::connect().await;
    let base = base(&engine).await;
    let devins = Engine::name("devin-cli", "stable");
    let small = Engine::name("worker-small", "latest");
    let _turn = engine.turn().await;
    let dockerfile = format!("FROM {base}\nCOPY devin /usr/local/bin/devin\nENTRYPOINT [\"devin\"]\n");
    let build = Build::written(&dockerfile, ("devin", stage::cli().as_bytes()), &devins);
    engine.build(build).await.unwrap_or_else(|log| panic!("{log}"));
    let build = Build::ours("worker-small", &small).arg("BASE", &devins);
    engine.build(build).await.unwrap_or_else(|log| panic!("{log}"));

    let promised = Promised { user: "devin", checks: &["cli", "git", "workspace", "supervisor", "no-sudo"] };
    check_worker_image(&engine, &small, &promised).await;
    assert_eq!(engine.config(&small).await.entrypoint.unwrap_or_default(), Vec::<String>::new());
}
