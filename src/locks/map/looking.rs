//! Calls that visit or remove all values.

use alloc::vec::{self, Vec};
use core::fmt;
use core::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use super::LockMap;
use super::version::Version;
use crate::core::{Busy, Key, OwnedKey, Ticket, Want};
use crate::guard::Guard;
use crate::mode::{Exclusive, Mode, Shared};
use crate::panics::{Panics, run_all};
use crate::plumbing::{ClaimOf, TableRef};

impl<K: Eq + Hash, V, S: BuildHasher> LockMap<K, V, S> {
    /// Returns whether a key has a value, locked or not.
    ///
    /// A value exists from the moment at which a writer inserts it, even before the writer releases the key, until it
    /// is removed or evicted, or [ends](crate::Builder::time_to_live). This call does not count as a use of the value:
    /// see [`max_values`](crate::Builder::max_values).
    ///
    /// # Examples
    /// ```
    /// let map = keylatch::LockMap::<String, u32>::new();
    /// let mut guard = map.try_write("a").unwrap();
    /// assert!(!map.contains_key("a"));
    /// guard.insert(7);
    /// assert!(map.contains_key("a"));
    /// ```
    #[must_use]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.core.contains(&self.key(key))
    }
}

impl<K, V, S> LockMap<K, V, S> {
    /// Returns the number of values.
    ///
    /// A value exists from the moment at which a writer inserts it, even before the writer releases the key, until it
    /// is removed or evicted, or ends. The shards are counted one after another, so the sum is exact only if nothing
    /// changes during the call. In a map whose values [end](crate::Builder::time_to_live), this examines all ended
    /// values that are still in memory.
    ///
    /// # Examples
    /// ```
    /// let map = keylatch::LockMap::<u64, u32>::new();
    /// map.insert_blocking(&7, 1);
    /// let guard = map.try_write(&8).unwrap();
    /// assert_eq!((map.len(), map.entries()), (1, 2));
    /// # drop(guard);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.core.values()
    }

    /// Returns whether there is no value. The answer is as exact as that of [`len`](Self::len).
    ///
    /// # Examples
    /// ```
    /// assert!(keylatch::LockMap::<u64, u32>::new().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys that have an entry: keys that have a value (even one that has ended, as long as it is
    /// in memory), are held or waited for, are kept by a handle or an unfinished future, or are visited by a call such
    /// as [`for_each_key`](Self::for_each_key). The number is as exact as that of [`len`](Self::len).
    ///
    /// # Examples
    /// See [`len`](Self::len).
    #[must_use]
    pub fn entries(&self) -> usize {
        self.core.len()
    }

    /// Calls `look` with every value whose key it can lock for reading without waiting, and returns the number of
    /// values that it skipped.
    ///
    /// Each value is read under its key's lock, which is held only during that call of `look`. The method does not
    /// wait: it skips an entry that [`try_read`](Self::try_read) could not lock. A value that is inserted or removed
    /// meanwhile may or may not be seen; a value that exists throughout is seen once, unless it is skipped. The method
    /// does not count as a use of the values: see [`max_values`](crate::Builder::max_values).
    ///
    /// `look` runs outside every internal lock and may use the map, except that it must not wait for the key that it is
    /// called with.
    ///
    /// A caller that must see all values, or all values of a group, must call the method again if any were skipped,
    /// because one of the group may be among them. A task should yield before that (`yield_now().await`), because a
    /// skipped value's writer may be a task of the same thread. A key that gets its value after the method has returned
    /// is not seen, so a [`Batch`](crate::Batch) on the values that were seen does not include it.
    ///
    /// # Panics
    /// If a key has [`MAX_USERS`](crate::MAX_USERS) users already, or if `look` panics.
    ///
    /// # Examples
    /// ```
    /// let map: keylatch::LockMap<u64, u32> = [(7, 1), (8, 2)].into_iter().collect();
    /// let mut sum = 0;
    /// assert_eq!(map.for_each_value(|_, value, _| sum += value), 0);
    /// assert_eq!(sum, 3);
    ///
    /// let writer = map.try_write(&7).unwrap();
    /// assert_eq!(map.for_each_value(|key, _, _| assert_eq!(key, &8)), 1);
    /// # drop(writer);
    /// ```
    pub fn for_each_value(&self, mut look: impl FnMut(&K, &V, Version)) -> usize {
        self.visit(Shared::NEW, |guard, _| {
            if let (Some(value), Some(version)) = (guard.value(), guard.version()) {
                look(guard.key(), value, version);
            }
        })
    }

    /// Removes the values for which `keep` returns `false`, and returns the number of values that it skipped because it
    /// could not lock their keys without waiting.
    ///
    /// It works like [`for_each_value`](Self::for_each_value), except that it locks each key as
    /// [`try_write`](Self::try_write) does, and so skips a key that has any holder. Values that stay keep their
    /// versions. Removed values are dropped with no lock held.
    ///
    /// # Panics
    /// If a key has [`MAX_USERS`](crate::MAX_USERS) users already, or if `keep` panics. If drops of values or keys
    /// panic, all are still dropped, and then the first panic resumes.
    ///
    /// # Examples
    /// ```
    /// let map: keylatch::LockMap<u64, u32> = [(7, 1), (8, 2)].into_iter().collect();
    /// assert_eq!(map.retain(|_, value| *value > 1), 0);
    /// assert_eq!((map.get_blocking(&7), map.get_blocking(&8)), (None, Some(2)));
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) -> usize {
        self.visit(Exclusive::NEW, |mut guard, panics| {
            let is_refused = guard.value().is_some_and(|value| !keep(guard.key(), value));
            let removed = if is_refused { guard.remove() } else { None };
            panics.run(|| drop(guard));
            panics.run(|| drop(removed));
        })
    }

    /// Removes all values whose keys it can lock without waiting, and returns the number of values that it skipped.
    ///
    /// It works like [`retain`](Self::retain) with a `keep` that always returns `false`.
    ///
    /// # Panics
    /// If a key has [`MAX_USERS`](crate::MAX_USERS) users already. If drops of values or keys panic, all are still
    /// dropped, and then the first panic resumes.
    ///
    /// # Examples
    /// ```
    /// let map: keylatch::LockMap<u64, u32> = [(7, 1), (8, 2)].into_iter().collect();
    /// let reader = map.try_read(&7).unwrap();
    /// assert_eq!(map.clear(), 1);
    /// assert_eq!(map.len(), 1);
    /// # drop(reader);
    /// ```
    pub fn clear(&self) -> usize {
        self.retain(|_, _| false)
    }

    /// Calls `visit` with a guard of each entry that has a value and can be locked without waiting. Returns the number
    /// of entries with a value that could not be locked. Panics that `visit` has caught resume when all entries have
    /// been visited.
    fn visit<M: Mode>(&self, mode: M, mut visit: impl FnMut(Guard<TableRef<'_, Self>, M>, &mut Panics)) -> usize {
        let (mut passed_over, mut panics) = (0, Panics::default());
        self.core.visit(
            |entry| entry.has_value().then_some(()),
            |mut visited, ()| {
                let is_over = |claim: &ClaimOf<TableRef<'_, Self>>| !self.core.has_value(claim.live());
                if self.core.is_timed() && visited.claim().as_ref().is_some_and(is_over) {
                    return panics.run(|| drop(visited));
                }
                let Some(claim) = visited.claim().take() else { return };
                match self.core.try_enter(claim.live(), Want::Hold(mode.access()), Ticket::NONE) {
                    Some(entered) => {
                        let hold = claim.into_hold(entered, mode);
                        visit(Guard::unmarked(TableRef::new(self), hold), &mut panics);
                    }
                    None => {
                        passed_over += usize::from(claim.live().has_value());
                        *visited.claim() = Some(claim);
                        // This may be the last user by now, and then the key is dropped, which may panic.
                        panics.run(|| drop(visited));
                    }
                }
            },
        );
        panics.resume();
        passed_over
    }
}

