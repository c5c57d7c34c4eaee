//! The weights of a shard's values. Used under the shard lock.
//!
//! The user's function may say anything, and something else each time. So each value's weight is recorded when it is
//! counted, and that is what is taken off again.

use super::by_slot::BySlot;
use super::value::Kept;

/// See the [module](self).
pub(super) struct Weights {
    /// The largest sum of ordinary weights.
    most: u64,
    /// The sum of the weights of ordinary values. A shard has at most four billion values, so it does not overflow.
    ordinary: u64,
    /// The sum of the weights of excessive values.
    excessive: u64,
    /// The number of values without weight.
    weightless: usize,
    slots: BySlot<Weight>,
}

/// The weight of a slot's value.
#[derive(Clone, Copy, Default)]
struct Weight {
    /// The version for which the weight was asked; 0, which is no version, if it has not been asked yet.
    version: u64,
    weight: u32,
    rank: Rank,
}

/// The sum in which a weight is counted.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Rank {
    /// It is not counted, because it is not known: a writer that has just stored the value still holds the key.
    #[default]
    Unknown,
    /// The value weighs nothing. It is not in the order of eviction, because nothing would be gained.
    Weightless,
    Ordinary,
    /// The value is heavier than all values of the shard may be. It is never in the order, and counted apart, so that
    /// no other value is evicted for it. It is evicted itself when its last user leaves.
    Excessive,
}

/// The weight of a new value for which the user's function has panicked.
const ASSUMED: u32 = 1;

impl Weights {
    pub(super) fn new(most: u64) -> Self {
        Weights { most, ordinary: 0, excessive: 0, weightless: 0, slots: BySlot::default() }
    }

    /// Returns the version for which the value's weight was asked.
    pub(super) fn version(&self, number: u32) -> u64 {
        self.slots.get(number).version
    }

    pub(super) fn weight(&self, number: u32) -> u64 {
        self.slots.get(number).weight.into()
    }

    /// Returns the weight of all values.
    pub(super) fn total(&self) -> u64 {
        self.ordinary + self.excessive
    }

    /// Returns the number of values that weigh nothing.
    pub(super) fn weightless(&self) -> usize {
        self.weightless
    }

    /// Returns whether the values are too heavy.
    fn is_exceeded(&self) -> bool {
        self.ordinary > self.most
    }

    /// Counts a value with its weight. If that is `None`, the value keeps the weight that it had.
    fn set(&mut self, number: u32, version: u64, weight: Option<u32>) {
        let old = self.slots.get(number);
        let last = if old.rank == Rank::Unknown { ASSUMED } else { old.weight };
        let weight = weight.unwrap_or(last);
        let rank = match weight {
            0 => Rank::Weightless,
            _ if u64::from(weight) > self.most => Rank::Excessive,
            _ => Rank::Ordinary,
        };
        self.replace(number, Weight { version, weight, rank });
    }

    /// Counts a value as an ordinary one.
    fn make_ordinary(&mut self, number: u32) {
        self.replace(number, Weight { rank: Rank::Ordinary, ..self.slots.get(number) });
    }

    fn replace(&mut self, number: u32, new: Weight) {
        self.take_off(number);
        match new.rank {
            Rank::Unknown => {}
            Rank::Weightless => self.weightless += 1,
            Rank::Ordinary => self.ordinary += u64::from(new.weight),
            Rank::Excessive => self.excessive += u64::from(new.weight),
        }
        *self.slots.at(number) = new;
    }

    fn take_off(&mut self, number: u32) {
        let Weight { weight, rank, .. } = self.slots.get(number);
        match rank {
            Rank::Unknown => {}
            Rank::Weightless => self.weightless -= 1,
            Rank::Ordinary => self.ordinary -= u64::from(weight),
            Rank::Excessive => self.excessive -= u64::from(weight),
        }
    }

    /// Forgets a value.
    pub(super) fn forget(&mut self, number: u32) {
        self.take_off(number);
        self.slots.forget(number);
    }

    /// Returns whether a value that is not in use belongs in the order of eviction. It does if the bound has been
    /// raised since it was found to be excessive.
    fn is_ordered(&mut self, number: u32) -> bool {
        let Weight { weight, rank, .. } = self.slots.get(number);
        if rank == Rank::Excessive && u64::from(weight) <= self.most {
            self.make_ordinary(number);
        }
        matches!(self.slots.get(number).rank, Rank::Unknown | Rank::Ordinary)
    }

    /// Returns whether the value alone exceeds the bound.
    fn is_excessive(&self, number: u32) -> bool {
        self.weight(number) > self.most
    }

    /// Forgets a freed chunk: see [`BySlot::forget_chunk`].
    pub(super) fn forget_chunk(&mut self, chunk: usize, end: usize) {
        self.slots.forget_chunk(chunk, end);
    }
}

/// Weighed values. In a table that does not weigh them, these do nothing.
impl Kept {
    fn weights(&mut self) -> Option<&mut Weights> {
        self.deadlines.as_mut()?.weights.as_deref_mut()
    }

    pub(super) fn are_weighed(&self) -> bool {
        self.deadlines.as_ref().is_some_and(|deadlines| deadlines.weights.is_some())
    }

    /// Counts a value with its weight. If that is `None`, the value keeps the weight that it had.
    pub(super) fn set_weight(&mut self, number: u32, version: u64, weight: Option<u32>) {
        let Some(weights) = self.weights() else { return };
        weights.set(number, version, weight);
        let is_ordered = weights.is_ordered(number);
        self.note_weights();
        if let Some(bound) = self.bound.as_mut().filter(|_| !is_ordered) {
            bound.sieve.remove(number);
        }
    }

    /// Sets the largest weight of all values.
    pub(super) fn set_most_weight(&mut self, most: u64) {
        self.weights().into_iter().for_each(|weights| weights.most = most);
        self.note_weights();
    }

    /// Sets the number of values that the shard may have after a weight has changed: none or all, so that the number
    /// exceeds the bound if the weight does.
    pub(super) fn note_weights(&mut self) {
        let Some(is_exceeded) = self.weights().map(|weights| weights.is_exceeded()) else { return };
        self.bound.iter_mut().for_each(|bound| bound.most = if is_exceeded { 0 } else { usize::MAX });
    }

    /// Returns whether a value that is not in use belongs in the order of eviction.
    pub(super) fn is_ordered(&mut self, number: u32) -> bool {
        let Some(is_ordered) = self.weights().map(|weights| weights.is_ordered(number)) else { return true };
        self.note_weights();
        is_ordered
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
        assert!(kept.is_excessive(0) && kept.is_excessive(1));
        assert_eq!(kept.weights().unwrap().total(), 21);
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
                        kept.is_ordered(number);
                    }
                }
                let weights = kept.weights().unwrap();
                prop_assert_eq!(weights.total(), model.values().map(|&weight| u64::from(weight)).sum::<u64>());
                prop_assert_eq!(weights.weightless(), model.values().filter(|&&weight| weight == 0).count());
                for (&number, &weight) in &model {
                    prop_assert_eq!(weights.weight(number), u64::from(weight));
                }
                prop_assert!(order(&kept) <= model.values().filter(|&&weight| weight > 0).count());
            }
        }
    }
}
