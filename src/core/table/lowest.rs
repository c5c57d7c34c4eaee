//! Sets of numbers with a fast search for the lowest.

use alloc::vec::Vec;

/// Several sets of numbers. Each number is a bit in a row, and each row that is not empty is a bit of a summary. So the
/// lowest of a million numbers is found in at most 250 steps (with rows of 64 bits).
pub(super) struct Lowest<const SETS: usize> {
    rows: Vec<Row<SETS>>,
    /// The summary; empty until there is a second row.
    filled: Vec<Row<SETS>>,
}

/// A row: bits for each set.
type Row<const SETS: usize> = [usize; SETS];

/// The number of bits that a row has for each set.
const BITS: u32 = usize::BITS;

/// The number of rows for which a list that shrinks keeps memory.
const KEPT: usize = 8;

/// Returns the row of a number, and its bit in the row.
fn place(number: u32) -> (usize, usize) {
    ((number / BITS) as usize, 1 << (number % BITS))
}

impl<const SETS: usize> Default for Lowest<SETS> {
    fn default() -> Self {
        Lowest { rows: Vec::new(), filled: Vec::new() }
    }
}

impl<const SETS: usize> Lowest<SETS> {
    pub(super) fn insert(&mut self, set: usize, number: u32) {
        let (row, bit) = place(number);
        if row >= self.rows.len() {
            self.grow(row);
        }
        self.rows[row][set] |= bit;
        if !self.filled.is_empty() {
            let (above, bit) = place(row as u32);
            self.filled[above][set] |= bit;
        }
    }

    #[cold]
    fn grow(&mut self, row: usize) {
        // The first row is allocated alone, for a microcontroller; then the capacity doubles.
        if self.rows.is_empty() {
            self.rows.reserve_exact(row + 1);
        }
        self.rows.resize(row + 1, [0; SETS]);
        if row > 0 {
            if self.filled.is_empty() {
                self.filled.push(self.rows[0].map(|bits| usize::from(bits != 0)));
            }
            self.filled.resize(place(row as u32).0 + 1, [0; SETS]);
        }
    }

    pub(super) fn remove(&mut self, set: usize, number: u32) {
        let (row, bit) = place(number);
        let Some(bits) = self.rows.get_mut(row) else { return };
        bits[set] &= !bit;
        if bits[set] == 0 && !self.filled.is_empty() {
            let (above, bit) = place(row as u32);
            self.filled[above][set] &= !bit;
        }
    }

    pub(super) fn first(&self, set: usize) -> Option<u32> {
        let lowest = |rows: &[Row<SETS>]| {
            let row = rows.iter().position(|bits| bits[set] != 0)?;
            Some(row as u32 * BITS + rows[row][set].trailing_zeros())
        };
        if self.filled.is_empty() {
            return lowest(&self.rows);
        }
        let row = lowest(&self.filled)?;
        Some(row * BITS + self.rows[row as usize][set].trailing_zeros())
    }

    /// Removes all numbers from `end` on.
    pub(super) fn truncate(&mut self, end: usize) {
        let rows = end.div_ceil(BITS as usize);
        if self.rows.len() < rows {
            return;
        }
        cut(&mut self.rows, end);
        if !self.filled.is_empty() {
            cut(&mut self.filled, rows);
            if let (Some(bits), Some(row)) = (self.rows.last(), rows.checked_sub(1)) {
                let (above, bit) = place(row as u32);
                for (set, _) in bits.iter().enumerate().filter(|(_, bits)| **bits == 0) {
                    self.filled[above][set] &= !bit;
                }
            }
        }
        if self.rows.capacity() > KEPT && rows < self.rows.capacity() / 4 {
            self.rows.shrink_to(KEPT.max(2 * rows));
            self.filled.shrink_to_fit();
        }
    }
}

/// Truncates rows to `end` bits.
fn cut<const SETS: usize>(rows: &mut Vec<Row<SETS>>, end: usize) {
    rows.truncate(end.div_ceil(BITS as usize));
    let (row, bit) = place(end as u32);
    if let Some(row) = rows.get_mut(row) {
        row.iter_mut().for_each(|bits| *bits &= bit - 1);
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_operation_agrees_with_a_model_of_sets(steps in prop::collection::vec((0..5u8, 0..2usize, 0..10_000u32), 0..200)) {
            let (mut sets, mut models) = (Lowest::<2>::default(), [BTreeSet::new(), BTreeSet::new()]);
            for (step, set, number) in steps {
                match step {
                    0..2 => {
                        sets.insert(set, number);
                        models[set].insert(number);
                    }
                    2 => {
                        sets.remove(set, number);
                        models[set].remove(&number);
                    }
                    3 => {
                        let first = models[set].pop_first();
                        prop_assert_eq!(sets.first(set), first);
                        first.into_iter().for_each(|first| sets.remove(set, first));
                    }
                    _ => {
                        models.iter_mut().for_each(|model| drop(model.split_off(&number)));
                        sets.truncate(number as usize);
                        // It shrinks when less than a quarter of the capacity, rounded down, is in use.
                        let rows = number.div_ceil(BITS) as usize;
                        prop_assert!(sets.rows.capacity() <= KEPT.max(4 * rows + 3));
                    }
                }
                for (set, model) in models.iter().enumerate() {
                    prop_assert_eq!(sets.first(set), model.first().copied());
                }
            }
            for (set, model) in models.into_iter().enumerate() {
                let found = core::iter::from_fn(|| sets.first(set).inspect(|&first| sets.remove(set, first)));
                let found: Vec<_> = found.collect();
                prop_assert_eq!(found, model.into_iter().collect::<Vec<_>>());
            }
        }
    }
}
