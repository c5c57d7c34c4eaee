use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

/// A policy that decides when a lease ends if it is not released.
///
/// | policy | the lease ends | a renewal |
/// |---|---|---|
/// | `Fixed(d)` | `d` after the tenure's first acquire | is refused as not renewable; the lease runs on to its end |
/// | `Sliding(d)` | `d` after the last acquire or renewal | restarts `d` |
/// | `SlidingUpTo { idle, total }` | `idle` after the last acquire or renewal, but at most `total` after the first acquire | restarts `idle`, up to that limit |
/// | `Never` | when it is released | succeeds and changes nothing |
/// | `Custom(policy)` | when the policy says | asks the policy again |
///
/// A renewal uses the policy of the grant that is passed to it, and never shortens a lease. If an owner has acquired a
/// lease twice under two policies, it has two grants of one tenure: **if the older grant has the longer policy, a
/// renewal with it extends the lease beyond what the newer policy allows**. Keep the latest grant, and drop the others.
///
/// The calls take `impl Into<Expiry>`, and a [`Duration`] converts to `Sliding`, so a plain duration will do. A lease
/// whose end is too far off to fit the clock's [`Duration`] never ends.
///
/// Two policies are equal if they are of the same kind and have the same durations. Two custom policies are equal if
/// they share one `Arc`.
///
/// # Panics
///
/// Creating an expiry never panics. A call that is given an expiry with a duration of zero panics, and changes nothing.
///
/// # Examples
///
/// ```
/// use core::time::Duration;
/// use keylatch_lease::Expiry;
///
/// let form = Expiry::SlidingUpTo {
///     idle: Duration::from_secs(15 * 60),
///     total: Duration::from_secs(8 * 60 * 60),
/// };
/// let job = Expiry::from(Duration::from_secs(30));
/// assert_eq!(job, Expiry::Sliding(Duration::from_secs(30)));
/// assert_ne!(job, form);
/// ```
#[derive(Clone)]
pub enum Expiry {
    /// The lease ends this long after the first acquire of the tenure. Renewing does not extend it.
    Fixed(Duration),
    /// The lease ends this long after the last acquire or renewal by its owner.
    Sliding(Duration),
    /// The lease ends as with `Sliding(idle)`, but at most `total` after the first acquire of the tenure.
    SlidingUpTo {
        /// The longest time without an acquire or renewal by the owner.
        idle: Duration,
        /// The longest duration of the tenure.
        total: Duration,
    },
    /// The lease ends when it is released.
    Never,
    /// The lease ends when this policy says; see [`Expiry::custom`].
    Custom(Arc<dyn ExpiryPolicy>),
}

impl Expiry {
    /// Creates a custom policy from a value that implements [`ExpiryPolicy`], such as a closure.
    ///
    /// # Examples
    ///
    /// A quarter of an hour at a time, and only a minute at a time once a tenure is an hour old:
    ///
    /// ```
    /// use core::time::Duration;
    /// use keylatch_lease::Expiry;
    ///
    /// const MINUTE: Duration = Duration::from_secs(60);
    ///
    /// let expiry = Expiry::custom(|held_for: Duration| {
    ///     Some(if held_for < 60 * MINUTE { 15 * MINUTE } else { MINUTE })
    /// });
    /// assert!(matches!(expiry, Expiry::Custom(_)));
    /// ```
    #[must_use]
    pub fn custom(policy: impl ExpiryPolicy + 'static) -> Self {
        Self::Custom(Arc::new(policy))
    }

    /// Returns the policy as a term; `None` for a custom policy, which must be asked.
    pub(crate) fn term(&self) -> Option<Term> {
        match *self {
            // The total holds the end in place when the owner acquires again.
            Self::Fixed(d) => Some(Term { idle: Some(d), total: Some(d) }),
            Self::Sliding(d) => Some(Term { idle: Some(d), total: None }),
            Self::SlidingUpTo { idle, total } => Some(Term { idle: Some(idle), total: Some(total) }),
            Self::Never => Some(Term::FOREVER),
            Self::Custom(_) => None,
        }
    }

    /// Panics if a duration is zero. Each call with an expiry makes this check before it does anything.
    #[track_caller]
    pub(crate) fn assert_not_zero(&self) {
        if let Some(argument) = self.zero() {
            panic!("keylatch-lease: the duration of a lease must not be zero: {argument}");
        }
    }

