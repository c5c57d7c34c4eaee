use std::time::Duration;

/// The properties that an engine declares, and the cases that it is excused from.
///
/// # Examples
/// An engine with whole seconds, whose waiters ask every half second:
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
    /// *T*: how long the leases are that are to end by themselves. At least the shortest that the engine has, and long enough that this
    /// machine does not sleep over it: a second or two for a real server.
    pub ttl: Duration,
    /// The duration of leases that must not end while a case runs. Ten minutes by default; less where the engine has no such leases.
    pub long: Duration,
    /// Whether all leases of a namespace last equally long: [`ttl`](Self::ttl), whatever is asked for. The cases then ask for that
    /// alone, and what they cannot show is reported as weakened.
    pub is_ttl_fixed: bool,
    /// *δ*: how much later than the end of the tenure before it a waiter may have the lease, in the engine's own account of itself. An
    /// engine that polls has at least its interval here. Half a second by default.
    pub delta: Duration,
    /// How much later than that may still be this machine's fault. Nothing that is a fault of the engine takes so long. Ten seconds by
    /// default.
    pub noise: Duration,
    /// How late a holder may learn that somebody else has ended its tenure, in the engine's own account of itself: that takes a message. Half a
    /// second by default. `None`: it is [not told](keylatch_lease::engine::Engine::subscribe), and finds out when it renews, after a third of its
    /// lease's time.
    pub notice: Option<Duration>,
    /// The longest quarantine of the engine after it has forgotten everything: see [`Server::forget`](crate::Server::forget).
    pub quarantine: Duration,
    /// The number of processes that wait in [the case](crate#cases) that has many. 64 by default.
    pub processes: usize,
    /// The guarantees that the engine does not make.
    pub excuses: Vec<Excuse>,
}

impl Caps {
    /// The usual properties, with leases of this duration where they should expire.
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

/// A guarantee that an engine does not make, with the reason.
///
/// It excuses what is seen to be wrong; everything else is demanded as ever. The case is run as far as it can be, and reported as weakened.
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
    /// The case of this number need not pass. It is reported as weakened even if it does.
    ///
    /// # Examples
    /// See [`Excuse`].
    #[must_use]
    pub fn case(number: u32, reason: impl Into<String>) -> Self {
        Excuse { of: Excused::Case(number), reason: reason.into() }
    }

    /// The checks for this guarantee need not hold, in any case.
    ///
    /// # Examples
    /// See [`Excuse`].
    #[must_use]
    pub fn guarantee(number: u32, reason: impl Into<String>) -> Self {
        Excuse { of: Excused::Guarantee(number), reason: reason.into() }
    }
}
