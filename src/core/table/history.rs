//! The keys whose values were evicted not long ago.
//!
//! A key that comes back soon after its value was evicted is likely to come back again, so its value is given a pass in
//! the [`Sieve`](super::sieve::Sieve). Histories of evicted keys are known from 2Q (T. Johnson, D. Shasha, "2Q: A Low
//! Overhead High Performance Buffer Management Replacement Algorithm", VLDB 1994). As in S3-FIFO (J. Yang and others,
//! "FIFO Queues are All You Need for Cache Eviction", SOSP 2023), a key is remembered by a fingerprint: 16 bits of its
//! hash. If two keys share one, the only harm is a worse choice of the value to evict.

use alloc::vec::Vec;

use super::tag::Tag;

/// The fingerprints of a shard's evicted keys, about half as many as there are values. If there were more, a key that
/// comes back late would be taken for a popular one.
pub(super) struct History {
    /// A key belongs to one set, chosen by bits of its hash that are not in its fingerprint. A set that is full forgets
    /// its oldest fingerprint.
    sets: Vec<Set>,
    /// The number of sets for which the history keeps its memory.
    kept: usize,
}

/// Fingerprints, the newest first. A free place has 0.
type Set = [u16; PLACES];

const PLACES: usize = 8;

/// The number of values for which a history has one set.
const VALUES: usize = 2 * PLACES;

impl History {
    /// Creates a history with memory for the keys of a shard that has `capacity` values.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        let kept = capacity.div_ceil(VALUES);
        History { sets: empty(kept), kept }
    }

    /// Remembers a key. Resizes the history, if necessary, to fit a shard that has this many values.
    pub(super) fn add(&mut self, tag: Tag, values: usize) {
        let wanted = values.div_ceil(VALUES).max(1);
        self.fit(values);
        // If the history is less than half or more than twice as large as wanted, it begins anew. So it does not begin
        // anew often, and never has more than 2 bytes for each value, or one set, or the memory that it keeps.
        if 2 * self.sets.len() < wanted {
            self.sets = empty(wanted.max(self.kept));
        }
        if let Some((set, print)) = self.find(tag) {
            set.rotate_right(1);
            set[0] = print;
        }
    }

    /// Gives memory back if the history is too large for a shard that has this many values.
    #[inline]
    pub(super) fn fit(&mut self, values: usize) {
        if self.sets.len() > self.kept.max(values / PLACES).max(1) {
            self.sets = empty(self.kept);
        }
    }

    /// Forgets a key. Returns whether it was remembered.
    pub(super) fn take(&mut self, tag: Tag) -> bool {
        let Some((set, print)) = self.find(tag) else { return false };
        let Some(place) = set.iter().position(|&other| other == print) else { return false };
        set[place..].rotate_left(1);
        set[PLACES - 1] = 0;
        true
    }

    /// Returns the set of a key, and the key's fingerprint; `None` if there are no sets.
    fn find(&mut self, tag: Tag) -> Option<(&mut Set, u16)> {
        let hash = tag.bucket_hash();
        let print = ((hash >> 48) as u16).max(1);
        let set = (u64::from((hash >> 16) as u32) * self.sets.len() as u64) >> 32;
        Some((self.sets.get_mut(set as usize)?, print))
    }
}

