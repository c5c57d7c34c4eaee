//! Finding the entry of a key, and making it if there is none.

use core::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use super::Core;
use super::payload::Payload;
use super::retire::Dead;
use super::slot::{Chunk, Claim, Hold, Live, Spare, TypedAccess, UnitOf};
use super::tag::Tag;
use super::value::Valued;
use crate::core::wait::Access;
use crate::core::wait::word::{Holds, MAX_UNITS, Refusal, Unit};
use crate::key::ToKey;

/// The unit with which a caller joins an entry.
///
/// The access of the requested hold is passed separately, because two registers are cheaper than three words.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    /// A claim, whatever the access.
    Claim,
    /// A hold if the entry is new, else a claim, so that a call that locks several keys cannot hold one twice.
    Make,
    /// An exclusive hold if the entry is new; else the requested hold if that is possible without waiting, or a claim.
    MakeOrEnter,
    /// A hold if that is possible without waiting, else a claim.
    Enter,
    /// A hold if that is possible without waiting; a claim only if the queue has to decide.
    Try,
}

/// The holds of an entry that is held exclusively.
const EXCLUSIVE: Holds = Holds::NONE.with(Access::Exclusive);

/// The outcome of a join.
pub(crate) enum Joined<K, V: Payload> {
    Hold(UnitOf<K, V>),
    Claim(UnitOf<K, V>),
    Refused,
    /// The entry has [`MAX_UNITS`] units.
    Full,
}

impl<K, V: Payload> Joined<K, V> {
    /// Returns the hold or the claim.
    ///
    /// # Panics
    /// If there is neither.
    #[inline]
    pub(super) fn hold_or_claim<M: TypedAccess>(self, mode: M) -> Result<Hold<K, V, M>, Claim<K, V>> {
        match self {
            Joined::Hold(unit) => Ok(unit.into_hold(mode)),
            Joined::Claim(unit) => Err(unit.into_claim()),
            Joined::Refused | Joined::Full => full(),
        }
    }

    /// Returns the claim of a caller that has asked for nothing else.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    fn claim(self) -> Claim<K, V> {
        match self {
            Joined::Hold(unit) | Joined::Claim(unit) => unit.into_claim(),
            Joined::Refused | Joined::Full => full(),
        }
    }
}

impl Join {
    /// Joins an existing entry, whose shard the caller has locked.
    #[inline]
    fn locked<K, V: Payload>(self, access: Access, entry: Live<'_, K, V>, core: &Core<K, V>) -> Joined<K, V> {
        if let Some(unshared) = entry.unshared() {
            let joined = match self {
                Join::Claim | Join::Make => {
                    let counted = core.rules().counted;
                    unshared.join(|word| word.claim(counted)).map(Joined::Claim)
                }
                Join::MakeOrEnter | Join::Enter | Join::Try => {
                    let limit = core.default_limit_of(access);
                    unshared.join(|word| word.hold(access, limit)).map(Joined::Hold)
                }
            };
            if let Ok(joined) = joined {
                return joined;
            }
        }
        self.entry(access, entry, core)
    }

    /// Joins an existing entry. Callers pass a constant `self`, so that unused branches cost nothing.
    #[inline]
    fn entry<K, V: Payload>(self, access: Access, entry: Live<'_, K, V>, core: &Core<K, V>) -> Joined<K, V> {
        if self != Join::Claim && self != Join::Make {
            let limit = core.default_limit_of(access);
            match entry.join(|word| word.hold(access, limit)) {
                Ok(hold) => return Joined::Hold(hold),
                Err(Refusal::Held) if self == Join::Try => return Joined::Refused,
                Err(_) => {}
            }
        }
        core.join_as_claim(entry).map_or(Joined::Full, Joined::Claim)
    }

    /// Returns the unit that a new entry begins with. Only maps use [`Join::MakeOrEnter`], so other tables do not pay
    /// for it.
    #[inline]
    fn unit<V: Payload>(self, access: Access) -> Unit {
        match self {
            Join::Claim => Unit::Claim,
            Join::MakeOrEnter if V::VALUES => Unit::Hold(Access::Exclusive),
            _ => Unit::Hold(access),
        }
    }

