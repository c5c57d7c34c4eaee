//! Which value goes next, where there should be only so many.
//!
//! The order and the hand of SIEVE: Y. Zhang, J. Yang, Y. Yue, Y. Vigfusson, K. V. Rashmi, "SIEVE is Simpler than LRU", NSDI 2024.
//! New values come in at the head. The hand goes from the tail to the head, and from there to the tail again; it passes values
//! that were used since it last came by, and the first that was not goes. What was passed stays where it is.

use alloc::vec::Vec;

use crate::core::slab::NONE;

/// The slots that have a value, by number, in the order in which they came in.
pub(super) struct Sieve {
    /// By slot number.
    links: Vec<Link>,
    head: u32,
    tail: u32,
    /// Where the hand is; `NONE` for the tail.
    hand: u32,
    len: usize,
}

/// Neighbours, the one that came in next and the one that came in before; its own number where there is none.
#[derive(Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

/// A sieve keeps room for this many slots.
const KEPT: usize = 64;

/// Of a slot that is not in.
const OUT: Link = Link { newer: NONE, older: NONE };

impl Default for Sieve {
    fn default() -> Self {
        Sieve { links: Vec::new(), head: NONE, tail: NONE, hand: NONE, len: 0 }
    }
}

impl Sieve {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        self.links.get(number as usize).is_some_and(|link| link.newer != NONE)
    }

    /// Puts a slot in at the head, if it is not in.
    pub(super) fn push(&mut self, number: u32) {
        if self.contains(number) {
            return;
        }
        let place = number as usize;
        if place >= self.links.len() {
            self.links.resize(place + 1, OUT);
        }
        let older = if self.head == NONE { number } else { self.head };
        self.links[place] = Link { newer: number, older };
        if self.head == NONE {
            self.tail = number;
        } else {
            self.links[self.head as usize].newer = number;
        }
        self.head = number;
        self.len += 1;
    }

    /// Takes a slot out, if it is in.
    pub(super) fn remove(&mut self, number: u32) {
        if !self.contains(number) {
            return;
        }
        let Link { newer, older } = core::mem::replace(&mut self.links[number as usize], OUT);
        let (is_head, is_tail) = (newer == number, older == number);
        if self.hand == number {
            self.hand = if is_head { NONE } else { newer };
        }
        match (is_head, is_tail) {
            (true, true) => (self.head, self.tail) = (NONE, NONE),
            (true, false) => {
                self.head = older;
                self.links[older as usize].newer = older;
            }
            (false, true) => {
                self.tail = newer;
                self.links[newer as usize].older = newer;
            }
            (false, false) => {
                self.links[older as usize].newer = newer;
                self.links[newer as usize].older = older;
            }
        }
        self.len -= 1;
        if self.len == 0 && self.links.capacity() > KEPT {
            self.links = Vec::new();
        }
    }

    /// The slot that the hand is at, if any is in.
    pub(super) fn hand(&self) -> Option<u32> {
        let number = if self.hand == NONE { self.tail } else { self.hand };
        (number != NONE).then_some(number)
    }

    /// The hand goes on.
    pub(super) fn pass(&mut self) {
        if let Some(number) = self.hand() {
            let newer = self.links[number as usize].newer;
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
    fn its_memory_goes_with_the_last_of_many() {
        let mut sieve = Sieve::default();
        (0..10 * KEPT as u32).for_each(|number| sieve.push(number));
        assert!(sieve.links.capacity() >= 10 * KEPT);
        (0..10 * KEPT as u32).for_each(|number| sieve.remove(number));
        assert!(sieve.links.capacity() <= KEPT);
        sieve.push(3);
        assert_eq!((sieve.hand(), sieve.len()), (Some(3), 1));
    }

    proptest! {
        /// Against a list in order, whose hand is a position.
        #[test]
        fn it_does_as_a_list(steps in prop::collection::vec((0..4u8, 0..12u32), 0..200)) {
            let mut sieve = Sieve::default();
            // Oldest first; the hand is the number that it is at.
            let (mut list, mut hand) = (Vec::<u32>::new(), None::<u32>);
            for (step, number) in steps {
                let place = list.iter().position(|&other| other == number);
                match (step, place) {
                    (0 | 1, None) => {
                        sieve.push(number);
                        list.push(number);
                    }
                    (0 | 2, Some(place)) => {
                        sieve.remove(number);
                        list.remove(place);
                        if hand == Some(number) {
                            hand = list.get(place).copied();
                        }
                    }
                    (3, _) => {
                        sieve.pass();
                        let at = hand.map_or(0, |hand| list.iter().position(|&other| other == hand).unwrap());
                        hand = list.get(at + 1).copied();
                    }
                    _ => {}
                }
                prop_assert_eq!(sieve.len(), list.len());
                prop_assert_eq!(sieve.hand(), hand.or(list.first().copied()));
                for number in 0..12 {
                    prop_assert_eq!(sieve.contains(number), list.contains(&number));
                }
            }
        }
    }
}
