//! Outpost's own checks: `cargo xtask test`.
fn main() {}
