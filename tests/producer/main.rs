//! The producer as applications see it: the public interface, threads and all, against a
//! scripted peer and in virtual time. Nothing here sleeps; what would hang fails instead.

mod accept;
mod batching;
mod close;
mod delivery;
mod flush;
mod properties;
mod settings;
mod stalled;
mod start;
mod support;
mod transports;
