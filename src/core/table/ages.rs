//! The ages of a shard's values, with marks for those that are being refreshed. Used under the shard lock.

use super::by_slot::BySlot;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Ages(BySlot<Age>);

/// The age of a slot's value. The age of an earlier value stays until that of the next one begins.
#[derive(Clone, Copy, Default)]
struct Age {
    /// The time at which the value was stored or changed.
    since: u64,
    /// The value's version, if a caller is refreshing it; 0, which is no version, if not.
    refreshed: u64,
}

impl Ages {
    /// Begins the age of a value that has just been stored or changed, and removes the mark of the value before it.
    pub(super) fn begin(&mut self, number: u32, now: u64) {
        *self.0.at(number) = Age { since: now, refreshed: 0 };
    }

    pub(super) fn age(&self, number: u32, now: u64) -> u64 {
        now.saturating_sub(self.0.get(number).since)
    }

    /// Marks the value with this version as being refreshed, if it is at least `fresh_for` nanoseconds old, and not
    /// marked yet. Returns whether it was marked.
    pub(super) fn begin_refresh(&mut self, number: u32, version: u64, now: u64, fresh_for: u64) -> bool {
        // A value whose writer was forgotten has no version here.
        let begins = version != 0 && self.0.get(number).refreshed == 0 && self.age(number, now) >= fresh_for;
        if begins {
            self.0.at(number).refreshed = version;
        }
        begins
    }

    /// Removes the mark of the value with this version. Does nothing if the slot has another value by now.
    pub(super) fn end_refresh(&mut self, number: u32, version: u64) {
        if self.0.get(number).refreshed == version {
            self.0.at(number).refreshed = 0;
        }
    }

    /// Forgets a freed chunk: see [`BySlot::forget_chunk`].
    pub(super) fn forget_chunk(&mut self, chunk: usize, end: usize) {
        self.0.forget_chunk(chunk, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_refreshed_by_one_caller_once_it_is_old() {
        let mut ages = Ages::default();
        ages.begin(3, 10);
        assert!(!ages.begin_refresh(3, 1, 14, 5));
        assert!(ages.begin_refresh(3, 1, 15, 5));
        assert!(!ages.begin_refresh(3, 1, 100, 5));
        ages.end_refresh(3, 1);
        assert!(ages.begin_refresh(3, 1, 15, 5));
    }

    #[test]
    fn the_end_of_a_refresh_leaves_that_of_a_later_value_alone() {
        let mut ages = Ages::default();
        ages.begin(3, 0);
        assert!(ages.begin_refresh(3, 1, 5, 5));
        ages.begin(3, 5);
        assert!(ages.begin_refresh(3, 2, 10, 5));
        ages.end_refresh(3, 1);
        assert!(!ages.begin_refresh(3, 2, 10, 5));
    }

    #[test]
    fn a_value_without_a_version_is_refreshed_by_nobody() {
        assert!(!Ages::default().begin_refresh(3, 0, 100, 5));
    }

    #[test]
    fn a_clock_that_has_gone_back_makes_no_value_old() {
        let mut ages = Ages::default();
        ages.begin(3, 10);
        assert!(!ages.begin_refresh(3, 1, 0, 1));
    }

    #[test]
    fn a_chunk_that_is_forgotten_leaves_the_others_alone() {
        let mut ages = Ages::default();
        for number in [3, 19, 35] {
            ages.begin(number, 10);
        }
        ages.forget_chunk(1, 3);
        assert_eq!([3, 19, 35].map(|number| ages.age(number, 15)), [5, 15, 5]);
        ages.forget_chunk(2, 1);
        assert_eq!([3, 19, 35].map(|number| ages.age(number, 15)), [5, 15, 15]);
    }
}
