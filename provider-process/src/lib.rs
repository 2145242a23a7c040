//! Devin sessions as plain processes in directories of this machine.
