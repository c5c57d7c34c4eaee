//! The state word of an entry, and every move on it, as pure functions.
//!
//! Nothing here is atomic: [`State`](super::state::State) wraps these moves in compare-exchange loops. So the rules can
//! be tested by enumeration, and the loops by loom.
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 | `DEAD` | the slot serves no key: it is free, or about to be |
//! | 1 | `QUEUED` | there is a queue: holds change only under the queue lock (in a dead slot: an old key is kept) |
//! | 2 | `WRITER` | an exclusive hold |
//! | 3 | `UPGRADABLE` | an upgradable hold |
//! | next `FIELD` bits | count | shared holds, or permits |
//! | next `FIELD` bits | claims | units that are not holds: of handles, futures, waiters, visits, values, own limits |
//!
//! `FIELD` is 14 on 32-bit targets and 30 on 64-bit ones. Each claim and each hold is one *unit*, except that a hold of
//! several permits is as many units. A unit keeps the entry alive, and is counted in exactly one field. An entry with
//! [`MAX_UNITS`] units accepts no more, except the claim of a value; permits do not count towards this limit, because
//! they have a limit of their own. The combinations that can occur:
//!
//! | dead | writer | upgradable | count | claims | state |
//! |---|---|---|---|---|---|
//! | 0 | 0 | 0 | 0 | > 0 | free: only claims, of handles, unpolled futures, values, or waiters on their way in, say |
//! | 0 | 1 | 0 | 0 | any | held exclusively |
//! | 0 | 0 | 0 | > 0 | any | held by readers, or permits are held |
//! | 0 | 0 | 1 | any | any | held by an upgradable reader, perhaps alongside readers |
//! | 1 | 0 | 0 | 0 | 0 | dead |
//!
//! `QUEUED` needs at least one unit: a waiter's claim, the hold that waits for an upgrade, or the claim of the key's
//! own limit of permits. A live word without a unit does not exist.

use core::fmt;

/// The access that a hold gives its holder, which determines the requests that it keeps out. `pub` because sealed
/// traits name it; other crates cannot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(unreachable_pub)]
pub enum Access {
    /// Keeps all others out: the access of a mutex's holder, or of a writer.
    Exclusive,
    /// Keeps writers out.
    Shared,
    /// Keeps writers and other upgradable readers out.
    Upgradable,
    /// This many permits of a semaphore: at least one.
    Permits(u32),
}

impl Access {
    /// Returns whether the word counts one hold with this access in the same way as two holds, `one` and `other`.
    pub(crate) fn is_sum(self, one: Access, other: Access) -> bool {
        match (one, other, self) {
            (Access::Permits(one), Access::Permits(other), Access::Permits(sum)) => {
                one > 0 && other > 0 && one.checked_add(other) == Some(sum)
            }
            _ => false,
        }
    }
}

/// The access that a request wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    /// A hold, in exchange for the requester's claim.
    Hold(Access),
    /// An exclusive hold, in exchange for the requester's upgradable one.
    Upgrade,
}

impl Want {
    /// Returns the number of claims that are given up for the wanted access.
    #[inline]
    pub(crate) const fn claims(self) -> usize {
        match self {
            Want::Hold(_) => 1,
            Want::Upgrade => 0,
        }
    }
}

/// The kind of holds that a word counts: those of readers, or permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CountKind {
    Readers,
    /// At most this many permits.
    Permits(usize),
}

/// The unit that the word counts for a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Claim,
    Hold(Access),
}

/// The reason why a move is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The present holds do not allow the move, or the limit of permits is 0.
    Held,
    /// `QUEUED` is set, so the queue decides. (For permits, only the queue knows the limit.)
    Queued,
    /// The entry has as many units as can be counted.
    Full,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(usize);

/// The width of each of the two counting fields.
const FIELD: u32 = (usize::BITS - FLAGS) / 2;
const FLAGS: u32 = 4;

const DEAD: usize = 1;
const QUEUED: usize = 1 << 1;
const WRITER: usize = 1 << 2;
const UPGRADABLE: usize = 1 << 3;
const COUNT_ONE: usize = 1 << FLAGS;
const CLAIM_ONE: usize = 1 << (FLAGS + FIELD);
const FIELD_MAX: usize = (1 << FIELD) - 1;
const COUNT: usize = FIELD_MAX << FLAGS;
const CLAIMS: usize = FIELD_MAX << (FLAGS + FIELD);
/// The upper half of each field: if none of these bits is set, the entry is far from full.
const CROWDED: usize = (COUNT | CLAIMS) & !((COUNT_ONE | CLAIM_ONE) * ((1 << (FIELD / 2)) - 1));
const HOLDS: usize = WRITER | UPGRADABLE | COUNT;

