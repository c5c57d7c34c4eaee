//! The deadlines of a shard's values, and their order. Used under the shard lock.
//!
//! Each value has a time at which it ends. While a holder sees the value, the value is *pinned* and does not end. A
//! heap orders the values by a lower bound of their deadlines: a use that extends a deadline leaves the heap as it is,
//! and the value gets its new place when it comes to the top.
//!
//! The ages and the weights of values are recorded here, too, for each slot. If a table weighs values that never end,
//! its [`Deadlines`] contain no deadline.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::ages::Ages;
use super::by_slot::BySlot;
use super::weights::Weights;
use crate::core::slab::NONE;

/// The time of values that do not end.
pub(super) const NEVER: u64 = u64::MAX;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Deadlines {
    /// The latest time that any call has seen in this shard. So the time of a shard never decreases.
    now: u64,
    slots: BySlot<Deadline>,
    /// A binary heap: the earliest time first.
    heap: Vec<Place>,
    /// The ages of values, if they are recorded and there has been a value.
    ages: Option<Box<Ages>>,
    /// The weights of values, if these are weighed.
    pub(super) weights: Option<Box<Weights>>,
    /// Whether values end, or have ages.
    timed: bool,
    /// Whether the task of disposing of all ended values has been left to the shard's sweeps.
    pub(super) are_left: bool,
}

/// The deadline of a slot's value.
#[derive(Clone, Copy)]
struct Deadline {
    /// The time at which the value ends, used or not.
    ends: u64,
    /// The time at which it ends unless it is used before.
    idle: u64,
    /// The version that these times were computed for.
    version: u64,
    /// The number of holders that see the value.
    pins: u32,
    /// The index in the heap; `NONE` if the value is not in the heap.
    index: u32,
}

#[derive(Clone, Copy)]
struct Place {
    /// A lower bound of the time at which the value ends.
    time: u64,
    number: u32,
}

/// The deadline of a slot without a value.
const EMPTY: Deadline = Deadline { ends: NEVER, idle: NEVER, version: 0, pins: 0, index: NONE };

impl Default for Deadline {
    fn default() -> Self {
        EMPTY
    }
}

impl Deadline {
    fn time(&self) -> u64 {
        self.ends.min(self.idle)
    }
}

impl Deadlines {
    /// Makes the deadlines of a shard. `timed` tells whether values end, or have ages, and `weight` is the largest
    /// total weight of the values, if these are weighed.
    pub(super) fn new(timed: bool, weight: Option<u64>) -> Self {
        Deadlines { timed, weights: weight.map(|most| Box::new(Weights::new(most))), ..Deadlines::default() }
    }

    /// Returns whether every user that leaves has to look for values to dispose of.
    pub(super) fn is_timed(&self) -> bool {
        self.timed
    }

    /// Returns the number of values that weigh nothing; 0 if values are not weighed.
    pub(super) fn weightless(&self) -> usize {
        self.weights.as_ref().map_or(0, |weights| weights.weightless())
    }

