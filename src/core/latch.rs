//! The core of latches: a word, and queues that all latches of the process share.
//!
//! The word and the queue make an entry of a table a lock. So a latch is a word; and its queue, while it has one, is
//! found by its address, behind the queue lock. There is nothing to make and to retire: a latch is as alive as the borrows of
//! those who use it, and a word of 0 is one that nobody uses, and that can be moved.
//!
//! Who asks counts as a claim until it has come for its hold, or has gone: so many users are counted that no field of the word can
//! overflow, and that is all that claims are for.
//!
//! What is forgotten stays counted. A guard keeps the latch locked for good, wherever that is. A request that waits leaves its
//! queue behind, under an address where another latch may be one day: that one begins a queue of its own with its first waiter,
//! and the old one is never looked at again. A latch that was moved while a forgotten request waited for it finds no queue
//! under its new address, and begins another; or it finds one that was left behind there: whoever is let in from that does not
//! come for it either, and it stays locked for good.

use crossbeam_utils::CachePadded;
use hashbrown::HashTable;

use super::table::Tag;
use super::wait::state::{QueueShard, Waited};
use super::wait::word::{Refusal, Unit, Word};
use super::wait::{
    Access, Contention, CountKind, Entered, Holds, Queues, ReleaseFor, Rules, Ticket, WaitQueues, Waiter, WakeBatch,
    Want,
};
use crate::fairness::Fairness;
use crate::sync::{AtomicUsize, Lock, Ordering};

/// The whole of a latch.
pub(crate) struct LatchWord(AtomicUsize);

/// Some of the queues of latches, and whose they are.
pub(super) struct LatchHall {
    queues: Queues,
    of: HashTable<Found>,
}

/// The queue of the latch at this address.
struct Found {
    address: usize,
    queue: u32,
}

impl Found {
    fn hash(&self) -> u64 {
        Tag::of(self.address as u64).bucket_hash()
    }
}

impl QueueShard for LatchHall {
    #[inline]
    fn queues(&mut self) -> &mut Queues {
        &mut self.queues
    }
}

type Halls = [CachePadded<Lock<LatchHall>>];

/// The number of locks that the queues of all latches are behind. Two hot latches that share one hold each other up a little.
#[cfg(not(any(keylatch_loom, keylatch_shuttle)))]
const HALLS: usize = if cfg!(feature = "std") {
    64
} else if cfg!(feature = "critical-section") {
    1 // there is only one core
} else {
    4
};

#[cfg(not(any(keylatch_loom, keylatch_shuttle)))]
static OF_ALL: [CachePadded<Lock<LatchHall>>; HALLS] =
    [const { CachePadded::new(Lock::new(LatchHall { queues: Queues::new(), of: HashTable::new() })) }; HALLS];

#[cfg(not(any(keylatch_loom, keylatch_shuttle)))]
fn queue_shards() -> &'static Halls {
    &OF_ALL
}

#[cfg(any(keylatch_loom, keylatch_shuttle))]
crate::sync::lazy_static! {
    static ref OF_ALL: CachePadded<Lock<LatchHall>> =
        CachePadded::new(Lock::new(LatchHall { queues: Queues::new(), of: HashTable::new() }));
}

#[cfg(any(keylatch_loom, keylatch_shuttle))]
fn queue_shards() -> &'static Halls {
    core::slice::from_ref(&*OF_ALL)
}

/// The wait layer, for a latch with this policy.
#[inline]
fn waits(fairness: Fairness) -> WaitQueues<&'static Halls> {
    WaitQueues::of(queue_shards(), Rules { fairness, counted: CountKind::Readers })
}

/// Which queue shard has the queue of the latch at this address: by other bits than those by which it is found there.
fn number_of(address: usize) -> u32 {
    Tag::of(address as u64).bits().rotate_left(8)
}

impl Waited for LatchWord {
    type QueueShard = LatchHall;

