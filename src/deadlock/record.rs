//! The values by which guards and requests own the detector's records of holds and waits.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::task::Waker;

use super::holder::{Moment, Origin, Watchdog};
use super::registry::{Held, Note, Registry, What};
use crate::core::slab::NONE;
use crate::core::{Access, Identity};
use crate::panics::run_all;
use crate::sync::Lock;

/// The state of a detector, which its clones and its parties share.
pub(super) struct Shared {
    pub(super) registry: Lock<Registry>,
    /// Whether the key and the origin of every hold are recorded.
    pub(super) names_holders: bool,
    pub(super) watchdog: Option<Watchdog>,
}

/// A party's registration, which lives as long as the party or any of its requests or holds.
///
/// `pub` because a sealed trait names it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)]
pub struct Member {
    pub(super) shared: Arc<Shared>,
    pub(super) name: Cow<'static, str>,
    pub(super) index: u32,
}

impl Member {
    /// Sets the label of a record. Does nothing if there is no record.
    fn set_label(&self, record: u32, label: Cow<'static, str>) {
        if record != NONE {
            // The label that is not kept is dropped outside the lock.
            let _old = self.shared.registry.with(|registry| registry.set_label(record, label));
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // The name is dropped outside the lock.
        let _name = self.shared.registry.with(|registry| registry.remove_party(self.index));
    }
}

/// The type of a latch in reports.
pub(super) const LATCH: &str = "keylatch::Latch";

/// A guard whose hold can be recorded.
///
/// `pub` because a sealed trait names it; other crates cannot.
#[allow(unreachable_pub, private_interfaces)]
pub trait HoldGuard {
    fn identity(&self) -> Identity;

    fn access(&self) -> Access;

    /// Returns the key's `Debug` output, which runs user code.
    fn key(&self) -> String;

    /// Returns the type of the table.
    fn table(&self) -> &'static str;

    /// Passes the hold on to the next waiter.
    fn pass_on(self);
}

/// Describes the hold of a guard for its record. The key's `Debug` runs only if the detector names holders.
#[inline]
fn held(member: &Member, guard: &impl HoldGuard, origin: &Origin) -> Held {
    let named = || Box::new(Note { key: guard.key(), origin: Some(origin.clone()), since: Some(Moment::now()) });
    let note = member.shared.names_holders.then(named);
    Held { access: guard.access(), table: guard.table(), note }
}

/// The detector's record of a hold or a wait of a party. Dropping this removes the record.
pub(super) struct Record {
    pub(super) member: Arc<Member>,
    /// The index of the record in the registry; `NONE` if there is no record.
    pub(super) index: u32,
}

impl Record {
    pub(super) fn none(member: Arc<Member>) -> Self {
        Record { member, index: NONE }
    }

    #[inline]
    pub(super) fn is_some(&self) -> bool {
        self.index != NONE
    }

    #[inline]
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Registry) -> R) -> R {
        self.member.shared.registry.with(f)
    }

    /// Makes the record of a hold of the party.
    #[inline]
    pub(super) fn of_hold(member: Arc<Member>, guard: &impl HoldGuard, origin: &Origin) -> Self {
        let mut record = Record::none(member);
        record.holds(guard, origin);
        record
    }

    /// Sets the label of the hold, or of the hold that the recorded wait is for. Does nothing if there is no record.
    pub(super) fn set_label(&self, label: Cow<'static, str>) {
        self.member.set_label(self.index, label);
    }

    /// Makes the record of a part of this hold.
    pub(super) fn part(&self, access: Access) -> Self {
        let index = self.with(|registry| registry.add_part(self.index, access));
        Record { member: Arc::clone(&self.member), index }
    }

    /// Records the hold, whose request no longer waits. If the hold completes cycles, the requests that fail are woken.
    #[inline]
    pub(super) fn holds(&mut self, guard: &impl HoldGuard, origin: &Origin) {
        let held = held(&self.member, guard, origin);
        let mut wakers = Vec::new();
        let party = self.member.index;
        let index = self.member.shared.registry.with(|registry| {
            let index = registry.add_hold(party, guard.identity(), held);
            if registry.waits(party) {
                registry.got_in(party, &mut wakers);
            }
            index
        });
        self.index = index;
        if !wakers.is_empty() {
            wake(wakers);
        }
    }

    /// Records a new access of the hold.
    pub(super) fn set_access(&self, access: Access) {
        let mut wakers = Vec::new();
        self.with(|registry| {
            registry.set_access(self.index, access);
            registry.got_in(self.member.index, &mut wakers);
        });
        wake(wakers);
    }
}

