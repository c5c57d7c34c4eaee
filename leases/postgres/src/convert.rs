//! Tokens, resources and namespaces in the table's form.

use std::fmt::Write;

use keylatch_lease::{Resource, Token};
use keylatch_lease_remote::Told;

/// Converts a token for the table. A token that is too great for its column becomes -1, which matches no row.
pub(crate) fn number(token: Token) -> i64 {
    i64::try_from(token.get()).unwrap_or(-1)
}

pub(crate) fn parts(resource: &Resource) -> (&[u8], &[u8]) {
    (resource.entity().as_bytes(), resource.key().as_bytes())
}

/// Returns the name of a namespace's channel, which contains a hash of the namespace. If two namespaces share a channel
/// by accident, they only wake each other's waiters needlessly.
pub(crate) fn channel(namespace: &str) -> String {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = namespace.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, fnv);
    let mut channel = String::from("keylatch_lease_");
    let _ = write!(channel, "{hash:016x}");
    channel
}

/// Parses a notification: a resource, a token, and how the tenure ended. A notification about a row that was deleted by
/// hand goes to all namespaces, and contains the row's namespace. Returns `None` if the text is anything else.
pub(crate) fn told(payload: &str) -> Option<(Told, Option<String>)> {
    let mut parts = payload.split('/');
    let resource = Resource::new(text(parts.next()?)?, text(parts.next()?)?);
    let token = Token::new(parts.next()?.parse().ok()?)?;
    let told = Told::new(resource, token, parts.next()?.parse().ok()?)?;
    let namespace = match parts.next() {
        Some(name) => Some(text(name)?),
        None => None,
    };
    Some((told, namespace))
}

fn text(hex: &str) -> Option<String> {
    let byte = |i: usize| u8::from_str_radix(hex.get(i..i + 2)?, 16).ok();
    String::from_utf8((0..hex.len()).step_by(2).map(byte).collect::<Option<_>>()?).ok()
}

#[cfg(test)]
mod tests {
    use super::{channel, told};
    use keylatch_lease::{Lost, Resource, Token};

    #[test]
    fn a_notification_names_a_tenure() {
        let all = |payload| told(payload).map(|(told, namespace)| (told.resource, told.token, told.how, namespace));
        let seven = Token::new(7).unwrap();
        assert_eq!(all("61/6263/7/r"), Some((Resource::new("a", "bc"), seven, Lost::Released, None)));
        assert_eq!(all("//7/t"), Some((Resource::from(""), seven, Lost::TakenOver, None)));
        assert!(!told("//7/t").unwrap().0.is_for_holders && told("//7/n").unwrap().0.is_for_holders);
        let deleted = (Resource::new("\0", "é"), seven, Lost::EngineForgot, Some("shop".to_owned()));
        assert_eq!(all("00/c3a9/7/d/73686f70"), Some(deleted));
        for nonsense in ["", "61", "61/62", "6/6/7/r", "zz//7/r", "ff//7/r", "é//7/r", "//0/r", "//7/x", "//7/d/7"] {
            assert_eq!(all(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_channels_name_needs_no_quotes() {
        assert_eq!(channel(""), "keylatch_lease_cbf29ce484222325");
        assert_ne!(channel("a"), channel("b"));
        assert_eq!(channel("\"; DROP TABLE x").len(), 31);
    }
}