/// The number of units at which an entry accepts no more, except the claim of a value ([`Word::keep`]). The limit is on
/// the sum of all units, not on each field, so that a claim can always become a hold, and a hold can change its access:
/// no field overflows when the queue admits waiters. Permits have a limit of their own, which is not larger, so in a
/// semaphore this limit applies only to the claims.
pub(crate) const MAX_UNITS: usize = FIELD_MAX;

impl Unit {
    /// Returns the amount that the unit adds to the word.
    #[inline]
    const fn weight(self) -> usize {
        match self {
            Unit::Claim => CLAIM_ONE,
            Unit::Hold(Access::Exclusive) => WRITER,
            Unit::Hold(Access::Upgradable) => UPGRADABLE,
            Unit::Hold(Access::Shared) => COUNT_ONE,
            Unit::Hold(Access::Permits(amount)) => COUNT_ONE * amount as usize,
        }
    }
}

/// The holds that a word counts, taken out of it. The queue uses them to decide which waiters to admit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holds(usize);

impl Holds {
    /// No holds.
    pub(crate) const NONE: Holds = Holds(0);

    /// Returns whether a hold with this access is compatible with these holds. A semaphore has `limit` permits; a
    /// request for more than that is compatible with no other hold. If the limit is 0, no request fits.
    #[inline]
    pub(crate) const fn fits(self, access: Access, limit: usize) -> bool {
        match access {
            Access::Exclusive => self.0 == 0,
            Access::Shared => self.0 & WRITER == 0,
            Access::Upgradable => self.0 & (WRITER | UPGRADABLE) == 0,
            // A limit that was lowered must not keep a larger request out for ever: it gets in when it is alone.
            Access::Permits(amount) => self.count() + amount as usize <= limit || self.count() == 0 && limit > 0,
        }
    }

    /// Returns whether these holds allow a request.
    #[inline]
    pub(crate) const fn allow(self, want: Want, limit: usize) -> bool {
        match want {
            Want::Hold(access) => self.fits(access, limit),
            // Not only `count() == 0`: a latch may find an upgrade in a queue that another latch left behind.
            Want::Upgrade => self.0 == UPGRADABLE,
        }
    }

    /// Returns the holds after the request has been granted.
    #[inline]
    pub(crate) const fn after(self, want: Want) -> Holds {
        match want {
            Want::Hold(access) => self.with(access),
            Want::Upgrade => self.without(Access::Upgradable).with(Access::Exclusive),
        }
    }

    #[inline]
    pub(crate) const fn with(self, access: Access) -> Holds {
        Holds(self.0 + Unit::Hold(access).weight())
    }

    #[inline]
    pub(crate) const fn without(self, access: Access) -> Holds {
        Holds(self.0 - Unit::Hold(access).weight())
    }

    pub(crate) const fn count(self) -> usize {
        self.0 >> FLAGS
    }

    pub(crate) const fn writer(self) -> bool {
        self.0 & WRITER != 0
    }

    pub(crate) const fn upgradable(self) -> bool {
        self.0 & UPGRADABLE != 0
    }
}

impl Word {
    /// The word of a slot that serves no key and keeps none.
    pub(crate) const DEAD: Word = Word(DEAD);
    /// The word of a slot that serves no key, but still owns an initialised one.
    pub(crate) const DEAD_KEYED: Word = Word(DEAD | QUEUED);

    #[inline]
    pub(crate) const fn from_bits(bits: usize) -> Word {
        Word(bits)
    }

    #[inline]
    pub(crate) const fn bits(self) -> usize {
        self.0
    }

    /// Returns the word of an entry whose only claim or hold is `unit`.
    #[inline]
    pub(crate) const fn born(unit: Unit) -> Word {
        Word(unit.weight())
    }

    /// Returns whether `unit` is the only unit. If so, its owner must retire the entry instead of leaving it.
    #[inline]
    pub(crate) const fn is_only(self, unit: Unit) -> bool {
        self.0 == unit.weight()
    }

    #[inline]
    pub(crate) const fn is_queued(self) -> bool {
        self.0 & QUEUED != 0
    }

    #[inline]
    pub(crate) const fn holds(self) -> Holds {
        Holds(self.0 & HOLDS)
    }

    /// Returns the number of units, which keep the entry alive.
    #[inline]
    pub(crate) const fn units(self) -> usize {
        let holds = self.holds();
        holds.writer() as usize + holds.upgradable() as usize + holds.count() + self.claims()
    }

    pub(crate) const fn claims(self) -> usize {
        (self.0 & CLAIMS) >> (FLAGS + FIELD)
    }

