//! Comparators for the benches.
fn main() {}