    /// Returns the name of a duration that is zero, if there is one.
    pub(crate) fn zero(&self) -> Option<&'static str> {
        match self {
            Self::Fixed(d) if d.is_zero() => Some("`Expiry::Fixed`"),
            Self::Sliding(d) if d.is_zero() => Some("`Expiry::Sliding`"),
            Self::SlidingUpTo { idle, .. } if idle.is_zero() => Some("`idle` of `Expiry::SlidingUpTo`"),
            Self::SlidingUpTo { total, .. } if total.is_zero() => Some("`total` of `Expiry::SlidingUpTo`"),
            Self::Fixed(_) | Self::Sliding(_) | Self::SlidingUpTo { .. } | Self::Never | Self::Custom(_) => None,
        }
    }
}

impl From<&Expiry> for Expiry {
    /// Clones the policy.
    fn from(expiry: &Expiry) -> Self {
        expiry.clone()
    }
}

impl From<Duration> for Expiry {
    /// Returns [`Expiry::Sliding`].
    fn from(idle: Duration) -> Self {
        Self::Sliding(idle)
    }
}

impl PartialEq for Expiry {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fixed(a), Self::Fixed(b)) | (Self::Sliding(a), Self::Sliding(b)) => a == b,
            (Self::SlidingUpTo { idle: a, total: b }, Self::SlidingUpTo { idle: c, total: d }) => a == c && b == d,
            (Self::Never, Self::Never) => true,
            (Self::Custom(a), Self::Custom(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Eq for Expiry {}

impl fmt::Debug for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(d) => f.debug_tuple("Fixed").field(d).finish(),
            Self::Sliding(d) => f.debug_tuple("Sliding").field(d).finish(),
            Self::SlidingUpTo { idle, total } => {
                f.debug_struct("SlidingUpTo").field("idle", idle).field("total", total).finish()
            }
            Self::Never => f.write_str("Never"),
            Self::Custom(_) => f.write_str("Custom(..)"),
        }
    }
}

/// A custom expiry policy, for [`Expiry::Custom`].
///
/// Closures from [`Duration`] to `Option<Duration>` are policies, too. A policy runs outside every lock, so it may take
/// its time and use the leases itself. It may run in several threads at once.
///
/// # Examples
///
/// A policy that an operator can switch off. The leases under it then run to their ends, and no new ones are granted:
///
/// ```
/// use core::sync::atomic::{AtomicBool, Ordering};
/// use core::time::Duration;
/// use keylatch_lease::{Expiry, ExpiryPolicy};
/// use std::sync::Arc;
///
/// #[derive(Default)]
/// struct UntilDrained {
///     draining: AtomicBool,
/// }
///
/// impl ExpiryPolicy for UntilDrained {
///     fn remaining(&self, _held_for: Duration) -> Option<Duration> {
///         (!self.draining.load(Ordering::Relaxed)).then_some(Duration::from_secs(30))
///     }
/// }
///
/// let policy = Arc::new(UntilDrained::default());
/// let expiry = Expiry::Custom(policy.clone());
/// assert_eq!(policy.remaining(Duration::ZERO), Some(Duration::from_secs(30)));
///
/// policy.draining.store(true, Ordering::Relaxed);
/// assert_eq!(policy.remaining(Duration::from_secs(10)), None);
/// # drop(expiry);
/// ```
pub trait ExpiryPolicy: Send + Sync {
    /// Returns the time that the lease may run from now, when its tenure has lasted `held_for`.
    ///
    /// It is called at each acquire and at each renewal. `held_for` is zero at the tenure's first acquire, and the time
    /// since then at each later acquire or renewal.
    ///
    /// `None` and a duration of zero mean *no more time*: the first acquire is refused; a later acquire succeeds, but
    /// leaves the end where it is; a renewal is refused as not renewable, and the lease runs on to its end. An answer
    /// that would end the lease earlier leaves the end where it is, too.
    ///
    /// # Examples
    ///
    /// ```
    /// use core::time::Duration;
    /// use keylatch_lease::ExpiryPolicy;
    ///
    /// // A minute at a time, and no more time after ten minutes.
    /// let policy = |held_for: Duration| (held_for.as_secs() < 600).then_some(Duration::from_secs(60));
    /// assert_eq!(policy.remaining(Duration::ZERO), Some(Duration::from_secs(60)));
    /// assert_eq!(policy.remaining(Duration::from_secs(600)), None);
    /// ```
    fn remaining(&self, held_for: Duration) -> Option<Duration>;
}

impl<F> ExpiryPolicy for F
where
    F: Fn(Duration) -> Option<Duration> + Send + Sync,
{
    fn remaining(&self, held_for: Duration) -> Option<Duration> {
        self(held_for)
    }
}

