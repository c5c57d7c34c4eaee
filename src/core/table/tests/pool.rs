//! The pool of slots, compared with a naive model.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use std::vec::Vec;

use proptest::prelude::*;

use crate::core::table::pool::Pool;
use crate::core::table::slot::{Chunk, Spare};

fn is_keyed(spare: &mut Spare<String, ()>) -> bool {
    spare.key_mut().is_some()
}

/// Of three free slots in two chunks, the one with an old key is taken first, although its chunk has the higher number.
#[test]
fn a_slot_with_an_old_key_comes_first() {
    let mut pool = Pool::<String, ()>::new(2 * Chunk::<String, ()>::MOST);
    let mut all: Vec<_> = core::iter::from_fn(|| pool.take(true)).collect();
    let (first, second) = (all.remove(0), all.remove(0));
    let mut keyed = all.pop().expect("there are two chunks");
    assert!(keyed.chunk() > first.chunk());
    assert!(keyed.put_key(String::from("old")).is_none());
    for spare in [first, keyed, second] {
        assert!(pool.put(spare, u32::MAX).is_none());
    }
    assert_eq!(pool.keyed(), 1);
    assert!(is_keyed(&mut pool.take(true).expect("three are free")));
    assert!(!is_keyed(&mut pool.take(true).expect("two are free")));
    assert_eq!(pool.keyed(), 0);
}

/// A slot of the chunk with the lowest number is taken first. A new chunk gets the lowest free number.
#[test]
fn the_lowest_number_comes_first() {
    let mut pool = Pool::<u32, ()>::new(3 * Chunk::<u32, ()>::MOST);
    let mut all: Vec<_> = core::iter::from_fn(|| pool.take(true)).collect();
    for _ in 0..100 {
        // The first chunk is freed, and a new one is added.
        let idle = all.drain(..Chunk::<u32, ()>::MOST).filter_map(|spare| pool.put(spare, 0));
        assert_eq!(idle.map(drop).count(), 1);
        assert!(pool.add(Chunk::alloc(Chunk::<u32, ()>::MOST)).is_ok());
        // One slot of each of the other two chunks is freed.
        let (second, third) = (all.remove(0), all.pop().expect("there are three chunks"));
        assert!(pool.put(third, u32::MAX).is_none());
        assert!(pool.put(second, u32::MAX).is_none());
        let mut found: Vec<_> = core::iter::from_fn(|| pool.take(true)).collect();
        let chunks: Vec<_> = found.iter().map(Spare::chunk).collect();
        assert!(chunks.is_sorted(), "{chunks:?}");
        assert_eq!((chunks[0], chunks.last(), pool.end()), (0, Some(&2), 3));
        let last = found.pop().expect("there are many");
        found.append(&mut all);
        found.push(last);
        all = found;
        all.sort_by_key(Spare::chunk);
    }
    for spare in all {
        drop(pool.put(spare, u32::MAX));
    }
}

proptest! {
    /// For any sequence of operations: a slot with an old key is taken as long as there is one; no slot is lost; and a
    /// chunk is freed exactly when all of its slots are free and enough other slots remain.
    #[test]
    fn nothing_is_lost(kept in 0..40u32, steps in prop::collection::vec((0..4u8, any::<u16>()), 1..300)) {
        let mut pool = Pool::<String, ()>::new(0);
        let mut taken: Vec<Spare<String, ()>> = Vec::new();
        let (mut free, mut keyed) = (0, 0);
        // The chunks: the number of slots of each, and how many of these are taken.
        let mut chunks: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for (step, choice) in steps {
            if step < 2 || taken.is_empty() {
                let mut made = None;
                if free == 0 {
                    let chunk = Chunk::alloc(pool.wanted(kept));
                    free += chunk.free();
                    made = Some((chunk.free(), 0));
                    prop_assert!(pool.add(chunk).is_ok());
                }
                let mut spare = pool.take(true).expect("some are free");
                if let Some(made) = made {
                    prop_assert!(chunks.insert(spare.chunk(), made).is_none());
                }
                let (_, taken_of_chunk) = chunks.get_mut(&spare.chunk()).expect("it was made");
                *taken_of_chunk += 1;
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
                let id = spare.chunk();
                let (len, taken_of_chunk) = chunks.get_mut(&id).expect("it was made");
                *taken_of_chunk -= 1;
                free += 1;
                let goes = *taken_of_chunk == 0 && free - *len + 1 >= kept;
                let idle = pool.put(spare, kept);
                prop_assert_eq!(idle.as_ref().map(Chunk::free), goes.then_some(*len));
                if let Some(idle) = idle {
                    free -= idle.free();
                    keyed -= idle.keyed();
                    chunks.remove(&id);
                }
            }
            prop_assert_eq!(pool.keyed(), keyed);
        }
        for spare in taken {
            prop_assert!(pool.put(spare, u32::MAX).is_none());
        }
        let slots: u32 = chunks.values().map(|(len, _)| len).sum();
        prop_assert_eq!(core::iter::from_fn(|| pool.take(true)).count(), slots as usize);
    }
}
