//! The core: the entry of a key, its life, and how a request waits for it. The core contains no futures
//! and no code that blocks a thread until a hold is free, and it reads no clock but that of a table.
//!
//! ```text
//! table   keys: finds, makes and retires entries          generic over key and payload
//!   lookup · retire · visit · walk · observer · shard · pool · stay · slot · tag · payload · value · values (pop)
//!   sieve · history · sweep · expiry · room · deadlines · refresh · ages · weigh · weights · by_slot · hooks
//!   on_evict · counters · uses · resting · gather · shrink · limits · limit_of · lowest · number
//! wait    no keys: the state of an entry, and its queue   compiled once
//!   mod (the acquire machine) · state · word · policy · limits · turn · queue · paged · wakers · place · shards
//! latch   no keys and no entries: a word, whose waiters stand in queues that all latches share
//! slab    values at stable indices                        used by all
//! ```
//!
//! Read the files bottom up: [`word`](wait::word), the moves as pure functions; [`state`](wait::state), the same moves
//! as compare-exchanges; [`policy`](wait::policy), which decides what a waiter is entitled to; `turn`, the order of the
//! waiters; [`queue`](wait::queue), which decides which waiter gets in; [`wait`], the machine that puts these together.
//! Then [`slot`](table::slot), the memory of entries and the tokens of units, the only module with unsafe code;
//! [`shard`](table::shard), and the rest of [`table`]. The reasons for the design, and the alternatives that were
//! tried, are in `docs/design.md`.
//!
//! # Glossary
//! | word | meaning |
//! |---|---|
//! | entry | a slot that serves a key, from the key's first user to its last |
//! | word | the packed integer that counts an entry's users; like the rest of the entry's state, it contains no key |
//! | unit | one thing that a word counts: a claim or a hold. A hold of several permits counts as that many units |
//! | claim | a unit that only keeps the entry alive: of a handle, a future, a waiter, a visit, a stored value, a key's own limit of permits |
//! | hold | a unit that keeps others out: exclusive, shared, upgradable, or a number of permits |
//! | tag | the part of a key's hash that is stored |
//! | ticket | a waiter's position in its queue |
//! | turn | the number that orders the waiters of a queue: by arrival, and by priority |
//! | grant, open | to give a waiter its hold; to wake a waiter and leave the key free for the first request |
//! | bypass | to acquire past the queue |
//! | hand-off | to grant a freed hold to a waiter that takes it at once, at any position in the queue: a spinning thread, or a waiter that was woken four times without getting in |
//! | unshared | said of an entry whose only unit is its value's claim: the shard's lock gives exclusive use of it |
//! | sweep | to return an unused value to the order of eviction, and to dispose of values that have ended or exceed the bound |
//!
//! # The life of an entry
//! An entry is a slot that is in the table. Its [word](wait::word) counts *units*. The unit of each user is represented
//! by a token, a [`Hold`] or a [`Claim`]. The entry lives exactly as long as it has units.
//!
//! | move | made by | under | word |
//! |---|---|---|---|
//! | make | a call that finds no entry for its key | shard lock | dead → one unit, plain store |
//! | claim | a call that finds the entry; a handle | shard lock; none | claims + 1 |
//! | hold | a request that finds the entry free and without waiters; a handle | shard lock; none | + hold |
//! | enter | a claim that finds nothing in its way; an upgrade | none | claim → hold; upgradable → exclusive |
//! | enqueue | a claim, or an upgrade, that is kept out | queue lock | sets `QUEUED`, or finds it set |
//! | bypass | a newcomer that finds the key free and waiters in the queue, if the policy or its priority allows it; an upgrade | queue lock | as enter |
//! | admit | a waiter that enters or gives up; a holder that leaves waiters behind | queue lock | holds, including those granted; clears `QUEUED` after the last waiter, unless the key has its own limit |
//! | unlock | a holder of several entries, which leaves them all at once; if there are waiters, it is an admit | none; queue lock | hold → claim |
//! | downgrade | a writer or an upgradable reader; if there are waiters, it is an admit | none; queue lock | hold → weaker hold |
//! | leave | a user that is not the last and, if it was a holder, leaves no waiter behind | none | − unit |
//! | set a limit of permits | a call for a key | queue lock | sets `QUEUED`; claims + 1, unless the key had a limit |
//! | take the limit away | a call for a key | queue lock | clears `QUEUED` if nobody waits; claims − 1 |
//! | retire | the last user | shard lock | one unit → dead, plain store |
//!
//! The rules that make this safe:
//! 1. *New units come from a unit or from the table.* If an entry has one unit, which is ours, and we hold its shard's
//!    lock, then the entry cannot get another unit: that is the moment to remove it. An entry is removed at no other
//!    moment, so two entries for one key cannot exist.
//! 2. *The last unit is given up only under the shard lock.* `leave` refuses the last unit, and `retire` checks again
//!    under the lock. So the count never reaches zero while the table still points at the entry.
//! 3. *While `QUEUED` is set, holds change only under the queue lock.* The moves that change holds without that lock
//!    are compare-exchanges that refuse a word with `QUEUED`. (Claims are added and removed regardless.) So the next
//!    release sees every waiter that has set the flag or queued behind it: no wake-up is lost, and no fence is needed.
//! 4. *A waiter is a unit*: a claim, or a hold that waits for its upgrade. So a release that meets `QUEUED` never gives
//!    up the last unit, and the slot outlives the admission.
//! 5. *A grant is a hold.* When the queue grants a waiter its hold, one exchange turns the waiter's claim into the hold
//!    and gives up the releaser's hold. A granted waiter that gives up releases its hold, like any holder.
//!
//! # Values
//! A table's [`Payload`](table::Payload) is the contents of its entries besides the key: nothing, or a value. The wait
//! layer knows nothing of it.
//!
//! | move | made by | under | word |
//! |---|---|---|---|
//! | store the first value | an exclusive hold | shard lock | claims + 1: the value's own |
//! | take the value out | an exclusive hold | shard lock | claims − 1 |
//! | store, take out, look, at once | a call that finds the entry unshared | shard lock | none, or as make and retire |
//! | come to rest | one of many calls that find the entry unshared; the end of a visit | shard lock | as retire |
//! | store, take out, look, at rest | a call without a hold | shard lock | there is none |
//! | leave rest | a call that needs an entry; a visit of the shard | shard lock | as make; then as store the first value |
//! | pop | a call that finds no units besides the claims of the value | shard lock | as retire; the key goes to the caller |
//! | hold the next value to evict | a call that finds the value not in use | shard lock | + hold |
//! | evict | a sweep that finds no units besides the claims of the value | shard lock | as retire |
//! | end | a call that finds that the value's time has passed and that no holder sees it | shard lock | none |
//! | bury: take an ended value out | a call that finds no other units than the value's two claims | shard lock | as retire |
//! | bury while a user keeps the entry, or holds the key as a writer | as evict below; or as take out | shard lock; none | claims − 2 |
//! | evict while a user keeps the entry and does not use the value | a sweep of a table that hands out no keys | shard lock; none | + hold, claims − 1, − hold |
//!
//! 1. *The value of an entry has a claim of its own,* for which there is no token. So its entry outlives its users, and
//!    dies, like every entry, when its last unit is given up.
//! 2. *`&V` requires a hold, and `&mut V` an exclusive hold,* or, if the entry is unshared, its shard's lock: new units
//!    come only from the table, which is locked, or from a unit's token, and the value's claim has none (rule 1).
//! 3. *A version continues* from that of the entry's last value. In a new entry it continues from the shard's
//!    high-water mark, which every dying entry raises. So no key of the shard gets a version twice.
//! 4. *Values are evicted when users leave.* In a bounded table every user that leaves an entry sweeps, if it sees that
//!    there may be something to sweep: if the value has no other user, it returns to the order of eviction, and values
//!    are evicted while there are too many. A value whose turn comes while it is in use is *parked*, by an exchange on
//!    the word that changes nothing. A user that leaves later therefore sees that there is something to sweep, and a
//!    user that left earlier has been seen. An evicted value is dropped when no lock is held, or is handed with its key
//!    to the table's `OnEvict`. Because the key is handed over, a table with an `OnEvict` also parks a value whose entry
//!    another user keeps.
//!
//! # Values at rest
//! A value is *at rest* while it is stored, with its key, in a second hash table of its shard. It has no entry then,
//! and no slot: a look-up touches one place in memory, not three. Values rest only in tables that record nothing about
//! them (no bound, no deadlines, no weights, no counters), reserve no memory for entries, and recycle no keys that own
//! something. And they rest only if they own nothing, and are small together with their keys.
//!
//! | state | becomes |
//! |---|---|
//! | nothing | at rest, if a call without a hold stores the value; in an entry, if a holder does |
//! | at rest | in an entry, when a guard, a handle or a future needs one, or a visit of the shard begins; nothing, when a call removes it |
//! | in an entry | at rest, when it is moved by one in 32 of the shard's calls that use a value without a hold; or at the end of the visit that gave it an entry |
//!
//! 1. *A key has an entry or a value at rest,* never both. The shard's lock guards both hash tables, and a value moves
//!    under that lock, from one to the other.
//! 2. *Only the value of an unshared entry comes to rest.* So nobody has a reference to it, and its address may change.
//!    Only one call in many moves a value, so a key that guards use again and again rarely moves, and no call has to
//!    note anything in the slot. A call that moves a value also moves up to two that nobody uses, if most slots of the
//!    shard are free: such values would keep chunks that are mostly free.
//! 3. *The version moves with the value.* A value at rest that is removed raises the high-water mark, as a dying entry
//!    does. Only versions below 2^32 fit here: a value with a later one stays in its entry. So after 2^32 removals in a
//!    shard, or as many changes of one key's value, no new value rests there.
//! 4. *A visit of a shard sees entries only.* When it begins, all values at rest get entries, and none comes to rest
//!    while it lasts. So each value keeps its slot during the visit.
//! 5. *The value of a shard's `first` entry does not come to rest,* and a value is stored at rest only in a shard that
//!    has such an entry: a key that is alone in its shard is found without a hash table.
//!
//! # Values that end
//! In a table with a [`Time`](table::Hooks) each value has a deadline, which is in the shard, not in the entry. Other
//! tables do not pay for this. A value that ends has a second claim, so no call finds its entry unshared, and its users
//! take the slow paths, which check whether the table has deadlines. A call that looks, stores or removes without a
//! hold takes its slow path because the index of the shard fails the bounds check: a table with deadlines keeps its
//! shards in another list.
//!
//! | state of the value | seen by | becomes |
//! |---|---|---|
//! | alive: its deadline is in the future | every call | over, when time passes |
//! | pinned: a holder saw it alive and still holds the key | every call | alive or over, when the last such holder leaves |
//! | over: the deadline has passed, and nobody pins it | no call: each call compares the deadline with the time, under the shard lock | ended, by the first call that finds it |
//! | ended: still in the slot | nobody: the marks say that there is no value | buried, or displaced by a writer's value |
//!
//! 1. *The clock is read before the shard lock.* A shard keeps the latest time that it was told, so time never goes
//!    back within a shard.
//! 2. *A holder settles* when it has its hold: under the shard lock it ends a value that is over, or pins one that is
//!    not. The holder removes its pin before it gives up its hold, and ends the value if the value is over by then. So
//!    a waiter that gets the key next finds no value. A holder that is the entry's only user removes the pin, gives up
//!    the hold and begins to sweep in a single visit to the shard. It reads the clock only if it may have changed the
//!    value: the next call that needs the time reads the clock anyway.
//! 3. *A writer sets the deadline* before it gives up its exclusive hold, if the version has changed since the deadline
//!    was set. Until then the value does not end.
//! 4. *An ended value is buried by the last user of its entry,* because each user that leaves sweeps. A writer that
//!    stores a new value in place of an ended one puts the latter, with a copy of the key, into the shard's list of
//!    parted values. The next call that sweeps the shard hands these over, with no lock held. A sweep that is nested
//!    too deep to dispose of values itself puts the value of its entry on that list, too. If its task is instead to
//!    dispose of all values that have ended, it leaves them where they are, and marks the shard. In both cases another
//!    sweep takes over: it ends only when it finds nothing more to do.
//! 5. *One caller at a time refreshes a value.* A table that records ages has a clock, and so deadlines, even if its
//!    values do not end. The refresher marks the value's version in its shard, releases its hold, keeps the entry with
//!    a claim, and makes the next value with no lock held. Then it acquires the key, and stores the next value if the
//!    entry's value still has that version. A mark belongs to one version, so it disappears with the value, and a
//!    refresher whose value is gone does not remove the mark of a later one.
//!
//! # Weights
//! In a table with a [`Weigher`] the bound is on the sum of the values' weights. A value's weight is recorded in the
//! shard, not in the entry. Other tables do not pay for this: a weighed value has a second claim, like a value that
//! ends, and its users take the same slow paths.
//!
//! | rank of the value | counted in | becomes |
//! |---|---|---|
//! | unknown: stored, and its writer still holds the key | no sum | one of the others, when its writer leaves |
//! | weightless | their number | another one, when a writer has changed it and leaves |
//! | ordinary | the sum that is compared with the bound | as above; or gone, when it is evicted |
//! | excessive: alone heavier than the bound | a sum of its own | gone, when its last user leaves |
//!
//! 1. *A writer weighs* when it sets the deadline: before it gives up its exclusive hold, if the version has changed
//!    since the value was weighed. The function is called with no internal lock held.
//! 2. *The weight that was added is subtracted again.* The recorded weight counts, whatever the function would return
//!    now.
//! 3. *Weightless and excessive values are not in the order of eviction.* So no eviction has to pass over them. An
//!    excessive value is parked for good: its shard is swept by each user that leaves, and the value's last user evicts
//!    it.
//!
//! # Locks
//! The shard lock and the queue lock are internal locks ([`sync`](crate::sync)). A call that takes both, such as a
//! snapshot, takes the shard lock first. (The locks of the counters, and of the bound on weights, are taken last.) The
//! only user code that runs under them is `Equivalent`, the `clone` of a value and the `to_key` of a key that own
//! nothing and, with `recycle_keys(true)`, `to_key_into`; if one of these panics, the shard is left in order. Wakers to
//! call and keys to drop are carried out of the locks ([`WakeBatch`], `Dead`). An observer is called after the locks
//! are released, by the call that moved the request. An overflow is carried out of the locks as a value, too: the panic
//! follows when they are released, because the panic hook is user code.
//!
//! # Memory ordering
//! The exchanges on an entry's word order each critical section after the previous one: leaving is a release, entering
//! is an acquire, and an admission also passes through the queue lock. The shard lock orders the retirement of one
//! entry before the creation of the next entry for the same key. A retirement loads the word with acquire, so that all
//! uses of the key come before its drop. A new entry is written by plain stores: no other thread has its address before
//! the shard lock is released. The queue's index in the state is used only under the queue lock.

mod latch;
pub(crate) mod slab;
mod table;
mod wait;

#[cfg_attr(any(not(feature = "std"), target_family = "wasm"), allow(unused_imports))] // for threads that spin
pub(crate) use self::wait::Contention;
pub(crate) use self::{
    latch::{Blocked, LatchWord, Users},
    table::{
        Ask, Busy, Claim, ClaimIn, Config, Core, CoreRef, Ending, EntryTypes, Hold, HoldIn, Key, LimitOf, Live,
        Observer, OnEvict, OwnedKey, Payload, Position, Refresh, Source, Tag, TypedAccess, Valued, VersionOf, Weigher,
    },
    wait::word::MAX_UNITS,
    wait::{Access, CountKind, Entered, Presence, ReleaseFor, Rules, Snapshot, Ticket, Waiter, WakeBatch, Want},
};
#[cfg(target_has_atomic = "ptr")]
pub(crate) use self::{
    table::{Identity, wait_mode},
    wait::{Holds, Place, PlaceState, Queued},
};
