//! The ways in which single-call operations find their entry: by a key that is looked up when the request starts, or by
//! a claim of the entry that the key had when the call was made.

use core::hash::{BuildHasher, Hash};
use core::mem::needs_drop;

use equivalent::Equivalent;

use super::{LockMap, MapReadGuard};
use crate::acquire::request::Request;
use crate::core::{Ask, Busy, Claim, ClaimIn, OwnedKey, Source, Valued, VersionOf};
use crate::guard::Guard;
use crate::key::ToKey;
use crate::mode::{Exclusive, Mode};
use crate::plumbing::TableRef;
use crate::plumbing::sealed::TablePtrInside as _;

pub(super) type Map<'a, K, V, S> = TableRef<'a, LockMap<K, V, S>>;

/// The way in which a call finds its entry.
pub(super) trait Find<'a, K, V, S>: Sized {
    /// Looks at the value, if that is possible without a hold. `look` then runs under an internal lock.
    fn peek<R>(
        self,
        map: Map<'a, K, V, S>,
        look: impl Fn(&V, VersionOf<'_, K, V>) -> R + Copy,
    ) -> Result<Option<R>, Self>;

    /// Takes the value out, if that is possible without a hold.
    fn remove(self, map: Map<'a, K, V, S>) -> Result<Option<V>, Self>;

    /// Returns a guard of an existing entry, or a request for it. Fails if there is no entry.
    fn find<M: Mode>(self, map: Map<'a, K, V, S>, mode: M) -> Result<Found<'a, K, V, S, M>, Self>;
}

/// The way in which a call finds its entry, or makes it.
pub(super) trait FindOrMake<'a, K, V, S>: Find<'a, K, V, S> {
    /// Stores a value and returns the old one, if that is possible without a hold and without allocating an entry.
    fn insert(self, map: Map<'a, K, V, S>, value: V) -> Result<Option<V>, (Self, V)>;

    /// Returns a guard of the entry, or a request for it if it cannot be locked at once. Makes the entry if there is
    /// none.
    fn enter<M: Mode>(self, map: Map<'a, K, V, S>, mode: M) -> Found<'a, K, V, S, M>;

    /// Returns a writer's guard of a new entry; for an existing entry, does the same as [`enter`](Self::enter).
    fn make<M: Mode>(self, map: Map<'a, K, V, S>, mode: M) -> Made<'a, K, V, S, M>;
}

pub(super) type Found<'a, K, V, S, M> = Result<Guard<Map<'a, K, V, S>, M>, Request<Map<'a, K, V, S>, M>>;
pub(super) type Made<'a, K, V, S, M> = Result<Guard<Map<'a, K, V, S>, Exclusive>, Found<'a, K, V, S, M>>;

/// A key, which is looked up when the request starts. Each method drops the key explicitly, while the result is in a
/// local variable: if the drop panics, the unwinding drops the result, which would otherwise leak.
pub(super) struct ByKey<A>(pub(super) A);

impl<'a, K, V, S, A: Ask<K>> Find<'a, K, V, S> for ByKey<A> {
    #[inline(always)]
    fn peek<R>(
        self,
        map: Map<'a, K, V, S>,
        look: impl Fn(&V, VersionOf<'_, K, V>) -> R + Copy,
    ) -> Result<Option<R>, Self> {
        let seen = map.core().peek(&self.0, look);
        match if seen.is_err() && map.core().has_records() { map.core().peek_recorded(&self.0, look) } else { seen } {
            Ok(seen) => {
                drop(self);
                Ok(seen)
            }
            Err(Busy(())) => Err(self),
        }
    }

    #[inline(always)]
    fn remove(self, map: Map<'a, K, V, S>) -> Result<Option<V>, Self> {
        match map.core().remove_at_once(&self.0) {
            Ok(removed) => {
                drop(self);
                Ok(removed)
            }
            Err(Busy(())) => Err(self),
        }
    }

    #[inline(always)]
    fn find<M: Mode>(self, map: Map<'a, K, V, S>, mode: M) -> Result<Found<'a, K, V, S, M>, Self> {
        let found = match map.core().find_hold(&self.0, mode) {
            Some(Ok(hold)) => Ok(Guard::new(map, hold)),
            Some(Err(claim)) => Err(Request::new(map, claim, mode)),
            None => return Err(self),
        };
        drop(self);
        Ok(found)
    }
}

impl<'a, K, V, S, A: Ask<K> + Source<K, Valued<V>>> FindOrMake<'a, K, V, S> for ByKey<A> {
    #[inline(always)]
    fn insert(mut self, map: Map<'a, K, V, S>, value: V) -> Result<Option<V>, (Self, V)> {
        match map.core().insert_at_once(&mut self.0, value) {
            Ok(old) => {
                drop(self);
                Ok(old)
            }
            Err(Busy(value)) => Err((self, value)),
        }
    }

    #[inline(always)]
    fn enter<M: Mode>(mut self, map: Map<'a, K, V, S>, mode: M) -> Found<'a, K, V, S, M> {
        let found = match map.core().hold_or_claim(&mut self.0, mode) {
            Ok(hold) => Ok(Guard::new(map, hold)),
            Err(claim) => Err(Request::new(map, claim, mode)),
        };
        drop(self);
        found
    }

    #[inline(always)]
    fn make<M: Mode>(mut self, map: Map<'a, K, V, S>, mode: M) -> Made<'a, K, V, S, M> {
        let made = match map.core().make_or_enter(&mut self.0, Exclusive::NEW, mode) {
            Ok(hold) => Ok(Guard::new(map, hold)),
            Err(Ok(hold)) => Err(Ok(Guard::new(map, hold))),
            Err(Err(claim)) => Err(Err(Request::new(map, claim, mode))),
        };
        drop(self);
        made
    }
}

/// The entry that the key had when the future was made. The claim keeps the entry, so the future needs no key.
pub(super) struct ByClaim<'a, K, V, S> {
    map: Map<'a, K, V, S>,
    /// `None` if the key had no entry, or once the claim has been used.
    claim: Option<ClaimIn<Map<'a, K, V, S>>>,
}

impl<'a, K, V, S> ByClaim<'a, K, V, S> {
    #[inline]
    fn new(map: Map<'a, K, V, S>, key: &impl Ask<K>) -> Self {
        ByClaim { map, claim: map.core().find_claim(key).map(ClaimIn::new) }
    }

    /// Claims the entry of a reader's guard.
    pub(super) fn of(map: Map<'a, K, V, S>, guard: &MapReadGuard<'a, K, V, S>) -> Self {
        ByClaim { map, claim: Some(ClaimIn::new(map.core().claim(&mut guard.live()))) }
    }

    /// Returns a request for the entry. There must be an entry, and its claim must not have been used.
    pub(super) fn into_request<M: Mode>(mut self, mode: M) -> Request<Map<'a, K, V, S>, M> {
        let Some(claim) = self.take() else { unreachable!("the claim of an entry is used once") };
        Request::new(self.map, claim, mode)
    }

    #[inline]
    fn take(&mut self) -> Option<Claim<K, Valued<V>>> {
        self.claim.take().map(ClaimIn::into_claim)
    }

    #[inline]
    fn put_back(mut self, claim: Claim<K, Valued<V>>) -> Self {
        self.claim = Some(ClaimIn::new(claim));
        self
    }
}

impl<K, V, S> Drop for ByClaim<'_, K, V, S> {
    #[inline]
    fn drop(&mut self) {
        if let Some(claim) = self.take() {
            self.map.core().withdraw(claim);
        }
    }
}

impl<'a, K, V, S> Find<'a, K, V, S> for ByClaim<'a, K, V, S> {
    #[inline]
    fn peek<R>(
        mut self,
        map: Map<'a, K, V, S>,
        look: impl Fn(&V, VersionOf<'_, K, V>) -> R + Copy,
    ) -> Result<Option<R>, Self> {
        let Some(claim) = self.take() else {
            map.core().count_miss();
            return Ok(None);
        };
        map.core().peek_by(claim, look).map(Some).map_err(|Busy(claim)| self.put_back(claim))
    }

    #[inline]
    fn remove(mut self, map: Map<'a, K, V, S>) -> Result<Option<V>, Self> {
        let Some(claim) = self.take() else { return Ok(None) };
        map.core().remove_by(claim).map(Some).map_err(|Busy(claim)| self.put_back(claim))
    }

    #[inline]
    fn find<M: Mode>(mut self, map: Map<'a, K, V, S>, mode: M) -> Result<Found<'a, K, V, S, M>, Self> {
        self.take().map(|claim| Err(Request::new(map, claim, mode))).ok_or(self)
    }
}

/// The entry that the key had when the future was made, or a copy of the key, if there was no entry or if copying the
/// key costs nothing.
pub(super) enum ByClaimOrKey<'a, K, V, S> {
    Claim(ByClaim<'a, K, V, S>),
    Key(ByKey<OwnedKey<K>>),
}

impl<'a, K: Eq, V, S> Find<'a, K, V, S> for ByClaimOrKey<'a, K, V, S> {
    #[inline]
    fn peek<R>(
        self,
        map: Map<'a, K, V, S>,
        look: impl Fn(&V, VersionOf<'_, K, V>) -> R + Copy,
    ) -> Result<Option<R>, Self> {
        match self {
            ByClaimOrKey::Claim(entry) => entry.peek(map, look).map_err(ByClaimOrKey::Claim),
            ByClaimOrKey::Key(key) => key.peek(map, look).map_err(ByClaimOrKey::Key),
        }
    }

    #[inline]
    fn remove(self, map: Map<'a, K, V, S>) -> Result<Option<V>, Self> {
        match self {
            ByClaimOrKey::Claim(entry) => entry.remove(map).map_err(ByClaimOrKey::Claim),
            ByClaimOrKey::Key(key) => key.remove(map).map_err(ByClaimOrKey::Key),
        }
    }

    #[inline]
    fn find<M: Mode>(self, map: Map<'a, K, V, S>, mode: M) -> Result<Found<'a, K, V, S, M>, Self> {
        match self {
            ByClaimOrKey::Claim(entry) => entry.find(map, mode).map_err(ByClaimOrKey::Claim),
            ByClaimOrKey::Key(key) => key.find(map, mode).map_err(ByClaimOrKey::Key),
        }
    }
}

impl<'a, K: Eq, V, S> FindOrMake<'a, K, V, S> for ByClaimOrKey<'a, K, V, S> {
    #[inline]
    fn insert(self, map: Map<'a, K, V, S>, value: V) -> Result<Option<V>, (Self, V)> {
        match self {
            ByClaimOrKey::Claim(mut entry) => {
                let Some(claim) = entry.take() else { unreachable!("a new `ByClaimOrKey::Claim` has its claim") };
                let old = map.core().insert_by(claim, value).map(Some);
                old.map_err(|Busy((claim, value))| (ByClaimOrKey::Claim(entry.put_back(claim)), value))
            }
            ByClaimOrKey::Key(key) => key.insert(map, value).map_err(|(key, value)| (ByClaimOrKey::Key(key), value)),
        }
    }

    #[inline]
    fn enter<M: Mode>(self, map: Map<'a, K, V, S>, mode: M) -> Found<'a, K, V, S, M> {
        match self {
            ByClaimOrKey::Claim(entry) => Err(entry.into_request(mode)),
            ByClaimOrKey::Key(key) => key.enter(map, mode),
        }
    }

    #[inline]
    fn make<M: Mode>(self, map: Map<'a, K, V, S>, mode: M) -> Made<'a, K, V, S, M> {
        match self {
            ByClaimOrKey::Claim(entry) => Err(Err(entry.into_request(mode))),
            ByClaimOrKey::Key(key) => key.make(map, mode),
        }
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> LockMap<K, V, S> {
    /// Finds the entry for a future that makes none.
    pub(super) fn by_claim<Q: ?Sized + Hash + Equivalent<K>>(&self, key: &Q) -> ByClaim<'_, K, V, S> {
        ByClaim::new(TableRef::new(self), &self.key(key))
    }

    /// Finds the entry, or copies the key, for a future that makes an entry if there is none.
    pub(super) fn by_claim_or_key<Q: ?Sized + Hash + Equivalent<K> + ToKey<K>>(
        &self,
        key: &Q,
    ) -> ByClaimOrKey<'_, K, V, S> {
        let key = self.key(key);
        // Copying a key that owns nothing costs nothing.
        if needs_drop::<K>() {
            let entry = ByClaim::new(TableRef::new(self), &key);
            if entry.claim.is_some() {
                return ByClaimOrKey::Claim(entry);
            }
        }
        ByClaimOrKey::Key(ByKey(key.owned()))
    }
}
