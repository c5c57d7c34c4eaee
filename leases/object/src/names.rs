//! The names of the objects.
//!
//! An object's name must be the same in every process, must not collide with that of another resource, and is limited
//! by the stores to some 1,000 bytes. So a name is the resource in readable form if that is short, and its hash
//! otherwise.

use keylatch_lease::Resource;
use sha2::{Digest, Sha256};

/// The longest readable name, in bytes. With its folder, a name stays far below the limit of all stores.
const LONGEST: usize = 200;

/// The end of the names of all objects with leases.
const END: &str = ".lease";

/// Encodes a text: ASCII letters, digits, `-` and `_` stay, and each other byte becomes `=` and two hexadecimal digits.
/// So the encoding of a text begins with the encoding of each of its prefixes.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("={byte:02X}"));
        }
    }
    encoded
}

/// Decodes a text that [`encode`] wrote; `None` if it cannot have written this.
pub(crate) fn decode(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
    while let Some(first) = rest.chars().next() {
        if first == '=' {
            bytes.push(u8::from_str_radix(rest.get(1..3)?, 16).ok()?);
            rest = rest.get(3..)?;
        } else {
            bytes.push(u8::try_from(first).ok()?);
            rest = rest.get(1..)?;
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    (encode(&text) == encoded).then_some(text)
}

/// Returns the readable form, or its hash if it is too long. The two never look alike, because a readable form contains
/// the separator.
fn short(readable: String, separator: char) -> String {
    if readable.len() <= LONGEST {
        return readable;
    }
    debug_assert!(readable.contains(separator), "the form could be that of a hash");
    Sha256::digest(readable).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the name of a namespace's folder.
pub(crate) fn folder(namespace: &str) -> String {
    short(format!("{}.leases", encode(namespace)), '.')
}

/// Returns the name of a resource's object.
pub(crate) fn name(resource: &Resource) -> String {
    let readable = format!("{}.{}", encode(resource.entity()), encode(resource.key()));
    format!("{}{END}", short(readable, '.'))
}

/// Returns whether a text has the form of an object's name.
pub(crate) fn is_name(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=.".contains(&byte);
    text.strip_suffix(END).is_some_and(|stem| !stem.is_empty() && stem.bytes().all(is_known))
}

/// Returns whether the object of this name may belong to an entity that begins with this prefix. Also returns `true`
/// for a name that does not show its entity.
pub(crate) fn may_begin_with(name: &str, entity_prefix: &str) -> bool {
    let stem = name.strip_suffix(END).unwrap_or(name);
    !stem.contains('.') || stem.starts_with(&encode(entity_prefix))
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, folder, is_name, may_begin_with, name};
    use keylatch_lease::Resource;

    #[test]
    fn a_name_is_readable_if_it_is_short() {
        assert_eq!(name(&Resource::new("invoice", "2024-17")), "invoice.2024-17.lease");
        assert_eq!(name(&Resource::from("a/b.c")), ".a=2Fb=2Ec.lease");
        assert_eq!(name(&Resource::new("", "")), "..lease");
        assert_eq!(folder(""), ".leases");
        assert!(is_name("..lease") && !is_name("lease") && !is_name(".lease") && !is_name("a/b.lease"));
    }

    #[test]
    fn names_of_different_resources_differ() {
        let long = "x".repeat(1000);
        let parts = ["", "a", "ab", ".", "=", "=2E", "a.b", "\0", "ä", &long];
        let mut names = Vec::new();
        for entity in parts {
            names.extend(parts.map(|key| name(&Resource::new(entity, key))));
        }
        assert!(names.iter().all(|name| name.len() <= 210 && is_name(name)), "{names:?}");
        let before = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), before);
    }

    #[test]
    fn a_text_is_read_back_as_it_was_written() {
        for text in ["", "a b", "ä=\0\n", "x%y"] {
            assert_eq!(decode(&encode(text)).as_deref(), Some(text));
        }
        for nonsense in ["=", "=2", "=zz", "=41", "a b", "ä", "=FF", "=2e"] {
            assert_eq!(decode(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_readable_name_tells_the_beginning_of_its_entity() {
        let (short, long) = (name(&Resource::new("a.b", "")), name(&Resource::new("x".repeat(1000), "")));
        assert!(may_begin_with(&short, "a.") && !may_begin_with(&short, "ab"));
        assert!(may_begin_with(&long, "y"), "a hash tells nothing");
    }
}
