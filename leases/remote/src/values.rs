//! Durations and policies as plain numbers.

use std::time::Duration;

use keylatch_lease::Expiry;

/// A time of this many microseconds (some 285 years) or more counts as infinite. Smaller numbers are also exact as
/// floats.
const NEVER: u128 = 1 << 53;

/// Converts a time into microseconds, rounded up; `None` for 285 years or more, which count as infinite.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease_remote::micros;
///
/// assert_eq!(micros(Duration::from_nanos(1001)), Some(2));
/// assert_eq!(micros(Duration::MAX), None);
/// ```
#[must_use]
pub fn micros(time: Duration) -> Option<i64> {
    let micros = time.as_nanos().div_ceil(1000);
    if micros < NEVER { i64::try_from(micros).ok() } else { None }
}

/// Converts microseconds into a time. A negative number, of a lease that has already ended, becomes zero.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease_remote::from_micros;
///
/// assert_eq!(from_micros(2), Duration::from_micros(2));
/// assert_eq!(from_micros(-1), Duration::ZERO);
/// ```
#[must_use]
pub fn from_micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// A policy as servers store it.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease::Expiry;
/// use keylatch_lease_remote::Policy;
///
/// let kept = Policy::of(&Expiry::Sliding(Duration::from_secs(1)));
/// assert_eq!((kept.kind, kept.idle, kept.total), (b's', Some(1_000_000_000), None));
/// assert_eq!(kept.expiry(), Some(Expiry::Sliding(Duration::from_secs(1))));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `f`ixed, `s`liding, sliding `u`p to, `n`ever; `-` for a policy that cannot be stored: a custom one, or one with
    /// a duration of more than 292 years.
    pub kind: u8,
    /// The length of the lease from its beginning and from each renewal, in nanoseconds.
    pub idle: Option<i64>,
    /// The longest time from the start of the tenure to its end, even if it is renewed, in nanoseconds.
    pub total: Option<i64>,
}

impl Policy {
    /// Returns the stored form of a policy.
    ///
    /// # Examples
    /// See [`Policy`].
    #[must_use]
    pub fn of(expiry: &Expiry) -> Self {
        let nanos = |time: &Duration| i64::try_from(time.as_nanos()).ok();
        let kept = match expiry {
            Expiry::Fixed(total) => nanos(total).map(|total| (b'f', None, Some(total))),
            Expiry::Sliding(idle) => nanos(idle).map(|idle| (b's', Some(idle), None)),
            Expiry::SlidingUpTo { idle, total } => match (nanos(idle), nanos(total)) {
                (Some(idle), Some(total)) => Some((b'u', Some(idle), Some(total))),
                _ => None,
            },
            Expiry::Never => Some((b'n', None, None)),
            Expiry::Custom(_) => None,
        };
        let (kind, idle, total) = kept.unwrap_or((b'-', None, None));
        Policy { kind, idle, total }
    }

    /// Returns the policy that was stored; `None` if it could not be stored.
    ///
    /// # Examples
    /// See [`Policy`].
    #[must_use]
    pub fn expiry(&self) -> Option<Expiry> {
        let time = |nanos: Option<i64>| Some(Duration::from_nanos(u64::try_from(nanos?).ok()?));
        match self.kind {
            b'f' => Some(Expiry::Fixed(time(self.total)?)),
            b's' => Some(Expiry::Sliding(time(self.idle)?)),
            b'u' => Some(Expiry::SlidingUpTo { idle: time(self.idle)?, total: time(self.total)? }),
            b'n' => Some(Expiry::Never),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Policy, micros};
    use keylatch_lease::Expiry;
    use std::time::Duration;

    #[test]
    fn a_time_is_rounded_up_and_more_than_285_years_are_for_ever() {
        assert_eq!(micros(Duration::from_nanos(1)), Some(1));
        assert_eq!(micros(Duration::from_nanos(1000)), Some(1));
        assert_eq!(micros(Duration::from_nanos(1001)), Some(2));
        assert_eq!(micros(Duration::MAX), None);
    }

    #[test]
    fn a_policy_is_read_back_as_it_was_stored() {
        let second = Duration::new(1, 1);
        let kept = [
            Expiry::Fixed(second),
            Expiry::Sliding(second),
            Expiry::SlidingUpTo { idle: second, total: 2 * second },
            Expiry::Never,
        ];
        for before in kept {
            assert_eq!(Policy::of(&before).expiry(), Some(before));
        }
        let too_long = Expiry::SlidingUpTo { idle: second, total: Duration::MAX };
        for lost in [Expiry::custom(Some), Expiry::Sliding(Duration::MAX), too_long] {
            assert_eq!(Policy::of(&lost), Policy { kind: b'-', idle: None, total: None });
            assert_eq!(Policy::of(&lost).expiry(), None);
        }
    }
}
