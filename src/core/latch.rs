//! The core of latches: a word, and queues that all latches of the process share.
//!
//! An entry of a table is a lock because it has a word and a queue. A latch has only the word. While it has a queue,
//! the queue is found by the latch's address, under the queue lock. The core does not make or retire latches: guards
//! and futures borrow a latch, so it can be moved once they are gone, and the word of an unused latch is 0.
//!
//! A waiting request counts as a claim until it takes its hold or gives up. Claims here serve to limit the number of
//! users, so that no field of the word can overflow, and to show the number of waiters.
//!
//! Forgotten guards and futures stay counted. A forgotten guard keeps the latch locked for good, even after a move. A
//! forgotten waiting request leaves its queue behind under the latch's address. Another latch at that address that has
//! no waiters yet starts a new queue with its first one, and never reads the old queue. If a latch is moved after a
//! request that waited for it has been forgotten, it usually finds no queue under its new address, and starts one. But
//! it may find a queue that another latch left behind there. A hold granted from that queue is never taken, so the
//! latch then stays locked for good.

use crossbeam_utils::CachePadded;
use hashbrown::HashTable;

#[cfg(target_has_atomic = "ptr")]
use super::table::Identity;
use super::table::Tag;
use super::wait::state::{QueueShard, Waited};
use super::wait::word::{Refusal, Unit, Word};
use super::wait::{
    Access, Contention, CountKind, Entered, Holds, Queues, ReleaseFor, Rules, Snapshot, Ticket, WaitQueues, Waiter,
    WakeBatch, Want,
};
#[cfg(target_has_atomic = "ptr")]
use super::wait::{Place, WithQueues};
use crate::fairness::Fairness;
use crate::sync::{AtomicUsize, Lock, Ordering};

/// A latch: one word.
pub(crate) struct LatchWord(AtomicUsize);

/// The queues of some latches, with an index by address.
pub(super) struct LatchQueueShard {
    queues: Queues,
    of: HashTable<Found>,
}

/// A queue, with the address of its latch.
struct Found {
    address: usize,
    queue: u32,
}

impl Found {
    fn hash(&self) -> u64 {
        Tag::of(self.address as u64).bucket_hash()
    }
}

impl QueueShard for LatchQueueShard {
    #[inline]
    fn queues(&mut self) -> &mut Queues {
        &mut self.queues
    }
}

type LatchQueueShards = [CachePadded<Lock<LatchQueueShard>>];

/// The number of queue locks that all latches share. Two hot latches behind the same lock slow each other down a
/// little.
#[cfg(not(any(keylatch_loom, keylatch_shuttle)))]
const QUEUE_LOCKS: usize = if cfg!(feature = "std") {
    64
} else if cfg!(feature = "critical-section") {
    1 // there is only one core
} else {
    4
};

#[cfg(not(any(keylatch_loom, keylatch_shuttle)))]
static QUEUE_SHARDS: [CachePadded<Lock<LatchQueueShard>>; QUEUE_LOCKS] =
    [const { CachePadded::new(Lock::new(LatchQueueShard { queues: Queues::new(), of: HashTable::new() })) };
        QUEUE_LOCKS];

#[cfg(not(any(keylatch_loom, keylatch_shuttle)))]
fn queue_shards() -> &'static LatchQueueShards {
    &QUEUE_SHARDS
}

#[cfg(any(keylatch_loom, keylatch_shuttle))]
crate::sync::lazy_static! {
    static ref QUEUE_SHARDS: CachePadded<Lock<LatchQueueShard>> =
        CachePadded::new(Lock::new(LatchQueueShard { queues: Queues::new(), of: HashTable::new() }));
}

#[cfg(any(keylatch_loom, keylatch_shuttle))]
fn queue_shards() -> &'static LatchQueueShards {
    core::slice::from_ref(&*QUEUE_SHARDS)
}

/// Returns the wait layer for a latch with this policy.
#[inline]
fn waits(fairness: Fairness) -> WaitQueues<&'static LatchQueueShards> {
    WaitQueues::of(queue_shards(), Rules { fairness, counted: CountKind::Readers })
}

/// Returns the number that chooses the queue shard of the latch at this address. Its low bits are not those that choose
/// the bucket in the shard's hash table.
fn number_of(address: usize) -> u32 {
    Tag::of(address as u64).bits().rotate_left(8)
}