    /// Returns the outcome for an entry that has just been made with this unit.
    #[inline]
    fn made<K, V: Payload>(self, unit: UnitOf<K, V>) -> Joined<K, V> {
        if self == Join::Claim { Joined::Claim(unit) } else { Joined::Hold(unit) }
    }
}

/// The source of an operation's entry.
pub(crate) trait Source<K, V: Payload> {
    fn join(&mut self, core: &Core<K, V>, join: Join, access: Access) -> Joined<K, V>;

    /// Returns the key for a new entry, if that is possible under the shard lock. The caller must use the key.
    fn give(&mut self) -> Option<K> {
        None
    }
}

/// A borrowed key and its tag. The entry is looked up, and made if it does not exist.
pub(crate) struct Key<'q, Q: ?Sized> {
    pub(super) tag: Tag,
    pub(super) key: &'q Q,
}

impl<'q, Q: ?Sized + Hash> Key<'q, Q> {
    #[inline]
    pub(crate) fn new(key: &'q Q, hasher: &impl BuildHasher) -> Self {
        Key { tag: Tag::of(hasher.hash_one(key)), key }
    }

    /// Makes the source for a key whose tag is known.
    #[inline]
    pub(crate) fn tagged(tag: Tag, key: &'q Q) -> Self {
        Key { tag, key }
    }

    #[inline]
    pub(crate) fn tag(&self) -> Tag {
        self.tag
    }

    /// Copies the key, so that the borrow ends.
    pub(crate) fn owned<K>(&self) -> OwnedKey<K>
    where
        Q: ToKey<K>,
    {
        OwnedKey::new(self.tag, self.key.to_key())
    }
}

impl<K, V: Payload, Q> Source<K, V> for Key<'_, Q>
where
    Q: ?Sized + Equivalent<K> + ToKey<K>,
{
    #[inline]
    fn join(&mut self, core: &Core<K, V>, join: Join, access: Access) -> Joined<K, V> {
        core.join(self.tag, self.key, join, access)
    }

    #[inline]
    fn give(&mut self) -> Option<K> {
        (!core::mem::needs_drop::<K>()).then(|| self.key.to_key())
    }
}

/// A key to look up: its tag, and an equality test.
pub(crate) trait Ask<K> {
    fn tag(&self) -> Tag;

    /// Returns whether `key` is this key. Called under the shard lock.
    fn is(&self, key: &K) -> bool;
}

impl<K, Q: ?Sized + Equivalent<K>> Ask<K> for Key<'_, Q> {
    #[inline]
    fn tag(&self) -> Tag {
        self.tag
    }

    #[inline]
    fn is(&self, key: &K) -> bool {
        self.key.equivalent(key)
    }
}

/// The version of a value that a call looks at.
pub(crate) enum VersionOf<'e, K, T> {
    Entry(Live<'e, K, Valued<T>>),
    AtRest(u64),
}

impl<K, T> VersionOf<'_, K, T> {
    #[inline]
    pub(crate) fn get(self) -> u64 {
        match self {
            VersionOf::Entry(entry) => entry.marks().version(),
            VersionOf::AtRest(version) => version,
        }
    }
}

/// An owned key, which moves into the entry if the entry is made.
pub(crate) struct OwnedKey<K> {
    tag: Tag,
    /// The key; `None` after it has moved into the entry.
    key: Option<K>,
}

impl<K> OwnedKey<K> {
    pub(crate) fn new(tag: Tag, key: K) -> Self {
        OwnedKey { tag, key: Some(key) }
    }
}

impl<K: Eq> Ask<K> for OwnedKey<K> {
    #[inline]
    fn tag(&self) -> Tag {
        self.tag
    }

    #[inline]
    fn is(&self, key: &K) -> bool {
        self.key.as_ref() == Some(key)
    }
}

