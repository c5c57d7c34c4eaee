//! Noting uses of values, for their order of eviction, and counting events. In a table without counters, counting costs
//! only the check that there are none. In most tables, another use of a value that is already marked as used does not
//! even cost that.

use super::Core;
use super::counters::Event;
use super::payload::Payload;
use super::slot::Live;
use super::tag::Tag;
use crate::stats::Stats;

impl<K, V: Payload> Core<K, V> {
    /// Counts an event of a key with this tag.
    #[inline]
    pub(super) fn count(&self, tag: Tag, event: Event) {
        if let Some(counters) = V::counters(&self.counters) {
            counters.count(tag.shard(self.shift), event);
        }
    }

    /// Counts a look-up of a key that had no value, for a caller that no longer knows the key.
    #[inline]
    pub(crate) fn count_miss(&self) {
        if V::counters(&self.counters).is_some() {
            self.count_miss_somewhere();
        }
    }

    /// Counts a miss in some shard's counters: any will do. They are chosen by the address of a local variable, which
    /// differs from thread to thread, so that threads rarely use the same ones. In the caller's frame, the variable
    /// would cost a register.
    #[cold]
    #[inline(never)]
    fn count_miss_somewhere(&self) {
        let local = 0;
        self.count(Tag::of(core::ptr::from_ref(&local).addr() as u64), Event::Miss);
    }

    /// Notes that a holder has acquired an entry that is not quiet. `looks_up` says whether that is a look-up.
    #[inline(never)]
    pub(crate) fn note_acquired(&self, entry: Live<'_, K, V>, looks_up: bool) {
        if self.is_timed() {
            self.settle(entry, true);
        }
        if looks_up {
            self.note_look_up(entry);
        } else {
            self.note_use(entry);
        }
    }

    /// Notes a use of the value of an entry, if there is one.
    #[inline(always)]
    pub(crate) fn note_use(&self, entry: Live<'_, K, V>) {
        if !V::is_quiet(entry.marks()) {
            V::note_use(entry.marks(), self.notes_each_use());
        }
    }

    /// Returns whether each use has to be noted, because it is counted or may extend a deadline.
    #[inline]
    fn notes_each_use(&self) -> bool {
        V::counters(&self.counters).is_some() || self.is_timed()
    }

    /// Notes a use of the value by a look-up, and counts a hit; or a miss, if there is no value.
    #[inline(always)]
    pub(crate) fn note_look_up(&self, entry: Live<'_, K, V>) {
        if !V::is_quiet(entry.marks()) {
            self.note_new_look_up(entry);
        }
    }

    #[inline(never)]
    fn note_new_look_up(&self, entry: Live<'_, K, V>) {
        let counters = V::counters(&self.counters);
        V::note_use(entry.marks(), self.notes_each_use());
        if let Some(counters) = counters {
            let event = if V::is_present(entry.marks()) { Event::Hit } else { Event::Miss };
            counters.count(Tag::from_bits(entry.state().tag()).shard(self.shift), event);
        }
    }

    /// Returns the numbers of events; `None` if they are not counted.
    pub(crate) fn stats(&self) -> Option<Stats> {
        V::counters(&self.counters).map(|counters| counters.stats())
    }
}
