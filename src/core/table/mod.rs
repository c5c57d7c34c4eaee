//! The table layer: the entry of each key, and how entries are made and retired.
//!
//! ```text
//! lookup   finds the entry of a key, or makes it         shard lock; between two looks a key that owns memory is made
//! retire   gives up units; the last one with its entry   shard lock for the last one
//! visit    visits entries                                shard lock, then queue lock
//! walk     visits values, and waits for locked ones      shard lock
//! stay     a walk's stay in a shard                      called under the shard lock
//! limits   the number of permits of each key             queue locks; to visit entries, as above
//! limit_of the function of the key that a table may have  none
//! observer the callback that a table reports waits to    none
//! shard    one lock's worth of entries                   called under the shard lock
//! pool     a shard's slots, by chunks                    called under the shard lock
//! slot     the memory of an entry, and its tokens        the only unsafe code
//! payload  the contents of an entry besides its key: nothing, or
//! value    a value, with its marks
//! values   stores, takes out and evicts values            shard lock
//! sweep    disposes of values                              shard lock
//! room     the claim of a deadline, before the value is stored
//! pop      finds the value that would be evicted next, and changes the bound
//! sieve    the order in which values are evicted          called under the shard lock
//! history  the keys of evicted values                     called under the shard lock
//! expiry   ends values whose time has passed              shard lock
//! deadlines the deadlines of values, in order             called under the shard lock
//! refresh  lets one caller at a time refresh an old value  shard lock
//! ages     the ages of values, and marks of refreshes      called under the shard lock
//! weigh    weighs values, and changes the bound           shard lock
//! weights  the weights of values, and their sums          called under the shard lock
//! by_slot  a list with an item for each slot               called under the shard lock
//! resting  the values at rest                              called under the shard lock
//! gather   moves values at rest to slots for a visit       shard lock
//! shrink   when the hash tables give memory back           none
//! lowest   sets of numbers, with a fast search for the lowest  called under the shard lock
//! number   the number of a slot                             none
//! hooks    the functions of the user that a map may have: when values end, what they weigh, and
//! on_evict the function that evicted values are handed to  none
//! counters the numbers of hits, misses, and so on        a lock for each shard's counters; may be taken under the shard lock
//! uses     marks values as used, and counts events         as `counters`
//! ```

use alloc::boxed::Box;

use crossbeam_utils::CachePadded;

#[cfg(target_has_atomic = "ptr")]
use crate::core::wait::Place;
use crate::core::wait::{Access, Contention, Entered, Holds, Rules, Ticket, WaitQueues, Waiter, WakeBatch, Want};
use crate::sync::Lock;
use crate::wait_event::{WaitId, WaitPhase};

mod ages;
mod by_slot;
mod counters;
mod deadlines;
mod expiry;
mod gather;
mod history;
mod hooks;
mod limit_of;
mod limits;
mod lookup;
mod lowest;
mod number;
mod observer;
mod on_evict;
mod payload;
mod pool;
mod pop;
mod refresh;
mod resting;
mod retire;
mod room;
mod shard;
mod shrink;
mod sieve;
mod slot;
mod stay;
mod sweep;
mod tag;
mod uses;
mod value;
mod values;
mod visit;
mod walk;
mod weigh;
mod weights;

#[cfg(test)]
mod tests;

pub(crate) use self::hooks::Weigher;
pub(crate) use self::limit_of::LimitOf;
pub(super) use self::lookup::full;
pub(crate) use self::lookup::{Ask, Key, OwnedKey, Source, VersionOf};
pub(crate) use self::observer::Observer;
#[cfg(target_has_atomic = "ptr")]
pub(crate) use self::observer::wait_mode;
pub(crate) use self::on_evict::OnEvict;
pub(crate) use self::payload::Payload;
pub(crate) use self::refresh::Refresh;
pub(crate) use self::slot::{Claim, ClaimIn, CoreRef, EntryTypes, Hold, HoldIn, Live, TypedAccess};
pub(crate) use self::tag::Tag;
pub(crate) use self::value::Valued;
pub(crate) use self::values::Busy;
pub(crate) use self::visit::Ending;
pub(crate) use self::walk::Position;

use self::counters::Event;
use self::limit_of::Limits;
use self::shard::Shard;
use self::slot::IsCore;

/// The settings of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// The number of shards, a power of two.
    pub(crate) shards: usize,
    pub(crate) capacity: usize,
    /// The number of free entries to keep in the whole table, if it was set.
    pub(crate) spares: Option<usize>,
    pub(crate) recycle_keys: bool,
    /// The largest number of values in the whole table, if it was set.
    pub(crate) values: Option<usize>,
    /// Whether values are evicted only by the table's user.
    pub(crate) by_hand: bool,
    /// Whether the table has counters.
    pub(crate) counts: bool,
    pub(crate) rules: Rules,
}

