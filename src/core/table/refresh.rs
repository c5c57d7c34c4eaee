//! Refreshing old values: one caller at a time makes the next one of a value, with no lock held, while others read it.

use core::time::Duration;

use super::Core;
use super::expiry::deadlines_of;
use super::hooks::nanoseconds;
use super::payload::Payload;
use super::slot::Live;
use super::tag::Tag;
use super::value::Valued;
use super::values::tag_of;

/// The task of refreshing a value. Its owner [ends](Core::end_refresh) it, however the attempt goes.
///
/// It names the value, not only the entry. So its owner may give up the entry first: a later value of the slot has a
/// later version, even if it is that of another key.
#[derive(Clone, Copy)]
pub(crate) struct Refresh {
    tag: Tag,
    address: usize,
    version: u64,
}

impl Refresh {
    /// Returns whether nobody has stored, changed or removed the entry's value since the refresh began, although the
    /// value may have ended or been evicted. The caller has a hold, and has kept the entry with a claim meanwhile.
    pub(crate) fn is_latest<K, T>(self, entry: Live<'_, K, Valued<T>>) -> bool {
        entry.last_version() == self.version
    }
}

impl<K, T> Core<K, Valued<T>> {
    /// Returns whether the ages of values are known.
    pub(crate) fn records_ages(&self) -> bool {
        Valued::<T>::time(&self.hooks).is_some_and(|time| time.ages)
    }

    /// Begins to refresh the value of an entry, if it was at least `fresh_for` old when the caller acquired its hold,
    /// and if nobody else is refreshing it.
    pub(crate) fn begin_refresh(&self, entry: Live<'_, K, Valued<T>>, fresh_for: Duration) -> Option<Refresh> {
        let (tag, address) = (tag_of(entry), entry.address());
        self.shard(tag).with(|shard| {
            let (number, deadlines) = deadlines_of(shard, entry)?;
            let version = deadlines.begin_refresh(number, nanoseconds(fresh_for))?;
            Some(Refresh { tag, address, version })
        })
    }

    /// Lets others refresh the value, if it is still there.
    pub(crate) fn end_refresh(&self, Refresh { tag, address, version }: Refresh) {
        self.shard(tag).with(|shard| {
            let number = shard.find_at(tag, address).map(|(_, number)| number);
            if let (Some(number), Some(deadlines)) = (number, &mut shard.kept.deadlines) {
                deadlines.end_refresh(number, version);
            }
        });
    }
}