/// The limits of a lease: `idle` from now, but no later than `total` from the start of the tenure. `None` means no
/// limit.
///
/// Engines compute with terms: every policy except a custom one is equivalent to a term.
///
/// # Examples
///
/// ```
/// use core::time::Duration;
/// use keylatch_lease::Term;
///
/// let minutes = |n: u64| Duration::from_secs(60 * n);
/// let term = Term { idle: Some(minutes(15)), total: Some(minutes(60)) };
///
/// // Acquired in minute 100; renewed in minute 110 and, after more renewals, in minute 155.
/// assert_eq!(term.end(minutes(100), minutes(100)), Some(minutes(115)));
/// assert_eq!(term.end(minutes(100), minutes(110)), Some(minutes(125)));
/// assert_eq!(term.end(minutes(100), minutes(155)), Some(minutes(160)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The duration of the lease from now.
    pub idle: Option<Duration>,
    /// The longest duration of the tenure from its start.
    pub total: Option<Duration>,
}

impl Term {
    /// The term of a lease that never ends.
    ///
    /// # Examples
    ///
    /// ```
    /// use core::time::Duration;
    /// use keylatch_lease::Term;
    ///
    /// assert_eq!(Term::FOREVER.end(Duration::ZERO, Duration::from_secs(1)), None);
    /// ```
    pub const FOREVER: Self = Self { idle: None, total: None };

    /// Returns the end of a tenure that began at `start` and is acquired or renewed at `now`; `None` if it never ends.
    ///
    /// All three are times of the same clock. If the end does not fit a [`Duration`], the tenure never ends.
    ///
    /// # Examples
    ///
    /// ```
    /// use core::time::Duration;
    /// use keylatch_lease::Term;
    ///
    /// let secs = Duration::from_secs;
    /// let sliding = Term { idle: Some(secs(5)), total: None };
    /// assert_eq!(sliding.end(secs(10), secs(12)), Some(secs(17)));
    ///
    /// let too_long = Term { idle: Some(Duration::MAX), total: None };
    /// assert_eq!(too_long.end(secs(10), secs(12)), None);
    /// ```
    #[must_use]
    pub fn end(&self, start: Duration, now: Duration) -> Option<Duration> {
        let idle = self.idle.and_then(|idle| now.checked_add(idle));
        let total = self.total.and_then(|total| start.checked_add(total));
        match (idle, total) {
            (Some(idle), Some(total)) => Some(idle.min(total)),
            (idle, total) => idle.or(total),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Expiry, Term};
    use core::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn end(expiry: &Expiry, start: u32, now: u32) -> Option<Duration> {
        expiry.term().expect("not a custom policy").end(start * SECOND, now * SECOND)
    }

    #[test]
    fn each_policy_but_a_custom_one_is_a_term() {
        let fixed = Expiry::Fixed(10 * SECOND);
        assert_eq!([end(&fixed, 5, 5), end(&fixed, 5, 12)], [Some(15 * SECOND); 2]);

        let sliding = Expiry::Sliding(10 * SECOND);
        assert_eq!([end(&sliding, 5, 5), end(&sliding, 5, 12)], [Some(15 * SECOND), Some(22 * SECOND)]);

        let capped = Expiry::SlidingUpTo { idle: 10 * SECOND, total: 14 * SECOND };
        assert_eq!([end(&capped, 5, 5), end(&capped, 5, 12)], [Some(15 * SECOND), Some(19 * SECOND)]);

        assert_eq!(Expiry::Never.term(), Some(Term::FOREVER));
        assert_eq!(Expiry::custom(Some).term(), None);
    }

    #[test]
    fn policies_without_a_zero_pass() {
        Expiry::Fixed(SECOND).assert_not_zero();
        Expiry::Sliding(Duration::MAX).assert_not_zero();
        Expiry::SlidingUpTo { idle: SECOND, total: Duration::from_nanos(1) }.assert_not_zero();
        Expiry::Never.assert_not_zero();
        Expiry::custom(|_| None).assert_not_zero();
    }

    #[test]
    #[should_panic(expected = "must not be zero: `Expiry::Fixed`")]
    fn a_fixed_zero_panics() {
        Expiry::Fixed(Duration::ZERO).assert_not_zero();
    }

    #[test]
    #[should_panic(expected = "must not be zero: `Expiry::Sliding`")]
    fn a_sliding_zero_panics() {
        Expiry::Sliding(Duration::ZERO).assert_not_zero();
    }

    #[test]
    #[should_panic(expected = "must not be zero: `idle` of `Expiry::SlidingUpTo`")]
    fn an_idle_time_of_zero_panics() {
        Expiry::SlidingUpTo { idle: Duration::ZERO, total: SECOND }.assert_not_zero();
    }

    #[test]
    #[should_panic(expected = "must not be zero: `total` of `Expiry::SlidingUpTo`")]
    fn a_total_time_of_zero_panics() {
        Expiry::SlidingUpTo { idle: SECOND, total: Duration::ZERO }.assert_not_zero();
    }
}
