//! Exchanges as they were completed, in chunks that the loader seals and everyone else shares: a new one costs the
//! screen nothing, however many there are.

use rdmascope_analyzer::exchange::Exchange;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Exchanges of a sealed chunk.
const CHUNK: usize = 1 << 8;

/// All exchanges that are kept. Each has a place that stays its own. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exchanges {
    chunks: Arc<Vec<Arc<[Exchange]>>>,
    /// Number of earlier chunks that are no longer kept.
    gone: usize,
    upto: usize,
}

impl Exchanges {
    /// Number of exchanges that are kept.
    pub(crate) fn len(&self) -> usize {
        self.places().len()
    }

    /// The places of those that are kept.
    pub(crate) fn places(&self) -> Range<usize> {
        (self.gone * CHUNK).min(self.upto)..self.upto
    }

    /// One of them, while it is kept.
    pub(crate) fn at(&self, place: usize) -> Option<&Exchange> {
        self.chunks.get((place / CHUNK).checked_sub(self.gone)?)?.get(place % CHUNK)
    }

    /// All of them, with their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Exchange)> {
        (self.places().start as u32..).zip(self.chunks.iter().flat_map(|c| c.iter()))
    }

    #[cfg(test)]
    pub(crate) fn change(&mut self, change: impl Fn(&mut Exchange)) {
        let chunks = self.chunks.iter().map(|chunk| {
            let mut chunk = chunk.to_vec();
            chunk.iter_mut().for_each(&change);
            Arc::from(chunk)
        });
        self.chunks = Arc::new(chunks.collect());
    }
}

/// Makes [`Exchanges`], one by one.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    sealed: VecDeque<Arc<[Exchange]>>,
    tail: Vec<Exchange>,
    gone: usize,
}

impl Builder {
    pub(crate) fn push(&mut self, exchange: Exchange) {
        self.tail.push(exchange);
        if self.tail.len() == CHUNK {
            self.sealed.push_back(std::mem::take(&mut self.tail).into());
        }
    }

    /// Number of exchanges that are kept.
    pub(crate) fn len(&self) -> usize {
        self.sealed.len() * CHUNK + self.tail.len()
    }

    /// Lets go of the oldest.
    pub(crate) fn forget(&mut self) {
        self.gone += usize::from(self.sealed.pop_front().is_some());
    }

    /// Returns the exchanges so far.
    pub(crate) fn exchanges(&self) -> Exchanges {
        let mut chunks: Vec<_> = self.sealed.iter().cloned().collect();
        if !self.tail.is_empty() {
            chunks.push(self.tail.as_slice().into());
        }
        let upto = self.gone * CHUNK + self.len();
        Exchanges { chunks: Arc::new(chunks), gone: self.gone, upto }
    }
}
