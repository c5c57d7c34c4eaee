//! The core: what an entry is, how it lives, and how one waits for it. It knows nothing of futures, threads or clocks.
//!
//! ```text
//! table   shards: tag -> entry                     under the shard lock
//! pool    a shard's slots, by chunks               under the shard lock
//! slot    the memory of an entry: word, key        tokens: Spare, Resident, Claim
//! word    the state of an entry, as pure moves     compare-exchange
//! queue   who waits, who gets in                   under the room lock
//! mod     this file: the moves, put together
//! ```
//!
//! # The life of an entry
//! An entry is a slot that is in the table. Its [word](word) counts *units*: holds, and claims (handles, futures,
//! waiters). Each unit is a [`Claim`] token in somebody's hands. The entry lives exactly as long as it has units.
//!
//! | move | who may do it | under | word |
//! |---|---|---|---|
//! | make | whoever finds no entry for its key | shard lock | dead → one unit, plain store |
//! | claim | whoever finds the entry; a handle | shard lock; none | claims + 1 |
//! | enter | whoever finds the key free and nobody waiting | none | + hold, or claim → hold, or upgradable → exclusive |
//! | enqueue | whoever finds the key held | room lock | sets `QUEUED`, or finds it set |
//! | pass | a newcomer that finds the key free and others waiting, if the policy lets it; an upgrade | room lock | as enter |
//! | settle | a waiter that enters or gives up, a holder that leaves others waiting | room lock | holds, grants; clears `QUEUED` behind the last |
//! | weaken | a writer or an upgradable reader; with others waiting it is a settle | none; room lock | hold → weaker hold |
//! | leave | who is not the last and leaves nobody waiting | none | − unit |
//! | retire | the last | shard lock | one unit → dead, plain store |
//!
//! The rules that make this safe:
//! 1. *New units come from a unit or from the table.* So an entry whose only unit is ours, and whose shard is locked by
//!    us, cannot get another one: that is the moment to remove it. Nobody removes it otherwise, so two entries for one key
//!    cannot exist.
//! 2. *The last unit is given up under the shard lock only.* `leave` refuses the last unit, and `retire` looks again
//!    under the lock. So the count never reaches zero while the table still points at the entry.
//! 3. *While `QUEUED` is set, holds change under the room lock only.* The moves without a lock are compare-exchanges
//!    that refuse a word with `QUEUED`. So whoever sets the flag, or adds itself behind it, is seen by the next release: no
//!    wake-up is lost, and no fence is needed.
//! 4. *A waiter is a unit*: a claim, or a hold that waits for its upgrade. So a release that meets `QUEUED` is never the last unit, and the slot outlives the hand-over.
//! 5. *A grant is a hold.* When the queue lets a waiter in, the waiter's claim becomes a hold in the same exchange that
//!    gives the releaser's up. A granted waiter that gives up releases, like any holder.
//!
//! # Locks
//! The shard lock and the room lock are internal locks ([`sync`](crate::sync)). Where both are held (a [`Status`]) the
//! shard lock is taken first. Under them runs no user code but `Equivalent`, and the `to_owned` of a key type that owns
//! nothing. Wakers and keys that must be woken or dropped are carried out ([`Bin`]). An overflow is carried out as
//! a value, too: the panic hook is user code.
//!
//! # Memory ordering
//! A critical section is ordered after the previous one on the same entry by the exchanges on its word: to leave is a
//! release, to enter is an acquire, and a hand-over goes through the room lock besides. Between the last leave of one entry
//! and the making of the next for the same key stands the shard lock. A retirement loads the word with acquire, so that all
//! uses of the key come before its drop. A new entry is written by plain stores: no other thread has its address before the
//! shard lock is released. The queue's index in the slot is only used under the room lock.
//!
//! # What was weighed
//! - *Chunks of up to 16 slots* rather than a slot per allocation, which came first: the table can then keep the number of a slot,
//!   of 32 bits, in place of a pointer, and the slots of one burst lie side by side. With a million keys held that took a
//!   quarter off the time to acquire one, and 16 % off the memory. The price is that one survivor of a burst, or the key that gets
//!   its slot next, keeps the slots beside it, and some instructions where the last slot of a chunk is taken or the first given back.
//! - *One entry inside the shard* (`Shard::first`) before the hash table: the table comes into play only when two keys of
//!   one shard are live. That spares the cycle of lock and unlock hashbrown's search, insertion and removal.
//! - *A claim that becomes a hold*, rather than a hold beside a claim: a waiter that gets in, an upgrade and a downgrade are one
//!   exchange each, and a release knows from one word whether it is the last.
//! - *Our own queue* rather than an event per entry: order, modes and the count of who passed whom are kept in one place, the
//!   users' wakers enter no foreign list, and a wait allocates nothing in steady state, up to 64
//!   waiters in a room.
//! - *Rooms apart from shards*: to wait for a hot key holds up nobody who looks for another.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::task::Waker;

