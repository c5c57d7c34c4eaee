//! The operations of a map's guard on its value.

use super::version::Version;
use crate::guard::Guard;
use crate::mode::{Exclusive, Mode};
use crate::plumbing::{Map, TablePtr, ValueOf};
use crate::upgrade::Upgraded;

/// Read access to the value of a [`LockMap`](crate::LockMap)'s key.
impl<P: TablePtr<Table: Map>, M: Mode> Guard<P, M> {
    /// Returns the value and its version, for a later [`update_if`](crate::LockMap::update_if); `None` if the key has
    /// no value.
    ///
    /// # Examples
    /// ```
    /// let map = keylatch::LockMap::<String, u32>::new();
    /// map.insert_blocking("a", 7);
    /// let (seen, version) = map.read_blocking("a").versioned().map(|(value, version)| (*value, version)).unwrap();
    /// assert!(map.update_if_blocking("a", version, seen + 1).is_ok());
    /// ```
    #[inline]
    #[must_use]
    pub fn versioned(&self) -> Option<(&ValueOf<P>, Version)> {
        self.value().zip(self.version())
    }

    /// Returns the value; `None` if the key has none.
    ///
    /// # Examples
    /// ```
    /// let map = keylatch::LockMap::<String, u32>::new();
    /// assert_eq!(map.try_read("a").unwrap().value(), None);
    /// map.insert_blocking("a", 7);
    /// assert_eq!(map.try_read("a").unwrap().value(), Some(&7));
    /// ```
    #[inline]
    #[must_use]
    pub fn value(&self) -> Option<&ValueOf<P>> {
        self.hold().value()
    }

    /// Returns the version of the value; `None` if the key has no value.
    ///
    /// # Examples
    /// ```
    /// let map = keylatch::LockMap::<String, u32>::new();
    /// map.insert_blocking("a", 7);
    /// let version = map.try_read("a").unwrap().version();
    /// assert!(version.is_some());
    /// assert_eq!(map.try_read("a").unwrap().version(), version); // unchanged
    /// ```
    #[inline]
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.live().version().map(Version::new)
    }
}

