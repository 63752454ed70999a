//! Threads that do jobs, and the results in the order of the jobs.
//!
//! ```text
//!   push ─▶ jobs ─┬▶ worker ─┐
//!                 └▶ worker ─┴▶ places, in the order of push ─▶ next
//! ```
//!
//! The one who takes the results helps with the jobs instead of waiting, so a pool without workers works, too.

use crate::sync::{Bell, Mutex, lock};
use anyhow::{Result, bail};
use std::collections::VecDeque;

/// A queue whose places are taken in order and filled in any order.
#[derive(Debug)]
pub struct Places<T> {
    first: u64,
    waiting: VecDeque<Option<T>>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { first: 0, waiting: VecDeque::new() }
    }
}

impl<T> Places<T> {
    /// Takes the next place. Returns its number.
    pub fn take(&mut self) -> u64 {
        self.waiting.push_back(None);
        self.first + self.waiting.len() as u64 - 1
    }

    /// Fills a place. Returns true if [`Places::pop`] has something now that it did not have before.
    pub fn fill(&mut self, place: u64, content: T) -> bool {
        let at = place.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(waiting) = at.and_then(|at| self.waiting.get_mut(at)) {
            *waiting = Some(content);
        }
        at == Some(0)
    }

    /// The content of the first place, which is removed, if it is filled.
    pub fn pop(&mut self) -> Option<T> {
        let content = self.waiting.front_mut()?.take()?;
        self.waiting.pop_front();
        self.first += 1;
        Some(content)
    }

    /// Number of places that are taken.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True if no place is taken.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Jobs and their results.
#[derive(Debug)]
pub struct Pool<J, R> {
    work: Mutex<Work<J, R>>,
    /// There is a new job, or the next result.
    bell: Bell,
}

#[derive(Debug)]
struct Work<J, R> {
    jobs: VecDeque<(u64, J)>,
    results: Places<R>,
    is_closed: bool,
}

impl<J, R> Default for Pool<J, R> {
    fn default() -> Self {
        let work = Work { jobs: VecDeque::new(), results: Places::default(), is_closed: false };
        Self { work: Mutex::new(work), bell: Bell::default() }
    }
}

impl<J, R> Pool<J, R> {
    /// Adds a job.
    pub fn push(&self, job: J) {
        let mut work = lock(&self.work);
        let place = work.results.take();
        work.jobs.push_back((place, job));
        drop(work);
        self.bell.ring();
    }

    /// Adds a result that takes no job.
    pub fn put(&self, result: R) {
        let mut work = lock(&self.work);
        let place = work.results.take();
        work.results.fill(place, result);
    }

    /// The next result. If it is not ready, waits for it while more than `most` of them are to come, and does jobs
    /// itself.
    ///
    /// # Errors
    /// If a worker panicked.
    pub fn next(&self, most: usize, job: impl Fn(J) -> R) -> Result<Option<R>> {
        loop {
            let heard = self.bell.heard();
            let mut work = lock(&self.work);
            if let Some(result) = work.results.pop() {
                return Ok(Some(result));
            }
            if work.is_closed {
                bail!("a thread panicked");
            }
            if work.results.len() <= most {
                return Ok(None);
            }
            drop(work);
            if !self.one(&job) {
                self.bell.wait(heard);
            }
        }
    }

    /// Does jobs until the pool is closed: what each worker calls.
    pub fn work(&self, job: impl Fn(J) -> R) {
        let _panics = Closing(self);
        loop {
            let heard = self.bell.heard();
            if lock(&self.work).is_closed {
                return;
            }
            if !self.one(&job) {
                self.bell.wait(heard);
            }
        }
    }

    /// Closes the pool when the result is dropped: its workers end, whether jobs are left or not.
    pub fn closing(&self) -> Closing<'_, J, R> {
        Closing(self)
    }

    /// Does the next job. Returns false if there is none.
    fn one(&self, job: &impl Fn(J) -> R) -> bool {
        let Some((place, next)) = lock(&self.work).jobs.pop_front() else { return false };
        let result = job(next);
        if lock(&self.work).results.fill(place, result) {
            self.bell.ring();
        }
        true
    }
}

/// Closes a pool when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Closing<'p, J, R>(&'p Pool<J, R>);

impl<J, R> Drop for Closing<'_, J, R> {
    fn drop(&mut self) {
        let mut work = lock(&self.0.work);
        work.is_closed = true;
        work.jobs.clear();
        drop(work);
        self.0.bell.ring();
    }
}