    #[inline]
    fn word(&self) -> Word {
        Word::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// Acquire: a hold comes after what earlier holders did. Release: what we did comes before later holds.
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

    /// None: a request has its claim until it has come for its hold. So what happens in a queue that was left behind, and is found
    /// by a latch that was moved there, takes nobody's claim away.
    #[inline(always)]
    fn spends(&self, _: usize) -> usize {
        0
    }

    fn number(&self) -> u32 {
        number_of(self.address())
    }

    fn queue(&self, queue_shard: &mut LatchHall) -> u32 {
        let address = self.address();
        let found = Found { address, queue: 0 };
        if let Some(found) = queue_shard.of.find(found.hash(), |other| other.address == address) {
            return found.queue;
        }
        // Only forgotten requests wait.
        let queue = queue_shard.queues.open_queue();
        self.set_queue(queue_shard, queue);
        queue
    }

    fn set_queue(&self, queue_shard: &mut LatchHall, queue: u32) {
        self.forget_queue(queue_shard); // of another latch, that was here
        let found = Found { address: self.address(), queue };
        queue_shard.of.insert_unique(found.hash(), found, Found::hash);
    }

    fn forget_queue(&self, queue_shard: &mut LatchHall) {
        let address = self.address();
        let hash = Found { address, queue: 0 }.hash();
        if let Ok(found) = queue_shard.of.find_entry(hash, |other| other.address == address) {
            found.remove();
        }
        // After a burst. Moving `n` of them is paid for by the `3 n` that have gone since it had so much room.
        if queue_shard.of.capacity() > 2 * ROOM_KEPT && queue_shard.of.len() < queue_shard.of.capacity() / 8 {
            let room = (2 * queue_shard.of.len()).max(ROOM_KEPT);
            queue_shard.of.shrink_to(room, Found::hash);
        }
    }
}

/// For how many queues a queue shard keeps its room.
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

    /// Who holds it, at a glance, and how many wait or are about to.
    pub(crate) fn users(&self) -> Users {
        let word = self.word();
        let holds = word.holds();
        Users { writers: holds.writer().into(), readers: holds.count(), waiting: word.claims() }
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.word().holds() != Holds::NONE
    }

    /// A hold, if nobody is in the way, and nobody waits.
    ///
    /// # Panics
    /// If there are as many holders and waiters as can be counted.
    #[inline]
    pub(crate) fn hold(&self, access: Access) -> Result<(), Kept> {
        let held = match access {
            // Mostly nobody has it: then there is nothing to look at first.
            Access::Exclusive if self.replace(0, Word::born(Unit::Hold(access)).bits()) => return Ok(()),
            _ => self.update(|word| word.hold(access, 0)),
        };
        match held {
            Ok(_) => Ok(()),
            Err(Refusal::Held) => Err(Kept::Out),
            Err(Refusal::Queued) => Err(Kept::Waiting),
            Err(Refusal::Full) => super::table::full(),
        }
    }

    #[inline]
    fn replace(&self, old: usize, new: usize) -> bool {
        self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// A claim: what becomes a hold when its owner enters.
    ///
    /// # Panics
    /// If there are as many holders and waiters as can be counted.
    pub(crate) fn claim(&self) {
        if self.update(Word::claim).is_err() {
            super::table::full();
        }
    }

    /// A claim is given up.
    pub(crate) fn leave_claim(&self) {
        let left = self.update(|word| Ok::<_, Refusal>(word.leave(Unit::Claim)));
        debug_assert!(left.is_ok());
    }

    /// A claim is given up, by somebody who has waited with this ticket, if it has. Whoever is to be woken is left in the batch.
    pub(crate) fn cancel(&self, access: Access, ticket: Ticket, fairness: Fairness, batch: &mut WakeBatch) {
        if waits(fairness).leave_queue(self, ticket, batch).is_some() {
            // The reservation passes to the next waiter, not to the first newcomer.
            self.release(access, ReleaseFor::NextWaiter, fairness, Some(batch));
        }
        self.leave_claim();
    }

    /// A claim becomes a hold, if that is possible without waiting.
    pub(crate) fn try_enter(&self, want: Want, fairness: Fairness) -> Option<Entered> {
        waits(fairness).try_enter(self, want)
    }

    #[cfg_attr(any(not(feature = "std"), target_family = "wasm"), allow(dead_code))] // for threads that spin
    pub(crate) fn contention(&self, want: Want, fairness: Fairness) -> Contention {
        waits(fairness).contention(self, want)
    }

    /// A claim becomes a hold, or waits.
    pub(crate) fn poll(
        &self,
        want: Want,
        fairness: Fairness,
        ticket: &mut Ticket,
        waiter: Waiter<'_>,
        batch: &mut WakeBatch,
    ) -> Option<Entered> {
        waits(fairness).poll(self, want, ticket, waiter, batch)
    }

    /// A holder leaves. Whoever is to be woken is left in the batch, if there is one.
    #[inline]
    pub(crate) fn release(&self, access: Access, whom: ReleaseFor, fairness: Fairness, batch: Option<&mut WakeBatch>) {
        if !self.replace(Word::born(Unit::Hold(access)).bits(), 0) {
            self.leave(access, whom, fairness, batch);
        }
    }

    /// The same, beside others.
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

    /// A writer is a reader from now on. Whoever is to be woken is left in the batch.
    pub(crate) fn downgrade(&self, fairness: Fairness, batch: &mut WakeBatch) {
        waits(fairness).downgrade(self, Access::Exclusive, Access::Shared, batch);
    }
}

/// Who uses a latch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Users {
    pub(crate) readers: usize,
    pub(crate) writers: usize,
    pub(crate) waiting: usize,
}