impl<K: Eq, V, S> LockMap<K, V, S> {
    /// Stores a value as a writer does, even if a forgotten guard still holds the key: because of `&mut self`, nobody
    /// else uses the map.
    fn put_as_writer(&mut self, key: &mut OwnedKey<K>, value: V) -> Option<V> {
        match self.core.hold_or_claim(key, Exclusive::NEW) {
            Ok(hold) => Guard::unmarked(TableRef::new(self), hold).insert(value),
            // A guard of the key was forgotten.
            Err(claim) => {
                self.core.withdraw(claim);
                self.core.put(key, value)
            }
        }
    }
}

/// If a key occurs more than once, its last value stays. A key that a forgotten guard still holds gets its value, too.
impl<K: Eq + Hash, V, S: BuildHasher> Extend<(K, V)> for LockMap<K, V, S> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, values: I) {
        for (key, value) in values {
            let tag = Key::new(&key, &self.hasher).tag();
            let mut key = OwnedKey::new(tag, key);
            let old = if self.core.has_records() {
                self.put_as_writer(&mut key, value)
            } else {
                // A guard of the key may have been forgotten.
                let old = self.core.insert_at_once(&mut key, value);
                old.unwrap_or_else(|Busy(value)| self.core.put(&mut key, value))
            };
            drop(key);
            drop(old);
        }
    }
}

