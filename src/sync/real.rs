//! The production primitives.

pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::OnceLock;

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

pub(crate) mod channel {
    pub(crate) use crossbeam_channel::{Receiver, Sender, bounded};
}

pub(crate) mod thread {
    pub(crate) use std::thread::JoinHandle;

    /// Starts a named thread; an error means that the system refused it.
    pub(crate) fn spawn(
        name: String,
        stack_size: Option<usize>,
        body: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        let mut builder = std::thread::Builder::new().name(name);
        if let Some(bytes) = stack_size {
            builder = builder.stack_size(bytes);
        }
        builder.spawn(body)
    }
}

/// Blocks one thread; the token makes an early unpark stick.
pub(super) mod park {
    use std::time::Instant;

    pub(crate) struct Parker(crossbeam_utils::sync::Parker);

    #[derive(Clone)]
    pub(crate) struct Unparker(crossbeam_utils::sync::Unparker);

    impl Parker {
        pub(crate) fn new() -> Parker {
            Parker(crossbeam_utils::sync::Parker::new())
        }

        pub(crate) fn unparker(&self) -> Unparker {
            Unparker(self.0.unparker().clone())
        }

        pub(crate) fn park(&self, deadline: Option<Instant>) {
            match deadline {
                Some(deadline) => self.0.park_deadline(deadline),
                None => self.0.park(),
            }
        }
    }

    impl Unparker {
        pub(crate) fn unpark(&self) {
            self.0.unpark();
        }
    }
}

pub(super) fn now() -> std::time::Instant {
    std::time::Instant::now()
}
