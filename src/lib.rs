//! hublane: a synchronous, lossless, buffered event producer for Azure Event Hubs.

#![forbid(unsafe_code)]

mod sync;