/// If a key occurs more than once, its last value stays.
impl<K: Eq + Hash, V, S: BuildHasher + Default> FromIterator<(K, V)> for LockMap<K, V, S> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(values: I) -> Self {
        let mut map = LockMap::default();
        map.extend(values);
        map
    }
}

impl<K, V, S> Drop for LockMap<K, V, S> {
    fn drop(&mut self) {
        if core::mem::needs_drop::<(K, V)>() {
            let shards = (0..).map_while(|shard| self.core.drain(shard));
            drop_all(shards.flat_map(|drained| {
                let entries = drained.entries.into_iter().map(|(key, value)| (Some(key), value));
                entries.chain(drained.ended.into_iter().map(|(key, value)| (key, Some(value))))
            }));
        }
    }
}

/// Drops all keys and values, even if one drop panics.
fn drop_all<K, V>(pairs: impl Iterator<Item = (Option<K>, Option<V>)>) {
    run_all(pairs.flat_map(|(key, value)| [(key, None), (None, value)]).map(|part| move || drop(part)));
}

/// An iterator over the keys and values of a [`LockMap`], in no particular order. It includes the values of keys that
/// forgotten guards left locked.
///
/// # Examples
/// ```
/// let map: keylatch::LockMap<u64, u32> = [(7, 1)].into_iter().collect();
/// assert_eq!(map.into_iter().collect::<Vec<_>>(), [(7, 1)]);
/// ```
pub struct IntoIter<K, V, S> {
    map: LockMap<K, V, S>,
    /// The next shard to drain.
    shard: usize,
    values: vec::IntoIter<(K, Option<V>)>,
}

impl<K, V, S> IntoIterator for LockMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V, S>;

    fn into_iter(self) -> IntoIter<K, V, S> {
        self.core.tick();
        IntoIter { map: self, shard: 0, values: Vec::new().into_iter() }
    }
}

impl<K, V, S> Iterator for IntoIter<K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            for (key, value) in self.values.by_ref() {
                // Entries that forgotten guards, handles or futures have kept may have no value.
                if let Some(value) = value {
                    return Some((key, value));
                }
            }
            let drained = self.map.core.drain(self.shard)?;
            self.values = drained.entries.into_iter();
            self.shard += 1;
            drop_all(drained.ended.into_iter().map(|(key, value)| (key, Some(value))));
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rest = self.map.core.undrained();
        (rest, rest.checked_add(self.values.len()))
    }
}

impl<K, V, S> core::iter::FusedIterator for IntoIter<K, V, S> {}

impl<K, V, S> Drop for IntoIter<K, V, S> {
    fn drop(&mut self) {
        if core::mem::needs_drop::<(K, V)>() {
            run_all(self.values.by_ref().map(|pair| move || drop(pair)));
        }
    }
}

impl<K, V, S> fmt::Debug for IntoIter<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoIter").finish_non_exhaustive()
    }
}

impl<K, V, S> fmt::Debug for LockMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockMap").field("len", &self.len()).finish_non_exhaustive()
    }
}
