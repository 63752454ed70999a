//! Work that other threads help with, and that comes back in the order in which it was given.
//!
//! ```text
//!   submit ─▶ waiting ─▶ worker, or whoever submitted where workers do not keep up ─▶ done ─▶ take, in order
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Pieces of work between one thread that gives and takes them and others that help. See the [module](self).
pub struct Pool<W> {
    state: Mutex<State<W>>,
    given: Condvar,
    finished: Condvar,
}

struct State<W> {
    waiting: VecDeque<(u64, W)>,
    done: BTreeMap<u64, W>,
    /// How many were given, and how many were taken.
    given: u64,
    taken: u64,
    /// No more comes; or a helper panicked, and what it had never will.
    is_over: bool,
}

impl<W> Default for Pool<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W> Pool<W> {
    /// With nothing to do yet.
    pub fn new() -> Self {
        let state = State { waiting: VecDeque::new(), done: BTreeMap::new(), given: 0, taken: 0, is_over: false };
        Self { state: Mutex::new(state), given: Condvar::new(), finished: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until there is no more: what a worker does all its life.
    pub fn work(&self, mut work: impl FnMut(&mut W)) {
        let closing = CloseOnDrop(self);
        loop {
            let mut state = self.state();
            let (number, mut piece) = loop {
                match state.waiting.pop_front() {
                    Some(first) => break first,
                    None if state.is_over => {
                        drop(state);
                        std::mem::forget(closing);
                        return;
                    }
                    None => state = self.given.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(state);
            work(&mut piece);
            self.state().done.insert(number, piece);
            self.finished.notify_one();
        }
    }

    /// Submits a piece of work; how many wait now.
    pub fn submit(&self, piece: W) -> usize {
        let mut state = self.state();
        let number = state.given;
        state.given += 1;
        state.waiting.push_back((number, piece));
        self.given.notify_one();
        state.waiting.len()
    }

    /// Does the piece that waits longest; whether there was one.
    pub fn work_one(&self, mut work: impl FnMut(&mut W)) -> bool {
        let Some((number, mut piece)) = self.state().waiting.pop_front() else { return false };
        work(&mut piece);
        self.state().done.insert(number, piece);
        true
    }

    /// The next piece, if it is done.
    pub fn take(&self) -> Option<W> {
        let mut state = self.state();
        let next = state.taken;
        let piece = state.done.remove(&next)?;
        state.taken += 1;
        Some(piece)
    }

    /// Waits for the next piece; `None` when all were taken, or when it will never be done.
    pub fn wait(&self) -> Option<W> {
        let mut state = self.state();
        loop {
            let next = state.taken;
            if let Some(piece) = state.done.remove(&next) {
                state.taken += 1;
                return Some(piece);
            }
            if state.taken == state.given || state.is_over {
                return None;
            }
            state = self.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the workers end when what waits is done.
    pub fn close(&self) {
        self.state().is_over = true;
        self.given.notify_all();
        self.finished.notify_all();
    }
}

/// Closes the pool when it is dropped: nobody waits for a thread that returned early or panicked.
pub struct CloseOnDrop<'p, W>(pub &'p Pool<W>);

impl<W> Drop for CloseOnDrop<'_, W> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn work_comes_back_in_order_whoever_did_it() {
        let pool = Pool::new();
        let mut taken = Vec::new();
        thread::scope(|scope| {
            let closing = CloseOnDrop(&pool);
            for _ in 0..3 {
                scope.spawn(|| {
                    pool.work(|n: &mut u64| {
                        (0..*n % 7).for_each(|_| thread::yield_now());
                        *n *= 2;
                    });
                });
            }
            for n in 0..1000 {
                if pool.submit(n) > 4 {
                    pool.work_one(|n| *n *= 2);
                }
                taken.extend(std::iter::from_fn(|| pool.take()));
            }
            while pool.work_one(|n| *n *= 2) {}
            taken.extend(std::iter::from_fn(|| pool.wait()));
            drop(closing);
        });
        assert_eq!(taken, (0..1000).map(|n| n * 2).collect::<Vec<_>>());
    }

    #[test]
    fn nobody_waits_for_a_helper_that_panicked() {
        let pool = Pool::new();
        let panicked = thread::scope(|scope| {
            let helper = scope.spawn(|| pool.work(|_: &mut u64| panic!("on purpose")));
            pool.submit(1);
            assert_eq!(pool.wait(), None);
            helper.join().is_err()
        });
        assert!(panicked);
    }
}
