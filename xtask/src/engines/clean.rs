//! What tests leave in an engine is taken away: a test that was killed has not done it itself.

use anyhow::{Result, bail};
use serde_json::Value;

use super::Engine;
use crate::context::{Context, in_ci};

const INSTANCE: &str = "dev.outpost.instance";
/// How the instances of tests are called.
const OF_TESTS: &str = "test-";
/// The images of the worker of tests, one for each build of it.
const WORKERS: &str = "outpost-test/standin:";
/// The images of the image tests: gigabytes, kept for the next run where there will be one.
const BIG_IMAGES: &str = "localhost/outpost-test-images/";
/// An image goes only after those that were made from it: this many generations are tried.
const ROUNDS: usize = 50;

pub(super) fn clean(context: &Context, engine: &Engine) -> Result<()> {
    let mut removed = 0_usize;
    for _ in 0..ROUNDS {
        let left = leftovers(context, engine)?;
        if left.is_empty() {
            break;
        }
        let gone = left.iter().filter(|path| engine.delete(context, path).is_ok()).count();
        removed += gone;
        if gone == 0 {
            break;
        }
    }
    let left = leftovers(context, engine)?;
    if removed > 0 {
        eprintln!("{}: {removed} leftovers of tests removed", engine.kind.name());
    }
    let Some(first) = left.first() else { return Ok(()) };
    let why = engine.delete(context, first).err().map(|error| format!("{error:#}")).unwrap_or_default();
    bail!("{} leftovers of tests cannot be removed from {}: {why}", left.len(), engine.kind.name());
}

/// The requests that would remove what is there, in an order that works.
fn leftovers(context: &Context, engine: &Engine) -> Result<Vec<String>> {
    let list = |path| Ok::<_, anyhow::Error>(engine.get(context, path)?.unwrap_or_default());
    let mut paths = containers(&list("/containers/json?all=true")?);
    paths.extend(images(&list("/images/json")?, in_ci()));
    paths.extend(networks(&list("/networks")?));
    paths.extend(volumes(&list("/volumes")?));
    Ok(paths)
}

fn containers(list: &Value) -> Vec<String> {
    let of_tests = rows(list).filter(|row| is_of_tests(row));
    of_tests.map(|row| format!("/containers/{}?force=true&v=true", text(&row["Id"]))).collect()
}

fn images(list: &Value, with_big_ones: bool) -> Vec<String> {
    let mut paths = Vec::new();
    for image in rows(list) {
        let names: Vec<&str> =
            rows(&image["RepoTags"]).map(text).filter(|name| !name.contains("<none>")).collect();
        let is_called = |prefix| names.iter().any(|name| name.starts_with(prefix));
        if is_of_tests(image) || is_called(WORKERS) || (with_big_ones && is_called(BIG_IMAGES)) {
            let names = if names.is_empty() { vec![text(&image["Id"])] } else { names };
            paths.extend(names.iter().map(|name| format!("/images/{name}")));
        }
    }
    paths
}

fn networks(list: &Value) -> Vec<String> {
    let of_tests = rows(list).filter(|row| is_of_tests(row));
    of_tests.map(|row| format!("/networks/{}", text(&row["Id"]))).collect()
}

fn volumes(list: &Value) -> Vec<String> {
    let of_tests = rows(&list["Volumes"]).filter(|row| is_of_tests(row));
    of_tests.map(|row| format!("/volumes/{}", text(&row["Name"]))).collect()
}

fn is_of_tests(row: &Value) -> bool {
    row["Labels"][INSTANCE].as_str().is_some_and(|name| name.starts_with(OF_TESTS))
}

/// An engine says `null` for an empty list.
fn rows(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_an_instance_of_a_test_left_is_removed() {
        let of = |id: &str, instance: &str| json!({"Id": id, "Name": id, "Labels": {INSTANCE: instance}});
        let list = json!([of("a", "test-1"), of("b", "home"), {"Id": "c", "Labels": null}, {"Id": "d"}]);
        assert_eq!(containers(&list), ["/containers/a?force=true&v=true"]);
        assert_eq!(networks(&list), ["/networks/a"]);
        assert_eq!(volumes(&json!({"Volumes": list})), ["/volumes/a"]);
        assert_eq!(volumes(&json!({"Volumes": null})), [""; 0]);
    }

    #[test]
    fn an_image_is_removed_by_each_of_its_names() {
        let ours = json!({INSTANCE: "test-1"});
        let list = json!([
            {"Id": "sha256:1", "RepoTags": ["outpost-test-1/a:1-save", "outpost-test-1/a:gone-1"], "Labels": ours},
            {"Id": "sha256:2", "RepoTags": ["<none>:<none>"], "Labels": ours},
            {"Id": "sha256:3", "RepoTags": null, "Labels": ours},
            {"Id": "sha256:4", "RepoTags": ["outpost-test/base:1"], "Labels": null},
        ]);
        let paths = [
            "/images/outpost-test-1/a:1-save",
            "/images/outpost-test-1/a:gone-1",
            "/images/sha256:2",
            "/images/sha256:3",
        ];
        assert_eq!(images(&list, false), paths);
    }

    #[test]
    fn the_image_of_each_build_of_the_worker_is_removed() {
        let list = json!([{"Id": "sha256:1", "RepoTags": ["outpost-test/standin:1-2"], "Labels": null}]);
        assert_eq!(images(&list, false), ["/images/outpost-test/standin:1-2"]);
    }

    #[test]
    fn the_big_images_of_the_image_tests_go_only_where_no_run_follows() {
        let name = "localhost/outpost-test-images/base:1";
        let list = json!([{"Id": "sha256:1", "RepoTags": [name], "Labels": null}]);
        assert_eq!(images(&list, false), [""; 0]);
        assert_eq!(images(&list, true), [format!("/images/{name}")]);
    }
}
