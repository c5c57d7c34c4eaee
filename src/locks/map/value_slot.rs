//! A value as an `Option` that its writer can change.

use core::fmt;
use core::ops::{Deref, DerefMut};

use crate::guard::Guard;
use crate::mode::Mode;
use crate::plumbing::{Map, TablePtr, ValueOf};

/// The value of a [`LockMap`](crate::LockMap)'s key as an `Option` that its writer can change, fill or empty;
/// [`value_slot`](crate::Guard::value_slot) returns it.
///
/// It is for wrappers whose own interface exposes a `&mut Option<V>`. The slot contains the value while the slot lives.
/// When the slot is dropped, even by a panic, its contents become the key's value; if it is empty, the key has none. So
/// a slot acts as a [removal](crate::Guard::remove), followed by an [insertion](crate::Guard::insert) if it is not
/// empty:
///
/// - While the slot lives, [`len`](crate::LockMap::len) does not count the value, and
///   [`contains_key`](crate::LockMap::contains_key) returns `false`. The key stays locked, so no other caller can
///   acquire it.
/// - A value that is written back has a new version, whether it was changed or not.
/// - If values are [bounded](crate::Builder::max_values), the value enters the order of eviction as a new one. It
///   counts as used if the key had a value before.
/// - Forgetting a slot ([`core::mem::forget`]) leaks its value, and the key has none.
///
/// [`value_mut`](crate::Guard::value_mut) is cheaper for changing a value in place.
///
/// # Examples
/// ```
/// let map = keylatch::LockMap::<String, Vec<u32>>::new();
/// let mut a = map.try_write("a").unwrap();
/// a.value_slot().get_or_insert_default().push(7);
/// assert_eq!(a.value(), Some(&vec![7]));
///
/// /// A function of a wrapper that knows nothing of guards.
/// fn shorten(entry: &mut Option<Vec<u32>>) {
///     entry.take_if(|list| list.pop().is_none() || list.is_empty());
/// }
///
/// shorten(&mut a.value_slot());
/// assert_eq!(a.value(), None);
/// ```
#[must_use = "the value is written back when the slot is dropped"]
#[clippy::has_significant_drop]
pub struct ValueSlot<'g, P: TablePtr<Table: Map>, M: Mode> {
    guard: &'g mut Guard<P, M>,
    value: Option<ValueOf<P>>,
    /// Whether the key had a value when the slot was made.
    had: bool,
}

impl<'g, P: TablePtr<Table: Map>, M: Mode> ValueSlot<'g, P, M> {
    /// Moves the value of a writer's guard into a slot.
    pub(crate) fn new(guard: &'g mut Guard<P, M>) -> Self {
        let (core, hold) = guard.parts();
        let value = core.remove(hold);
        ValueSlot { guard, had: value.is_some(), value }
    }
}

impl<P: TablePtr<Table: Map>, M: Mode> Deref for ValueSlot<'_, P, M> {
    type Target = Option<ValueOf<P>>;

    fn deref(&self) -> &Self::Target {
        &self.value
    }
}

impl<P: TablePtr<Table: Map>, M: Mode> DerefMut for ValueSlot<'_, P, M> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.value
    }
}

impl<P: TablePtr<Table: Map>, M: Mode> Drop for ValueSlot<'_, P, M> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        let (core, hold) = self.guard.parts();
        if self.had {
            return core.put_back(hold, value);
        }
        let old = core.insert(hold, value);
        debug_assert!(old.is_none(), "the value is in the slot while the slot lives");
    }
}

impl<P: TablePtr<Table: Map>, M: Mode> fmt::Debug for ValueSlot<'_, P, M>
where
    ValueOf<P>: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ValueSlot").field(&self.value).finish()
    }
}
