//! The worker images of `images/`, built on a real engine and tried in containers.
//!
//! `OUTPOST_TEST_DOCKER` names the engine, such as `unix:///var/run/docker.sock`; it must run on this machine, because builds reach
//! the simulator on loopback. `OUTPOST_TEST_IMAGE_BASE` names a Debian image to build on; without it one is made with debootstrap, as
//! root, and kept in the engine. So is the worker image, by a hash of all that it is made of: the first run takes minutes and gigabytes.

mod base;
mod build;
mod check;
mod engine;
mod install;
mod proxy;
mod scan;
mod small;
mod stage;
mod worker;

pub(crate) use engine::Engine;
