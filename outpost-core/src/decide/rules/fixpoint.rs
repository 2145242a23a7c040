//! Decisions carried out, again and again.