pub(super) fn wake(wakers: Vec<Waker>) {
    if !wakers.is_empty() {
        run_all(wakers.into_iter().map(|waker| || waker.wake()));
    }
}

impl Drop for Record {
    #[inline]
    fn drop(&mut self) {
        if self.is_some() {
            // The removed content may include a waker, which is dropped outside the lock.
            let _what: What = self.with(|registry| registry.remove(self.index));
        }
    }
}

/// The records of several holds of a party, in the order of their guards. Dropping this removes the records.
///
/// `pub` because a sealed trait names it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)]
pub struct Records {
    pub(super) member: Arc<Member>,
    /// The indices of the records; `NONE` for a key that is not held yet, or whose record has been taken out.
    list: Vec<u32>,
    /// The place in `list` from which the next record is taken out.
    next: usize,
}

impl Records {
    pub(super) fn none(member: Arc<Member>) -> Self {
        Records { member, list: Vec::new(), next: 0 }
    }

    /// Makes the records of these holds.
    pub(super) fn of_holds<G: HoldGuard>(member: Arc<Member>, guards: &[G], origin: &Origin) -> Self {
        let mut records = Records::none(member);
        records.note(guards, |_| true, origin);
        records
    }

    /// Records the holds that have been acquired and have no record yet. If they complete cycles, the requests that
    /// fail are woken.
    pub(super) fn note<G: HoldGuard>(&mut self, guards: &[G], is_held: impl Fn(&G) -> bool, origin: &Origin) {
        self.list.resize(guards.len().max(self.list.len()), NONE);
        let is_new = |(index, guard): &(&mut u32, &G)| **index == NONE && is_held(guard);
        let new = self.list.iter_mut().zip(guards).filter(is_new);
        // User code runs before the lock is taken.
        let new = new.map(|(index, guard)| (index, guard.identity(), held(&self.member, guard, origin)));
        let new = new.collect::<Vec<_>>();
        if new.is_empty() {
            return;
        }
        let (party, mut wakers) = (self.member.index, Vec::new());
        self.member.shared.registry.with(|registry| {
            for (index, entry, held) in new {
                *index = registry.add_hold(party, entry, held);
            }
            if registry.waits(party) {
                registry.got_in(party, &mut wakers);
            }
        });
        wake(wakers);
    }

    /// Sets the labels of the holds.
    pub(super) fn set_labels(&self, label: Cow<'static, str>) {
        self.list.iter().for_each(|&index| self.member.set_label(index, label.clone()));
    }

    /// Takes over the record of a hold, whose guard is at index `place`.
    pub(super) fn put(&mut self, place: usize, record: &mut Record) {
        self.list.resize(self.list.len().max(place + 1), NONE);
        self.list[place] = core::mem::replace(&mut record.index, NONE);
    }

    /// Adds the record of the next guard's hold.
    pub(super) fn push(&mut self, mut record: Record) {
        self.list.push(core::mem::replace(&mut record.index, NONE));
    }

    /// Takes out the record of the next guard's hold.
    pub(super) fn next(&mut self) -> Record {
        let index = self.list.get_mut(self.next).map_or(NONE, |index| core::mem::replace(index, NONE));
        self.next += 1;
        Record { member: Arc::clone(&self.member), index }
    }

    /// Takes out the record of the last guard's hold.
    pub(super) fn next_back(&mut self) -> Record {
        Record { member: Arc::clone(&self.member), index: self.list.pop().unwrap_or(NONE) }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if self.list.iter().any(|index| *index != NONE) {
            let mut gone = Vec::with_capacity(self.list.len());
            self.member.shared.registry.with(|registry| {
                let list = self.list.drain(..).filter(|index| *index != NONE);
                gone.extend(list.map(|index| registry.remove(index)));
            });
        }
    }
}
