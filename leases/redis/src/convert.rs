//! Durations, policies and resources, as the server has them.

use std::{fmt::Write, time::Duration};

use keylatch_lease::{Expiry, Resource};

/// Beyond this many microseconds, some 142 years, an end is never reached: a script adds it to the time of day, and has doubles only.
const NEVER: u128 = 1 << 52;

/// Microseconds, rounded up; for ever: `-`.
pub(crate) fn micros(time: Option<Duration>) -> String {
    let micros = time.map(|time| time.as_nanos().div_ceil(1000)).filter(|micros| *micros < NEVER);
    micros.map_or_else(|| "-".to_owned(), |micros| micros.to_string())
}

pub(crate) fn from_micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Kind and durations of a policy, in nanoseconds: `f`(ixed), `s`(liding), `u`(p to), `n`(ever), or `-` for another one.
pub(crate) fn policy(expiry: &Expiry) -> String {
    match expiry {
        Expiry::Fixed(total) => format!("f:-:{}", total.as_nanos()),
        Expiry::Sliding(idle) => format!("s:{}:-", idle.as_nanos()),
        Expiry::SlidingUpTo { idle, total } => format!("u:{}:{}", idle.as_nanos(), total.as_nanos()),
        Expiry::Never => "n:-:-".to_owned(),
        Expiry::Custom(_) => "-:-:-".to_owned(),
    }
}

pub(crate) fn expiry(policy: &str) -> Option<Expiry> {
    let time = |nanos: &str| {
        let nanos = nanos.parse::<u128>().ok()?;
        let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
        Some(Duration::new(seconds, u32::try_from(nanos % 1_000_000_000).ok()?))
    };
    let mut parts = policy.split(':');
    let (kind, idle, total) = (parts.next()?, parts.next()?, parts.next()?);
    match kind {
        "f" => Some(Expiry::Fixed(time(total)?)),
        "s" => Some(Expiry::Sliding(time(idle)?)),
        "u" => Some(Expiry::SlidingUpTo { idle: time(idle)?, total: time(total)? }),
        "n" => Some(Expiry::Never),
        _ => None,
    }
}

/// What all keys of a namespace begin with. In braces, so that a cluster has them in one slot.
pub(crate) fn prefix(namespace: &str) -> String {
    let mut prefix = String::from("{keylatch:");
    for char in namespace.chars() {
        match char {
            // The first closing brace ends what a cluster looks at, and must end the name.
            '%' | '}' => {
                let _ = write!(prefix, "%{:02x}", u32::from(char));
            }
            _ => prefix.push(char),
        }
    }
    prefix.push('}');
    prefix
}

/// The name of a resource: how long the entity is, entity and key.
pub(crate) fn name(resource: &Resource) -> String {
    format!("{}:{}{}", resource.entity().len(), resource.entity(), resource.key())
}

pub(crate) fn resource(name: &[u8]) -> Option<Resource> {
    let (length, both) = std::str::from_utf8(name).ok()?.split_once(':')?;
    let (entity, key) = both.split_at_checked(length.parse().ok()?)?;
    Some(Resource::new(entity, key))
}

#[cfg(test)]
mod tests {
    use super::{expiry, micros, name, policy, prefix, resource};
    use keylatch_lease::{Expiry, Resource};
    use std::time::Duration;

    #[test]
    fn a_time_is_rounded_up_and_a_very_long_one_is_for_ever() {
        assert_eq!(micros(Some(Duration::from_nanos(1))), "1");
        assert_eq!(micros(Some(Duration::from_nanos(1000))), "1");
        assert_eq!(micros(Some(Duration::from_nanos(1001))), "2");
        assert_eq!(micros(Some(Duration::MAX)), "-");
        assert_eq!(micros(None), "-");
    }

    #[test]
    fn a_policy_comes_back_as_it_was() {
        let second = Duration::new(1, 1);
        let kept = [
            Expiry::Fixed(Duration::MAX),
            Expiry::Sliding(second),
            Expiry::SlidingUpTo { idle: second, total: 2 * second },
            Expiry::Never,
        ];
        for before in kept {
            assert!(!policy(&before).contains(' '), "a lease is words");
            assert_eq!(expiry(&policy(&before)), Some(before));
        }
        assert_eq!(expiry(&policy(&Expiry::custom(Some))), None);
        for nonsense in ["", "s", "s::", "s:x:-", "f:-:-", "u:1:", "s:99999999999999999999999999999999999:-"] {
            assert_eq!(expiry(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_resource_comes_back_as_it_was() {
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
    fn namespaces_have_keys_of_their_own_in_one_slot() {
        assert_eq!(prefix("shop"), "{keylatch:shop}");
        let mut all: Vec<_> = ["", "a", "a}", "a%7d", "a%", "}", "{", "{a}", "a}:leases"].map(prefix).to_vec();
        for prefix in &all {
            assert_eq!(prefix.find('}'), Some(prefix.len() - 1), "{prefix}");
        }
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 9);
    }
}
