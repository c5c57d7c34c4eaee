//! Weighing values. The sums are in [`weights`](super::weights).

use core::convert::Infallible;

use super::deadlines::Deadlines;
use super::hooks::Weigher;
use super::payload::Payload;
use super::shard::Shard;
use super::slot::Live;
use super::value::{Kept, Marks, Valued};
use super::values::{Evicted, tag_of};
use super::weights::Weights;
use super::{Core, part_of};

impl<K, V: Payload> Core<K, V> {
    /// Returns the user's function, with the bound, if values are weighed.
    #[inline]
    pub(super) fn weigher(&self) -> Option<&Weigher<K, V::Value>> {
        V::hooks(&self.hooks)?.weigher.as_ref()
    }

    /// Records the weight of a value that has been stored or changed. `weight` is `None` if the user's function has
    /// panicked.
    pub(super) fn set_weight(&self, shard: &mut Shard<K, V>, entry: Live<'_, K, V>, number: u32, weight: Option<u32>) {
        let version = V::marks(entry.marks()).map(Marks::version);
        if let (Some(version), Some(kept)) = (version, V::keeps(&mut shard.kept)) {
            kept.set_weight(number, version, weight);
        }
        self.note_excess(shard, tag_of(entry));
    }

    /// Evicts the value of this slot, if it alone exceeds the bound and nobody uses it.
    pub(super) fn evict_excessive(&self, shard: &mut Shard<K, V>, number: Option<u32>) -> Option<Evicted<K, V>> {
        let number = number?;
        if !V::keeps(&mut shard.kept)?.is_excessive(number) {
            return None;
        }
        let entry = shard.look_at(number)?;
        // As in other evictions: a user that leaves after this exchange sees that there is something to sweep.
        let Ok(word) = entry.state().update(Ok::<_, Infallible>);
        if !V::is_present(entry.marks()) || self.is_used(entry, word) {
            return None;
        }
        self.evict_value(shard, number)
    }

    /// Leaves an excessive value that nobody uses to the other sweeps of its shard. These do not know of it, so it is
    /// put into the order of eviction.
    pub(super) fn leave_excessive(&self, shard: &mut Shard<K, V>, number: Option<u32>) {
        let Some((entry, number)) = number.and_then(|number| Some((shard.look_at(number)?, number))) else { return };
        let idle = V::is_present(entry.marks()) && !self.is_used(entry, entry.state().word());
        V::keeps(&mut shard.kept).filter(|_| idle).into_iter().for_each(|kept: &mut Kept| kept.leave_excessive(number));
    }
}

impl<K, T> Core<K, Valued<T>> {
    /// Returns the weight of all values that are not over, added up shard by shard; 0 if values are not weighed.
    pub(crate) fn weight(&self) -> u64 {
        if self.weigher().is_none() {
            return 0;
        }
        let now = self.time();
        let weight = |shard: &mut Shard<K, Valued<T>>| {
            shard.kept.deadlines.as_mut().map_or(0, |deadlines: &mut _| {
                now.into_iter().for_each(|now| Deadlines::advance(deadlines, now));
                deadlines.weight_of_live()
            })
        };
        self.shards().iter().map(|shard| shard.with(weight)).fold(0, u64::saturating_add)
    }

    /// Returns the largest total weight of the values, if they are weighed.
    pub(crate) fn max_weight(&self) -> Option<u64> {
        self.weigher().map(Weigher::most)
    }

    /// Changes the largest total weight of the values, and evicts values in excess of it, unless that is the caller's
    /// task. Returns `false`, and does nothing, if values are not weighed.
    pub(crate) fn set_max_weight(&self, most: u64) -> bool {
        let (Some(weigher), Some(whole)) = (self.weigher(), self.excess.whole()) else { return false };
        if whole.is_by_hand() {
            weigher.set_most(most);
            return true; // the shards evict nothing
        }
        let now = self.time();
        weigher.set_most(most);
        let shards = self.shards().len();
        self.set_bounds(now, |kept, index| kept.set_most_weight(part_of(weigher.most(), index, shards)));
        true
    }
}

/// Operations on weighed values. In a table that does not weigh its values, they change nothing.
impl Kept {
    fn weights(&mut self) -> Option<&mut Weights> {
        self.deadlines.as_mut()?.weights.as_deref_mut()
    }

    pub(super) fn are_weighed(&self) -> bool {
        self.deadlines.as_ref().is_some_and(|deadlines| deadlines.weights.is_some())
    }

    /// Counts a value with its weight. If that is `None`, the value keeps the weight that it had; a new value gets an
    /// assumed one.
    pub(super) fn set_weight(&mut self, number: u32, version: u64, weight: Option<u32>) {
        let Some(weights) = self.weights() else { return };
        weights.set(number, version, weight);
        let is_ordered = weights.is_ordered(number);
        self.note_weights();
        if let Some(bound) = self.bound.as_mut().filter(|_| !is_ordered) {
            bound.sieve.remove(number);
        }
    }

    /// Sets the largest total weight of the values.
    pub(super) fn set_most_weight(&mut self, most: u64) {
        let Some(weights) = self.deadlines.as_mut().and_then(|deadlines| deadlines.weights.as_deref_mut()) else {
            return;
        };
        let outgrown = weights.set_most(most);
        if let Some(bound) = &mut self.bound {
            outgrown.iter().for_each(|&number| bound.sieve.remove(number));
        }
        self.note_weights();
    }

