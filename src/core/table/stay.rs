//! The stays of [walks](super::walk) in a shard. Used under the shard lock.

use alloc::boxed::Box;
use alloc::vec;

/// The list of the walks that are in a shard. Walks that were forgotten remain in it.
#[derive(Default)]
pub(super) struct Walks(Option<Box<Stay>>);

/// A walk that is in a shard.
pub(super) struct Stay {
    /// The slots in which an entry has been made since the walk arrived: a bit for each.
    made: Box<[u32]>,
    next: Walks,
}

impl Stay {
    /// Makes a stay in a shard whose slots have numbers below `end`.
    pub(super) fn new(end: u32) -> Box<Stay> {
        Box::new(Stay { made: vec![0; end.div_ceil(u32::BITS) as usize].into(), next: Walks(None) })
    }

    /// Returns the address, which identifies a stay while it lasts.
    pub(super) fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    fn note_made(&mut self, number: u32) {
        if let Some(bits) = self.made.get_mut((number / u32::BITS) as usize) {
            *bits |= 1 << (number % u32::BITS);
        }
    }

    /// Returns whether an entry has been made in this slot since the walk arrived, or the shard did not have the slot
    /// then.
    pub(super) fn was_made(&self, number: u32) -> bool {
        self.made.get((number / u32::BITS) as usize).is_none_or(|bits| bits >> (number % u32::BITS) & 1 != 0)
    }
}

/// Drops one walk after another: recursion might overflow the stack.
impl Drop for Walks {
    fn drop(&mut self) {
        while let Some(mut stay) = self.0.take() {
            self.0 = stay.next.0.take();
        }
    }
}

impl Walks {
    /// Notes that an entry has been made in this slot.
    #[inline]
    pub(super) fn note_made(&mut self, number: u32) {
        if self.0.is_some() {
            self.note_made_in_all(number);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_made_in_all(&mut self, number: u32) {
        let mut walks = self;
        while let Some(stay) = &mut walks.0 {
            stay.note_made(number);
            walks = &mut stay.next;
        }
    }

    /// Adds a walk that arrives.
    pub(super) fn begin(&mut self, mut stay: Box<Stay>) {
        stay.next = Walks(self.0.take());
        self.0 = Some(stay);
    }

    /// Removes a walk that departs. Returns its stay, to be dropped outside the lock.
    pub(super) fn end(&mut self, address: usize) -> Option<Box<Stay>> {
        let mut walks = self;
        while walks.0.as_ref()?.address() != address {
            walks = &mut walks.0.as_mut()?.next;
        }
        let mut stay = walks.0.take()?;
        walks.0 = stay.next.0.take();
        Some(stay)
    }

    /// Returns the stay at this address.
    pub(super) fn stay(&self, address: usize) -> Option<&Stay> {
        let mut walks = self;
        loop {
            let stay = walks.0.as_deref()?;
            if stay.address() == address {
                return Some(stay);
            }
            walks = &stay.next;
        }
    }
}
