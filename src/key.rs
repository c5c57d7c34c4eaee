use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::ffi::CString;
use alloc::rc::Rc;
use alloc::string::String;
#[cfg(target_has_atomic = "ptr")]
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::CStr;
#[cfg(feature = "std")]
use std::ffi::{OsStr, OsString};
#[cfg(feature = "std")]
use std::path::{Path, PathBuf};

/// A type that looks up a key of type `K`, and from which such a key can be made.
///
/// A call that may make an entry takes `&Q`, where `Q` is [`Hash`](core::hash::Hash), `Equivalent<K>` and `ToKey<K>`.
/// `Hash` and `Equivalent` find the entry; if there is none, `to_key` makes the key that the new entry keeps. A call
/// that makes no entry (such as [`is_locked`](crate::KeyedMutex::is_locked), [`status`](crate::KeyedMutex::status), and
/// a map's [`get`](crate::LockMap::get) and [`remove`](crate::LockMap::remove)) needs no `ToKey`.
///
/// # Which call for which key?
/// The type of the key is part of the table's type: `KeyedMutex::<String>::new()`, or the type of the field that holds
/// it.
///
/// | key type `K` | call | also |
/// |---|---|---|
/// | `u64`, `Uuid`, `IpAddr`, an enum: any type that is `Clone` | `lock(&7)`, `lock(&id)` | |
/// | `String` | `lock("a")` | `lock(&string)` |
/// | `Box<str>`, `Arc<str>`, `Rc<str>`, `Cow<'_, str>` | `lock("a")` | `lock(&key)`; from a `String`: `lock(string.as_str())` |
/// | `&'static str` | `lock(&"a")` | |
/// | `Vec<u8>`, `Box<[u8]>`, `Arc<[u8]>`, `Rc<[u8]>`, of any `T: Clone` | `lock(bytes)` with a `&[u8]` | `lock(&vec)` for `Vec`; a literal: `lock(&b"abc"[..])` |
/// | `[u8; 16]` | `lock(&array)` | |
/// | `PathBuf`, `Box<Path>`, `Arc<Path>`, `Rc<Path>` | `lock(Path::new("a"))` | `lock(path)` with a `&Path`; `lock(&path_buf)` for `PathBuf` |
/// | `OsString`, `CString` and their boxed and shared forms | `lock(os_str)`, `lock(c"a")` | `lock(&key)` |
/// | `(String, u64)` | `lock(&(string, 7))` | without making a `String`: see [below](#pairs) |
/// | a type of yours that is `Clone` | `lock(&key)` | by its contents: see [below](#newtypes) |
/// | a type of yours that is not `Clone` | `lock(&key)`, with a `ToKey` of your own | see [below](#keys-that-are-not-clone) |
///
/// # Recipes
/// ## Pairs
/// A `(&str, u64)` cannot be borrowed from a `(String, u64)`, and tuples are not types of your crate, so look the key
/// up by a newtype of your own. It must hash and compare the fields in the same order as the owned key. Otherwise one
/// key would have two entries, and exclusion would be lost.
///
/// ```
/// use keylatch::{Equivalent, KeyedMutex, ToKey};
///
/// #[derive(Hash)]
/// struct Row<'a>(&'a str, u64);
///
/// impl Equivalent<(String, u64)> for Row<'_> {
///     fn equivalent(&self, key: &(String, u64)) -> bool {
///         self.0 == key.0 && self.1 == key.1
///     }
/// }
///
/// impl ToKey<(String, u64)> for Row<'_> {
///     fn to_key(&self) -> (String, u64) {
///         (self.0.to_owned(), self.1)
///     }
///
///     // Only for tables with `recycle_keys(true)`: it avoids the allocation.
///     fn to_key_into(&self, key: &mut (String, u64)) {
///         self.0.to_key_into(&mut key.0);
///         key.1 = self.1;
///     }
/// }
///
/// let rows = KeyedMutex::<(String, u64)>::new();
/// let guard = rows.lock_blocking(&Row("users", 7));
/// assert!(rows.try_lock(&("users".to_string(), 7)).is_none()); // the same key
/// # drop(guard);
/// ```
///
/// ## Case-insensitive keys
/// One generic type serves as the key and looks it up: with a `String` inside it is the key, and with a `&str` or a
/// `String` inside it finds the key. Only ASCII letters are covered: "É" and "é" remain two keys.
///
/// ```
/// use std::hash::{Hash, Hasher};
///
/// use keylatch::{Equivalent, KeyedMutex, ToKey};
///
/// #[derive(Clone)] // so that a `NoCase<String>` can look up its key, too
/// struct NoCase<S>(S);
///
/// impl<S: AsRef<str>> Hash for NoCase<S> {
///     fn hash<H: Hasher>(&self, state: &mut H) {
///         for byte in self.0.as_ref().bytes() {
///             state.write_u8(byte.to_ascii_lowercase());
///         }
///     }
/// }
///
/// impl<S: AsRef<str>> PartialEq for NoCase<S> {
///     fn eq(&self, other: &Self) -> bool {
///         self.0.as_ref().eq_ignore_ascii_case(other.0.as_ref())
///     }
/// }
///
/// impl<S: AsRef<str>> Eq for NoCase<S> {}
///
/// impl Equivalent<NoCase<String>> for NoCase<&str> {
///     fn equivalent(&self, key: &NoCase<String>) -> bool {
///         self.0.eq_ignore_ascii_case(&key.0)
///     }
/// }
///
/// impl ToKey<NoCase<String>> for NoCase<&str> {
///     fn to_key(&self) -> NoCase<String> {
///         NoCase(self.0.to_owned())
///     }
/// }
///
/// let headers = KeyedMutex::<NoCase<String>>::new();
/// let guard = headers.lock_blocking(&NoCase("Content-Type"));
/// assert!(headers.try_lock(&NoCase("content-type")).is_none());
/// assert!(headers.try_lock(&NoCase("CONTENT-TYPE".to_string())).is_none());
/// # drop(guard);
/// ```
///
/// ## Enums
/// As with pairs, a borrowed counterpart looks the key up. It must have the same variants in the same order, because a
/// derived `Hash` begins with the number of the variant.
///
/// ```
/// use keylatch::{Equivalent, KeyedMutex, ToKey};
///
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// enum Resource {
///     File(String),
///     User(u64),
/// }
///
/// #[derive(Hash)]
/// enum Ref<'a> {
///     File(&'a str),
///     User(u64),
/// }
///
/// impl Equivalent<Resource> for Ref<'_> {
///     fn equivalent(&self, key: &Resource) -> bool {
///         match (self, key) {
///             (Ref::File(a), Resource::File(b)) => a == b,
///             (Ref::User(a), Resource::User(b)) => a == b,
///             _ => false,
///         }
///     }
/// }
///
/// impl ToKey<Resource> for Ref<'_> {
///     fn to_key(&self) -> Resource {
///         match *self {
///             Ref::File(name) => Resource::File(name.to_owned()),
///             Ref::User(id) => Resource::User(id),
///         }
///     }
/// }
///
/// let locks = KeyedMutex::<Resource>::new();
/// let guard = locks.lock_blocking(&Ref::File("a.txt"));
/// assert!(locks.try_lock(&Resource::File("a.txt".to_string())).is_none()); // the same key
/// assert!(locks.try_lock(&Ref::User(7)).is_some());
/// # drop(guard);
/// ```
///
/// ## Interned keys
/// A look-up by `&Arc<str>` allocates nothing: a new entry gets a clone of the `Arc`. A look-up by `&str` copies the
/// text, once for each entry that is made.
///
/// ```
/// use std::sync::Arc;
///
/// use keylatch::KeyedMutex;
///
/// let names = KeyedMutex::<Arc<str>>::new();
/// let alice: Arc<str> = Arc::from("alice");
/// let guard = names.lock_blocking(&alice);
/// assert!(Arc::ptr_eq(guard.key(), &alice));
/// assert!(names.try_lock("alice").is_none()); // compared by its text
/// # drop(guard);
/// ```
///
/// ## Newtypes
/// A newtype that is `Clone` can be locked by a reference to itself: `lock(&UserId(7))`. To lock it by its contents,
/// too, implement `Borrow` for it (which provides `Equivalent`), and `ToKey` for the contents:
///
/// ```
/// use std::borrow::Borrow;
///
/// use keylatch::{KeyedMutex, ToKey};
///
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// struct UserName(String);
///
/// impl Borrow<str> for UserName {
///     fn borrow(&self) -> &str {
///         &self.0
///     }
/// }
///
/// impl ToKey<UserName> for str {
///     fn to_key(&self) -> UserName {
///         UserName(self.to_owned())
///     }
/// }
///
/// let users = KeyedMutex::<UserName>::new();
/// let guard = users.lock_blocking("alice");
/// assert!(users.try_lock(&UserName("alice".to_string())).is_none());
/// # drop(guard);
/// ```
///
/// ## Keys that are not `Clone`
/// ```
/// use keylatch::{KeyedMutex, ToKey};
///
/// /// Not `Clone`, to prevent copies.
/// #[derive(PartialEq, Eq, Hash)]
/// struct Token(String);
///
/// impl ToKey<Token> for Token {
///     fn to_key(&self) -> Token {
///         Token(self.0.clone())
///     }
/// }
///
/// let sessions = KeyedMutex::<Token>::new();
/// let token = Token("secret".to_string());
/// let guard = sessions.lock_blocking(&token);
/// assert!(sessions.is_locked(&token));
/// # drop(guard);
/// ```
///
/// # What does not work
/// - *`&'static str` by `"a"`:* the call borrows a `str` of unknown lifetime, and a `'static` reference cannot be made
///   from that. `lock(&"a")` passes the reference itself, which is copied.
/// - *`Arc<str>` by a `&String`, `Vec<u8>` by an array:* in the standard library an `Arc<str>` can be borrowed as a
///   `str` and a `Vec<u8>` as a slice, and as nothing else. Pass `string.as_str()` or `&array[..]`.
/// - *`[u8; 16]` by a slice:* the slice might have another length. Make the array first:
///   `lock(&<[u8; 16]>::try_from(slice)?)`.
/// - *`PathBuf` by `"a"`:* a `PathBuf` can be borrowed only as a `Path`. Use `lock(Path::new("a"))`.
/// - *An `Equivalent` or a `ToKey` between two types of other crates, or for a tuple:* make one of them a newtype of
///   your own. Rust's orphan rule requires it.
/// - *`Box<T>` by a `&T`, for a sized `T`:* this crate has no such implementation. Use `lock(&Box::new(..))`, or keys
///   of type `T`.
///
/// ```compile_fail,E0277
/// keylatch::KeyedMutex::<&'static str>::new().try_lock("a");
/// ```
/// ```compile_fail,E0277
/// keylatch::KeyedMutex::<std::sync::Arc<str>>::new().try_lock(&String::from("a"));
/// ```
/// ```compile_fail,E0277
/// keylatch::KeyedMutex::<Vec<u8>>::new().try_lock(b"abc");
/// ```
/// ```compile_fail,E0277
/// keylatch::KeyedMutex::<(String, u64)>::new().try_lock(&("a", 7));
/// ```
///
/// # What an implementation must do
/// `q` must be equivalent to `q.to_key()`, and have the same hash. Otherwise equal keys may fail to exclude each other,
/// or different keys may exclude each other; memory safety does not depend on it.
///
/// Two methods run inside an internal lock, and must not use the table, which would deadlock: the `to_key` of a key
/// type that owns nothing (for which [`needs_drop`](core::mem::needs_drop) is false), and `to_key_into`, which is
/// called only with [`recycle_keys(true)`](crate::Builder::recycle_keys). They delay every call that needs the same
/// shard, so they should be short. The same rules apply to the code that they call (a `Clone`, or the `Drop` of what an
/// old key owns), and to a panic hook that runs because one of them, or `Equivalent`, panics. Every other `to_key` runs
/// outside the lock. If one of these methods panics, the panic reaches the caller and the table stays usable; a key
/// that `to_key_into` left half changed is later overwritten for another entry, or dropped.
#[diagnostic::on_unimplemented(
    message = "a key of type `{K}` cannot be made from a `&{Self}`",
    label = "no `{K}` can be made from this",
    note = "if `{Self}` is the key type itself, derive `Clone` for it",
    note = "otherwise pass a `&{K}`, or what the table on the page of `keylatch::ToKey` lists for this type of key, \
            such as `Path::new(\"a\")` for a `PathBuf`",
    note = "for a type of your own, implement `keylatch::ToKey<{K}>` (and `Hash` and `keylatch::Equivalent<{K}>`); for \
            a tuple, or a type of another crate, do that for a newtype of your own: see \"Pairs\" on the same page"
)]
pub trait ToKey<K> {
    /// Makes the key. The table calls this only if the key has no entry.
    ///
    /// # Examples
    /// ```
    /// use keylatch::ToKey;
    ///
    /// let key: String = "a".to_key();
    /// assert_eq!(key, "a");
    /// ```
    fn to_key(&self) -> K;

