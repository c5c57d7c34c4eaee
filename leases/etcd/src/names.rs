//! Names as parts of keys.

use std::fmt::Write;

use keylatch_lease::Resource;

/// Returns the resource and the slot of a key below `prefix`, which is the prefix of all tenures or of one owner's.
pub(crate) fn resource_of(prefix: &str, key: &[u8]) -> Option<(Resource, u8)> {
    let mut parts = std::str::from_utf8(key).ok()?.strip_prefix(prefix)?.split('/');
    let (entity, key, slot) = (parts.next()?, parts.next()?, parts.next()?);
    let slot = [0, 1].into_iter().find(|number| slot == number.to_string())?;
    if parts.next().is_some() {
        return None;
    }
    Some((Resource::new(unescape(entity)?, unescape(key)?), slot))
}

pub(crate) fn path(resource: &Resource) -> String {
    format!("{}/{}", escape(resource.entity()), escape(resource.key()))
}

/// Escapes a text as in URLs, so that it is readable but contains no slash and no space.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~:@+=,".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

pub(crate) fn unescape(escaped: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}