macro_rules! writer {
    (
        $(#[doc = $doc:literal])+
        // The type of the writer, and the mode of the guard that it is or borrows.
        $Type:ty, $Mode:ident,
        // For the examples: lines that define a writer `a` of a map from strings to numbers.
        example = [$($example:literal),+]
    ) => {
        $(#[doc = $doc])+
        impl<P: $crate::plumbing::TablePtr<Table: $crate::plumbing::Map>> $Type {
            /// Returns the value by mutable reference, and gives it a new version; `None` if the key has no value.
            ///
            /// # Examples
            /// ```
            $(#[doc = $example])+
            /// a.insert(7);
            /// let version = a.version();
            /// *a.value_mut().unwrap() += 1;
            /// assert_eq!(a.value(), Some(&8));
            /// assert!(a.version() > version);
            /// ```
            #[inline]
            #[must_use]
            pub fn value_mut(&mut self) -> Option<&mut $crate::plumbing::ValueOf<P>> {
                let (core, hold) = self.parts();
                core.value_mut(hold)
            }

            /// Stores a value, and returns the old one.
            ///
            /// If the number of values, or their [weight](crate::Builder::max_weight), is
            /// [bounded](crate::Builder::max_values), values may be evicted when the key is released.
            ///
            /// # Examples
            /// ```
            $(#[doc = $example])+
            /// assert_eq!(a.insert(7), None);
            /// assert_eq!(a.insert(8), Some(7));
            /// ```
            #[inline]
            pub fn insert(&mut self, value: $crate::plumbing::ValueOf<P>) -> Option<$crate::plumbing::ValueOf<P>> {
                let (core, hold) = self.parts();
                core.insert(hold, value)
            }

            /// Removes the value and returns it. The key stays locked.
            ///
            /// # Examples
            /// ```
            $(#[doc = $example])+
            /// a.insert(7);
            /// assert_eq!(a.remove(), Some(7));
            /// assert_eq!((a.value(), a.version()), (None, None));
            /// ```
            #[inline]
            pub fn remove(&mut self) -> Option<$crate::plumbing::ValueOf<P>> {
                let (core, hold) = self.parts();
                core.remove(hold)
            }

            /// Returns the value as an `Option` that the caller can change, fill or empty, for wrappers that need a
            /// `&mut Option<V>`.
            ///
            /// When the returned [`ValueSlot`](crate::ValueSlot) is dropped, its contents become the key's value, with
            /// a new version: even if they are unchanged, and even if the caller panics. `value` and `value_mut` are
            /// cheaper if the value is only read, or changed in place.
            ///
            /// # Examples
            /// ```
            $(#[doc = $example])+
            /// *a.value_slot() = Some(7);
            /// assert_eq!(a.value_slot().take(), Some(7));
            /// assert_eq!(a.value_slot().get_or_insert(8), &8);
            /// assert_eq!(a.value(), Some(&8));
            /// ```
            pub fn value_slot(&mut self) -> $crate::locks::ValueSlot<'_, P, $crate::mode::$Mode> {
                $crate::locks::ValueSlot::new(self.guard_mut())
            }

            /// Returns the value by mutable reference, after storing the result of `init` if there is none. The value
            /// gets a new version, because the caller can change it.
            ///
            /// If `init` panics, nothing is stored.
            ///
            /// # Examples
            /// ```
            $(#[doc = $example])+
            /// *a.get_or_insert_with(|| 7) += 1;
            /// *a.get_or_insert_with(|| 100) += 1;
            /// assert_eq!(a.value(), Some(&9));
            /// ```
            #[inline]
            pub fn get_or_insert_with(&mut self, init: impl FnOnce() -> $crate::plumbing::ValueOf<P>) -> &mut $crate::plumbing::ValueOf<P> {
                if self.value().is_none() {
                    self.insert(init());
                }
                self.value_mut().expect("a key that is held keeps its value")
            }
        }
    };
}

#[cfg(target_has_atomic = "ptr")] // for tracked guards
pub(crate) use writer;

writer! {
    /// Write access to the value of a [`LockMap`](crate::LockMap)'s key.
    Guard<P, Exclusive>, Exclusive,
    example = [
        "let map = keylatch::LockMap::<String, u32>::new();",
        "let mut a = map.try_write(\"a\").unwrap();"
    ]
}

/// Read access to the value of a [`LockMap`](crate::LockMap)'s key.
impl<P: TablePtr<Table: Map>> Upgraded<'_, P> {
    /// Returns the value; `None` if the key has none.
    ///
    /// # Examples
    /// ```
    /// let map = keylatch::LockMap::<String, u32>::new();
    /// let mut reader = map.try_upgradable_read("a").unwrap();
    /// assert_eq!(reader.try_upgrade_mut().unwrap().value(), None);
    /// ```
    #[inline]
    #[must_use]
    pub fn value(&self) -> Option<&ValueOf<P>> {
        self.guard().value()
    }

    /// Returns the version of the value; `None` if the key has no value.
    ///
    /// # Examples
    /// ```
    /// let map = keylatch::LockMap::<String, u32>::new();
    /// let mut reader = map.try_upgradable_read("a").unwrap();
    /// assert_eq!(reader.try_upgrade_mut().unwrap().version(), None);
    /// ```
    #[inline]
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.guard().version()
    }
}

writer! {
    /// Write access to the value of a [`LockMap`](crate::LockMap)'s key.
    Upgraded<'_, P>, Upgradable,
    example = [
        "let map = keylatch::LockMap::<String, u32>::new();",
        "let mut reader = map.try_upgradable_read(\"a\").unwrap();",
        "let mut a = reader.try_upgrade_mut().unwrap();"
    ]
}
