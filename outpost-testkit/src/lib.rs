//! The conformance suite every Outpost provider passes, fault injection, virtual time and the simulated world.