    /// Overwrites an old key with this one, to reuse the old key's allocation. The table calls this only with
    /// [`recycle_keys(true)`](crate::Builder::recycle_keys). The default implementation assigns the key that
    /// [`to_key`](ToKey::to_key) makes, and so drops the old key.
    ///
    /// It runs inside an internal lock: see [what an implementation must
    /// do](ToKey#what-an-implementation-must-do).
    ///
    /// # Examples
    /// ```
    /// use keylatch::ToKey;
    ///
    /// let mut key = String::from("an old key");
    /// let memory = key.as_ptr();
    /// "a new one".to_key_into(&mut key);
    /// assert_eq!(key, "a new one");
    /// assert_eq!(key.as_ptr(), memory);
    /// ```
    #[inline]
    fn to_key_into(&self, key: &mut K) {
        *key = self.to_key();
    }
}

/// Clones the key.
// For a type without its own implementation, an error about a missing `Clone` would mislead.
#[diagnostic::do_not_recommend]
impl<K: Clone> ToKey<K> for K {
    #[inline]
    fn to_key(&self) -> K {
        self.clone()
    }

    #[inline]
    fn to_key_into(&self, key: &mut K) {
        key.clone_from(self);
    }
}

/// Makes an owned `Cow`.
impl<'a, B: ?Sized + ToOwned> ToKey<Cow<'a, B>> for B {
    #[inline]
    fn to_key(&self) -> Cow<'a, B> {
        Cow::Owned(self.to_owned())
    }

    #[inline]
    fn to_key_into(&self, key: &mut Cow<'a, B>) {
        match key {
            Cow::Owned(key) => self.clone_into(key),
            Cow::Borrowed(_) => *key = self.to_key(),
        }
    }
}

