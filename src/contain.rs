//! Panics of code that is not ours end here.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of the application or of a transport; false if it panicked.
///
/// Unwind safety: nothing of ours is borrowed mutably by `call` but what the caller gives up or
/// expects half done, and what a panic leaves of the state of others is their own affair.
pub(crate) fn contain(call: impl FnOnce()) -> bool {
    let Err(payload) = catch_unwind(AssertUnwindSafe(call)) else {
        return true;
    };
    // The payload is theirs too, and so is its destructor.
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
    false
}
