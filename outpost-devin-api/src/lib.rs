//! The Devin APIs that Outpost speaks: the fleet queue, outposts and worker downloads.