use crossbeam_utils::CachePadded;

use crate::sync::Lock;
use crate::{Fairness, Status};

mod pool;
mod queue;
mod slab;
mod slot;
mod table;
mod word;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub(crate) use self::queue::{Bin, Rules, Ticket, Waiting};
pub(crate) use self::slot::Claim;
pub(crate) use self::table::Tag;
pub(crate) use self::word::{Holds, MAX_UNITS, Mode, Want};

use self::queue::{Place, Room, Turn};
use self::slot::{Chunk, Live, Resident, Spare};
use self::table::Shard;
use self::word::{Refusal, Unit, Word};

/// What a table is made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// A power of two.
    pub(crate) shards: usize,
    pub(crate) capacity: usize,
    /// How many free entries are kept in all, if that was said.
    pub(crate) spares: Option<usize>,
    pub(crate) recycle_keys: bool,
    pub(crate) rules: Rules,
}

/// The lock table, without the hasher. `pub` because sealed traits name it; nobody outside can.
#[allow(unreachable_pub)]
pub struct Core<K> {
    shards: Box<[CachePadded<Lock<Shard<K>>>]>,
    rooms: Box<[CachePadded<Lock<Room>>]>,
    shift: u32,
    room_mask: u32,
    recycle_keys: bool,
    rules: Rules,
}

// A panic in user code leaves the table in order: no invariant is broken while user code runs.
impl<K> core::panic::UnwindSafe for Core<K> {}
impl<K> core::panic::RefUnwindSafe for Core<K> {}
impl<K> core::panic::UnwindSafe for Claim<K> {}
impl<K> core::panic::RefUnwindSafe for Claim<K> {}

/// How a request for an entry is made.
#[derive(Clone, Copy)]
pub(crate) enum Ask {
    /// A claim.
    Claim,
    /// A hold if that is possible at once, else a claim.
    #[cfg_attr(not(feature = "std"), allow(dead_code))] // for those who block
    Enter(Mode),
    /// A hold if that is possible at once; a claim only if the queue has to decide.
    Try(Mode),
}

/// What came of it.
pub(crate) enum Entry<K> {
    Held(Claim<K>),
    Claimed(Claim<K>),
    Refused,
    Full,
}

/// Where an entry can be joined from: the table, or a claim that somebody has.
trait Anchor<K> {
    fn join(&self, step: impl FnMut(Word) -> Result<Word, Refusal>) -> Result<Claim<K>, Refusal>;
}

impl<K> Anchor<K> for Live<'_, K> {
    #[inline]
    fn join(&self, step: impl FnMut(Word) -> Result<Word, Refusal>) -> Result<Claim<K>, Refusal> {
        Live::join(*self, step)
    }
}

impl<K> Anchor<K> for Claim<K> {
    #[inline]
    fn join(&self, step: impl FnMut(Word) -> Result<Word, Refusal>) -> Result<Claim<K>, Refusal> {
        self.join(step)
    }
}

