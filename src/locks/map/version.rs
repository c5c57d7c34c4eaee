use core::fmt;

/// The version of a value of a [`LockMap`](crate::LockMap): each change of the value makes a new one.
///
/// The versions of a key only grow while the map lives, even if the value is removed and inserted again; so a value
/// whose version is the same has not changed, except through interior mutability. There may be gaps between the
/// versions of a key. Versions of different keys cannot be compared.
///
/// (A map can count 2⁵⁴ versions, enough for five years at a hundred million changes a second.)
///
/// # Examples
/// ```
/// let stock = keylatch::LockMap::<String, u32>::new();
/// let mut shelf = stock.try_write("apples").unwrap();
/// assert_eq!(shelf.version(), None);
/// shelf.insert(7);
/// let first = shelf.version().unwrap();
/// *shelf.value_mut().unwrap() += 1;
/// assert!(shelf.version().unwrap() > first);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version(u64);

impl Version {
    #[inline]
    pub(super) fn new(number: u64) -> Self {
        Version(number)
    }

    /// Returns the version as a number, for a log or an `ETag`.
    ///
    /// # Examples
    /// ```
    /// let map = keylatch::LockMap::<u64, &str>::new();
    /// map.insert_blocking(&7, "a");
    /// let first = map.try_read(&7).unwrap().version().unwrap().get();
    /// map.insert_blocking(&7, "b");
    /// assert!(map.try_read(&7).unwrap().version().unwrap().get() > first);
    /// ```
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The error of a conditional change: the value's version was not the expected one, or the key had no value.
///
/// `V` is the type of the value that was not written; `()` for a removal.
///
/// # Examples
/// ```
/// let map = keylatch::LockMap::<u64, &str>::new();
/// map.insert_blocking(&7, "a");
/// let seen = map.try_read(&7).unwrap().version().unwrap();
/// map.insert_blocking(&7, "b");
///
/// let conflict = map.update_if_blocking(&7, seen, "c").unwrap_err();
/// assert!(conflict.found() > Some(seen));
/// assert_eq!(conflict.into_value(), "c");
/// ```
pub struct Conflict<V> {
    found: Option<Version>,
    value: V,
}

impl<V> Conflict<V> {
    pub(super) fn new(found: Option<Version>, value: V) -> Self {
        Conflict { found, value }
    }

    /// Returns the version that the call found; `None` if the key had no value.
    ///
    /// # Examples
    /// See [`Conflict`].
    #[must_use]
    pub fn found(&self) -> Option<Version> {
        self.found
    }

    /// Returns the value that was not written.
    ///
    /// # Examples
    /// See [`Conflict`].
    #[must_use]
    pub fn into_value(self) -> V {
        self.value
    }
}

impl<V> fmt::Debug for Conflict<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conflict").field("found", &self.found).finish_non_exhaustive()
    }
}

impl<V> fmt::Display for Conflict<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(reason(self.found))
    }
}

impl<V> core::error::Error for Conflict<V> {}

/// Describes why the expected version was not found.
pub(super) fn reason(found: Option<Version>) -> &'static str {
    match found {
        Some(_) => "the value has been changed",
        None => "the key has no value",
    }
}

/// The outcome of [`LockMap::add_or_update`](crate::LockMap::add_or_update).
///
/// # Examples
/// ```
/// use keylatch::{AddOrUpdate, LockMap};
///
/// let map = LockMap::<String, u32>::new();
/// assert_eq!(map.add_or_update_blocking("a", 1), AddOrUpdate::Added);
/// assert_eq!(map.add_or_update_blocking("a", 1), AddOrUpdate::Unchanged);
/// assert_eq!(map.add_or_update_blocking("a", 2), AddOrUpdate::Updated(1));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum AddOrUpdate<V> {
    /// The key had no value.
    Added,
    /// The key had a different value, which this variant contains.
    Updated(V),
    /// The key had an equal value, which was left unchanged.
    Unchanged,
}

impl<V> fmt::Debug for AddOrUpdate<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddOrUpdate::Added => "Added",
            AddOrUpdate::Updated(_) => "Updated(..)",
            AddOrUpdate::Unchanged => "Unchanged",
        })
    }
}
