//! The order in which the values of a bounded table are evicted.
//!
//! It has the order and the hand of SIEVE: Y. Zhang, J. Yang, Y. Yue, Y. Vigfusson, K. V. Rashmi, "SIEVE is Simpler
//! than LRU", NSDI 2024. New values enter at the head. The hand moves from the tail to the head, and then starts at the
//! tail again. It passes over values that were used since its last visit, and evicts the first that was not. Values
//! that it passes over stay in place.
//!
//! It differs in that some values have *passes*. For each of these, the hand moves past the value once although it was
//! not used. A value is *proven* if it was found used before, or if its key came back soon after an eviction (see
//! [`History`](super::history::History)). It gets a pass each time that it is found used again, but keeps two at most;
//! a value whose key came back soon gets one to begin with. In the first round of the hand the order is that of SIEVE,
//! unless a key comes back before that round ends.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::number::{Number, SLOTS};
use crate::core::slab::NONE;

/// The slots whose values are in the order of eviction: a linked list of their numbers, in order of insertion.
pub(super) struct Sieve {
    /// The links of each chunk's slots, by the chunk's number. Allocated when a slot of the chunk first enters the
    /// order, or with the sieve, for its capacity.
    links: Vec<Option<Box<Links>>>,
    head: u32,
    tail: u32,
    /// The slot at the hand; `NONE` if the hand is at the tail.
    hand: u32,
    len: usize,
    /// The number of chunks for which the sieve keeps its memory.
    kept: usize,
}

/// The links and marks of a chunk's slots.
struct Links {
    links: [Link; SLOTS],
    /// Four bits for each slot: the number of passes, and [`PROVEN`].
    marks: u64,
}

/// The mark of a proven value.
const PROVEN: u8 = 4;

/// The part of the marks that is the number of passes.
const PASSES: u8 = 3;

/// The largest number of passes.
const MOST: u8 = 2;

/// The neighbours of a slot: the slot inserted next, and the one inserted before. A slot without such a neighbour has
/// its own number there.
#[derive(Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

const _: () = assert!(4 * SLOTS <= u64::BITS as usize);

/// The number of chunks for which a sieve that shrinks keeps room.
const KEPT: usize = 4;

/// The link of a slot that is not in the order.
const OUT: Link = Link { newer: NONE, older: NONE };

/// A chunk with no slot in the order.
const EMPTY: Links = Links { links: [OUT; SLOTS], marks: 0 };

impl Links {
    fn marks(&self, number: u32) -> u8 {
        (self.marks >> shift(number)) as u8 & (PROVEN | PASSES)
    }

    fn set_marks(&mut self, number: u32, marks: u8) {
        let others = self.marks & !(0b1111 << shift(number));
        self.marks = others | u64::from(marks) << shift(number);
    }
}

fn shift(number: u32) -> u32 {
    4 * Number(number).index()
}

impl Sieve {
    /// Creates a sieve that holds `capacity` slots before anything else is allocated.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        let chunks = capacity.div_ceil(SLOTS);
        let links = (0..chunks).map(|_| Some(Box::new(EMPTY))).collect();
        Sieve { kept: chunks, links, head: NONE, tail: NONE, hand: NONE, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        self.links.get(Number(number).chunk() as usize).is_some_and(|chunk| match chunk {
            Some(chunk) => chunk.links[number as usize % SLOTS].newer != NONE,
            None => false,
        })
    }

    /// Returns the links of the chunk of a slot that is, or will be, in the order.
    fn chunk(&mut self, number: u32) -> &mut Links {
        match &mut self.links[Number(number).chunk() as usize] {
            Some(links) => links,
            None => unreachable!("a slot in the order has a link"),
        }
    }

    fn link(&mut self, number: u32) -> &mut Link {
        &mut self.chunk(number).links[number as usize % SLOTS]
    }

    /// Inserts a slot at the head, unless it is in the order already. `is_proven` tells whether its value is proven.
    pub(super) fn push(&mut self, number: u32, is_proven: impl FnOnce() -> bool) {
        if self.contains(number) {
            return;
        }
        let chunk = Number(number).chunk() as usize;
        if chunk >= self.links.len() {
            self.links.resize_with(chunk + 1, || None);
        }
        self.links[chunk].get_or_insert_with(|| Box::new(EMPTY));
        let older = if self.head == NONE { number } else { self.head };
        *self.link(number) = Link { newer: number, older };
        if self.head == NONE {
            self.tail = number;
        } else {
            self.link(self.head).newer = number;
        }
        self.head = number;
        self.len += 1;
        let marks = if is_proven() { PROVEN | 1 } else { 0 };
        self.chunk(number).set_marks(number, marks);
    }

    /// Removes a slot, if it is in the order.
    pub(super) fn remove(&mut self, number: u32) {
        if !self.contains(number) {
            return;
        }
        let Link { newer, older } = core::mem::replace(self.link(number), OUT);
        let (is_head, is_tail) = (newer == number, older == number);
        if self.hand == number {
            self.hand = if is_head { NONE } else { newer };
        }
        match (is_head, is_tail) {
            (true, true) => (self.head, self.tail) = (NONE, NONE),
            (true, false) => {
                self.head = older;
                self.link(older).newer = older;
            }
            (false, true) => {
                self.tail = newer;
                self.link(newer).older = newer;
            }
            (false, false) => {
                self.link(older).newer = newer;
                self.link(newer).older = older;
            }
        }
        self.len -= 1;
    }