impl Ask {
    /// Asks for an entry that exists.
    #[inline]
    fn of<K>(self, entry: &impl Anchor<K>, permits: usize) -> Entry<K> {
        let refused = match self {
            Ask::Claim => Refusal::Queued,
            Ask::Enter(mode) | Ask::Try(mode) => match entry.join(|word| word.hold(mode, permits)) {
                Ok(hold) => return Entry::Held(hold),
                Err(refusal) => refusal,
            },
        };
        match (self, refused) {
            (Ask::Try(_), Refusal::Held) => Entry::Refused,
            _ => entry.join(Word::claim).map_or(Entry::Full, Entry::Claimed),
        }
    }

    /// The unit that a new entry is made with.
    #[inline]
    fn unit(self) -> Unit {
        match self {
            Ask::Claim => Unit::Claim,
            Ask::Enter(mode) | Ask::Try(mode) => Unit::Hold(mode),
        }
    }

    /// Makes an entry. The caller has seen, under the same lock, that the key has none.
    #[inline]
    fn make<K>(
        self,
        shard: &mut Shard<K>,
        tag: Tag,
        publish: impl FnOnce(Unit) -> (Resident<K>, Claim<K>),
    ) -> Entry<K> {
        let (resident, claim) = publish(self.unit());
        shard.insert(tag, resident);
        match self {
            Ask::Claim => Entry::Claimed(claim),
            Ask::Enter(_) | Ask::Try(_) => Entry::Held(claim),
        }
    }
}

/// What came of a step under the room lock.
enum Step {
    Entered,
    Waiting,
    /// Unlock, clone the waker, try again.
    NeedsWaker,
    /// Unlock, make room for so many wakers, try again.
    NeedsRoom(usize),
}

impl<K> Core<K> {
    pub(crate) fn new(config: Config) -> Self {
        let Config { shards, capacity, spares, recycle_keys, rules } = config;
        let shift = u32::BITS - shards.trailing_zeros();
        let rooms = shards.min(MAX_ROOMS);
        let each = share_of_capacity(capacity, shards);
        let shard = |index| {
            let spares = match spares {
                Some(all) => all / shards + usize::from(index < all % shards),
                None => each.max(SPARES_PER_SHARD),
            };
            CachePadded::new(Lock::new(Shard::new(each, spares)))
        };
        Core {
            shards: (0..shards).map(shard).collect(),
            rooms: (0..rooms).map(|_| CachePadded::new(Lock::new(Room::default()))).collect(),
            shift,
            room_mask: rooms as u32 - 1,
            recycle_keys,
            rules,
        }
    }

    pub(crate) fn permits(&self) -> usize {
        self.rules.permits
    }

    #[inline]
    fn shard(&self, tag: Tag) -> &Lock<Shard<K>> {
        &self.shards[tag.shard(self.shift)]
    }

    fn room(&self, claim: &Claim<K>) -> &Lock<Room> {
        &self.rooms[Tag::of_claim(claim).room(self.room_mask)]
    }

    // ---- finding and making entries -------------------------------------------------------------------------------

    /// Asks for the entry of a key, and makes it if there is none.
    #[inline]
    pub(crate) fn ask<Q>(&self, tag: Tag, key: &Q, ask: Ask) -> Entry<K>
    where
        Q: ?Sized + equivalent::Equivalent<K> + alloc::borrow::ToOwned<Owned = K>,
    {
        let entry = self.shard(tag).with(|shard| {
            if let Some(live) = shard.find(tag, |other| key.equivalent(other)) {
                return Ok(ask.of(&live, self.rules.permits));
            }
            // A key that owns nothing is copied under the lock: that saves the second look.
            if !core::mem::needs_drop::<K>() && shard.has_spare() {
                let key = key.to_owned();
                if let Some(spare) = shard.take_spare() {
                    return Ok(ask.make(shard, tag, |unit| spare.publish(key, tag.bits(), unit)));
                }
            }
            Err(shard.take_spare())
        });
        match entry {
            Ok(entry) => entry,
            Err(spare) => self.make(tag, key, ask, spare),
        }
    }