/// Why there is no hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// By who holds it.
    Out,
    /// By those who wait: the policy decides.
    Waiting,
}

#[cfg(all(test, not(any(keylatch_loom, keylatch_shuttle))))]
mod tests {
    use core::pin::Pin;
    use core::task::{Context, Poll, Waker};
    use std::vec::Vec;

    use super::{LatchHall, OF_ALL};
    use crate::{Fairness, Latch, Striped};

    fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn is_empty(queue_shard: &LatchHall) -> bool {
        queue_shard.of.is_empty() && queue_shard.queues.is_empty()
    }

    /// However a wait ends, it leaves nothing in the queues of all latches. (The only test here that waits for latches: these queues
    /// belong to the whole process.)
    #[test]
    fn nothing_is_left_of_those_who_have_waited() {
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
                // Given up when it had been granted, or woken, or neither; or fetched.
                if how & 2 == 0 {
                    drop((reader, writer));
                } else if how & 4 == 0 {
                    drop((writer, reader));
                } else {
                    let Poll::Ready(reading) = poll(&mut reader) else { panic!("nobody is in the way") };
                    assert!(poll(&mut writer).is_pending());
                    drop(reading);
                    assert!(poll(&mut writer).is_ready());
                }
                assert!(
                    OF_ALL.iter().all(|queue_shard| queue_shard.with(|queue_shard| is_empty(queue_shard))),
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
        assert!(OF_ALL.iter().all(|queue_shard| queue_shard.with(|queue_shard| is_empty(queue_shard))));

        // A burst is over, though somebody still waits.
        let latches: Vec<Latch> = (0..1000 * OF_ALL.len()).map(|_| Latch::new()).collect();
        let guards: Vec<_> = latches.iter().map(Latch::read_blocking).collect();
        let mut waiting: Vec<_> = latches.iter().map(Latch::write).collect();
        assert!(waiting.iter_mut().all(|waiting| poll(waiting).is_pending()));
        waiting.truncate(1);
        assert!(
            OF_ALL
                .iter()
                .all(|queue_shard| queue_shard.with(|queue_shard| queue_shard.of.capacity() <= 2 * super::ROOM_KEPT))
        );
        drop((waiting, guards));

        // The bits that choose the queue shard do not choose the place in it.
        let places = |found: &super::Found| found.hash() & 255;
        for address in [0x1000, 0x7f00_1230] {
            let addresses = (0..100_000).map(|n| address + n * size_of::<Latch>());
            let in_one_hall = addresses.filter(|&address| super::number_of(address) % super::HALLS as u32 == 0);
            let seen: std::collections::HashSet<u64> =
                in_one_hall.map(|address| places(&super::Found { address, queue: 0 })).collect();
            assert!(seen.len() > 128, "{}", seen.len());
        }
    }
}