    /// Adds a claim.
    #[inline]
    pub(crate) const fn claim(self, counted: CountKind) -> Result<Word, Refusal> {
        if self.is_full(counted) { Err(Refusal::Full) } else { Ok(Word(self.0 + CLAIM_ONE)) }
    }

    /// Adds a claim for a value that is stored under an exclusive hold, even beyond [`MAX_UNITS`]. No field overflows:
    /// alongside the hold there are fewer claims than a field can count, and the value's claim never becomes a hold.
    #[inline]
    pub(crate) const fn keep(self) -> Word {
        Word(self.0 + CLAIM_ONE)
    }

    /// Adds a hold for a request that has no unit yet. Refused if there are waiters.
    #[inline]
    pub(crate) const fn hold(self, access: Access, limit: usize) -> Result<Word, Refusal> {
        // Permits have a limit of their own, whatever the number of claims.
        let is_permits = matches!(access, Access::Permits(_));
        match self.enter(Want::Hold(access), 0, limit) {
            Ok(_) if !is_permits && self.is_full(CountKind::Readers) => Err(Refusal::Full),
            taken => taken,
        }
    }

    /// Returns whether there is no room for another unit. In a semaphore only claims count: permits take no room from
    /// them, because permits have a limit of their own.
    #[inline]
    const fn is_full(self, counted: CountKind) -> bool {
        self.0 & CROWDED != 0
            && match counted {
                CountKind::Readers => self.units(),
                CountKind::Permits(_) => self.claims(),
            } >= MAX_UNITS
    }

    /// Turns `claims` claims into a hold, or an upgradable hold into an exclusive one. Refused if there are waiters.
    #[inline]
    pub(crate) const fn enter(self, want: Want, claims: usize, limit: usize) -> Result<Word, Refusal> {
        let holds = self.holds();
        if !holds.allow(want, limit) {
            // If there is a queue, it has the key's limit of permits.
            let is_unknown = matches!(want, Want::Hold(Access::Permits(_))) && self.is_queued();
            return Err(if is_unknown { Refusal::Queued } else { Refusal::Held });
        }
        if self.is_queued() {
            return Err(Refusal::Queued);
        }
        Ok(self.admit(holds.after(want), claims, false))
    }

    /// Turns a hold into a weaker one. Refused if there are waiters, because the change may let them in.
    #[inline]
    pub(crate) const fn downgrade(self, from: Access, to: Access) -> Result<Word, Refusal> {
        if self.is_queued() {
            return Err(Refusal::Queued);
        }
        Ok(self.admit(self.holds().without(from).with(to), 0, false))
    }

    /// Turns a hold into a claim. Refused if there is no room for another claim, and if there are waiters, because the
    /// change may let them in.
    #[inline]
    pub(crate) const fn unlock(self, access: Access, counted: CountKind) -> Result<Word, Refusal> {
        if self.is_queued() {
            return Err(Refusal::Queued);
        }
        self.leave(Unit::Hold(access)).claim(counted)
    }

    /// Sets `QUEUED` for the first waiter; or enters, if that is possible after all.
    ///
    /// One compare-exchange of this move tests the holds and sets the flag, so no release slips in between.
    #[inline]
    pub(crate) const fn enqueue(self, want: Want, claims: usize, limit: usize) -> Result<Word, Refusal> {
        match self.enter(want, claims, limit) {
            Err(Refusal::Held) if !self.is_queued() => Ok(Word(self.0 | QUEUED)),
            // There is a queue already, even if it only keeps the key's own limit of permits: it decides.
            Err(_) => Err(Refusal::Queued),
            entered => entered,
        }
    }

    /// Removes a unit. The caller must have made sure that it is not the last.
    #[inline]
    pub(crate) const fn leave(self, unit: Unit) -> Word {
        Word(self.0 - unit.weight())
    }

    /// Sets the holds that the queue has decided on: `claims` claims have become holds, and `queued` tells whether the
    /// queue remains, because there are still waiters or because the key has its own limit of permits.
    #[inline]
    pub(crate) const fn admit(self, holds: Holds, claims: usize, queued: bool) -> Word {
        let queued = if queued { QUEUED } else { 0 };
        Word(((self.0 & CLAIMS) - claims * CLAIM_ONE) | holds.0 | queued)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Word")
            .field("dead", &(self.0 & DEAD != 0))
            .field("queued", &self.is_queued())
            .field("writer", &self.holds().writer())
            .field("upgradable", &self.holds().upgradable())
            .field("count", &self.holds().count())
            .field("claims", &self.claims())
            .finish()
    }
}