    /// Makes an entry whose key, or whose slot, needs an allocation: that is done between two looks at the shard.
    #[inline(never)]
    fn make<Q>(&self, tag: Tag, key: &Q, ask: Ask, spare: Option<Spare<K>>) -> Entry<K>
    where
        Q: ?Sized + equivalent::Equivalent<K> + alloc::borrow::ToOwned<Owned = K>,
    {
        let mut lent = Lent { core: self, tag, spare: Some(spare.unwrap_or_else(|| self.more(tag))) };
        let Some(spare) = &mut lent.spare else { unreachable!("it has just been put in") };
        match spare.key_mut() {
            Some(old) => key.clone_into(old),
            None => drop(spare.put_key(key.to_owned())),
        }
        let made = self.shard(tag).with(|shard| {
            if shard.find(tag, |other| key.equivalent(other)).is_some() {
                return None;
            }
            let spare = lent.spare.take()?;
            Some(ask.make(shard, tag, |unit| spare.publish_kept(tag.bits(), unit)))
        });
        if let Some(entry) = made {
            core::mem::forget(lent); // which is empty, as the compiler does not see
            return entry;
        }
        // Somebody else was quicker. The key that was made in vain is dropped, which may panic, while nothing is in our hands
        // that would be lost. Then all begins again, one level deeper each time that somebody makes and retires the entry between
        // our looks: a loop, if the fast path did not pay for it with its registers.
        drop(lent);
        self.ask(tag, key, ask)
    }

    /// Gives a shard more slots, one of them for the caller.
    #[cold]
    fn more(&self, tag: Tag) -> Spare<K> {
        let chunk = Chunk::alloc(self.shard(tag).with(|shard| shard.wanted()));
        let (spare, _) = self.shard(tag).with(|shard| shard.supply(chunk));
        spare.expect("keylatch: a shard can count no more keys: more shards can")
    }

    /// Keeps a slot for reuse.
    #[inline]
    fn put_away(&self, shard: &mut Shard<K>, mut spare: Spare<K>, dead: &mut Dead<K>) {
        if core::mem::needs_drop::<K>() && !(self.recycle_keys && shard.keeps_keys()) {
            dead.key = spare.take_key();
        }
        shard.keep(spare, &mut dead.chunk);
    }

    /// Asks for an entry from which the caller has a claim already, which it keeps.
    #[inline]
    pub(crate) fn ask_again(&self, claim: &Claim<K>, ask: Ask) -> Entry<K> {
        ask.of(claim, self.rules.permits)
    }

    // ---- giving up ------------------------------------------------------------------------------------------------

    /// A holder leaves.
    #[inline]
    pub(crate) fn release(&self, hold: Claim<K>, mode: Mode) {
        let sole = Word::born(Unit::Hold(mode));
        let hold = if hold.word() == sole { self.retire(hold, sole) } else { Err(hold) };
        if let Err(hold) = hold {
            self.release_shared(hold, mode, false);
        }
    }

    /// A holder leaves, and whoever the policy lets in next gets in before any newcomer.
    pub(crate) fn release_fair(&self, hold: Claim<K>, mode: Mode) {
        self.release_shared(hold, mode, true);
    }

    /// A holder leaves, and others may have units of the entry.
    #[inline(never)]
    fn release_shared(&self, mut hold: Claim<K>, mode: Mode, fair: bool) {
        let unit = Unit::Hold(mode);
        loop {
            let left = hold.leave(|word| match word {
                word if word.is_only(unit) => Err(true),
                word if word.is_queued() => Err(false),
                word => Ok(word.leave(unit)),
            });
            let stayed = match left {
                Ok(()) => Ok(()),
                Err((hold, true)) => self.retire(hold, Word::born(unit)),
                Err((hold, false)) => self.hand_over(hold, mode, fair),
            };
            match stayed {
                Ok(()) => return,
                Err(again) => hold = again,
            }
        }
    }

