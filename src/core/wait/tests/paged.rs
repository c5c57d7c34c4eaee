//! Compares `Paged` with a `BTreeMap`, for random operations.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proptest::prelude::*;

use crate::core::wait::paged::Paged;

proptest! {
    /// For any sequence of operations, a value stays in its place, no index in use is given out again, and no page is
    /// allocated except those that contain values, and perhaps the first.
    #[test]
    fn values_stay_where_they_are(steps in prop::collection::vec((0..5u8, any::<u16>()), 1..60)) {
        let mut paged = Paged::new();
        let mut map = BTreeMap::new();
        let mut next = 0u32;
        for (what, which) in steps {
            match what {
                // Up to 299 values are inserted, or up to 299 are removed, the last ones first.
                0 => for _ in 0..which % 300 {
                    let index = paged.insert(next);
                    prop_assert!(map.insert(index, next).is_none(), "an index in use is given again");
                    next += 1;
                }
                1 => for _ in 0..which % 300 {
                    let Some((index, _)) = map.pop_last() else { break };
                    paged.delete(index);
                }
                // Values are removed from anywhere.
                2 => for step in 0..which % 50 {
                    let from = u32::from(which.wrapping_mul(step + 1) % 600);
                    let Some(index) = map.range(from..).next().map(|(&index, _)| index) else { continue };
                    map.remove(&index);
                    paged.delete(index);
                }
                // All values of one page are removed.
                3 => {
                    let Some((&last, _)) = map.last_key_value() else { continue };
                    let page = u32::from(which) % (last / 64 + 1);
                    let indices: Vec<u32> = map.range(page * 64..(page + 1) * 64).map(|(&index, _)| index).collect();
                    for index in indices {
                        map.remove(&index);
                        paged.delete(index);
                    }
                }
                _ => for (&index, value) in &mut map {
                    prop_assert_eq!(paged[index], *value);
                    *value += 1;
                    paged[index] += 1;
                }
            }
            let mut pages: Vec<u32> = map.keys().map(|index| index / 64).collect();
            pages.dedup();
            prop_assert!(paged.memory() <= 64 * (pages.len() + 1), "{} for {} pages", paged.memory(), pages.len());
            prop_assert_eq!(paged.is_empty(), map.is_empty());
        }
        for (index, value) in map {
            prop_assert_eq!(paged[index], value);
        }
    }
}
