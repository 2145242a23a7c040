//! The simulator from outside: its HTTP faces, and the stand-in as a real process.

mod client;
mod control;
mod faults;
mod fleet_api;
mod program;
mod publish;
mod standin;
mod standin_ends;
mod world;