impl<K: Eq, V: Payload> Source<K, V> for OwnedKey<K> {
    fn join(&mut self, core: &Core<K, V>, join: Join, access: Access) -> Joined<K, V> {
        core.join_owned(self, join, access)
    }

    #[inline]
    fn give(&mut self) -> Option<K> {
        self.key.take()
    }
}

/// An entry whose shard the caller has locked, or of which it has a unit. The caller keeps that unit.
impl<K, V: Payload> Source<K, V> for Live<'_, K, V> {
    #[inline]
    fn join(&mut self, core: &Core<K, V>, join: Join, access: Access) -> Joined<K, V> {
        join.entry(access, *self, core)
    }
}

impl<K, V: Payload> Core<K, V> {
    /// Adds a claim to an entry that has a unit.
    #[inline]
    pub(super) fn join_as_claim(&self, entry: Live<'_, K, V>) -> Result<UnitOf<K, V>, Refusal> {
        let counted = self.rules().counted;
        entry.join(|word| word.claim(counted))
    }

    /// Claims the entry.
    ///
    /// # Panics
    /// If the entry has [`MAX_UNITS`] units, or if a new entry is needed and the shard is full.
    #[inline]
    pub(crate) fn claim(&self, source: &mut impl Source<K, V>) -> Claim<K, V> {
        source.join(self, Join::Claim, Access::Exclusive).claim()
    }

    /// Returns a hold if that is possible at once, else a claim; always a claim if the access is
    /// [limited](Self::limited).
    ///
    /// # Panics
    /// If the entry has [`MAX_UNITS`] units, or if a new entry is needed and the shard is full.
    #[inline]
    pub(crate) fn hold_or_claim<M>(&self, source: &mut impl Source<K, V>, mode: M) -> Result<Hold<K, V, M>, Claim<K, V>>
    where
        M: TypedAccess,
    {
        source.join(self, self.limited(Join::Enter, mode.access()), mode.access()).hold_or_claim(mode)
    }

    /// Returns a hold if the key had no entry, else a claim; always a claim if the access is [limited](Self::limited).
    ///
    /// # Panics
    /// If the entry has [`MAX_UNITS`] units, or if a new entry is needed and the shard is full.
    #[inline]
    pub(crate) fn make_or_claim<M>(&self, source: &mut impl Source<K, V>, mode: M) -> Result<Hold<K, V, M>, Claim<K, V>>
    where
        M: TypedAccess,
    {
        source.join(self, self.limited(Join::Make, mode.access()), mode.access()).hold_or_claim(mode)
    }

    /// Returns an exclusive hold, of mode `writer`, if the key had no entry; else a hold of `mode` if that is possible
    /// at once, or a claim.
    ///
    /// # Panics
    /// If the entry has [`MAX_UNITS`] units, or if a new entry is needed and the shard is full.
    #[inline]
    #[allow(clippy::type_complexity)] // an alias would hide more than it tells
    pub(crate) fn make_or_enter<W, M>(
        &self,
        source: &mut impl Source<K, V>,
        writer: W,
        mode: M,
    ) -> Result<Hold<K, V, W>, Result<Hold<K, V, M>, Claim<K, V>>>
    where
        W: TypedAccess,
        M: TypedAccess,
    {
        debug_assert!(writer.access() == Access::Exclusive);
        match source.join(self, Join::MakeOrEnter, mode.access()) {
            // An exclusive hold excludes all others, so it is the caller's own, and the entry is new.
            Joined::Hold(unit) if unit.live().state().word().holds() == EXCLUSIVE => Ok(unit.into_hold(writer)),
            Joined::Hold(unit) => Err(Ok(unit.into_hold(mode))),
            Joined::Claim(unit) => Err(Err(unit.into_claim())),
            Joined::Refused | Joined::Full => full(),
        }
    }

