//! Stand-ins under `cfg(loom)`.
//!
//! loom never lets a time-out fire, so time stands still here: [`now`] is a constant, a wait
//! whose deadline has passed returns at once, and one whose deadline lies ahead waits for
//! its unpark alone. A wake that gets lost is therefore a deadlock that loom reports.
//! `Arc` and `CachePadded` carry no ordering that the engine relies on and stay std's.

use std::time::Instant;

pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// parking_lot's interface over loom's mutex.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// `std::sync::OnceLock` with its release/acquire edge made visible to loom.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    set: atomic::AtomicBool,
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> OnceLock<T> {
        OnceLock {
            value: std::sync::OnceLock::new(),
            set: atomic::AtomicBool::new(false),
        }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        if self.set.load(atomic::Ordering::Acquire) {
            self.value.get()
        } else {
            None
        }
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.set.store(true, atomic::Ordering::Release);
        Ok(())
    }
}

/// A bounded channel that may, like crossbeam's, discard what is left when its receiver goes.
pub(crate) mod channel {
    use super::Mutex;
    use std::collections::VecDeque;
    use std::sync::Arc;

    pub(crate) use crossbeam_channel::{TryRecvError, TrySendError};

    struct State<T> {
        queue: VecDeque<T>,
        capacity: usize,
        senders: usize,
        receiver_alive: bool,
    }

    pub(crate) struct Sender<T>(Arc<Mutex<State<T>>>);
    pub(crate) struct Receiver<T>(Arc<Mutex<State<T>>>);

    pub(crate) fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
        let state = Arc::new(Mutex::new(State {
            queue: VecDeque::new(),
            capacity,
            senders: 1,
            receiver_alive: true,
        }));
        (Sender(Arc::clone(&state)), Receiver(state))
    }

    impl<T> Sender<T> {
        pub(crate) fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
            let mut state = self.0.lock();
            if !state.receiver_alive {
                return Err(TrySendError::Disconnected(value));
            }
            if state.queue.len() == state.capacity {
                return Err(TrySendError::Full(value));
            }
            state.queue.push_back(value);
            Ok(())
        }
    }

    impl<T> std::fmt::Debug for Sender<T> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Sender")
        }
    }

    impl<T> Clone for Sender<T> {
        fn clone(&self) -> Sender<T> {
            self.0.lock().senders += 1;
            Sender(Arc::clone(&self.0))
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            self.0.lock().senders -= 1;
        }
    }

    impl<T> Receiver<T> {
        pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
            let mut state = self.0.lock();
            match state.queue.pop_front() {
                Some(value) => Ok(value),
                None if state.senders == 0 => Err(TryRecvError::Disconnected),
                None => Err(TryRecvError::Empty),
            }
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.0.lock().queue.is_empty()
        }
    }

    impl<T> Drop for Receiver<T> {
        fn drop(&mut self) {
            let discarded = {
                let mut state = self.0.lock();
                state.receiver_alive = false;
                std::mem::take(&mut state.queue)
            };
            drop(discarded);
        }
    }
}

pub(crate) mod thread {
    pub(crate) use loom::thread::JoinHandle;

    pub(crate) fn spawn(
        _name: String,
        _stack_size: Option<usize>,
        body: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        Ok(loom::thread::spawn(body))
    }
}

pub(super) mod park {
    use std::sync::Arc;
    use std::time::Instant;

    struct Token {
        set: loom::sync::Mutex<bool>,
        changed: loom::sync::Condvar,
    }

    pub(crate) struct Parker(Arc<Token>);

    #[derive(Clone)]
    pub(crate) struct Unparker(Arc<Token>);

    impl Parker {
        pub(crate) fn new() -> Parker {
            Parker(Arc::new(Token {
                set: loom::sync::Mutex::new(false),
                changed: loom::sync::Condvar::new(),
            }))
        }

        pub(crate) fn unparker(&self) -> Unparker {
            Unparker(Arc::clone(&self.0))
        }

        pub(crate) fn park(&self, deadline: Option<Instant>) {
            let passed = deadline.is_some_and(|deadline| deadline <= super::now());
            let Ok(mut set) = self.0.set.lock() else {
                return;
            };
            while !*set && !passed {
                match self.0.changed.wait(set) {
                    Ok(guard) => set = guard,
                    Err(_) => return,
                }
            }
            *set = false;
        }
    }

    impl Unparker {
        pub(crate) fn unpark(&self) {
            if let Ok(mut set) = self.0.set.lock() {
                *set = true;
            }
            self.0.changed.notify_one();
        }
    }
}

/// Time stands still in a model.
pub(super) fn now() -> Instant {
    static BASE: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *BASE.get_or_init(Instant::now)
}
