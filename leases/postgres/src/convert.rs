//! Tokens, resources and namespaces, as the table has them.

use std::fmt::Write;

use keylatch_lease::{Resource, Token};

/// As the table has it. A token that it cannot have is one of nothing.
pub(crate) fn number(token: Token) -> i64 {
    i64::try_from(token.get()).unwrap_or(-1)
}

pub(crate) fn parts(resource: &Resource) -> (&[u8], &[u8]) {
    (resource.entity().as_bytes(), resource.key().as_bytes())
}

/// The channel of a namespace: a name, from a hash of it. Two that share one by accident wake each other for nothing.
pub(crate) fn channel(namespace: &str) -> String {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = namespace.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, fnv);
    let mut channel = String::from("keylatch_lease_");
    let _ = write!(channel, "{hash:016x}");
    channel
}

/// What a notification says has come free.
pub(crate) fn resource(payload: &str) -> Option<Resource> {
    let (entity, key) = payload.split_once('/')?;
    Some(Resource::new(text(entity)?, text(key)?))
}

fn text(hex: &str) -> Option<String> {
    let byte = |i: usize| u8::from_str_radix(hex.get(i..i + 2)?, 16).ok();
    String::from_utf8((0..hex.len()).step_by(2).map(byte).collect::<Option<_>>()?).ok()
}

#[cfg(test)]
mod tests {
    use super::{channel, resource};
    use keylatch_lease::Resource;

    #[test]
    fn a_notification_names_a_resource() {
        assert_eq!(resource("61/6263"), Some(Resource::new("a", "bc")));
        assert_eq!(resource("/"), Some(Resource::from("")));
        assert_eq!(resource("00/c3a9"), Some(Resource::new("\0", "é")));
        for nonsense in ["", "61", "6/6", "zz/", "ff/", "é/"] {
            assert_eq!(resource(nonsense), None);
        }
    }

    #[test]
    fn a_channel_is_a_name_that_needs_no_quotes() {
        assert_eq!(channel(""), "keylatch_lease_cbf29ce484222325");
        assert_ne!(channel("a"), channel("b"));
        assert_eq!(channel("\"; DROP TABLE x").len(), 31);
    }
}