/// The methods for keys that `ToOwned` makes: `clone_into` reuses the old key's allocation.
macro_rules! written_over {
    ($K:ty) => {
        #[inline]
        fn to_key(&self) -> $K {
            self.to_owned()
        }

        #[inline]
        fn to_key_into(&self, key: &mut $K) {
            self.clone_into(key);
        }
    };
}

/// The methods for keys of fixed length, or with shared ownership: an old key is replaced.
macro_rules! replaced {
    ($K:ty) => {
        #[inline]
        fn to_key(&self) -> $K {
            self.into()
        }
    };
}

// The `impl` headers are written out, without a macro, because the compiler lists them in the error for a key type
// without an implementation.
impl ToKey<String> for str {
    written_over!(String);
}

impl ToKey<Box<str>> for str {
    replaced!(Box<str>);
}

impl ToKey<Rc<str>> for str {
    replaced!(Rc<str>);
}

#[cfg(target_has_atomic = "ptr")]
impl ToKey<Arc<str>> for str {
    replaced!(Arc<str>);
}

impl<T: Clone> ToKey<Vec<T>> for [T] {
    written_over!(Vec<T>);
}

impl<T: Clone> ToKey<Box<[T]>> for [T] {
    replaced!(Box<[T]>);
}

impl<T: Clone> ToKey<Rc<[T]>> for [T] {
    replaced!(Rc<[T]>);
}