fn empty(sets: usize) -> Vec<Set> {
    alloc::vec![[0; PLACES]; sets]
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::hash::BuildHasher;
    use std::hash::RandomState;

    use proptest::prelude::*;

    use super::*;

    fn bytes(history: &History) -> usize {
        history.sets.capacity() * size_of::<Set>()
    }

    fn tags(n: usize) -> Vec<Tag> {
        let hasher = RandomState::new();
        (0..n).map(|key| Tag::of(hasher.hash_one(key))).collect()
    }

    #[test]
    fn about_half_as_many_keys_are_remembered_as_there_are_values() {
        const VALUES: usize = 10_000;
        let (mut history, tags) = (History::with_capacity(0), tags(4 * VALUES));
        assert_eq!(bytes(&history), 0, "nothing was evicted");
        tags.iter().for_each(|&tag| history.add(tag, VALUES));
        assert_eq!(bytes(&history), VALUES);
        let found: Vec<_> = tags.iter().map(|&tag| history.take(tag)).collect();
        let count = |range: core::ops::Range<usize>| found[range].iter().filter(|&&found| found).count();
        // A fingerprint of another key is found once in 8,000 times.
        assert!(count(0..2 * VALUES) < 50);
        assert!(count(4 * VALUES - VALUES / 4..4 * VALUES) > VALUES / 5);
        let remembered = count(0..4 * VALUES);
        assert!((VALUES / 2 - 100..=VALUES / 2 + 100).contains(&remembered), "{remembered}");
        assert!(tags.iter().all(|&tag| !history.take(tag)), "they were all taken");
    }

    #[test]
    fn keys_with_one_hash_share_one_set() {
        let (mut history, tag) = (History::with_capacity(0), Tag::of(7));
        (0..1000).for_each(|_| history.add(tag, 1000));
        assert_eq!((0..1000).filter(|_| history.take(tag)).count(), PLACES);
    }

    #[test]
    fn reserved_memory_is_neither_given_back_nor_added_to() {
        let mut history = History::with_capacity(1000);
        let reserved = history.sets.as_ptr();
        for values in [1000, 1, 500, 1000, 1500] {
            tags(10).into_iter().for_each(|tag| history.add(tag, values));
            assert_eq!(history.sets.as_ptr(), reserved);
        }
        history.add(Tag::of(7), 3000);
        assert_eq!(bytes(&history), 3008);
        history.add(Tag::of(7), 1);
        assert_eq!(bytes(&history), 1008, "the reserved memory is left");
    }

    #[test]
    fn memory_is_given_back_as_values_go() {
        let mut history = History::with_capacity(0);
        tags(1000).into_iter().for_each(|tag| history.add(tag, 1000));
        (0..1000).rev().for_each(|values| {
            history.fit(values);
            assert!(bytes(&history) <= (2 * values).max(size_of::<Set>()));
        });
        let mut reserved = History::with_capacity(1000);
        tags(10).into_iter().for_each(|tag| reserved.add(tag, 1000));
        reserved.fit(0);
        assert_eq!(bytes(&reserved), 1008);
    }

    proptest! {
        /// Compares the history with a list of its keys, the newest first. The number of values changes now and then.
        #[test]
        fn every_operation_agrees_with_a_model_of_a_list(
            steps in prop::collection::vec((0..4u8, 0..60u64), 0..400),
            sizes in prop::collection::vec(0..300usize, 1..4),
        ) {
            let mut history = History::with_capacity(0);
            let mut list = Vec::<(usize, u16)>::new();
            for (i, &(step, key)) in steps.iter().enumerate() {
                let (tag, values, before) = (Tag::of(key), sizes[i * sizes.len() / steps.len()], history.sets.len());
                if step < 2 {
                    history.add(tag, values);
                    prop_assert!(bytes(&history) <= (2 * values).max(size_of::<Set>()), "2 bytes for a value");
                    prop_assert!(2 * bytes(&history) >= values, "half a byte for a value");
                }
                if history.sets.len() != before {
                    list.clear();
                }
                let start = history.sets.as_ptr() as usize;
                let number = |set: &mut Set| (set.as_ptr() as usize - start) / size_of::<Set>();
                let key = history.find(tag).map(|(set, print)| (number(set), print));
                match (step, key) {
                    (0 | 1, Some(key)) => {
                        list.insert(0, key);
                        let mut places = (0..list.len()).filter(|&place| list[place].0 == key.0);
                        if let Some(oldest) = places.nth(PLACES) {
                            list.remove(oldest);
                        }
                    }
                    (0 | 1, None) => prop_assert!(false, "there is no set"),
                    _ => {
                        let place = list.iter().position(|&other| Some(other) == key);
                        prop_assert_eq!(history.take(tag), place.is_some());
                        if let Some(place) = place {
                            list.remove(place);
                        }
                    }
                }
            }
        }
    }
}
