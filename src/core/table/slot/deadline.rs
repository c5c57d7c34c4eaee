//! The claim of a value's deadline, or of its weight.

use super::super::payload::Payload;
use super::{Claim, Live, UnitOf};
use crate::core::wait::word::{Unit, Word};

impl<K, V: Payload> Claim<K, V> {
    /// Gives the claim to the deadline of a value that the caller stores with exclusive use of the entry, or gives back
    /// the claim that the caller has got from [`claim_of_deadline`](Live::claim_of_deadline) (13).
    pub(in crate::core::table) fn leave_to_deadline(self) {
        let Claim(UnitOf(_)) = self;
    }
}

impl<K, V: Payload> Live<'_, K, V> {
    /// Returns the claim of the value's deadline. The caller has taken the value out, or is about to, or gives the
    /// claim back (13).
    pub(in crate::core::table) fn claim_of_deadline(self) -> Claim<K, V> {
        UnitOf(self.0).into_claim()
    }

    /// Passes the value to `look`, if its own claim and that of its deadline are the only units. Called under the shard
    /// lock, in a table whose values end, have ages or are weighed.
    pub(in crate::core::table) fn look_beside_deadline<R>(self, look: impl FnOnce(&V::Value) -> R) -> Option<R> {
        let is_alone = V::is_present(self.marks()) && self.state().is_sole(Word::born(Unit::Claim).keep());
        // SAFETY: neither unit has a token (8, 13), and the shard is locked, so nobody has or gets a hold (3), and we
        // have exclusive use of the entry (9). The value is initialised (8).
        is_alone.then(|| look(self.slot().value.with(|value| unsafe { (*value).assume_init_ref() })))
    }
}
