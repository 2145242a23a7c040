//! Outpost on a real engine, with a simulated queue over real HTTP and the stand-in worker in real containers.

mod crashes;
mod stage;
