//! The cursors and the bounds of lists that are in the order of the resources.

use keylatch_lease::Resource;

/// Returns a resource as the cursor of a list. [`resource_of`] reads it.
///
/// # Examples
/// ```
/// use keylatch_lease::Resource;
/// use keylatch_lease_remote::{cursor, resource_of};
///
/// let invoice = Resource::new("invoice", "7");
/// assert_eq!(cursor(&invoice), "7:invoice7");
/// assert_eq!(resource_of("7:invoice7"), Some(invoice));
/// ```
#[must_use]
pub fn cursor(resource: &Resource) -> String {
    format!("{}:{}{}", resource.entity().len(), resource.entity(), resource.key())
}

/// Returns the resource of a [`cursor`]; `None` if the text is not one.
///
/// # Examples
/// ```
/// use keylatch_lease_remote::resource_of;
///
/// for nonsense in ["", "invoice", ":", "9:abc", "-1:a", "1:ä"] {
///     assert_eq!(resource_of(nonsense), None);
/// }
/// ```
#[must_use]
pub fn resource_of(cursor: &str) -> Option<Resource> {
    let (length, rest) = cursor.split_once(':')?;
    let length: usize = length.parse().ok()?;
    Some(Resource::new(rest.get(..length)?, rest.get(length..)?))
}

/// Returns the first resource, in the order of entities and keys, that may be on a page: its entity begins with the
/// prefix or is greater, and it comes after the resource of the cursor. A database can look it up in its index with a
/// single comparison.
///
/// # Examples
/// ```
/// use keylatch_lease::Resource;
/// use keylatch_lease_remote::page_start;
///
/// assert_eq!(page_start("in", None), Resource::new("in", ""));
/// let last = Resource::new("invoice", "7");
/// assert_eq!(page_start("in", Some(&last)), Resource::new("invoice", "7\0")); // no text sorts between the two
/// ```
#[must_use]
pub fn page_start(entity_prefix: &str, after: Option<&Resource>) -> Resource {
    let first = Resource::new(entity_prefix, "");
    let behind = after.map(|after| Resource::new(after.entity(), format!("{}\0", after.key())));
    behind.map_or(first.clone(), |behind| behind.max(first))
}

/// Returns the first text, in byte order, after all texts that begin with this prefix; `None` if there is none.
///
/// # Examples
/// ```
/// use keylatch_lease_remote::prefix_end;
///
/// assert_eq!(prefix_end("invoice").as_deref(), Some("invoicf"));
/// assert_eq!(prefix_end("a\u{d7ff}").as_deref(), Some("a\u{e000}")); // the code points in between are not characters
/// assert_eq!(prefix_end("a\u{10ffff}").as_deref(), Some("b"));
/// assert_eq!(prefix_end(""), None);
/// ```
#[must_use]
pub fn prefix_end(prefix: &str) -> Option<String> {
    let mut rest = prefix.chars();
    while let Some(last) = rest.next_back() {
        // Characters sort in the same order as their bytes in UTF-8.
        if let Some(next) = (last..=char::MAX).nth(1) {
            return Some(format!("{}{next}", rest.as_str()));
        }
    }
    None
}