    /// A claim that is not a hold is given up.
    pub(crate) fn withdraw(&self, mut claim: Claim<K>) {
        loop {
            let left =
                claim.leave(|word| if word.is_only(Unit::Claim) { Err(()) } else { Ok(word.leave(Unit::Claim)) });
            let Err((last, ())) = left else { return };
            match self.retire(last, Word::born(Unit::Claim)) {
                Ok(()) => return,
                Err(again) => claim = again,
            }
        }
    }

    /// The last unit goes, and the entry with it: `Err` if there are others by now.
    #[inline]
    fn retire(&self, last: Claim<K>, sole: Word) -> Result<(), Claim<K>> {
        let tag = Tag::of_claim(&last);
        let mut dead = Dead { key: None, chunk: None };
        self.shard(tag).with(|shard| {
            let spare = shard.retire(last, sole)?;
            self.put_away(shard, spare, &mut dead);
            Ok(())
        })
    }

    /// A holder leaves others waiting: `Err` if nobody waits any more.
    fn hand_over(&self, hold: Claim<K>, mode: Mode, fair: bool) -> Result<(), Claim<K>> {
        let writer_left = mode == Mode::Exclusive;
        let turn = match (fair, writer_left) {
            (true, writer_left) => Turn::Fair { writer_left },
            (false, true) => Turn::WriterLeft,
            (false, false) => Turn::Any,
        };
        let mut bin = Bin::default();
        let mut hold = Some(hold);
        while let Some(held) = hold.take() {
            let step = self.room(&held).with(|room| {
                let word = held.word();
                if !word.is_queued() {
                    return Err((held, None));
                }
                let (queue, holds) = (held.queue(), word.holds().without(mode));
                let most = room.most_due(queue, holds, &self.rules);
                if !bin.fits(most) {
                    return Err((held, Some(most)));
                }
                let settled = room.settle(queue, holds, &self.rules, turn, &mut bin);
                held.leave(|word| Ok::<_, ()>(word.regrant(settled.holds, settled.granted, settled.queued)))
                    .map_err(|(held, ())| (held, None))
            });
            match step {
                Ok(()) => break,
                Err((held, None)) => return Err(held),
                Err((held, Some(most))) => {
                    bin.reserve(most);
                    hold = Some(held);
                }
            }
        }
        Ok(())
    }

    // ---- waiting --------------------------------------------------------------------------------------------------

    /// Tries to turn a claim into a hold, or to upgrade a hold, without waiting.
    pub(crate) fn try_settle(&self, claim: &Claim<K>, want: Want) -> bool {
        let permits = self.rules.permits;
        let settled = match claim.convert(|word| word.settle(want, permits)) {
            Err(Refusal::Queued) => self.room(claim).with(|room| {
                if claim.word().is_queued() {
                    self.pass(room, claim, want)
                } else {
                    claim.convert(|word| word.settle(want, permits)).map(drop)
                }
            }),
            settled => settled.map(drop),
        };
        settled.is_ok()
    }

    /// Whether the policy ever lets a newcomer pass those who wait, and whether what is wanted seems free now.
    #[cfg_attr(not(feature = "std"), allow(dead_code))] // for those who spin
    pub(crate) fn glance(&self, claim: &Claim<K>, want: Want) -> (bool, bool) {
        let lets_pass = self.rules.fairness != Fairness::Fifo;
        (lets_pass, claim.word().holds().grants(want, self.rules.permits))
    }

    /// Lets a newcomer in before those who wait, if holds and policy allow. An upgrade is no newcomer.
    fn pass(&self, room: &mut Room, claim: &Claim<K>, want: Want) -> Result<(), Refusal> {
        let holds = claim.word().holds();
        if !holds.grants(want, self.rules.permits) {
            return Err(Refusal::Held);
        }
        if !self.may_pass(room, claim, holds, want) {
            return Err(Refusal::Queued);
        }
        claim.convert(|word| Ok(word.regrant(holds.after(want), want.claims(), true))).map(drop)
    }

