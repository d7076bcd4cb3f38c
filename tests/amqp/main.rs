//! The AMQP transport against the emulator, which shares no code with it.

#![cfg(feature = "amqp")]

mod answers;
mod encrypted;
mod links;
mod loss;
mod sending;
mod silence;
mod start_up;
mod support;
mod tokens;
