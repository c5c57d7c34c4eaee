//! Looking at all values, and taking them out.

use alloc::vec::{self, Vec};
use core::fmt;
use core::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use super::LockMap;
use super::version::Version;
use crate::core::{Key, OwnedKey, Want};
use crate::guard::Guard;
use crate::mode::{Exclusive, Mode, Shared};
use crate::panics::{Panics, run_all};
use crate::plumbing::TableRef;

impl<K: Eq + Hash, V, S: BuildHasher> LockMap<K, V, S> {
    /// Whether a key has a value, locked or not.
    ///
    /// A value counts from the moment in which a writer has inserted it, before it releases the key, until it has removed it. This
    /// is no use of the value: see [`max_values`](crate::Builder::max_values).
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
    /// The number of values.
    ///
    /// A value counts from the moment in which a writer has inserted it, before it releases the key, until it has removed it. The
    /// shards are counted one after another: the sum is exact if nothing changes meanwhile.
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

    /// Whether there is no value. As exact as [`len`](Self::len).
    ///
    /// # Examples
    /// ```
    /// assert!(keylatch::LockMap::<u64, u32>::new().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys that have an entry: those that have a value, are held, waited for, or kept by a handle or an unfinished
    /// future. As exact as [`len`](Self::len).
    ///
    /// # Examples
    /// See [`len`](Self::len).
    #[must_use]
    pub fn entries(&self) -> usize {
        self.core.len()
    }

    /// Calls `look` with every value that is not locked by a writer, and returns how many were passed over because they were.
    ///
    /// Each value is read under a lock of its key that is held only for its call, and that nobody waits for: an entry that has a
    /// value, and whose lock could not be had at once by [`try_read`](Self::try_read), is passed over. A value that comes or goes
    /// during the call may be seen or not; one that is there all the time, and not locked, is seen once. It is no use of the
    /// values: see [`max_values`](crate::Builder::max_values).
    ///
    /// `look` runs outside every internal lock and may use the map, but for writing the key that it is called with.
    ///
    /// A caller that must see all values, or all of a group, looks again if any were skipped: one of the group may be among them. In a task,
    /// give way before that (`yield_now().await`): the writer may be a task of the same thread. And a key that gets a value after
    /// the look is not seen, so a [`Batch`](crate::Batch) on the values that were seen knows nothing of it.
    ///
    /// # Panics
    /// If a key cannot count one more user: see [`MAX_USERS`](crate::MAX_USERS). If `look` does.
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

    /// Removes the values that `keep` refuses, and returns how many were passed over because their keys were locked.
    ///
    /// As [`for_each_value`](Self::for_each_value), but each key is locked as by [`try_write`](Self::try_write), and so is passed
    /// over if anybody holds it. The versions of what stays are left alone. What is removed is dropped with no lock held.
    ///
    /// # Panics
    /// If a key cannot count one more user: see [`MAX_USERS`](crate::MAX_USERS). If `keep` does. If a value or a key panics when it
    /// is dropped, the first such panic is passed on in the end.
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

    /// Removes all values whose keys nobody has locked, and returns how many stay.
    ///
    /// As [`retain`](Self::retain) does that keeps none.
    ///
    /// # Panics
    /// If a key cannot count one more user: see [`MAX_USERS`](crate::MAX_USERS). If a value or a key panics when it is dropped,
    /// the first such panic is passed on in the end.
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

    /// Visits the entries that have a value, each with a guard, if that can be had at once. Returns how many could not. Panics that
    /// are kept go on when all have been visited.
    fn visit<M: Mode>(&self, mode: M, mut visit: impl FnMut(Guard<TableRef<'_, Self>, M>, &mut Panics)) -> usize {
        let (mut passed_over, mut panics) = (0, Panics::default());
        self.core.visit(
            |entry| entry.has_value().then_some(()),
            |mut visited, ()| {
                let Some(claim) = visited.claim().take() else { return };
                match self.core.try_enter(claim.live(), Want::Hold(mode.access())) {
                    Some(entered) => visit(Guard::of(TableRef::new(self), claim.into_hold(entered, mode)), &mut panics),
                    None => {
                        passed_over += usize::from(claim.live().has_value());
                        *visited.claim() = Some(claim);
                        // It may be the last user by now, and the drop of the key may panic.
                        panics.run(|| drop(visited));
                    }
                }
            },
        );
        panics.resume();
        passed_over
    }
}

/// Of equal keys the last value stays. Guards that have been forgotten do not matter: whoever owns the map has all of it.
impl<K: Eq + Hash, V, S: BuildHasher> Extend<(K, V)> for LockMap<K, V, S> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, values: I) {
        for (key, value) in values {
            let tag = Key::new(&key, &self.hasher).tag();
            let mut key = OwnedKey::new(tag, key);
            let old = self.core.put(&mut key, value);
            drop(key);
            drop(old);
        }
    }
}

/// Of equal keys the last value stays.
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
            // All of them, even if the drop of one panics.
            let shards = (0..).map_while(|shard| self.core.drain(shard));
            run_all(
                shards
                    .flatten()
                    .flat_map(|(key, value)| [(Some(key), None), (None, value)])
                    .map(|part| move || drop(part)),
            );
        }
    }
}

/// The keys and values of a [`LockMap`], in no particular order. Guards that have been forgotten do not matter: whoever owns the
/// map has all of it.
///
/// # Examples
/// ```
/// let map: keylatch::LockMap<u64, u32> = [(7, 1)].into_iter().collect();
/// assert_eq!(map.into_iter().collect::<Vec<_>>(), [(7, 1)]);
/// ```
pub struct IntoIter<K, V, S> {
    map: LockMap<K, V, S>,
    /// The next one to be emptied.
    shard: usize,
    values: vec::IntoIter<(K, Option<V>)>,
}

impl<K, V, S> IntoIterator for LockMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V, S>;

    fn into_iter(self) -> IntoIter<K, V, S> {
        IntoIter { map: self, shard: 0, values: Vec::new().into_iter() }
    }
}

impl<K, V, S> Iterator for IntoIter<K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            for (key, value) in self.values.by_ref() {
                // The entries of forgotten guards may have no value.
                if let Some(value) = value {
                    return Some((key, value));
                }
            }
            self.values = self.map.core.drain(self.shard)?.into_iter();
            self.shard += 1;
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rest = self.map.len();
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
