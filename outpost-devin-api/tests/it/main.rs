//! Devin's fleet API, spoken to the simulator in process under paused time, and to a server that answers what a test wants.

mod list;
mod outposts;
mod programs;
mod queue;
mod script;
mod simulated;
mod sockets;
mod watch;
