//! The weights of a shard's values. Used under the shard lock.
//!
//! The user's function may return anything, and something else each time. So each value's weight is recorded when it is
//! counted, and the recorded weight is subtracted again.

use alloc::vec::Vec;

use super::by_slot::BySlot;

/// See the [module](self).
pub(super) struct Weights {
    /// The bound on the sum of ordinary weights.
    most: u64,
    /// The sum of the weights of ordinary values. A shard has at most four billion values, so the sum does not
    /// overflow.
    ordinary: u64,
    /// The sum of the weights of excessive values.
    excessive: u64,
    /// The number of values without weight.
    weightless: usize,
    slots: BySlot<Weight>,
    /// Values that have become excessive because the bound was lowered. Some may have no user that would evict them
    /// when it leaves.
    outgrown: Vec<u32>,
}

/// The weight of a slot's value.
#[derive(Clone, Copy, Default)]
struct Weight {
    /// The version for which the user's function was asked; 0, which is no version, if it has not been asked yet.
    version: u64,
    weight: u32,
    rank: Rank,
}

/// The sum in which a weight is counted.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Rank {
    /// The weight is not known, and so not counted: there is no value, or the writer that has just stored it still
    /// holds the key.
    #[default]
    Unknown,
    /// The value weighs nothing. It is not in the order of eviction, because nothing would be gained.
    Weightless,
    Ordinary,
    /// The value is heavier than all values of the shard together may be. It is never in the order of eviction, and its
    /// weight is counted apart, so that no other value is evicted for it. It is evicted itself when its last user
    /// leaves.
    Excessive,
}

/// The weight of a new value for which the user's function has panicked.
const ASSUMED: u32 = 1;

impl Weights {
    pub(super) fn new(most: u64) -> Self {
        Weights { most, ordinary: 0, excessive: 0, weightless: 0, slots: BySlot::default(), outgrown: Vec::new() }
    }

    /// Changes the largest sum of ordinary weights, and with it the ranks of the values. Returns the list of the values
    /// that have become excessive and have not been [taken](Self::take_outgrown) since. It may contain values of
    /// earlier calls.
    pub(super) fn set_most(&mut self, most: u64) -> &[u32] {
        self.most = most;
        for number in 0..self.slots.end() {
            let Weight { weight, rank, .. } = self.slots.get(number);
            match rank {
                Rank::Ordinary if u64::from(weight) > most => {
                    self.replace(number, Weight { rank: Rank::Excessive, ..self.slots.get(number) });
                    self.outgrown.push(number);
                }
                Rank::Excessive if u64::from(weight) <= most => self.make_ordinary(number),
                _ => {}
            }
        }
        &self.outgrown
    }

    #[cfg(test)]
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    #[cfg(test)]
    pub(super) fn ordinary(&self) -> u64 {
        self.ordinary
    }

    /// Returns the next value that became excessive when the bound was lowered.
    pub(super) fn take_outgrown(&mut self) -> Option<u32> {
        let number = self.outgrown.pop();
        if self.outgrown.is_empty() {
            self.outgrown = Vec::new();
        }
        number
    }

    /// Returns the version for which the user's function was asked for the weight.
    pub(super) fn version(&self, number: u32) -> u64 {
        self.slots.get(number).version
    }

    pub(super) fn weight(&self, number: u32) -> u64 {
        self.slots.get(number).weight.into()
    }

    /// Returns the weight of all values whose weight is known.
    pub(super) fn total(&self) -> u64 {
        self.ordinary + self.excessive
    }

    /// Returns the number of values that weigh nothing.
    pub(super) fn weightless(&self) -> usize {
        self.weightless
    }

    /// Returns whether the ordinary values together are too heavy.
    pub(super) fn is_exceeded(&self) -> bool {
        self.ordinary > self.most
    }

    /// Counts a value with its weight. If that is `None`, the value keeps the weight that it had; a new value gets
    /// [`ASSUMED`].
    pub(super) fn set(&mut self, number: u32, version: u64, weight: Option<u32>) {
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
    pub(super) fn make_ordinary(&mut self, number: u32) {
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

    /// Returns whether a value that is not in use belongs in the order of eviction.
    pub(super) fn is_ordered(&self, number: u32) -> bool {
        matches!(self.slots.get(number).rank, Rank::Unknown | Rank::Ordinary)
    }

    /// Returns whether the value alone exceeds the bound.
    pub(super) fn is_excessive(&self, number: u32) -> bool {
        self.weight(number) > self.most
    }

    /// Forgets a freed chunk: see [`BySlot::forget_chunk`].
    pub(super) fn forget_chunk(&mut self, chunk: usize, end: usize) {
        self.slots.forget_chunk(chunk, end);
    }
}