impl Waited for LatchWord {
    type QueueShard = LatchQueueShard;

    #[inline]
    fn word(&self) -> Word {
        Word::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// Acquire: a hold comes after the accesses of earlier holders. Release: the caller's accesses come before later
    /// holds.
    #[inline]
    fn update<E>(&self, mut step: impl FnMut(Word) -> Result<Word, E>) -> Result<Word, E> {
        let mut old = self.word();
        loop {
            let new = step(old)?;
            match self.0.compare_exchange_weak(old.bits(), new.bits(), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(new),
                Err(now) => old = Word::from_bits(now),
            }
        }
    }

    /// Returns 0: a waiting request counts as a claim until it takes its hold or gives up, so a grant spends no claim.
    /// Therefore, if a latch is moved to an address where another latch left a queue behind, a grant in that queue
    /// consumes no other request's claim.
    #[inline(always)]
    fn spends(&self, _: usize) -> usize {
        0
    }

    fn number(&self) -> u32 {
        number_of(self.address())
    }

    fn queue(&self, queue_shard: &mut LatchQueueShard) -> u32 {
        let address = self.address();
        let found = Found { address, queue: 0 };
        if let Some(found) = queue_shard.of.find(found.hash(), |other| other.address == address) {
            return found.queue;
        }
        // `QUEUED` was set by requests that waited at the latch's former address and were forgotten.
        let queue = queue_shard.queues.open_queue(0);
        self.set_queue(queue_shard, queue);
        queue
    }

    fn set_queue(&self, queue_shard: &mut LatchQueueShard, queue: u32) {
        self.forget_queue(queue_shard); // the queue of an earlier latch at this address
        let found = Found { address: self.address(), queue };
        queue_shard.of.insert_unique(found.hash(), found, Found::hash);
    }

    fn forget_queue(&self, queue_shard: &mut LatchQueueShard) {
        let address = self.address();
        let hash = Found { address, queue: 0 }.hash();
        if let Ok(found) = queue_shard.of.find_entry(hash, |other| other.address == address) {
            found.remove();
        }
        // Shrinks after a burst. Moving `n` entries is amortised over at least `3 n` removals, which have taken place
        // since the table needed the room that it now gives up.
        if queue_shard.of.capacity() > 2 * ROOM_KEPT && queue_shard.of.len() < queue_shard.of.capacity() / 8 {
            let room = (2 * queue_shard.of.len()).max(ROOM_KEPT);
            queue_shard.of.shrink_to(room, Found::hash);
        }
    }
}

/// The number of queues for which the index of a queue shard keeps room when it shrinks.
const ROOM_KEPT: usize = 28;

/// Entering and leaving.
impl LatchWord {
    #[cfg(not(any(keylatch_loom, keylatch_shuttle)))]
    #[inline]
    pub(crate) const fn new() -> Self {
        LatchWord(AtomicUsize::new(0))
    }

    #[cfg(any(keylatch_loom, keylatch_shuttle))]
    pub(crate) fn new() -> Self {
        LatchWord(AtomicUsize::new(0))
    }

    #[inline]
    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Returns the numbers of holders, and of requests that wait or are about to wait. A request that has been granted
    /// its hold, and has not taken it yet, counts as both.
    pub(crate) fn users(&self) -> Users {
        let word = self.word();
        let holds = word.holds();
        Users {
            writers: holds.writer().into(),
            upgradable: holds.upgradable().into(),
            readers: holds.count(),
            waiting: word.claims(),
        }
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.word().holds() != Holds::NONE
    }

    /// Acquires a hold, if the present holds allow it and there are no waiters.
    ///
    /// # Panics
    /// If the latch has [`MAX_USERS`](crate::MAX_USERS) holders and waiters already.
    #[inline]
    pub(crate) fn hold(&self, access: Access) -> Result<(), Blocked> {
        let held = match access {
            // Usually the latch is free, and no load is needed.
            Access::Exclusive if self.replace(0, Word::born(Unit::Hold(access)).bits()) => return Ok(()),
            _ => self.update(|word| word.hold(access, 0)),
        };
        match held {
            Ok(_) => Ok(()),
            Err(Refusal::Held) => Err(Blocked::Held),
            Err(Refusal::Queued) => Err(Blocked::Queued),
            Err(Refusal::Full) => super::table::full(),
        }
    }

