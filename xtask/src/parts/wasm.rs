//! What a Cloudflare Worker is built from compiles for `wasm32-unknown-unknown`.

use anyhow::Result;

use crate::context::Context;
use crate::tools::{WASM_TARGET, wasm_cargo};

pub(super) fn run(context: &Context) -> Result<()> {
    let check = |args: &[&str]| -> Result<()> {
        wasm_cargo(context)?.args(["check", "--target", WASM_TARGET, "--package"]).args(args).run()
    };
    check(&["outpost-core", "--all-features"])?;
    // A Worker brings its own `fetch` in the place of the default transport.
    check(&["outpost-devin-api", "--no-default-features"])
}