/// The lock table, without the hasher: keys `K`, each with a payload `V`.
///
/// `pub` because sealed traits name it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)] // not visible outside the crate
pub struct Core<K, V: Payload> {
    /// The shards; empty in a table that [has records](Core::has_records) of its values. So the bounds check by which a
    /// call finds its shard also tells whether the table has records.
    plain: Box<[PaddedShard<K, V>]>,
    /// The shards of a table that has records.
    recorded: Box<[PaddedShard<K, V>]>,
    waits: WaitQueues,
    shift: u32,
    recycle_keys: bool,
    excess: V::Excess,
    hooks: V::Hooks<K>,
    counters: V::Counters,
    observer: Option<Observer<K>>,
    limits: Limits<K>,
    #[cfg(target_has_atomic = "ptr")]
    number: usize,
}

/// See [`Core::identity`].
#[cfg(target_has_atomic = "ptr")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Identity {
    /// The number of the table, which is unique; 0 for a latch. (On 32 bits it repeats after four billion tables.)
    table: usize,
    /// The address of the entry or the latch. If a hold was forgotten, its entry's address may be reused after the
    /// table is dropped.
    address: usize,
}

impl<K, V: Payload> IsCore<K, V> for Core<K, V> {}

type PaddedShard<K, V> = CachePadded<Lock<Shard<K, V>>>;

// A panic in user code leaves the table consistent: no invariant is broken while user code runs.
impl<K, V: Payload> core::panic::UnwindSafe for Core<K, V> {}
impl<K, V: Payload> core::panic::RefUnwindSafe for Core<K, V> {}
impl<K, V: Payload> core::panic::UnwindSafe for Claim<K, V> {}
impl<K, V: Payload> core::panic::RefUnwindSafe for Claim<K, V> {}
impl<K, V: Payload, M> core::panic::UnwindSafe for Hold<K, V, M> {}
impl<K, V: Payload, M> core::panic::RefUnwindSafe for Hold<K, V, M> {}
impl<R> core::panic::UnwindSafe for CoreRef<'_, R> {}
impl<R> core::panic::RefUnwindSafe for CoreRef<'_, R> {}

/// The number of free entries that a shard keeps by default, unless its part of the capacity is larger.
const SPARES_PER_SHARD: usize = 64;

impl<K, V: Payload> Core<K, V> {
    pub(crate) fn new(
        config: Config,
        observer: Option<Observer<K>>,
        limit_of: Option<LimitOf<K>>,
        hooks: V::Hooks<K>,
    ) -> Self {
        let Config { shards, capacity, spares, recycle_keys, values, by_hand, counts, rules } = config;
        let each = share_of_capacity(capacity, shards);
        let (timed, weight) = (V::time(&hooks).is_some(), V::weigher(&hooks).map(Weigher::most));
        // If values are weighed, their number has no bound of its own: see `Kept::note_weights`.
        let values = if weight.is_some() { Some(usize::MAX) } else { values };
        let shard = |index| {
            let part_of = |all| part_of(all, index, shards);
            let count = |all: usize| part_of(all as u64) as usize;
            let spares = spares.map_or(each.max(SPARES_PER_SHARD), count);
            let values = values.map(|values| if by_hand { usize::MAX } else { count(values) });
            let weight = weight.map(|all| if by_hand { u64::MAX } else { part_of(all) });
            let kept = V::kept(values, weight, each, counts, timed);
            CachePadded::new(Lock::new(Shard::new(each, spares, recycle_keys, kept)))
        };
        let plain = if timed || weight.is_some() { 0 } else { shards };
        Core {
            plain: (0..plain).map(shard).collect(),
            recorded: (plain..shards).map(shard).collect(),
            waits: WaitQueues::new(shards, rules),
            shift: u32::BITS - shards.trailing_zeros(),
            recycle_keys,
            excess: V::no_excess(shards, values, by_hand, timed),
            hooks,
            counters: V::new_counters(shards, counts),
            observer,
            limits: Limits::new(limit_of, rules.limit()),
            #[cfg(target_has_atomic = "ptr")]
            number: next_number(),
        }
    }

    pub(crate) fn rules(&self) -> &Rules {
        self.waits.rules()
    }

    #[inline]
    fn shard(&self, tag: Tag) -> &Lock<Shard<K, V>> {
        let index = tag.shard(self.shift);
        match self.plain.get(index) {
            Some(shard) => shard,
            None => &self.recorded[index],
        }
    }

    /// Returns the shard of this tag; `None` if the table [has records](Self::has_records).
    #[inline]
    fn plain_shard(&self, tag: Tag) -> Option<&Lock<Shard<K, V>>> {
        Some(self.plain.get(tag.shard(self.shift))?)
    }

    fn shards(&self) -> &[PaddedShard<K, V>] {
        if self.plain.is_empty() { &self.recorded } else { &self.plain }
    }

    /// Returns whether the shard of this tag may need a sweep.
    #[inline]
    fn exceeds(&self, tag: Tag) -> bool {
        V::exceeds(&self.excess, tag.shard(self.shift))
    }

