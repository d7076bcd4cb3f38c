//! Model checks; see the tests.