    fn may_pass(&self, room: &mut Room, claim: &Claim<K>, holds: Holds, want: Want) -> bool {
        match want {
            Want::Hold(mode) => room.pass(claim.queue(), holds, mode, &self.rules),
            Want::Upgrade => true,
        }
    }

    /// The one acquire machine: turns a claim into a hold, or upgrades a hold, or sees to it that `waker` is woken when that
    /// may be possible.
    ///
    /// The caller makes its guard before it drops the bin: that may run user code, and the user code may panic.
    #[inline(never)]
    pub(crate) fn poll(&self, claim: &Claim<K>, want: Want, ticket: &mut Ticket, waker: &Waker, bin: &mut Bin) -> bool {
        if !ticket.is_some() {
            if self.enter(claim, want) {
                return true;
            }
            bin.fresh = Some(waker.clone());
        }
        loop {
            let step = self.room(claim).with(|room| {
                if ticket.is_some() {
                    self.poll_in_queue(room, claim, want, ticket, waker, bin)
                } else {
                    self.enqueue(room, claim, want, ticket, bin)
                }
            });
            match step {
                Step::Entered => return true,
                Step::Waiting => return false,
                Step::NeedsWaker => bin.fresh = Some(waker.clone()),
                Step::NeedsRoom(most) => bin.reserve(most),
            }
        }
    }

    /// The first step of the machine, which most requests need alone: enters if nobody is in the way. A request that has a
    /// ticket goes by its place.
    #[inline]
    pub(crate) fn enter(&self, claim: &Claim<K>, want: Want) -> bool {
        claim.convert(|word| word.settle(want, self.rules.permits)).is_ok()
    }

    /// The first poll of a request that found the key held, or others waiting.
    fn enqueue(&self, room: &mut Room, claim: &Claim<K>, want: Want, ticket: &mut Ticket, bin: &mut Bin) -> Step {
        let entered = claim.convert(|word| match word.settle(want, self.rules.permits) {
            _ if word.is_queued() => Err(Refusal::Queued),
            Err(Refusal::Held) => Ok(word.enqueue()),
            settled => settled,
        });
        let queue = match entered {
            Ok(word) if word.is_queued() => {
                let queue = room.open_queue();
                claim.set_queue(queue);
                queue
            }
            Ok(_) => return Step::Entered,
            Err(_) => match self.pass(room, claim, want) {
                Ok(()) => return Step::Entered,
                Err(_) => claim.queue(),
            },
        };
        let Some(waker) = bin.fresh.take() else { unreachable!("the waker was cloned before the lock was taken") };
        *ticket = room.push(queue, want, waker);
        Step::Waiting
    }

    /// A later poll.
    fn poll_in_queue(
        &self,
        room: &mut Room,
        claim: &Claim<K>,
        want: Want,
        ticket: &mut Ticket,
        waker: &Waker,
        bin: &mut Bin,
    ) -> Step {
        let queue = claim.queue();
        let place = room.place(*ticket);
        if place == Place::Granted {
            bin.old = room.remove(queue, core::mem::replace(ticket, Ticket::NONE));
            return Step::Entered;
        }
        let holds = claim.word().holds();
        if holds.grants(want, self.rules.permits) {
            let most = room.most_due(queue, holds.after(want), &self.rules);
            if !bin.fits(most) {
                return Step::NeedsRoom(most);
            }
            // The head takes what is free. A waiter behind it is a newcomer to it.
            if place == Place::Head || self.may_pass(room, claim, holds, want) {
                bin.old = room.remove(queue, core::mem::replace(ticket, Ticket::NONE));
                self.settle(room, claim, holds.after(want), want.claims(), bin);
                return Step::Entered;
            }
        }
        if room.will_wake(*ticket, waker) {
            return Step::Waiting;
        }
        match bin.fresh.take() {
            Some(waker) => {
                bin.old = room.renew(*ticket, waker);
                Step::Waiting
            }
            None => Step::NeedsWaker,
        }
    }

