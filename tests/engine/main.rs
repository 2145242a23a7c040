//! Outpost on a real engine, with a simulated queue over real HTTP and the stand-in worker in real containers.

mod crashes;
mod faults;
mod life;
#[path = "../../provider-docker/tests/support/proxy.rs"]
#[allow(dead_code, unreachable_pub, reason = "provider-docker's own tests use the rest")]
mod proxy;
mod stage;
