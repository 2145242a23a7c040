//! Outpost.
fn main() {}
