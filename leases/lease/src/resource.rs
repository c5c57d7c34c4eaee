use alloc::string::String;
use alloc::sync::Arc;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

use crate::invalid::Invalid;

/// The greatest length of an entity and a key together, in bytes. Every engine can store a resource of this length.
const MAX_LEN: usize = 1024;

/// A leased thing: an entity, such as a table, and a key in it.
///
/// Two resources are equal if both their entities and their keys are equal: `("a", "bc")` and `("ab", "c")` differ, on
/// every engine. A resource without an entity has `""` as its entity; a plain string converts to such a resource. The
/// calls take `impl Into<Resource>`, so all of `("invoice", "2024-17")`, `"nightly-report"`, a `String`, and references
/// to strings and resources will do.
///
/// Cloning a resource copies no text and allocates nothing. If you use the same resource often, create it once and pass
/// `&resource`.
///
/// Entity and key together may be up to 1,024 bytes long. A longer resource can be created, but the calls refuse it
/// with their error `Invalid`. Both may contain any characters, and both may be empty.
///
/// Resources are ordered by entity, then by key. [`Display`](fmt::Display) writes `entity/key`, or the key alone if
/// there is no entity. That text is for people to read: an entity may contain a slash, so two resources may have the
/// same text. With the feature `serde`, a resource is serialised as the pair of its entity and its key.
///
/// # Examples
///
/// ```
/// use keylatch_lease::Resource;
///
/// let invoice = Resource::new("invoice", "2024-17");
/// assert_eq!(invoice, Resource::from(("invoice", "2024-17")));
/// assert_eq!(invoice.to_string(), "invoice/2024-17");
///
/// let report = Resource::from("nightly-report");
/// assert_eq!(report, Resource::new("", "nightly-report"));
/// assert_eq!(report.to_string(), "nightly-report");
///
/// assert_ne!(Resource::new("a", "bc"), Resource::new("ab", "c"));
/// ```
#[derive(Clone)]
pub struct Resource {
    /// The entity, immediately followed by the key.
    text: Arc<str>,
    /// The index at which the key starts.
    split: usize,
}

impl Resource {
    /// Creates the resource with this key in this entity.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::Resource;
    ///
    /// let seat = Resource::new("seat", format!("{}-{}", 12, 'C'));
    /// assert_eq!((seat.entity(), seat.key()), ("seat", "12-C"));
    /// ```
    #[must_use]
    pub fn new(entity: impl AsRef<str>, key: impl AsRef<str>) -> Self {
        Self::join(entity.as_ref(), key.as_ref())
    }

    fn join(entity: &str, key: &str) -> Self {
        let text = if entity.is_empty() { Arc::from(key) } else { Arc::from([entity, key].concat()) };
        Self { text, split: entity.len() }
    }

    /// Returns the entity; `""` if there is none.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::Resource;
    ///
    /// assert_eq!(Resource::new("invoice", "2024-17").entity(), "invoice");
    /// assert_eq!(Resource::from("nightly-report").entity(), "");
    /// ```
    #[must_use]
    pub fn entity(&self) -> &str {
        &self.text[..self.split]
    }

    /// Returns the key within the entity.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::Resource;
    ///
    /// assert_eq!(Resource::new("invoice", "2024-17").key(), "2024-17");
    /// assert_eq!(Resource::from("nightly-report").key(), "nightly-report");
    /// ```
    #[must_use]
    pub fn key(&self) -> &str {
        &self.text[self.split..]
    }

    /// Checks the length. Each call makes this check before it sends a request to the engine.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if self.text.len() > MAX_LEN { Err(Invalid("resource")) } else { Ok(()) }
    }
}

// Without the split, ("a", "bc") would equal ("ab", "c").
impl PartialEq for Resource {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.split == other.split && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
    }
}

impl Eq for Resource {}

impl Hash for Resource {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.text.as_bytes());
        state.write_usize(self.split);
    }
}

impl Ord for Resource {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.entity(), self.key()).cmp(&(other.entity(), other.key()))
    }
}

impl PartialOrd for Resource {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resource").field("entity", &self.entity()).field("key", &self.key()).finish()
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.split > 0 {
            f.write_str(self.entity())?;
            f.write_str("/")?;
        }
        f.write_str(self.key())
    }
}

/// Creates the resource with this entity and key.
impl From<(&str, &str)> for Resource {
    fn from((entity, key): (&str, &str)) -> Self {
        Self::join(entity, key)
    }
}

/// Creates the resource with this entity and key.
impl From<(&str, String)> for Resource {
    fn from((entity, key): (&str, String)) -> Self {
        Self::new(entity, key)
    }
}

/// Creates the resource with this key and no entity.
impl From<&str> for Resource {
    fn from(key: &str) -> Self {
        Self::join("", key)
    }
}

/// Creates the resource with this key and no entity.
impl From<String> for Resource {
    fn from(key: String) -> Self {
        Self { text: Arc::from(key), split: 0 }
    }
}

/// Creates the resource with this key and no entity.
impl From<&String> for Resource {
    fn from(key: &String) -> Self {
        Self::join("", key)
    }
}

/// Clones the resource; the clone shares its text.
impl From<&Resource> for Resource {
    fn from(resource: &Resource) -> Self {
        resource.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::Resource;
    use crate::invalid::Invalid;

    #[test]
    fn entity_and_key_together_may_be_one_kibibyte_long() {
        let text = "x".repeat(1025);
        assert_eq!(Resource::new(&text[..24], &text[..1000]).check(), Ok(()));
        assert_eq!(Resource::from(&text[..1024]).check(), Ok(()));
        assert_eq!(Resource::new("", "").check(), Ok(()));

        assert_eq!(Resource::new(&text[..25], &text[..1000]).check(), Err(Invalid("resource")));
        assert_eq!(Resource::from(text).check(), Err(Invalid("resource")));
    }

    #[test]
    fn the_length_is_counted_in_bytes() {
        assert_eq!(Resource::from("é".repeat(512)).check(), Ok(()));
        assert_eq!(Resource::from("é".repeat(513)).check(), Err(Invalid("resource")));
    }
}
