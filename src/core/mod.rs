//! The core: what an entry is, how it lives, and how one waits for it. It knows nothing of futures, threads or clocks.
//!
//! ```text
//! table   keys: finds, makes and retires entries          generic over key and payload
//!   lookup · retire · visit · observer · shard · pool · slot · tag · payload · value · values · sieve
//! wait    no keys: the state of an entry, and its queue   compiled once
//!   mod (the acquire machine) · state · word · policy · queue · paged · wakers · place
//! latch   no keys, and no entries: a word, which is waited for in queues that all latches share
//! slab    values at indices that stay the same            used by all
//! ```
//!
//! The files can be read bottom up: [`word`](wait::word), the moves as pure functions; [`state`](wait::state), the same as
//! compare-exchanges; [`policy`](wait::policy), what a waiter is entitled to; [`queue`](wait::queue), who gets in; [`wait`], the machine that puts these together; then
//! [`slot`](table::slot), the memory of entries and the tokens for it, the only file with unsafe code;
//! [`shard`](table::shard), and the rest of [`table`]. Why it is as it is, and what else was tried, is in `docs/design.md`.
//!
//! # Glossary
//! | word | meaning |
//! |---|---|
//! | entry | a slot that serves a key: what a key has while anybody uses it |
//! | slot, chunk | the memory of one entry; up to 16 of them in one allocation |
//! | payload | what an entry may have beside its key: nothing, for locks; a value, for maps |
//! | marks | what is known of an entry's value by whoever looks at the entry: whether there is one, which version it has, whether it was used |
//! | unshared | an entry whose value's claim is its only unit: who has the shard lock has the entry alone |
//! | parked | a value that is not in the order of eviction, because it is in use, or was when its turn came |
//! | to sweep | to put a value that nobody uses any more in its order, and to evict what is too much |
//! | word, state | the packed integer that says who uses an entry; it, and what else of an entry has no key in it |
//! | unit | what a word counts: a claim or a hold; a hold of several permits is as many |
//! | claim | keeps an entry alive, and no more: a handle, a future, a waiter, a visit |
//! | hold | keeps others out, by its access: exclusive, shared, upgradable, or a number of permits |
//! | mode | a type that says a hold's access; what guards are generic over |
//! | tag | what is kept of a key's hash |
//! | shard, shard lock | a part of the table's entries and free slots, and its lock |
//! | queue, queue lock | those who wait for one entry, in order; the lock of some of the queues |
//! | ticket | where in its queue a waiter is found |
//! | grant, open | a waiter is given its hold; or is woken, and the key left free for whoever asks first |
//! | newcomer, bypass | who asks without having queued; getting in before those who wait |
//! | visit in vain | a waiter was woken, asked, and did not get in |
//! | due | a waiter that is handed what it wants as soon as that is free |
//! | hand-over | a release that leaves the key to those who wait |
//! | wake batch | wakers that a step took out of a queue, to be run when no lock is held |
//!
//! # The life of an entry
//! An entry is a slot that is in the table. Its [word](wait::word) counts *units*: holds and claims. Each unit is a token in
//! somebody's hands, a [`Hold`] or a [`Claim`]. The entry lives exactly as long as it has units.
//!
//! | move | who may make it | under | word |
//! |---|---|---|---|
//! | make | whoever finds no entry for its key | shard lock | dead → one unit, plain store |
//! | claim | whoever finds the entry; a handle | shard lock; none | claims + 1 |
//! | hold | whoever finds the entry free and nobody waiting; a handle | shard lock; none | + hold |
//! | enter | a claim that finds nobody in the way; an upgrade | none | claim → hold; upgradable → exclusive |
//! | enqueue | a claim, or an upgrade, that is kept out | queue lock | sets `QUEUED`, or finds it set |
//! | bypass | a newcomer that finds the key free and others waiting, if the policy lets it; an upgrade | queue lock | as enter |
//! | admit | a waiter that enters or gives up, a holder that leaves others waiting | queue lock | holds and grants; clears `QUEUED` behind the last |
//! | unlock | who holds several entries, and leaves them all at once; with others waiting it is an admit | none; queue lock | hold → claim |
//! | downgrade | a writer or an upgradable reader; with others waiting it is an admit | none; queue lock | hold → weaker hold |
//! | leave | who is not the last and, if it held, leaves nobody waiting | none | − unit |
//! | retire | the last | shard lock | one unit → dead, plain store |
//!
//! The rules that make this safe:
//! 1. *New units come from a unit or from the table.* So an entry whose only unit is ours, and whose shard is locked by
//!    us, cannot get another one: that is the moment to remove it. Nobody removes it otherwise, so two entries for one key
//!    cannot exist.
//! 2. *The last unit is given up under the shard lock only.* `leave` refuses the last unit, and `retire` looks again
//!    under the lock. So the count never reaches zero while the table still points at the entry.
//! 3. *While `QUEUED` is set, holds change under the queue lock only.* The moves that change holds without that lock are
//!    compare-exchanges that refuse a word with `QUEUED`. (Claims come and go past a queue.) So whoever sets the flag, or
//!    queues behind it, is seen by the next release: no wake-up is lost, and no fence is needed.
//! 4. *A waiter is a unit*: a claim, or a hold that waits for its upgrade. So a release that meets `QUEUED` is never the
//!    last unit, and the slot outlives the hand-over.
//! 5. *A grant is a hold.* When the queue lets a waiter in, the waiter's claim becomes a hold in the same exchange that
//!    gives the releaser's up. A granted waiter that gives up releases, like any holder.
//!
//! # Values
//! What an entry may have beside its key is its table's [`Payload`](table::Payload): nothing, or a value. The wait layer knows
//! nothing of it.
//!
//! | move | who may make it | under | word |
//! |---|---|---|---|
//! | store the first value | an exclusive hold | shard lock | claims + 1: the value's own |
//! | take the value out | an exclusive hold | shard lock | claims − 1 |
//! | store, take out, look, at once | whoever finds the entry unshared | shard lock | none, or as make and retire |
//! | evict | whoever sweeps, and finds the entry unshared | shard lock | as retire |
//! | evict from somebody who keeps the entry, and does not use it | whoever sweeps | shard lock; none | + hold, claims − 1, − hold |
//!
//! 1. *A value has a claim of its own,* which is in nobody's hands. So its entry outlives its users, and dies as all entries do
//!    when that claim is given up.
//! 2. *`&V` rests on a hold, and `&mut V` on an exclusive one,* or on the shard lock of an entry that is unshared: new units come from
//!    the table, or from a unit, and there is none (rule 1).
//! 3. *A version counts on* from that of the entry's last value, and in a new entry from the shard's high-water mark, which every
//!    entry raises that dies. So no key of the shard gets a version twice.
//! 4. *Values go when users leave.* Where values are bounded, whoever leaves an entry sweeps: the value is in its order again, if
//!    nobody else uses it, and others are evicted while there are too many. Where a value's turn comes while it is in use, it is
//!    parked, by an exchange on the word that changes nothing; so whoever leaves after that sees that there is something to sweep,
//!    and whoever left before has been seen. What is evicted is dropped when no lock is held.
//!
//! # Locks
//! The shard lock and the queue lock are internal locks ([`sync`](crate::sync)). Where both are held (a snapshot) the
//! shard lock is taken first. Under them runs no user code but `Equivalent`, the `to_key` of a key type that owns nothing,
//! and, with `recycle_keys(true)`, `to_key_into`. Wherever one of these panics the shard is in order. Wakers and keys that must be woken or dropped are carried out ([`WakeBatch`], `Dead`), and an observer is called by whoever moved a request,
//! when it has no lock any more. An overflow is carried
//! out as a value, too: the panic hook is user code.
//!
//! # Memory ordering
//! A critical section is ordered after the previous one on the same entry by the exchanges on its word: to leave is a
//! release, to enter is an acquire, and a hand-over goes through the queue lock besides. Between the last leave of one entry
//! and the making of the next for the same key stands the shard lock. A retirement loads the word with acquire, so that all
//! uses of the key come before its drop. A new entry is written by plain stores: no other thread has its address before the
//! shard lock is released. The queue's index in the state is only used under the queue lock.

mod latch;
pub(crate) mod slab;
mod table;
mod wait;

#[cfg_attr(any(not(feature = "std"), target_family = "wasm"), allow(unused_imports))] // for threads that spin
pub(crate) use self::wait::Contention;
pub(crate) use self::{
    latch::{Kept, LatchWord, Users},
    table::{
        Ask, Busy, Claim, Config, Core, Ending, Hold, Key, Live, Observer, OwnedKey, Payload, Source, Tag, TypedAccess,
        Valued,
    },
    wait::word::MAX_UNITS,
    wait::{Access, CountKind, Entered, Presence, ReleaseFor, Rules, Snapshot, Ticket, Waiter, WakeBatch, Want},
};
#[cfg(target_has_atomic = "ptr")]
pub(crate) use self::{
    table::Identity,
    wait::{Holds, Place, Queued, Stand},
};
