use std::time::Duration;

/// The properties that an engine declares, and the guarantees and cases from which it is excused.
///
/// # Examples
/// An engine that counts whole seconds, and whose waiters poll twice a second:
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease_conformance::{Caps, Excuse};
///
/// let mut caps = Caps::new(Duration::from_secs(2));
/// caps.delta = Duration::from_millis(600);
/// caps.excuses.push(Excuse::guarantee(7, "there is no transaction over several keys: one release after the other"));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Caps {
    /// *T*: the length of the leases that a case lets expire. It must be at least the shortest length that the engine
    /// supports, and longer than this machine's delays: a second or two for a real server.
    pub ttl: Duration,
    /// The length of leases that must not end while a case runs. Ten minutes by default; set it to less if the engine
    /// has no such leases.
    pub long: Duration,
    /// Whether all leases of a namespace last equally long: each lasts for [`ttl`](Self::ttl), whatever a request asks
    /// for. The cases then request only that time, and a case that cannot check everything is reported as weakened.
    pub is_ttl_fixed: bool,
    /// *δ*: the longest delay between the end of a tenure and the next waiter's grant, as the engine documents it. For
    /// an engine whose waiters poll, it is at least the interval between two polls. Half a second by default.
    pub delta: Duration,
    /// The additional delay that is blamed on this machine: a fault of the engine shows only if it causes a longer one.
    /// Ten seconds by default.
    pub noise: Duration,
    /// The longest delay before a holder learns that another call has ended its tenure, as the engine documents it.
    /// Half a second by default. `None` if the engine sends holders [no
    /// message](keylatch_lease::engine::Engine::subscribe): they then learn of the end when they renew, within a third
    /// of the lease's time.
    pub notice: Option<Duration>,
    /// The engine's longest quarantine after it has forgotten everything: see
    /// [`Server::forget`](crate::Server::forget). A minute by default.
    pub quarantine: Duration,
    /// The number of waiting processes in [the case](crate#cases) with many of them. 64 by default.
    pub processes: usize,
    /// The guarantees that the engine does not make, and the cases that it need not pass.
    pub excuses: Vec<Excuse>,
}

impl Caps {
    /// Returns the usual properties. The leases that a case lets expire have this length.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let caps = keylatch_lease_conformance::Caps::new(Duration::from_secs(1));
    /// assert!(caps.excuses.is_empty());
    /// ```
    #[must_use]
    pub fn new(ttl: Duration) -> Self {
        Caps {
            ttl,
            long: Duration::from_secs(600),
            is_ttl_fixed: false,
            delta: Duration::from_millis(500),
            noise: Duration::from_secs(10),
            notice: Some(Duration::from_millis(500)),
            quarantine: Duration::from_secs(60),
            processes: 64,
            excuses: Vec::new(),
        }
    }
}

/// A guarantee that an engine does not make, or a case that it need not pass, with the reason.
///
/// Only the failed checks of that guarantee, or of that case, are excused; all others are demanded in full. The case is
/// run as far as possible, and reported as weakened if such a check fails, or if the case itself is excused.
///
/// # Examples
/// ```
/// use keylatch_lease_conformance::Excuse;
///
/// let of_a_guarantee = Excuse::guarantee(8, "take-over waits for the next poll");
/// let of_a_case = Excuse::case(22, "a restart without its disk is not supported");
/// assert_ne!(of_a_guarantee, of_a_case);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excuse {
    pub(crate) of: Excused,
    pub(crate) reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excused {
    Case(u32),
    Guarantee(u32),
}

impl Excuse {
    /// Excuses the case of this number. It is reported as weakened even if it passes.
    ///
    /// # Examples
    /// See [`Excuse`].
    #[must_use]
    pub fn case(number: u32, reason: impl Into<String>) -> Self {
        Excuse { of: Excused::Case(number), reason: reason.into() }
    }

    /// Excuses the checks of this guarantee, in all cases.
    ///
    /// # Examples
    /// See [`Excuse`].
    #[must_use]
    pub fn guarantee(number: u32, reason: impl Into<String>) -> Self {
        Excuse { of: Excused::Guarantee(number), reason: reason.into() }
    }
}
