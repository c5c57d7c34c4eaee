use super::*;
use alloc::{collections::BTreeMap, rc::Rc, vec::Vec};
use core::mem;
use proptest::prelude::*;

/// Returns the number of chunks that hold memory, including the spare one.
fn memory<T>(slab: &Slab<T>) -> usize {
    slab.chunks.iter().filter(|chunk| chunk.places.is_some()).count()
}

fn list<T>(slab: &Slab<T>, head: u32) -> Vec<u32> {
    let mut list = Vec::new();
    let mut prev = NONE;
    let mut at = head;
    while at != NONE {
        assert_eq!(slab.chunks[at as usize].prev, prev);
        list.push(at);
        prev = at;
        at = slab.chunks[at as usize].next;
    }
    list.sort_unstable();
    list
}

/// Checks the invariants that hold between two calls.
fn check<T>(slab: &Slab<T>) {
    let (mut room, mut void, mut len) = (Vec::new(), Vec::new(), 0);
    for (at, chunk) in slab.chunks.iter().enumerate() {
        match &chunk.places {
            None => {
                assert_eq!(chunk.used, 0);
                void.push(at as u32);
            }
            Some(places) => {
                assert_eq!(chunk.used == 0, at as u32 == slab.spare, "one empty chunk is kept");
                for (place, record) in places.iter().enumerate() {
                    assert_eq!(record.is_some(), chunk.used >> place & 1 == 1);
                }
                if chunk.used != u64::MAX && chunk.used != 0 {
                    room.push(at as u32);
                }
            }
        }
        len += chunk.used.count_ones();
    }
    assert_eq!(slab.len, len);
    assert_eq!(list(slab, slab.room), room);
    assert_eq!(list(slab, slab.void), void);
    assert!(slab.chunks.last().is_none_or(|chunk| chunk.places.is_some()), "the table ends with a void");
    assert!(slab.spare == NONE || slab.chunks[slab.spare as usize].places.is_some());
    assert!(slab.chunks.capacity() <= SMALL.max(slab.chunks.len() * 4), "the table was not shrunk");
}

#[derive(Clone, Debug)]
enum Op {
    Insert(usize),
    Remove(usize, prop::sample::Index),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (1..200_usize).prop_map(Op::Insert),
        (1..250_usize, any::<prop::sample::Index>()).prop_map(|(count, index)| Op::Remove(count, index)),
    ];
    prop::collection::vec(op, 1..40)
}

proptest! {
    #[test]
    fn behaves_like_a_map_from_numbers(ops in ops()) {
        let mut slab = Slab::new();
        let mut model = BTreeMap::new();
        let mut made = 0_u64;
        for op in ops {
            match op {
                Op::Insert(count) => {
                    for _ in 0..count {
                        let id = slab.insert(made);
                        prop_assert_eq!(model.insert(id, made), None, "number {} is taken", id);
                        made += 1;
                    }
                }
                Op::Remove(count, index) => {
                    for step in 0..count.min(model.len()) {
                        // Neighbours and distant records in turn, so that chunks become empty as well as sparse.
                        let nth = if step % 4 == 0 { index.index(model.len()) } else { step % model.len() };
                        let (&id, &record) = model.iter().nth(nth).unwrap();
                        slab[id] += 1;
                        prop_assert_eq!(slab.remove(id), record + 1);
                        prop_assert!(slab.get(id).is_none() && slab.get_mut(id).is_none());
                        model.remove(&id);
                    }
                }
            }
            check(&slab);
            prop_assert_eq!(slab.len(), model.len());
            prop_assert!(model.iter().all(|(&id, record)| slab.get(id) == Some(record) && slab[id] == *record));
        }
    }
}

#[test]
fn growing_moves_no_record() {
    let mut slab = Slab::new();
    let first = slab.insert(0);
    let address: *const i32 = &raw const slab[first];
    for record in 1..10_000 {
        slab.insert(record);
    }
    assert_eq!(address, &raw const slab[first]);
}

#[test]
fn memory_follows_the_number_of_records() {
    let mut slab = Slab::new();
    let ids: Vec<_> = (0..96_000).map(|record| slab.insert(record)).collect();
    assert_eq!(memory(&slab), 96_000 / PLACES);
    assert!(ids.iter().copied().eq(0..96_000), "the lowest place first");
    for (gone, &id) in ids.iter().enumerate() {
        slab.remove(id);
        assert!(memory(&slab) <= (95_999 - gone).div_ceil(PLACES) + 1);
    }
    check(&slab);
    assert_eq!((slab.len(), memory(&slab), slab.chunks.len()), (0, 1, 1));
    assert!(slab.chunks.capacity() <= SMALL);
}

#[test]
fn free_places_are_used_before_a_chunk_is_added() {
    let mut slab = Slab::new();
    for record in 0..640 {
        slab.insert(record);
    }
    // One hole in each of nine chunks, and one chunk that is empty.
    for id in (5..640).step_by(PLACES).chain((128..192).filter(|id| id % 64 != 5)) {
        slab.remove(id);
    }
    check(&slab);
    assert_eq!((slab.chunks.len(), memory(&slab)), (10, 10));
    for record in 0..9 + 64 {
        assert!(slab.insert(record) < 640);
    }
    assert_eq!((slab.chunks.len(), memory(&slab)), (10, 10));
    assert_eq!(slab.insert(0), 640);
}

#[test]
fn a_number_that_swings_around_a_chunks_border_keeps_the_chunk() {
    let mut slab = Slab::new();
    for record in 0..64 {
        slab.insert(record);
    }
    let id = slab.insert(64);
    let address: *const i32 = &raw const slab[id];
    for record in 0..100 {
        slab.remove(id);
        assert_eq!(memory(&slab), 2);
        assert_eq!(slab.insert(record), id);
        assert_eq!(address, &raw const slab[id]);
    }
}

#[test]
fn records_are_dropped_once() {
    let record = Rc::new(());
    let mut slab = Slab::new();
    for _ in 0..200 {
        slab.insert(Rc::clone(&record));
    }
    for id in 50..100 {
        slab.remove(id);
        slab.forget(id + 50);
    }
    assert_eq!(Rc::strong_count(&record), 101);
    check(&slab);
    drop(slab);
    assert_eq!(Rc::strong_count(&record), 1);
}

#[test]
fn a_place_is_as_large_as_a_record_with_a_niche() {
    assert_eq!(mem::size_of::<[Option<(Rc<()>, u64)>; PLACES]>(), PLACES * 16);
    assert!(mem::size_of::<Chunk<u8>>() <= 24);
}

#[test]
#[should_panic(expected = "no record 3")]
fn removing_a_record_twice_panics() {
    let mut slab = Slab::new();
    for record in 0..10 {
        slab.insert(record);
    }
    slab.remove(3);
    slab.remove(3);
}

#[test]
#[should_panic(expected = "no record 3")]
fn forgetting_a_record_twice_panics() {
    let mut slab = Slab::new();
    for record in 0..10 {
        slab.insert(record);
    }
    slab.forget(3);
    slab.forget(3);
}

#[test]
#[should_panic(expected = "no record 64")]
fn indexing_by_an_unused_number_panics() {
    let mut slab = Slab::new();
    slab.insert(());
    let () = slab[64];
}

#[test]
fn no_record_has_the_last_number() {
    let last = number(MAX_CHUNKS - 1);
    assert_eq!(last.checked_mul(64).and_then(|first| first.checked_add(63)), Some(u32::MAX - 64));
}

#[test]
#[should_panic(expected = "more than 4294967232 leases or waiters")]
fn running_out_of_numbers_panics() {
    number(MAX_CHUNKS);
}
