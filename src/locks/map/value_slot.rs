//! The place of a value, as an `Option` that its writer can change.

use core::fmt;
use core::ops::{Deref, DerefMut};

use crate::core::Payload;
use crate::guard::Guard;
use crate::mode::Mode;
use crate::plumbing::{Map, PayloadOf, TablePtr, ValueOf};

/// The value of a [`LockMap`](crate::LockMap)'s key as an `Option`, for its writer, who may put one in or take it out: what
/// [`value_slot`](crate::Guard::value_slot) gives.
///
/// It is for wrappers whose own interface has a `&mut Option<V>`. The value is inside this slot while the slot lives; when the slot is
/// dropped, what is in it then becomes the key's value, or the key has none. That is so too if the caller panics. So a slot is a
/// [removal](crate::Guard::remove), and then, if it is not empty, an [insertion](crate::Guard::insert):
///
/// - While it lives, [`len`](crate::LockMap::len) does not count the value, and [`contains_key`](crate::LockMap::contains_key) is
///   `false`. The key stays locked, so nobody gets in.
/// - A value that is in it at the end has a new version, changed or not.
/// - Where values are [bounded](crate::Builder::max_values), the value has the place of a new one in the order of eviction. To change
///   a value that was there is a use of it.
/// - A slot that is forgotten ([`core::mem::forget`]) leaks its value, and the key has none.
///
/// To change a value in place, [`value_mut`](crate::Guard::value_mut) is cheaper.
///
/// # Examples
/// ```
/// let map = keylatch::LockMap::<String, Vec<u32>>::new();
/// let mut a = map.try_write("a").unwrap();
/// a.value_slot().get_or_insert_default().push(7);
/// assert_eq!(a.value(), Some(&vec![7]));
///
/// /// A wrapper's function, which knows nothing of guards.
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
    /// Whether there was a value.
    had: bool,
}

impl<'g, P: TablePtr<Table: Map>, M: Mode> ValueSlot<'g, P, M> {
    /// For a writer.
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
        let old = core.insert(hold, value);
        debug_assert!(old.is_none(), "the slot has the value");
        if self.had {
            PayloadOf::<P>::note_use(hold.live().marks());
        }
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