    /// Lets in whoever gets in now that a waiter has left the queue, `claims` of which it has turned into holds.
    fn settle(&self, room: &mut Room, claim: &Claim<K>, holds: Holds, claims: usize, bin: &mut Bin) {
        let settled = room.settle(claim.queue(), holds, &self.rules, Turn::Any, bin);
        let regranted = claim
            .convert(|word| Ok::<_, Refusal>(word.regrant(settled.holds, settled.granted + claims, settled.queued)));
        debug_assert!(regranted.is_ok());
    }

    /// The one way out of the acquire machine without what was wanted. A request gives up its claim, its place in the queue,
    /// and a hold that was already granted, which goes to the next.
    pub(crate) fn cancel(&self, claim: Claim<K>, mode: Mode, ticket: Ticket) {
        // Dropped last: wakers run when everything is in order.
        let mut bin = Bin::default();
        if self.leave_queue(&claim, ticket, &mut bin) {
            // What was reserved for this one is for the next one that waits, not for whoever comes first.
            self.release_fair(claim, mode);
        } else {
            self.withdraw(claim);
        }
    }

    /// Gives up a place in the queue. `true` if what was wanted had been granted already: then the caller has it.
    pub(crate) fn leave_queue(&self, claim: &Claim<K>, ticket: Ticket, bin: &mut Bin) -> bool {
        if !ticket.is_some() {
            return false;
        }
        loop {
            let left = self.room(claim).with(|room| {
                let queue = claim.queue();
                if room.place(ticket) == Place::Granted {
                    bin.old = room.remove(queue, ticket);
                    return Ok(true);
                }
                let most = room.most_due(queue, claim.word().holds(), &self.rules);
                if !bin.fits(most) {
                    return Err(most);
                }
                bin.old = room.remove(queue, ticket);
                self.settle(room, claim, claim.word().holds(), 0, bin);
                Ok(false)
            });
            match left {
                Ok(granted) => return granted,
                Err(most) => bin.reserve(most),
            }
        }
    }

    /// Turns a hold into a weaker one, at once: nobody gets in between who could not stand beside both.
    pub(crate) fn weaken(&self, hold: &Claim<K>, from: Mode, to: Mode, bin: &mut Bin) {
        let turn = if from == Mode::Exclusive { Turn::WriterLeft } else { Turn::Any };
        while hold.convert(|word| word.weaken(from, to)).is_err() {
            let step = self.room(hold).with(|room| {
                let word = hold.word();
                if !word.is_queued() {
                    return Step::Waiting;
                }
                let (queue, holds) = (hold.queue(), word.holds().without(from).with(to));
                let most = room.most_due(queue, holds, &self.rules);
                if !bin.fits(most) {
                    return Step::NeedsRoom(most);
                }
                let settled = room.settle(queue, holds, &self.rules, turn, bin);
                let regranted =
                    hold.convert(|word| Ok::<_, Refusal>(word.regrant(settled.holds, settled.granted, settled.queued)));
                debug_assert!(regranted.is_ok());
                Step::Entered
            });
            match step {
                Step::Entered => return,
                Step::NeedsRoom(most) => bin.reserve(most),
                Step::Waiting | Step::NeedsWaker => {}
            }
        }
    }

    // ---- looking --------------------------------------------------------------------------------------------------

