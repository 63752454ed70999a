//! A map of a bounded number of entries: when it is full, the half that was not used for the longest time goes.

use alloc::borrow::Borrow;
use alloc::vec::Vec;
use core::hash::Hash;
use hashbrown::HashMap;

/// Entries by key, each with when it was used last.
#[derive(Clone, Debug)]
pub(crate) struct Recent<K, V> {
    entries: HashMap<K, (u64, V)>,
    /// Counts uses.
    clock: u64,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), clock: 0 }
    }
}

impl<K: Hash + Eq, V> Recent<K, V> {
    /// Adds an entry, or replaces it. If there are `max` of them, the half that was not used for the longest time goes.
    pub(crate) fn insert(&mut self, key: K, value: V, max: usize) {
        if self.entries.len() >= max && !self.entries.contains_key(&key) {
            self.halve();
        }
        self.clock += 1;
        self.entries.insert(key, (self.clock, value));
    }

    /// True if there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a key, which is used with it.
    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.clock += 1;
        let (used, value) = self.entries.get_mut(key)?;
        *used = self.clock;
        Some(value)
    }

    /// Changes the value of a key, if there is one.
    pub(crate) fn change<Q: Hash + Eq + ?Sized>(&mut self, key: &Q, change: impl FnOnce(&mut V))
    where
        K: Borrow<Q>,
    {
        if let Some((_, value)) = self.entries.get_mut(key) {
            change(value);
        }
    }

    /// The values, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|(_, value)| value)
    }

    /// Keeps only the entries whose values pass.
    pub(crate) fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.entries.retain(|_, (_, value)| keep(value));
    }

    /// Takes an entry out.
    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.entries.remove(key);
    }

    /// Takes all entries of another one in, as if they were used now.
    pub(crate) fn extend(&mut self, from: Self, max: usize) {
        for (key, (_, value)) in from.entries {
            self.insert(key, value, max);
        }
    }

    #[cold]
    fn halve(&mut self) {
        let mut used: Vec<u64> = self.entries.values().map(|(used, _)| *used).collect();
        used.sort_unstable();
        let middle = used.get(used.len() / 2).copied().unwrap_or(0);
        self.entries.retain(|_, (used, _)| *used > middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_stays() {
        let mut map = Recent::default();
        for n in 0..100u32 {
            map.insert(n, n, 10);
            assert_eq!(map.get(&0), Some(&0), "used all the time");
            assert!(map.entries.len() <= 10);
        }
        assert!(map.get(&99).is_some() && map.get(&50).is_none());
        map.remove(&99);
        assert_eq!(map.get(&99), None);
    }
}