    /// Forgets a freed chunk, none of whose slots is in the order. The numbers of the remaining chunks are smaller than
    /// `end`.
    pub(super) fn forget_chunk(&mut self, chunk: usize, end: usize) {
        if chunk >= self.kept {
            if let Some(links) = self.links.get_mut(chunk) {
                *links = None;
            }
        }
        self.links.truncate(end.max(self.kept));
        if self.links.capacity() > KEPT.max(self.kept) && self.links.len() < self.links.capacity() / 4 {
            self.links.shrink_to(KEPT.max(2 * self.links.len()));
        }
    }

    /// Returns the slot at the hand, if there is any.
    pub(super) fn hand(&self) -> Option<u32> {
        let number = if self.hand == NONE { self.tail } else { self.hand };
        (number != NONE).then_some(number)
    }

    /// Returns whether a slot's value has a pass.
    pub(super) fn has_pass(&self, number: u32) -> bool {
        let chunk = self.links.get(Number(number).chunk() as usize);
        matches!(chunk, Some(Some(chunk)) if chunk.marks(number) & PASSES != 0)
    }

    /// Moves the hand on from a value that was `used`, or has a pass.
    pub(super) fn spare(&mut self, used: bool) {
        if let Some(number) = self.hand() {
            let chunk = self.chunk(number);
            let marks = chunk.marks(number);
            let (proven, passes) = (marks & PROVEN, marks & PASSES);
            let marks = match (used, proven) {
                (true, 0) => PROVEN | passes,
                (true, _) => proven | (passes + 1).min(MOST),
                (false, _) => proven | passes.saturating_sub(1),
            };
            chunk.set_marks(number, marks);
        }
        self.pass();
    }

    /// Moves the hand on.
    pub(super) fn pass(&mut self) {
        if let Some(number) = self.hand() {
            let newer = self.link(number).newer;
            self.hand = if newer == number { NONE } else { newer };
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn memory_is_freed_with_the_chunks() {
        const CHUNKS: usize = 100;
        let mut sieve = Sieve::with_capacity(SLOTS + 1);
        (0..(CHUNKS * SLOTS) as u32).for_each(|number| sieve.push(number, || false));
        let chunks = |sieve: &Sieve| sieve.links.iter().flatten().count();
        assert_eq!(chunks(&sieve), CHUNKS);
        // The chunks are forgotten one by one, from the first to the last.
        for chunk in 0..CHUNKS {
            (0..SLOTS).for_each(|slot| sieve.remove((chunk * SLOTS + slot) as u32));
            sieve.forget_chunk(chunk, if chunk + 1 < CHUNKS { CHUNKS } else { 0 });
            assert_eq!(chunks(&sieve), 2 + (CHUNKS - 1 - chunk).min(CHUNKS - 2), "two were asked for");
        }
        assert!(sieve.links.capacity() <= KEPT);
        sieve.push(3, || false);
        assert_eq!((sieve.hand(), sieve.len()), (Some(3), 1));
    }

    proptest! {
        /// Compares the sieve with a list in order, and a hand that is the number of a slot.
        #[test]
        fn every_operation_agrees_with_a_model_of_a_list(steps in prop::collection::vec((0..6u8, 0..40u32), 0..200)) {
            let mut sieve = Sieve::with_capacity(0);
            // The list begins with the oldest slot. If the hand is `None`, it is at that slot.
            let (mut list, mut hand) = (Vec::<u32>::new(), None::<u32>);
            let mut marks = [(false, 0_u8); 40];
            for (step, number) in steps {
                let place = list.iter().position(|&other| other == number);
                match (step, place) {
                    (0 | 1, None) => {
                        sieve.push(number, || step == 0);
                        list.push(number);
                        marks[number as usize] = (step == 0, u8::from(step == 0));
                    }
                    (1, Some(_)) => sieve.push(number, || unreachable!("it is in the order")),
                    (0 | 2, Some(place)) => {
                        sieve.remove(number);
                        list.remove(place);
                        if hand == Some(number) {
                            hand = list.get(place).copied();
                        }
                    }
                    (3..6, _) => {
                        if step == 3 {
                            sieve.pass();
                        } else {
                            if let Some(at) = sieve.hand() {
                                let (proven, passes) = &mut marks[at as usize];
                                match step {
                                    4 if *proven => *passes = [1, 2, 2][*passes as usize],
                                    4 => *proven = true,
                                    _ => *passes = [0, 0, 1][*passes as usize],
                                }
                            }
                            sieve.spare(step == 4);
                        }
                        let at = hand.map_or(0, |hand| list.iter().position(|&other| other == hand).unwrap());
                        hand = list.get(at + 1).copied();
                    }
                    _ => {}
                }
                prop_assert_eq!(sieve.len(), list.len());
                prop_assert_eq!(sieve.hand(), hand.or(list.first().copied()));
                for number in 0..40 {
                    prop_assert_eq!(sieve.contains(number), list.contains(&number));
                    if list.contains(&number) {
                        prop_assert_eq!(sieve.has_pass(number), marks[number as usize].1 > 0);
                    }
                }
            }
        }
    }
}
