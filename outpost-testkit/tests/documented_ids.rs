//! Every bullet of the ports' documentation has its case, and every case its bullet.

use std::collections::BTreeSet;
use std::path::Path;

use outpost_testkit::conformance::{provider, store};

/// The ids of the bullets `* **L1** …` in a file of outpost-core.
fn documented(file: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../outpost-core/src/ports").join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let bullets = text.lines().filter_map(|line| line.trim().strip_prefix("/// * **"));
    let ids: Vec<_> = bullets.filter_map(|rest| rest.split_once("**")).map(|(id, _)| id.to_owned()).collect();
    let unique: BTreeSet<_> = ids.iter().cloned().collect();
    assert_eq!(ids.len(), unique.len(), "an id comes twice in {file}");
    assert!(!unique.is_empty(), "{file} has no bullets with ids");
    unique
}

fn check(file: &str, cases: impl Iterator<Item = (&'static str, &'static str)>) {
    let mut ids = BTreeSet::new();
    for (id, name) in cases {
        assert!(name.starts_with(&format!("{}_", id.to_lowercase())), "{name} does not begin with {id}");
        assert!(ids.insert(id.to_owned()), "{id} has two cases");
    }
    assert_eq!(documented(file), ids, "left: the bullets of {file}, right: the table");
}

#[test]
fn every_bullet_of_the_provider_has_its_case() {
    check("provider.rs", provider::CASES.iter().map(|case| (case.id, case.name)));
}

#[test]
fn every_bullet_of_the_store_has_its_case() {
    check("store.rs", store::CASES.iter().map(|case| (case.id, case.name)));
}