    #[inline]
    fn replace(&self, old: usize, new: usize) -> bool {
        self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Adds a claim.
    ///
    /// # Panics
    /// If the latch has [`MAX_USERS`](crate::MAX_USERS) holders and waiters already.
    pub(crate) fn claim(&self) {
        if self.update(|word| word.claim(CountKind::Readers)).is_err() {
            super::table::full();
        }
    }

    /// Gives up a claim.
    pub(crate) fn leave_claim(&self) {
        let left = self.update(|word| Ok::<_, Refusal>(word.leave(Unit::Claim)));
        debug_assert!(left.is_ok());
    }

    /// Gives up the claim of a request, its place in the queue, and its hold if one was granted. Adds to `batch` the
    /// wakers of the waiters that this admits.
    pub(crate) fn cancel(&self, access: Access, ticket: Ticket, fairness: Fairness, batch: &mut WakeBatch) {
        if waits(fairness).leave_queue(self, ticket, batch).is_some() {
            // The reservation passes to the next waiter, not to the first newcomer.
            self.release(access, ReleaseFor::NextWaiter, fairness, Some(batch));
        }
        self.leave_claim();
    }

    /// Gives up the place in the queue. Returns the receipt if the hold, or the upgrade, had already been granted. Adds
    /// the wakers that must be called to `batch`.
    pub(crate) fn leave_queue(&self, ticket: Ticket, fairness: Fairness, batch: &mut WakeBatch) -> Option<Entered> {
        waits(fairness).leave_queue(self, ticket, batch)
    }

    /// Returns the identity of the latch among all latches and entries. It is valid while the latch is borrowed.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn identity(&self) -> Identity {
        Identity::of_latch(self.address())
    }

    /// Returns the place of the waiter with this ticket.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn place(&self, ticket: Ticket, fairness: Fairness) -> Place {
        let waits = waits(fairness);
        let (lock, queue) = waits.find_queue(self);
        let with: WithQueues = |lock, look| queue_shards()[lock as usize].with(|shard| look(&shard.queues));
        Place::elsewhere(with, lock, queue, ticket, *waits.rules())
    }

    /// Acquires a hold for a claim, if that is possible without waiting.
    pub(crate) fn try_enter(&self, want: Want, ticket: Ticket, fairness: Fairness) -> Option<Entered> {
        waits(fairness).try_enter(self, want, ticket, None)
    }

    #[cfg_attr(any(not(feature = "std"), target_family = "wasm"), allow(dead_code))] // for threads that spin
    pub(crate) fn contention(&self, want: Want, fairness: Fairness) -> Contention {
        waits(fairness).contention(self, want, None)
    }

    /// Acquires a hold for a claim, or queues.
    pub(crate) fn poll(
        &self,
        want: Want,
        fairness: Fairness,
        ticket: &mut Ticket,
        waiter: Waiter<'_>,
        batch: &mut WakeBatch,
    ) -> Option<Entered> {
        waits(fairness).poll(self, want, ticket, waiter, None, batch)
    }

    /// Releases a hold. Adds the wakers of the admitted waiters to `batch`, if there is one; otherwise calls them.
    #[inline]
    pub(crate) fn release(&self, access: Access, whom: ReleaseFor, fairness: Fairness, batch: Option<&mut WakeBatch>) {
        if !self.replace(Word::born(Unit::Hold(access)).bits(), 0) {
            self.leave(access, whom, fairness, batch);
        }
    }

    /// Releases a hold of a latch that has other users.
    #[inline(never)]
    fn leave(&self, access: Access, whom: ReleaseFor, fairness: Fairness, mut batch: Option<&mut WakeBatch>) {
        loop {
            let leave = |word: Word| if word.is_queued() { Err(()) } else { Ok(word.leave(Unit::Hold(access))) };
            if self.update(leave).is_ok() {
                return;
            }
            let waits = waits(fairness);
            let is_left_to_others = match &mut batch {
                Some(batch) => waits.hand_over_into(self, access, whom, batch),
                None => waits.hand_over(self, access, whom),
            };
            if is_left_to_others {
                return;
            }
        }
    }

    /// Replaces a hold by a weaker one. Adds the wakers of the waiters that this admits to `batch`.
    pub(crate) fn downgrade(&self, from: Access, to: Access, fairness: Fairness, batch: &mut WakeBatch) {
        waits(fairness).downgrade(self, from, to, batch);
    }

