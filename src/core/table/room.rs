//! Room for a value in a table whose values end, have ages or are weighed.

use super::Core;
use super::payload::Payload;
use super::slot::Claim;

/// Room for a value in an entry that has none: the claim of the value's deadline. Gives the claim up when it is
/// dropped.
#[must_use = "room is given up when it is dropped"]
pub(crate) struct Room<'a, K, V: Payload> {
    core: &'a Core<K, V>,
    claim: Option<Claim<K, V>>,
}

impl<'a, K, V: Payload> Room<'a, K, V> {
    pub(super) fn new(core: &'a Core<K, V>, claim: Claim<K, V>) -> Self {
        Room { core, claim: Some(claim) }
    }

    /// Gives the claim to the deadline of the value that the caller has stored.
    pub(super) fn leave_to_deadline(mut self) {
        self.claim.take().into_iter().for_each(Claim::leave_to_deadline);
    }
}

impl<K, V: Payload> Drop for Room<'_, K, V> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.core.leave_claim(claim.into_unit());
        }
    }
}
