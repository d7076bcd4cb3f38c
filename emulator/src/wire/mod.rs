//! AMQP 1.0 encoding, as much of it as a broker needs.
//!
//! Bytes from a peer pass through [`scan`] before anything else looks at them: it bounds depth and
//! sizes, so that what follows may trust the shape of what it reads.

pub(crate) mod annotate;
pub(crate) mod fields;
pub(crate) mod frame;
pub(crate) mod message;
pub(crate) mod performative;
pub(crate) mod scan;

/// Descriptor codes of the performatives, part 2.7 of the specification.
pub(crate) mod code {
    pub(crate) const OPEN: u64 = 0x10;
    pub(crate) const BEGIN: u64 = 0x11;
    pub(crate) const ATTACH: u64 = 0x12;
    pub(crate) const FLOW: u64 = 0x13;
    pub(crate) const TRANSFER: u64 = 0x14;
    pub(crate) const DISPOSITION: u64 = 0x15;
    pub(crate) const DETACH: u64 = 0x16;
    pub(crate) const END: u64 = 0x17;
    pub(crate) const CLOSE: u64 = 0x18;
    pub(crate) const ERROR: u64 = 0x1d;
    pub(crate) const ACCEPTED: u64 = 0x24;
    pub(crate) const REJECTED: u64 = 0x25;
    pub(crate) const RELEASED: u64 = 0x26;
    pub(crate) const MODIFIED: u64 = 0x27;
    pub(crate) const SASL_MECHANISMS: u64 = 0x40;
    pub(crate) const SASL_INIT: u64 = 0x41;
    pub(crate) const SASL_OUTCOME: u64 = 0x44;
    pub(crate) const PROPERTIES: u64 = 0x73;
    pub(crate) const APPLICATION_PROPERTIES: u64 = 0x74;
    pub(crate) const AMQP_VALUE: u64 = 0x77;
}
