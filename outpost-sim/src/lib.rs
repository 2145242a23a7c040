//! A simulator of Devin's fleet queue and a stand-in devin worker, for tests, demos and embedders.
pub mod model;