    /// Returns a hold if that is possible without waiting. Otherwise returns a claim, if the queue or the key's limit
    /// of permits has to decide, or `None`, if a hold keeps the request out.
    ///
    /// # Panics
    /// If the entry has [`MAX_UNITS`] units, or if a new entry is needed and the shard is full.
    #[inline]
    pub(crate) fn try_hold<M>(
        &self,
        source: &mut impl Source<K, V>,
        mode: M,
    ) -> Result<Hold<K, V, M>, Option<Claim<K, V>>>
    where
        M: TypedAccess,
    {
        match source.join(self, self.limited(Join::Try, mode.access()), mode.access()) {
            Joined::Hold(unit) => Ok(unit.into_hold(mode)),
            Joined::Claim(unit) => Err(Some(unit.into_claim())),
            Joined::Refused => Err(None),
            Joined::Full => full(),
        }
    }

    /// Joins the entry of a key, after making it if there is none.
    #[inline]
    fn join<Q>(&self, tag: Tag, key: &Q, join: Join, access: Access) -> Joined<K, V>
    where
        Q: ?Sized + Equivalent<K> + ToKey<K>,
    {
        let joined = self.shard(tag).with(|shard| {
            let joined = shard.enter(tag, |other| key.equivalent(other), |entry| join.locked(access, entry, self));
            if let Some(joined) = joined {
                return Ok(joined);
            }
            // To save a second look-up, a key that owns nothing is copied under the lock, and an old key is overwritten
            // there.
            if !core::mem::needs_drop::<K>() {
                if shard.has_spare() {
                    let key = key.to_key();
                    if let Some(spare) = shard.take_spare() {
                        return Ok(join.made(shard.insert_key(tag, spare, key, join.unit::<V>(access))));
                    }
                }
            } else if self.recycle_keys {
                if let Some(unit) = shard.insert_recycled(tag, |old| key.to_key_into(old), join.unit::<V>(access)) {
                    return Ok(join.made(unit));
                }
            }
            Err(shard.take_spare())
        });
        match joined {
            Ok(joined) => joined,
            Err(spare) => match self.make(tag, key, join, access, spare) {
                Some(made) => made,
                None => self.join_contended(tag, key, join, access),
            },
        }
    }

    /// Makes an entry whose key or slot needs an allocation, which happens between two look-ups. Returns `None` if
    /// another caller has made the entry in between.
    #[inline(never)]
    fn make<Q>(&self, tag: Tag, key: &Q, join: Join, access: Access, spare: Option<Spare<K, V>>) -> Option<Joined<K, V>>
    where
        Q: ?Sized + Equivalent<K> + ToKey<K>,
    {
        let mut lent = Lent { core: self, tag, spare: Some(spare.unwrap_or_else(|| self.more(tag))) };
        let Some(spare) = &mut lent.spare else { unreachable!("the spare slot was stored above") };
        drop(spare.put_key(key.to_key()));
        let made = self.shard(tag).with(|shard| {
            if shard.contains(tag, |other| key.equivalent(other)) {
                return None;
            }
            let spare = lent.spare.take()?;
            Some(join.made(shard.insert(tag, spare, join.unit::<V>(access))))
        });
        if made.is_some() {
            core::mem::forget(lent); // it is empty, but the compiler does not know that
        } // otherwise it returns the slot and may drop the unused key: if that panics, nothing leaks
        made
    }

    /// Joins the entry that another caller has just made, or makes a new one if the former is already gone, and repeats
    /// this until one of the two succeeds.
    #[cold]
    #[inline(never)]
    fn join_contended<Q>(&self, tag: Tag, key: &Q, join: Join, access: Access) -> Joined<K, V>
    where
        Q: ?Sized + Equivalent<K> + ToKey<K>,
    {
        loop {
            let joined = self.shard(tag).with(|shard| {
                let joined = shard.enter(tag, |other| key.equivalent(other), |entry| join.locked(access, entry, self));
                joined.ok_or_else(|| shard.take_spare())
            });
            match joined {
                Ok(joined) => return joined,
                Err(spare) => {
                    if let Some(made) = self.make(tag, key, join, access, spare) {
                        return made;
                    }
                }
            }
        }
    }

