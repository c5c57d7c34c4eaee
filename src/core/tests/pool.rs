//! The pool of slots against a naive one.

use alloc::format;
use alloc::string::String;
use std::vec::Vec;

use proptest::prelude::*;

use crate::core::pool::Pool;
use crate::core::slot::{Chunk, Spare};

fn is_keyed(spare: &mut Spare<String>) -> bool {
    spare.key_mut().is_some()
}

/// A slot with an old key is found, though its chunk is not the first of those that have a free one.
#[test]
fn a_slot_with_an_old_key_comes_first() {
    let mut pool = Pool::<String>::new(2 * Chunk::<String>::MOST);
    let mut all: Vec<_> = core::iter::from_fn(|| pool.take()).collect();
    let (mut keyed, other) = (all.remove(0), all.remove(0));
    let far = all.pop().expect("there are two chunks");
    assert_ne!(keyed.chunk(), far.chunk());
    assert!(keyed.put_key(String::from("old")).is_none());
    assert!(pool.put(other, u32::MAX).is_none());
    assert!(pool.put(keyed, u32::MAX).is_none());
    assert!(pool.put(far, u32::MAX).is_none());
    assert_eq!(pool.keyed(), 1);
    assert!(is_keyed(&mut pool.take().expect("three are free")));
    assert!(!is_keyed(&mut pool.take().expect("two are free")));
    assert_eq!(pool.keyed(), 0);
}

proptest! {
    /// Whatever comes and goes: an old key is had as long as there is one, no slot is lost, and a chunk is given back only when
    /// all its slots are there and enough without them.
    #[test]
    fn nothing_is_lost(kept in 0..40u32, steps in prop::collection::vec((0..4u8, any::<u16>()), 1..300)) {
        let mut pool = Pool::<String>::new(0);
        let mut taken: Vec<Spare<String>> = Vec::new();
        let (mut free, mut keyed) = (0, 0);
        for (step, choice) in steps {
            if step < 2 || taken.is_empty() {
                if free == 0 {
                    let chunk = Chunk::alloc(pool.wanted(kept));
                    free += chunk.free();
                    prop_assert!(pool.add(chunk).is_ok());
                }
                let mut spare = pool.take().expect("some are free");
                prop_assert_eq!(is_keyed(&mut spare), keyed > 0);
                free -= 1;
                keyed -= u32::from(keyed > 0);
                drop(spare.take_key());
                taken.push(spare);
            } else {
                let mut spare = taken.swap_remove(usize::from(choice) % taken.len());
                if step == 3 {
                    drop(spare.put_key(format!("{choice}")));
                    keyed += 1;
                }
                let chunk = spare.chunk();
                free += 1;
                if let Some(idle) = pool.put(spare, kept) {
                    prop_assert!(taken.iter().all(|spare| spare.chunk() != chunk));
                    free -= idle.free();
                    keyed -= idle.keyed();
                    prop_assert!(free + 1 >= kept);
                }
            }
            prop_assert_eq!(pool.keyed(), keyed);
        }
        // A chunk whose last slot comes back now goes; what is left was idle before.
        for spare in taken {
            drop(pool.put(spare, 0));
        }
        let left = core::iter::from_fn(|| pool.take()).count();
        prop_assert!(left <= free as usize, "{left} of {free}");
    }
}