    /// Returns the holders and waiters at one instant.
    pub(crate) fn snapshot(&self) -> Snapshot {
        waits(Fairness::Adaptive).snapshot(self) // the policy does not matter
    }
}

/// The numbers of a latch's users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Users {
    pub(crate) readers: usize,
    pub(crate) upgradable: usize,
    pub(crate) writers: usize,
    pub(crate) waiting: usize,
}

/// The reason why a hold cannot be acquired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blocked {
    /// The present holds are incompatible.
    Held,
    /// There are waiters, so the policy decides.
    Queued,
}

#[cfg(all(test, not(any(keylatch_loom, keylatch_shuttle))))]
mod tests {
    use core::pin::Pin;
    use core::task::{Context, Poll, Waker};
    use std::vec::Vec;

    use super::{LatchQueueShard, QUEUE_SHARDS};
    use crate::{Fairness, Latch, Striped};

    fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn is_empty(queue_shard: &LatchQueueShard) -> bool {
        queue_shard.of.is_empty() && queue_shard.queues.is_empty()
    }

    /// The only unit test that waits for latches, because the process has only one set of queues.
    #[test]
    fn a_wait_leaves_nothing_in_the_queues_however_it_ends() {
        let fairness = [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(1), Fairness::Barging];
        let stripes: Vec<_> = fairness.map(|fairness| Striped::<u64>::builder(1).fairness(fairness).build()).into();
        for striped in &stripes {
            for how in 0..8 {
                let guard = striped.write_blocking(&7);
                let mut reader = striped.read(&7);
                let mut writer = striped.write(&7);
                assert!(poll(&mut reader).is_pending() && poll(&mut writer).is_pending());
                if how & 1 == 0 {
                    drop(guard)
                } else {
                    guard.unlock_fair()
                }
                // The requests give up after they were granted, after they were woken, or before; or they take their
                // holds.
                if how & 2 == 0 {
                    drop((reader, writer));
                } else if how & 4 == 0 {
                    drop((writer, reader));
                } else {
                    let Poll::Ready(reading) = poll(&mut reader) else { panic!("the latch is free for a reader") };
                    assert!(poll(&mut writer).is_pending());
                    drop(reading);
                    assert!(poll(&mut writer).is_ready());
                }
                assert!(
                    QUEUE_SHARDS.iter().all(|queue_shard| queue_shard.with(|queue_shard| is_empty(queue_shard))),
                    "{striped:?}, {how}"
                );
            }
        }
        let latches: Vec<Latch> = (0..1000).map(|_| Latch::new()).collect();
        let guards: Vec<_> = latches.iter().map(Latch::read_blocking).collect();
        let mut waiting: Vec<_> = latches.iter().map(Latch::write).collect();
        assert!(waiting.iter_mut().all(|waiting| poll(waiting).is_pending()));
        drop(guards);
        assert!(waiting.iter_mut().all(|waiting| poll(waiting).is_ready()));
        drop(waiting);
        assert!(QUEUE_SHARDS.iter().all(|queue_shard| queue_shard.with(|queue_shard| is_empty(queue_shard))));

        // After a burst, memory is freed although one request still waits.
        let latches: Vec<Latch> = (0..1000 * QUEUE_SHARDS.len()).map(|_| Latch::new()).collect();
        let guards: Vec<_> = latches.iter().map(Latch::read_blocking).collect();
        let mut waiting: Vec<_> = latches.iter().map(Latch::write).collect();
        assert!(waiting.iter_mut().all(|waiting| poll(waiting).is_pending()));
        waiting.truncate(1);
        assert!(
            QUEUE_SHARDS
                .iter()
                .all(|queue_shard| queue_shard.with(|queue_shard| queue_shard.of.capacity() <= 2 * super::ROOM_KEPT))
        );
        drop((waiting, guards));

        // The bits that choose the queue shard are not used to choose the bucket in it.
        let places = |found: &super::Found| found.hash() & 255;
        for address in [0x1000, 0x7f00_1230] {
            let addresses = (0..100_000).map(|n| address + n * size_of::<Latch>());
            let in_one_shard = addresses.filter(|&address| super::number_of(address) % super::QUEUE_LOCKS as u32 == 0);
            let seen: std::collections::HashSet<u64> =
                in_one_shard.map(|address| places(&super::Found { address, queue: 0 })).collect();
            assert!(seen.len() > 128, "{}", seen.len());
        }
    }
}
