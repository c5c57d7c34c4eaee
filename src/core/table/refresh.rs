//! Refreshing old values: one caller at a time makes a value's successor, with no lock held, while others read the old
//! value.

use core::time::Duration;

use super::Core;
use super::expiry::deadlines_of;
use super::hooks::nanoseconds;
use super::lookup::Ask;
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
    /// Returns whether the entry still has the value of the refresh, unchanged. The caller has a hold.
    pub(crate) fn is_of<K, T>(self, entry: Live<'_, K, Valued<T>>) -> bool {
        entry.version() == Some(self.version)
    }
}

impl<K, T> Core<K, Valued<T>> {
    /// Returns whether the ages of values are known.
    pub(crate) fn records_ages(&self) -> bool {
        Valued::<T>::time(&self.hooks).is_some_and(|time| time.ages)
    }

    /// Returns the age of a key's value; `None` if the key has none. The answer is a snapshot.
    pub(crate) fn age(&self, key: &impl Ask<K>) -> Option<Duration> {
        let now = self.time()?;
        self.shard(key.tag()).with(|shard| {
            let (entry, number) = shard.find_numbered(key.tag(), |other| key.is(other))?;
            let is_there = entry.has_value();
            let deadlines = shard.kept.deadlines.as_mut().filter(|_| is_there)?;
            deadlines.advance(now);
            deadlines.age(number).map(Duration::from_nanos)
        })
    }

    /// Begins to refresh the value of an entry, if it is at least `fresh_for` old by the latest time that the shard was
    /// told, and if nobody else is refreshing it.
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
