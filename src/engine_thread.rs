//! Which threads belong to the engine: those must never wait for it.

// loom's macro has no const form.
#[allow(clippy::missing_const_for_thread_local)]
mod local {
    use std::cell::Cell;

    crate::sync::thread_local! {
        pub(super) static ENGINE: Cell<bool> = Cell::new(false);
    }
}
use local::ENGINE;

/// Marks the current thread for the rest of its life.
pub(crate) fn mark() {
    ENGINE.with(|engine| engine.set(true));
}

/// True on a worker, an I/O thread or any other thread that hublane started, of whichever
/// producer: two producers whose handlers waited for each other would hang as surely as one.
pub(crate) fn is_current() -> bool {
    ENGINE.with(|engine| engine.get())
}
