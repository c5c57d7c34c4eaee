//! Durations, policies and resources, as the table has them.

use std::{fmt::Write, time::Duration};

use keylatch_lease::{Expiry, Resource};

/// Beyond this many microseconds, some 285 years, an end is never reached.
const NEVER: u128 = 1 << 53;

/// Microseconds, rounded up; `None`: for ever.
pub(crate) fn micros(time: Duration) -> Option<i64> {
    let micros = time.as_nanos().div_ceil(1000);
    if micros < NEVER { i64::try_from(micros).ok() } else { None }
}

pub(crate) fn from_micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Kind and durations of a policy, in nanoseconds. What cannot be kept is of another kind.
pub(crate) fn policy(expiry: &Expiry) -> (i8, Option<i64>, Option<i64>) {
    const OTHER: (i8, Option<i64>, Option<i64>) = (b'-' as i8, None, None);
    let nanos = |time: &Duration| i64::try_from(time.as_nanos()).ok();
    match expiry {
        Expiry::Fixed(total) => nanos(total).map_or(OTHER, |total| (b'f' as i8, None, Some(total))),
        Expiry::Sliding(idle) => nanos(idle).map_or(OTHER, |idle| (b's' as i8, Some(idle), None)),
        Expiry::SlidingUpTo { idle, total } => match (nanos(idle), nanos(total)) {
            (Some(idle), Some(total)) => (b'u' as i8, Some(idle), Some(total)),
            _ => OTHER,
        },
        Expiry::Never => (b'n' as i8, None, None),
        Expiry::Custom(_) => OTHER,
    }
}

pub(crate) fn expiry(kind: i8, idle: Option<i64>, total: Option<i64>) -> Option<Expiry> {
    let time = |nanos: Option<i64>| Some(Duration::from_nanos(u64::try_from(nanos?).ok()?));
    match kind as u8 {
        b'f' => Some(Expiry::Fixed(time(total)?)),
        b's' => Some(Expiry::Sliding(time(idle)?)),
        b'u' => Some(Expiry::SlidingUpTo { idle: time(idle)?, total: time(total)? }),
        b'n' => Some(Expiry::Never),
        _ => None,
    }
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
    use super::{channel, expiry, micros, policy, resource};
    use keylatch_lease::{Expiry, Resource};
    use std::time::Duration;

    #[test]
    fn a_time_is_rounded_up_and_a_very_long_one_is_for_ever() {
        assert_eq!(micros(Duration::from_nanos(1)), Some(1));
        assert_eq!(micros(Duration::from_nanos(1000)), Some(1));
        assert_eq!(micros(Duration::from_nanos(1001)), Some(2));
        assert_eq!(micros(Duration::MAX), None);
    }

    #[test]
    fn a_policy_comes_back_as_it_was() {
        let second = Duration::new(1, 1);
        let kept = [
            Expiry::Fixed(second),
            Expiry::Sliding(second),
            Expiry::SlidingUpTo { idle: second, total: 2 * second },
            Expiry::Never,
        ];
        for before in kept {
            let (kind, idle, total) = policy(&before);
            assert_eq!(expiry(kind, idle, total), Some(before));
        }
        for lost in [Expiry::custom(Some), Expiry::Sliding(Duration::MAX)] {
            let (kind, idle, total) = policy(&lost);
            assert_eq!(expiry(kind, idle, total), None);
        }
    }

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
