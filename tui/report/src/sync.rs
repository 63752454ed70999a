//! Synchronization between threads: the types of the standard library, or, in the unit tests of this crate, those of a
//! model checker ([`shuttle`](https://docs.rs/shuttle)), which runs the threads in many orders and finds deadlocks
//! (`handover.rs`). It has no clock: a missed wake-up that a timeout would hide is a deadlock there.

#[cfg(test)]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, atomic, mpsc},
    thread,
};
#[cfg(not(test))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic, mpsc},
    thread,
};

use std::sync::PoisonError;
use std::time::Duration;

/// Timeout after which a waiter looks again. No wake-up should depend on it.
const NAP: Duration = Duration::from_millis(1);

/// Number of attempts at a lock before the thread sleeps: about 50 µs, which is less than waking up takes.
const ATTEMPTS: u32 = if cfg!(test) { 0 } else { 2000 };

/// Locks the mutex, even if a thread that had it panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same for a lock that is never held for long: the thread stays awake for a short time.
pub(crate) fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let mut left = ATTEMPTS;
    while left > 0 {
        if let Ok(guard) = mutex.try_lock() {
            return guard;
        }
        std::hint::spin_loop();
        left -= 1;
    }
    lock(mutex)
}

/// Wakes threads that wait for progress.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<Rung>,
    rings: Condvar,
}

#[derive(Debug, Default)]
struct Rung {
    times: u64,
    /// Threads that wait: if there are none, ringing asks nothing of the system.
    waiting: u32,
}

impl Bell {
    /// Number of times it rang so far.
    pub(crate) fn heard(&self) -> u64 {
        lock(&self.rung).times
    }

    /// Wakes all who wait.
    pub(crate) fn ring(&self) {
        let mut rung = lock(&self.rung);
        rung.times += 1;
        if rung.waiting > 0 {
            drop(rung);
            self.rings.notify_all();
        }
    }

    /// Waits until it has rung more often than it was heard.
    pub(crate) fn wait(&self, heard: u64) {
        let mut rung = lock(&self.rung);
        if rung.times == heard {
            rung.waiting += 1;
            (rung, _) = self.rings.wait_timeout(rung, NAP).unwrap_or_else(PoisonError::into_inner);
            rung.waiting -= 1;
        }
    }
}
