//! The memory that a slab uses.

use std::vec::Vec;

use crate::core::slab::Slab;

/// A slab with one value has room for exactly one: on a microcontroller there may never be more. A slab that grows has
/// room for less than twice its values.
#[test]
fn memory_grows_with_the_values() {
    let mut slab = Slab::default();
    let mut most = 1;
    for values in 1..=100 {
        slab.insert(values);
        if values > most {
            most *= 2;
        }
        assert_eq!(slab.memory(), most);
    }
}

/// A slab that uses less than a quarter of its room shrinks, to room for 64 values, or for twice the remaining ones. So
/// a slab in use does not keep shrinking and growing.
#[test]
fn memory_is_freed_in_a_few_steps() {
    let mut slab = Slab::default();
    let mut values: Vec<u32> = (0..1024).map(|value| slab.insert(value)).collect();
    let mut steps = Vec::new();
    while let Some(last) = values.pop() {
        let before = slab.memory();
        assert_eq!(slab.remove(last), last);
        if slab.memory() != before {
            steps.push((values.len(), slab.memory()));
        }
    }
    assert_eq!(steps, [(255, 510), (126, 252), (62, 124), (30, 64)]);
}