    // ---- the observer of waits ------------------------------------------------------------------------------------

    /// Returns the id of a wait that begins; `None` if there is no observer.
    #[inline]
    pub(crate) fn next_wait(&self) -> Option<WaitId> {
        self.observer.as_ref().map(Observer::next)
    }

    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    /// Calls the observer, if there is one. The caller must hold no internal lock, and must have woken all admitted
    /// waiters.
    pub(crate) fn tell(&self, entry: Live<'_, K, V>, want: Want, phase: WaitPhase, id: WaitId) {
        if let Some(observer) = &self.observer {
            observer.tell(entry.key(), want, phase, id);
        }
    }

    // ---- waiting: see the wait layer ------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn enter(&self, entry: Live<'_, K, V>, want: Want) -> Option<Entered> {
        self.waits.enter(entry.state(), want, self.limit_of(entry, want))
    }

    pub(crate) fn try_enter(&self, entry: Live<'_, K, V>, want: Want, ticket: Ticket) -> Option<Entered> {
        self.waits.try_enter(entry.state(), want, ticket, self.limit_of(entry, want))
    }

    #[cfg_attr(any(not(feature = "std"), target_family = "wasm"), allow(dead_code))] // for threads that spin
    pub(crate) fn contention(&self, entry: Live<'_, K, V>, want: Want) -> Contention {
        self.waits.contention(entry.state(), want, self.limit_of(entry, want))
    }

    /// Returns the place of the waiter with this ticket.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn place(&self, entry: Live<'_, K, V>, ticket: Ticket) -> Place {
        self.waits.place(entry.state(), ticket)
    }

    /// Returns the identity of an entry among the entries of all tables. It is valid while the entry has a unit.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn identity(&self, entry: Live<'_, K, V>) -> Identity {
        Identity { table: self.number, address: entry.address() }
    }

    /// Returns the holds of an entry. They may have changed by now, except for the caller's own.
    #[inline]
    pub(crate) fn holds(&self, entry: Live<'_, K, V>) -> Holds {
        entry.state().word().holds()
    }

    #[inline]
    pub(crate) fn poll(
        &self,
        entry: Live<'_, K, V>,
        want: Want,
        ticket: &mut Ticket,
        waiter: Waiter<'_>,
        batch: &mut WakeBatch,
    ) -> Option<Entered> {
        let is_new = !ticket.is_some();
        let limit = if is_new { self.limit_of(entry, want) } else { None };
        let entered = self.waits.poll(entry.state(), want, ticket, waiter, limit, batch);
        if is_new && ticket.is_some() && entered.is_none() {
            self.count(Tag::from_bits(entry.state().tag()), Event::Waited);
        }
        entered
    }

    pub(crate) fn leave_queue(&self, entry: Live<'_, K, V>, ticket: Ticket, batch: &mut WakeBatch) -> Option<Entered> {
        self.waits.leave_queue(entry.state(), ticket, batch)
    }

    /// Turns the hold into a weaker one atomically: no request that is incompatible with either gets in between. The
    /// caller sets the hold's mode before it drops the batch.
    ///
    /// # Panics
    /// If the clock panics, or the user's code that decides when a value ends or what it weighs. In that case the hold
    /// is unchanged.
    pub(crate) fn downgrade<M: TypedAccess>(&self, hold: &Hold<K, V, M>, to: Access, batch: &mut WakeBatch) {
        if self.has_records() {
            self.before_sharing(hold);
        }
        self.waits.downgrade(hold.live().state(), hold.mode().access(), to, batch);
    }
}

#[cfg(target_has_atomic = "ptr")]
fn next_number() -> usize {
    // The counter is not part of a protocol, so the model checkers need not see it.
    use core::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(target_has_atomic = "ptr")]
impl Identity {
    /// Returns the identity of the latch at this address, which is valid while the latch is borrowed.
    pub(in crate::core) fn of_latch(address: usize) -> Self {
        Identity { table: 0, address }
    }
}

/// Returns a shard's part of `all`, which is divided among the shards as evenly as possible.
fn part_of(all: u64, shard: usize, shards: usize) -> u64 {
    let (shard, shards) = (shard as u64, shards as u64);
    all / shards + u64::from(shard < all % shards)
}

/// Returns the number of entries for which each shard reserves memory, so that `capacity` keys fit at once.
///
/// Keys are spread over the shards at random, so a shard may get more than its share. A reserve of six standard
/// deviations of a Poisson distribution, plus six for small means, is exceeded once in many millions. With one shard
/// the reservation is exact; with few keys, each shard has room for all of them.
fn share_of_capacity(capacity: usize, shards: usize) -> usize {
    if shards == 1 {
        return capacity;
    }
    let mean = capacity.div_ceil(shards);
    capacity.min(mean + 6 * mean.isqrt() + 6)
}