    /// Sets the number of values that the shard may have, after a weight, or the bound on the weights, has changed: 0
    /// if the values are too heavy, otherwise no limit. So there are too many values whenever they are too heavy.
    pub(super) fn note_weights(&mut self) {
        let Some(is_exceeded) = self.weights().map(|weights| weights.is_exceeded()) else { return };
        self.bound.iter_mut().for_each(|bound| bound.most = if is_exceeded { 0 } else { usize::MAX });
    }

    /// Returns whether a value that is not in use belongs in the order of eviction.
    pub(super) fn is_ordered(&mut self, number: u32) -> bool {
        self.weights().is_none_or(|weights| weights.is_ordered(number))
    }

    /// Returns the next value that became excessive when the bound was lowered.
    pub(super) fn take_outgrown(&mut self) -> Option<u32> {
        self.weights()?.take_outgrown()
    }

    /// Returns whether the value alone exceeds the bound.
    pub(super) fn is_excessive(&mut self, number: u32) -> bool {
        self.weights().is_some_and(|weights| weights.is_excessive(number))
    }

    /// Lets an excessive value that is not in use be evicted like the others, in its turn.
    pub(super) fn leave_excessive(&mut self, number: u32) {
        if let Some(weights) = self.weights().filter(|weights| weights.is_excessive(number)) {
            weights.make_ordinary(number);
            self.note_weights();
            self.bound.iter_mut().for_each(|bound| bound.sieve.push(number, || false));
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn weighed(most: u64) -> Kept {
        Kept::new(Some(usize::MAX), Some(most), 0, false, false)
    }

    fn order(kept: &Kept) -> usize {
        kept.bound.as_ref().map_or(0, |bound| bound.sieve.len())
    }

    #[test]
    fn sums_do_not_overflow() {
        let mut kept = weighed(u64::MAX);
        for number in 0..1000 {
            kept.set_weight(number, 1, Some(u32::MAX));
        }
        assert_eq!(kept.weights().unwrap().total(), 1000 * u64::from(u32::MAX));
        (0..1000).for_each(|number| kept.weights().unwrap().forget(number));
        assert_eq!(kept.weights().unwrap().total(), 0);
    }

    #[test]
    fn an_excessive_value_is_counted_apart_until_the_bound_is_raised() {
        let mut kept = weighed(10);
        kept.values = 2;
        kept.set_weight(0, 1, Some(10));
        kept.set_weight(1, 1, Some(11));
        assert!(!kept.is_too_full() && kept.is_excessive(1) && !kept.is_ordered(1));
        assert_eq!(kept.weights().unwrap().total(), 21);
        kept.set_most_weight(20);
        assert!(kept.is_ordered(1) && kept.is_too_full());
        kept.set_most_weight(5);
        assert!(kept.is_excessive(0) && kept.is_excessive(1) && !kept.is_too_full());
        assert_eq!(kept.weights().unwrap().total(), 21);
        let outgrown: Vec<_> = core::iter::from_fn(|| kept.take_outgrown()).collect();
        assert_eq!(outgrown, [1, 0]);
    }

    #[test]
    fn an_excessive_value_that_is_left_to_others_is_in_the_order() {
        let mut kept = weighed(10);
        kept.values = 1;
        kept.set_weight(3, 1, Some(11));
        kept.leave_excessive(3);
        assert!(kept.is_too_full());
        assert_eq!(order(&kept), 1);
    }

    #[test]
    fn a_value_whose_weight_is_not_known_keeps_the_last_one() {
        let mut kept = weighed(10);
        kept.set_weight(0, 1, None);
        assert_eq!(kept.weights().unwrap().total(), 1);
        kept.set_weight(0, 2, Some(7));
        kept.set_weight(0, 3, None);
        assert_eq!((kept.weights().unwrap().total(), kept.weights().unwrap().version(0)), (7, 3));
    }

    proptest! {
        #[test]
        fn every_operation_agrees_with_a_model_of_a_list(
            steps in prop::collection::vec((0..5u8, 0..40u32, 0..12u32), 0..200),
        ) {
            let (mut kept, mut model) = (weighed(10), BTreeMap::<u32, u32>::new());
            for (step, number, weight) in steps {
                match step {
                    0 | 1 => {
                        model.insert(number, weight);
                        kept.set_weight(number, 1, Some(weight));
                        if kept.is_ordered(number) {
                            kept.bound.as_mut().unwrap().sieve.push(number, || false);
                        }
                    }
                    2 => {
                        model.remove(&number);
                        kept.bound.as_mut().unwrap().sieve.remove(number);
                        kept.weights().unwrap().forget(number);
                    }
                    3 => kept.set_most_weight(weight.into()),
                    _ => {
                        kept.take_outgrown();
                    }
                }
                let weights = kept.weights().unwrap();
                prop_assert_eq!(weights.total(), model.values().map(|&weight| u64::from(weight)).sum::<u64>());
                let most = weights.most();
                let ordinary = model.values().map(|&weight| u64::from(weight)).filter(|&weight| weight <= most);
                prop_assert_eq!(weights.ordinary(), ordinary.sum::<u64>());
                prop_assert_eq!(weights.weightless(), model.values().filter(|&&weight| weight == 0).count());
                for (&number, &weight) in &model {
                    prop_assert_eq!(weights.weight(number), u64::from(weight));
                }
                prop_assert!(order(&kept) <= model.values().filter(|&&weight| weight > 0).count());
            }
        }
    }
}
