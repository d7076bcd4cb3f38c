//! The `hublane` command.
fn main() {}