    /// Advances the shard's time to `now`, unless it is later already.
    pub(super) fn advance(&mut self, now: u64) {
        self.now = self.now.max(now.min(NEVER - 1));
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    fn get(&self, number: u32) -> Deadline {
        self.slots.get(number)
    }

    #[inline]
    fn at(&mut self, number: u32) -> &mut Deadline {
        self.slots.at(number)
    }

    /// Begins a value that a writer has just stored: it has one pin, and ends only after the writer has
    /// [set](Self::set) its deadline.
    pub(super) fn begin(&mut self, number: u32) {
        *self.at(number) = Deadline { pins: 1, ..EMPTY };
    }

    /// Returns the version for which the deadline was computed.
    pub(super) fn version(&self, number: u32) -> u64 {
        self.get(number).version
    }

    /// Returns whether the value's version differs from the one for which its deadline, or its weight, was recorded.
    pub(super) fn is_changed(&self, number: u32, version: u64) -> bool {
        let weighed = self.weights.as_ref().map(|weights| weights.version(number));
        let timed = self.timed.then(|| self.version(number));
        weighed.into_iter().chain(timed).any(|recorded| recorded != version)
    }

    /// Sets the deadline of a value: when it ends, and when it ends unless it is used before.
    pub(super) fn set(&mut self, number: u32, version: u64, ends: u64, idle: u64) {
        let deadline = self.at(number);
        (deadline.ends, deadline.idle, deadline.version) = (ends, idle, version);
        let Deadline { index, .. } = *deadline;
        let time = ends.min(idle);
        if index == NONE {
            self.push(number, time);
        } else if time < self.heap[index as usize].time {
            self.heap[index as usize].time = time;
            self.rise(index as usize);
        }
    }

    /// Extends the deadline of a value that is being used.
    pub(super) fn touch(&mut self, number: u32, idle: u64) {
        let deadline = self.at(number);
        if deadline.idle != NEVER {
            deadline.idle = idle;
        }
    }

    /// Notes a holder that sees the value.
    pub(super) fn pin(&mut self, number: u32) {
        self.at(number).pins += 1;
    }

    /// Notes that a holder that saw the value leaves.
    pub(super) fn unpin(&mut self, number: u32) {
        let deadline = self.at(number);
        deadline.pins = deadline.pins.saturating_sub(1);
        let Deadline { index, pins, .. } = *deadline;
        if pins == 0 && index == NONE {
            let time = deadline.time();
            self.push(number, time);
        }
    }

    /// Returns whether the value is over. The answer may change to `true` only when the time [passes](Self::advance),
    /// or when the value's last pin is removed.
    pub(super) fn is_over(&self, number: u32) -> bool {
        // Usually no value of the shard is over. Then there is no need to look at this value's deadline.
        if !self.is_any_due() {
            return false;
        }
        let deadline = self.get(number);
        deadline.pins == 0 && deadline.time() <= self.now
    }

    /// Returns whether there may be a value that is over and has not been forgotten.
    #[inline]
    pub(super) fn is_any_due(&self) -> bool {
        self.heap.first().is_some_and(|first| first.time <= self.now)
    }

    /// Forgets a value.
    pub(super) fn forget(&mut self, number: u32) {
        let Deadline { index, .. } = self.get(number);
        if index != NONE {
            self.take(index as usize);
        }
        self.slots.forget(number);
        if let Some(weights) = &mut self.weights {
            weights.forget(number);
        }
    }

    /// Returns a value that is over and has not been forgotten, after looking at no more than `most` values. (Values
    /// that are pinned leave the heap, until they are unpinned; those that were used sink in it.)
    pub(super) fn next_over(&mut self, most: usize) -> Option<u32> {
        for _ in 0..most {
            let &Place { time, number } = self.heap.first()?;
            if time > self.now {
                return None;
            }
            if self.is_over(number) {
                return Some(number);
            }
            let deadline = self.get(number);
            if deadline.time() <= self.now || deadline.time() == NEVER {
                self.take(0);
            } else {
                self.heap[0].time = deadline.time();
                self.sink(0);
            }
        }
        None
    }

    /// Returns the time at which the next value may end.
    pub(super) fn first(&self) -> Option<u64> {
        self.heap.first().map(|place| place.time)
    }

    /// Counts the values that are over and have not been forgotten.
    pub(super) fn count_over(&self) -> usize {
        let mut count = 0;
        self.visit_over(0, &mut |_| count += 1);
        count
    }

    /// Returns the weight of the values that are not over; 0 if values are not weighed.
    pub(super) fn weight_of_live(&self) -> u64 {
        let Some(weights) = &self.weights else { return 0 };
        let mut weight = weights.total();
        self.visit_over(0, &mut |number| weight -= weights.weight(number));
        weight
    }

    /// Visits the values that are over and have not been forgotten, at this index of the heap and below.
    fn visit_over(&self, index: usize, visit: &mut impl FnMut(u32)) {
        let Some(place) = self.heap.get(index).filter(|place| place.time <= self.now) else { return };
        if self.is_over(place.number) {
            visit(place.number);
        }
        [2 * index + 1, 2 * index + 2].into_iter().for_each(|below| self.visit_over(below, visit));
    }

    /// Forgets a freed chunk, whose slots have no values. The numbers of the remaining chunks are smaller than `end`.
    pub(super) fn forget_chunk(&mut self, chunk: usize, end: usize) {
        self.slots.forget_chunk(chunk, end);
        if let Some(ages) = &mut self.ages {
            ages.forget_chunk(chunk, end);
        }
        if let Some(weights) = &mut self.weights {
            weights.forget_chunk(chunk, end);
        }
        if self.heap.len() < self.heap.capacity() / 4 {
            self.heap.shrink_to(2 * self.heap.len());
        }
    }

    // ---- ages -----------------------------------------------------------------------------------------------------

    /// Begins the age of a value that has just been stored or changed.
    pub(super) fn begin_age(&mut self, number: u32) {
        self.ages.get_or_insert_default().begin(number, self.now);
    }

    /// Returns the age of a value, in nanoseconds; `None` if it is over. A new value's age is 0 until its writer has
    /// set its deadline.
    pub(super) fn age(&self, number: u32) -> Option<u64> {
        let is_set = self.version(number) != 0;
        let age = self.ages.as_ref().filter(|_| is_set).map_or(0, |ages| ages.age(number, self.now));
        (!self.is_over(number)).then_some(age)
    }

    /// Marks a value as being refreshed, and returns its version, if it is at least `fresh_for` nanoseconds old and not
    /// marked yet.
    pub(super) fn begin_refresh(&mut self, number: u32, fresh_for: u64) -> Option<u64> {
        let (version, now) = (self.version(number), self.now);
        self.ages.as_mut()?.begin_refresh(number, version, now, fresh_for).then_some(version)
    }

    /// Removes the mark of the value with this version.
    pub(super) fn end_refresh(&mut self, number: u32, version: u64) {
        if let Some(ages) = &mut self.ages {
            ages.end_refresh(number, version);
        }
    }

    // ---- the heap -------------------------------------------------------------------------------------------------

    fn push(&mut self, number: u32, time: u64) {
        if time != NEVER {
            self.heap.push(Place { time, number });
            self.rise(self.heap.len() - 1);
        }
    }

    /// Takes a value out of the heap.
    fn take(&mut self, index: usize) {
        let Place { number, .. } = self.heap.swap_remove(index);
        self.at(number).index = NONE;
        if index < self.heap.len() {
            self.rise(index);
            self.sink(index);
        }
    }

    /// Records, in the value's deadline, that the value is at this index of the heap.
    fn note(&mut self, index: usize) {
        let Place { number, .. } = self.heap[index];
        self.at(number).index = index as u32;
    }

    fn rise(&mut self, mut index: usize) {
        while index > 0 {
            let above = (index - 1) / 2;
            if self.heap[above].time <= self.heap[index].time {
                break;
            }
            self.heap.swap(above, index);
            self.note(index);
            index = above;
        }
        self.note(index);
    }

    fn sink(&mut self, mut index: usize) {
        loop {
            let earliest = [2 * index + 1, 2 * index + 2]
                .into_iter()
                .filter(|&below| below < self.heap.len())
                .min_by_key(|&below| self.heap[below].time);
            let Some(below) = earliest.filter(|&below| self.heap[below].time < self.heap[index].time) else { break };
            self.heap.swap(below, index);
            self.note(index);
            index = below;
        }
        self.note(index);
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// The deadline of a value in the model: when it ends, when it ends if it is not used, and its pins.
    type Model = BTreeMap<u32, (u64, u64, u32)>;

    fn is_over(&(ends, idle, pins): &(u64, u64, u32), now: u64) -> bool {
        pins == 0 && ends.min(idle) <= now
    }

    proptest! {
        #[test]
        fn every_operation_agrees_with_a_model_of_a_list(
            steps in prop::collection::vec((0..8u8, 0..40u32, 0..20u64, 0..20u64), 0..200),
        ) {
            let (mut deadlines, mut model, mut now) = (Deadlines::default(), Model::new(), 0);
            for (step, number, ends, idle) in steps {
                match (step, model.get_mut(&number)) {
                    (0, _) => {
                        now = now.max(ends);
                        deadlines.advance(ends);
                    }
                    (1 | 2, None) => {
                        deadlines.begin(number);
                        let idle = if idle < 10 { NEVER } else { now + idle };
                        deadlines.set(number, 1, now + ends, idle);
                        deadlines.unpin(number);
                        model.insert(number, (now + ends, idle, 0));
                    }
                    (1, Some(value)) => {
                        (value.0, value.1) = (now + ends, now + idle);
                        deadlines.set(number, 2, now + ends, now + idle);
                    }
                    (2, Some(_)) => {
                        deadlines.forget(number);
                        model.remove(&number);
                    }
                    (3, Some(value)) if value.1 != NEVER => {
                        value.1 = value.1.max(now + idle);
                        deadlines.touch(number, value.1);
                    }
                    (4, Some(value)) => {
                        value.2 += 1;
                        deadlines.pin(number);
                    }
                    (5, Some(value)) if value.2 > 0 => {
                        value.2 -= 1;
                        deadlines.unpin(number);
                    }
                    (6, _) => {
                        if let Some(number) = deadlines.next_over(3) {
                            prop_assert!(is_over(&model[&number], now));
                            deadlines.forget(number);
                            model.remove(&number);
                        }
                    }
                    _ => {}
                }
                let over: Vec<_> = model.iter().filter(|(_, value)| is_over(value, now)).collect();
                prop_assert_eq!(deadlines.count_over(), over.len());
                let first = model.values().filter(|value| value.2 == 0).map(|value| value.0.min(value.1)).min();
                prop_assert!(first.is_none_or(|first| deadlines.first().is_some_and(|bound| bound <= first)));
                for number in 0..40 {
                    let expected = model.get(&number).is_some_and(|value| is_over(value, now));
                    prop_assert_eq!(deadlines.is_over(number), expected);
                }
            }
            let found = core::iter::from_fn(|| deadlines.next_over(1000).inspect(|&number| deadlines.forget(number)));
            let mut found: Vec<_> = found.collect();
            found.sort_unstable();
            let over = model.iter().filter(|(_, value)| is_over(value, now)).map(|(&number, _)| number);
            prop_assert_eq!(found, over.collect::<Vec<_>>());
        }
    }
}