#[cfg(target_has_atomic = "ptr")]
impl<T: Clone> ToKey<Arc<[T]>> for [T] {
    replaced!(Arc<[T]>);
}

impl ToKey<CString> for CStr {
    written_over!(CString);
}

impl ToKey<Box<CStr>> for CStr {
    replaced!(Box<CStr>);
}

impl ToKey<Rc<CStr>> for CStr {
    replaced!(Rc<CStr>);
}

#[cfg(target_has_atomic = "ptr")]
impl ToKey<Arc<CStr>> for CStr {
    replaced!(Arc<CStr>);
}

#[cfg(feature = "std")]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
impl ToKey<PathBuf> for Path {
    written_over!(PathBuf);
}

#[cfg(feature = "std")]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
impl ToKey<Box<Path>> for Path {
    replaced!(Box<Path>);
}

#[cfg(feature = "std")]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
impl ToKey<Rc<Path>> for Path {
    replaced!(Rc<Path>);
}

#[cfg(all(feature = "std", target_has_atomic = "ptr"))]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
impl ToKey<Arc<Path>> for Path {
    replaced!(Arc<Path>);
}

#[cfg(feature = "std")]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
impl ToKey<OsString> for OsStr {
    written_over!(OsString);
}

#[cfg(feature = "std")]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
impl ToKey<Box<OsStr>> for OsStr {
    replaced!(Box<OsStr>);
}

#[cfg(feature = "std")]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
impl ToKey<Rc<OsStr>> for OsStr {
    replaced!(Rc<OsStr>);
}

#[cfg(all(feature = "std", target_has_atomic = "ptr"))]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
impl ToKey<Arc<OsStr>> for OsStr {
    replaced!(Arc<OsStr>);
}
