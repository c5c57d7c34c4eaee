//! The claim of a key's own limit of permits.

use super::super::payload::Payload;
use super::{Claim, Live, UnitOf};

impl<K, V: Payload> Claim<K, V> {
    /// Gives the claim to the key's own limit of permits, which the caller has set (12).
    pub(in crate::core::table) fn leave_to_limit(self) {
        let Claim(UnitOf(_)) = self;
    }
}

impl<K, V: Payload> Live<'_, K, V> {
    /// Returns the claim of the key's own limit of permits, which the caller has taken away (12).
    pub(in crate::core::table) fn claim_of_limit(self) -> Claim<K, V> {
        UnitOf(self.0).into_claim()
    }
}