    /// Joins the entry of an owned key, or makes it with that key.
    fn join_owned(&self, key: &mut OwnedKey<K>, join: Join, access: Access) -> Joined<K, V>
    where
        K: Eq,
    {
        let tag = key.tag;
        let mut lent = Lent { core: self, tag, spare: None };
        loop {
            let joined = self.shard(tag).with(|shard| {
                let joined = shard.enter(tag, |other| key.is(other), |entry| join.locked(access, entry, self));
                if joined.is_some() {
                    return joined;
                }
                lent.spare = lent.spare.take().or_else(|| shard.take_spare());
                // A slot with an old key is used only after the key has been dropped, outside the lock.
                let spare = lent.spare.take_if(|spare| !spare.has_old_key())?;
                let Some(key) = key.key.take() else { unreachable!("a key is given once") };
                Some(join.made(shard.insert_key(tag, spare, key, join.unit::<V>(access))))
            });
            if let Some(joined) = joined {
                return joined;
            }
            match &mut lent.spare {
                Some(spare) => drop(spare.take_key()),
                None => lent.spare = Some(self.more(tag)),
            }
        }
    }

    /// Returns a hold of an existing entry if that is possible without waiting, else a claim; `None` if there is no
    /// entry.
    ///
    /// # Panics
    /// If the entry has [`MAX_UNITS`] units.
    #[inline]
    #[allow(clippy::type_complexity)] // an alias would hide more than it tells
    pub(crate) fn find_hold<M>(&self, key: &impl Ask<K>, mode: M) -> Option<Result<Hold<K, V, M>, Claim<K, V>>>
    where
        M: TypedAccess,
    {
        let joined = self.shard(key.tag()).with(|shard| {
            shard.enter(key.tag(), |other| key.is(other), |entry| Join::Enter.locked(mode.access(), entry, self))
        });
        Some(joined?.hold_or_claim(mode))
    }

    /// Returns a claim of an existing entry; `None` if there is no entry.
    ///
    /// # Panics
    /// If the entry has [`MAX_UNITS`] units.
    #[inline]
    pub(crate) fn find_claim(&self, key: &impl Ask<K>) -> Option<Claim<K, V>> {
        let joined = self.shard(key.tag()).with(|shard| {
            shard.enter(key.tag(), |other| key.is(other), |entry| Join::Claim.locked(Access::Exclusive, entry, self))
        });
        Some(joined?.claim())
    }

    /// Returns a free slot of a shard whose slots were all in use: adds slots, unless one has become free meanwhile.
    ///
    /// # Panics
    /// If the shard is full.
    #[cold]
    fn more(&self, tag: Tag) -> Spare<K, V> {
        let chunk = Chunk::alloc(self.shard(tag).with(|shard| shard.wanted()));
        let mut left = None;
        let spare = self.shard(tag).with(|shard| shard.supply(chunk, &mut left));
        spare.expect(
            "keylatch: a shard of the table is full (about four billion keys): build the table with more shards",
        )
    }
}

/// A free slot outside the shard lock. Dropping this returns an unused slot, even while unwinding.
struct Lent<'a, K, V: Payload> {
    core: &'a Core<K, V>,
    tag: Tag,
    spare: Option<Spare<K, V>>,
}

impl<K, V: Payload> Drop for Lent<'_, K, V> {
    fn drop(&mut self) {
        if let Some(spare) = self.spare.take() {
            let mut dead = Dead::default();
            self.core.shard(self.tag).with(|shard| self.core.put_away(shard, spare, &mut dead));
        }
    }
}

/// Panics because a key or latch has too many users. Called outside every lock, because the panic hook is user code.
#[cold]
#[inline(never)]
pub(in crate::core) fn full() -> ! {
    panic!(
        "keylatch: too many users (holders, waiters, handles, unfinished futures) of one key or latch: at most {MAX_UNITS}"
    )
}
