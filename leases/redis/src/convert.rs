//! Durations, policies and resources in the server's form.

use std::{fmt::Write, time::Duration};

use keylatch_lease::{Expiry, Resource, Token};
use keylatch_lease_remote::{Policy, Told};

/// Returns microseconds as text; `-` if the time is infinite.
pub(crate) fn micros(time: Option<Duration>) -> String {
    or_dash(time.and_then(keylatch_lease_remote::micros))
}

fn or_dash(number: Option<i64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// Returns a policy's kind and durations as one word.
pub(crate) fn policy(expiry: &Expiry) -> String {
    let Policy { kind, idle, total } = Policy::of(expiry);
    format!("{}:{}:{}", char::from(kind), or_dash(idle), or_dash(total))
}

pub(crate) fn expiry(policy: &str) -> Option<Expiry> {
    let mut parts = policy.split(':');
    let kind = *parts.next()?.as_bytes().first()?;
    let mut number = || parts.next().and_then(|number| number.parse().ok());
    Policy { kind, idle: number(), total: number() }.expiry()
}

fn escape(prefix: &mut String, char: char) {
    for byte in char.encode_utf8(&mut [0; 4]).bytes() {
        let _ = write!(prefix, "%{byte:02x}");
    }
}

/// Returns the prefix of all keys of a namespace. It is in braces, so that a cluster keeps all these keys in one slot.
pub(crate) fn prefix(namespace: &str) -> String {
    let mut prefix = String::from("{keylatch:");
    for char in namespace.chars() {
        match char {
            // A percent sign begins an escape. A cluster hashes the text up to the first closing brace, which must
            // therefore end the name. The other characters have a meaning in the pattern of an access control list, or
            // end it. Because they are escaped, the prefix can be pasted into such a list as it is.
            '%' | '}' | '*' | '?' | '[' | ']' | '\\' | '"' | '\'' => escape(&mut prefix, char),
            char if char.is_whitespace() || char.is_control() => escape(&mut prefix, char),
            _ => prefix.push(char),
        }
    }
    prefix.push('}');
    prefix
}

/// Returns the name of a resource: the length of the entity, the entity and the key.
pub(crate) fn name(resource: &Resource) -> String {
    format!("{}:{}{}", resource.entity().len(), resource.entity(), resource.key())
}

pub(crate) fn resource(name: &[u8]) -> Option<Resource> {
    let (length, both) = std::str::from_utf8(name).ok()?.split_once(':')?;
    let (entity, key) = both.split_at_checked(length.parse().ok()?)?;
    Some(Resource::new(entity, key))
}

/// Parses a message: how a tenure ended, its token, and its resource. Returns `None` if the text is anything else.
pub(crate) fn told(message: &[u8]) -> Option<Told> {
    let space = message.iter().position(|byte| *byte == b' ')?;
    let (letter, token) = message[..space].split_first()?;
    let token = Token::new(std::str::from_utf8(token).ok()?.parse().ok()?)?;
    Told::new(resource(&message[space + 1..])?, token, char::from(*letter))
}

#[cfg(test)]
mod tests {
    use super::{expiry, name, policy, prefix, resource, told};
    use keylatch_lease::{Expiry, Lost, Resource, Token};
    use keylatch_lease_conformance::servers::policies;
    use std::time::Duration;

    #[test]
    fn a_policy_is_read_back_as_it_was_written() {
        for before in policies(Duration::new(1, 1)) {
            assert!(!policy(&before).contains(' '), "the policy is more than one word");
            assert_eq!(expiry(&policy(&before)), Some(before));
        }
        assert_eq!(expiry(&policy(&Expiry::custom(Some))), None);
        for nonsense in ["", "s", "s::", "s:x:-", "s:-1:-", "f:-:-", "u:1:", "x:1:1", "s:99999999999999999999:-"] {
            assert_eq!(expiry(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_resource_is_read_back_as_it_was_written() {
        for (entity, key) in [("", ""), ("a", ""), ("", "a"), ("a:b", "1:c"), ("ä\0\n", "{x}"), ("10:", "9")] {
            let before = Resource::new(entity, key);
            assert_eq!(resource(name(&before).as_bytes()), Some(before));
        }
        assert_ne!(name(&Resource::new("a", "bc")), name(&Resource::new("ab", "c")));
        for nonsense in [&b""[..], b"x", b":", b"1:", b"1:\xc3\xa4", b"9:abc", b"-1:a", b"1:\xff"] {
            assert_eq!(resource(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn a_message_names_a_tenure() {
        let all = |message| told(message).map(|told| (told.resource, told.token, told.how, told.is_for_holders));
        let told_of =
            |how, is_for_holders| Some((Resource::new("a b", "c"), Token::new(7).unwrap(), how, is_for_holders));
        assert_eq!(all(b"r7 3:a bc"), told_of(Lost::Released, false));
        assert_eq!(all(b"t7 3:a bc"), told_of(Lost::TakenOver, false));
        assert_eq!(all(b"n7 3:a bc"), told_of(Lost::TakenOver, true));
        assert_eq!(all(b"d7 3:a bc"), told_of(Lost::EngineForgot, false));
        for nonsense in [&b""[..], b"r", b"r7", b"r7 ", b"r0 0:", b"r 0:", b"x7 0:", b"0:", b"r-7 0:"] {
            assert_eq!(all(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn each_namespace_has_its_own_keys_in_one_slot() {
        assert_eq!(prefix("shop"), "{keylatch:shop}");
        let names = [
            "",
            "a",
            "a}",
            "a%7d",
            "a%",
            "}",
            "{",
            "{a}",
            "a}:leases",
            "*",
            "?",
            "[a]",
            "a b",
            "a\u{a0}b",
            "\\",
            "\"",
            "\t",
            "%20",
        ];
        let mut all: Vec<_> = names.map(prefix).to_vec();
        for prefix in &all {
            assert_eq!(prefix.find('}'), Some(prefix.len() - 1), "{prefix}");
            assert!(
                !prefix.contains(['*', '?', '[', ']', '\\', '"', '\'']),
                "{prefix} contains a character of patterns"
            );
            assert!(
                !prefix.contains(|char: char| char.is_whitespace() || char.is_control()),
                "{prefix} contains white space"
            );
        }
        all.sort();
        all.dedup();
        assert_eq!(all.len(), names.len());
    }
}
