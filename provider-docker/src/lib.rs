//! Devin sessions in containers of a Docker or podman engine.

mod guard;

const NAME: &str = "docker";