    /// The number of live entries, added up shard by shard.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.with(|shard| shard.len())).sum()
    }

    pub(crate) fn status(&self, tag: Tag, eq: impl FnMut(&K) -> bool) -> Option<Status> {
        self.shard(tag).with(|shard| shard.find(tag, eq).map(|live| self.status_of(live)))
    }

    /// Under the shard lock. While somebody waits, the room lock makes word and queue one snapshot.
    fn status_of(&self, live: Live<'_, K>) -> Status {
        let word = live.word();
        if !word.is_queued() {
            return Status::new(word.holds(), Waiting::default(), &self.rules);
        }
        self.rooms[Tag::of_live(live).room(self.room_mask)].with(|room| {
            let word = live.word();
            let waiting = if word.is_queued() { room.waiting(live.queue()) } else { Waiting::default() };
            Status::new(word.holds(), waiting, &self.rules)
        })
    }

    /// Visits the live entries, shard by shard, outside the locks: each is claimed while it is visited.
    ///
    /// # Panics
    /// If an entry cannot count one more claim.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&K, Status)) {
        let mut visits = Vec::new();
        for shard in &self.shards {
            let mut most = shard.with(|shard| shard.len());
            loop {
                visits.reserve(most);
                let claimed = shard.with(|shard| {
                    most = shard.len();
                    if most > visits.capacity() {
                        return Ok(false);
                    }
                    for live in shard.iter() {
                        let claim = live.join(Word::claim)?;
                        visits.push((Visit { core: self, claim: Some(claim) }, self.status_of(live)));
                    }
                    Ok::<_, Refusal>(true)
                });
                match claimed {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(_) => full(),
                }
            }
            for (visit_of, status) in visits.drain(..) {
                if let Some(claim) = &visit_of.claim {
                    visit(claim.key(), status);
                }
            }
        }
    }
}

/// What the end of an entry leaves to be dropped outside the shard lock: its key, and a chunk if there are slots enough. It is
/// handed out by reference, because it is mostly empty, and large.
struct Dead<K> {
    key: Option<K>,
    chunk: Option<Chunk<K>>,
}

impl<K> Drop for Dead<K> {
    #[inline]
    fn drop(&mut self) {
        // A key alone goes with its field, unless the thread is panicking: then a panic of its own would abort.
        if core::mem::needs_drop::<K>() && (self.chunk.is_some() || crate::sync::panicking()) {
            self.drop_keys();
        }
    }
}

impl<K> Dead<K> {
    /// All of the keys, even if the drop of one panics.
    #[cold]
    #[inline(never)]
    fn drop_keys(&mut self) {
        let Dead { key, chunk } = self;
        let keys = core::iter::from_fn(|| key.take().or_else(|| chunk.as_mut()?.take_key()));
        crate::sync::run_all(keys.map(|key| move || drop(key)));
    }
}

/// A free slot outside the shard lock. It goes back if it is not used, whatever panics.
struct Lent<'a, K> {
    core: &'a Core<K>,
    tag: Tag,
    spare: Option<Spare<K>>,
}

impl<K> Drop for Lent<'_, K> {
    fn drop(&mut self) {
        if let Some(spare) = self.spare.take() {
            let mut dead = Dead { key: None, chunk: None };
            self.core.shard(self.tag).with(|shard| self.core.put_away(shard, spare, &mut dead));
        }
    }
}

/// A claim for as long as an entry is visited.
struct Visit<'a, K> {
    core: &'a Core<K>,
    claim: Option<Claim<K>>,
}

impl<K> Drop for Visit<'_, K> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.core.withdraw(claim);
        }
    }
}

/// Rooms are few: waiting is rare, and one room serves all the waiters of a hot key anyway.
const MAX_ROOMS: usize = 16;

/// How many free entries a shard keeps, if nothing else was said.
const SPARES_PER_SHARD: usize = 64;

/// How many entries each of `shards` shards must be ready for, that `capacity` keys at once find room.
///
/// Keys fall into shards at random, so a shard may get more than its share: six standard deviations of a Poisson
/// distribution more, with six on top for small means, make that a matter of one in many millions. With one shard, or a few
/// keys, the room is exact.
fn share_of_capacity(capacity: usize, shards: usize) -> usize {
    if shards == 1 {
        return capacity;
    }
    let mean = capacity.div_ceil(shards);
    capacity.min(mean + 6 * mean.isqrt() + 6)
}

/// Outside every lock: the panic hook is user code.
#[cold]
#[inline(never)]
pub(crate) fn full() -> ! {
    panic!("keylatch: too many holders or waiters for one key: at most {MAX_UNITS} can be counted")
}
