//! The settings that engines on servers share.

use std::time::Duration;

/// The greatest length of a namespace's name, in bytes.
const LONGEST_NAME: usize = 255;

/// The longest quarantine: a century, so that no server's numbers overflow.
const LONGEST_QUARANTINE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The settings that all engines on servers have.
///
/// An engine's options contain a `Settings` and the settings that only its server has. [`setters!`](crate::setters)
/// makes the options' methods.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease_remote::Settings;
///
/// let settings = Settings::new("shop", None).timeout(Duration::from_secs(2));
/// assert_eq!(settings.timeout, Duration::from_secs(2));
/// assert_eq!(settings.quarantine, Duration::from_secs(60));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Settings {
    /// The name of the set of leases that the engine works on.
    pub namespace: String,
    /// The time limit of an operation.
    pub timeout: Duration,
    /// The longest time that a waiter sleeps before it asks again without being notified.
    pub fallback: Duration,
    /// The time between two sweeps of the driver; `None` if it never sweeps.
    pub sweeps: Option<Duration>,
    /// The time during which nothing is granted after the server may have forgotten leases.
    pub quarantine: Duration,
}

impl Settings {
    /// Returns the defaults: a timeout and a fallback of 5 s, a quarantine of 60 s, and the given time between sweeps.
    ///
    /// # Panics
    /// If the name is longer than 255 bytes.
    ///
    /// # Examples
    /// See [`Settings`].
    pub fn new(namespace: impl Into<String>, sweeps: Option<Duration>) -> Self {
        let namespace = namespace.into();
        assert!(
            namespace.len() <= LONGEST_NAME,
            "the name of a namespace must not be longer than {LONGEST_NAME} bytes"
        );
        Settings {
            namespace,
            timeout: Duration::from_secs(5),
            fallback: Duration::from_secs(5),
            sweeps,
            quarantine: Duration::from_secs(60),
        }
    }

    /// Sets the time limit of an operation.
    ///
    /// # Panics
    /// If it is zero.
    ///
    /// # Examples
    /// See [`Settings`].
    pub fn timeout(self, timeout: Duration) -> Self {
        assert!(!timeout.is_zero(), "the timeout must not be zero");
        Settings { timeout, ..self }
    }

    /// Sets the longest time that a waiter sleeps before it asks again without being notified.
    ///
    /// # Panics
    /// If it is zero.
    ///
    /// # Examples
    /// See [`setters!`](crate::setters).
    pub fn fallback(self, fallback: Duration) -> Self {
        assert!(!fallback.is_zero(), "the fallback must not be zero");
        Settings { fallback, ..self }
    }

    /// Sets the time between two sweeps of the driver.
    ///
    /// # Panics
    /// If it is zero.
    ///
    /// # Examples
    /// See [`setters!`](crate::setters).
    pub fn sweeps(self, sweeps: Option<Duration>) -> Self {
        assert!(!sweeps.is_some_and(|time| time.is_zero()), "the time between sweeps must not be zero");
        Settings { sweeps, ..self }
    }

    /// Sets the quarantine. A quarantine of more than a century is shortened to a century.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease_remote::Settings;
    ///
    /// let settings = Settings::new("shop", None).quarantine(Duration::MAX);
    /// assert!(settings.quarantine < Duration::MAX);
    /// ```
    pub fn quarantine(self, quarantine: Duration) -> Self {
        Settings { quarantine: quarantine.min(LONGEST_QUARANTINE), ..self }
    }
}

/// Makes the methods of an engine's options that set its [`Settings`](crate::Settings). Each method gets the
/// documentation written before it.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease_remote::{Settings, setters};
///
/// struct Options {
///     settings: Settings,
/// }
///
/// impl Options {
///     setters! { settings;
///         /// Sets the longest time that a waiter sleeps.
///         pub fn fallback(time: Duration);
///         /// Sets the interval at which ended leases are removed.
///         pub fn sweeps(every: Option<Duration>);
///     }
/// }
///
/// let options = Options { settings: Settings::new("shop", None) };
/// let options = options.fallback(Duration::from_secs(9)).sweeps(Some(Duration::from_secs(60)));
/// assert_eq!(options.settings.fallback, Duration::from_secs(9));
/// ```
#[macro_export]
macro_rules! setters {
    ($settings:ident; $($(#[$doc:meta])* pub fn $name:ident($value:ident: $Value:ty);)+) => {
        $(
            $(#[$doc])*
            pub fn $name(mut self, $value: $Value) -> Self {
                self.$settings = self.$settings.$name($value);
                self
            }
        )+
    };
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_NAME, Settings};
    use std::{panic::catch_unwind, time::Duration};

    #[test]
    fn a_timeout_fallback_or_sweep_interval_of_zero_is_refused() {
        let refused = |set: fn(Settings) -> Settings| catch_unwind(|| set(Settings::new("shop", None))).is_err();
        assert!(refused(|settings| settings.timeout(Duration::ZERO)));
        assert!(refused(|settings| settings.fallback(Duration::ZERO)));
        assert!(refused(|settings| settings.sweeps(Some(Duration::ZERO))));
        assert!(!refused(|settings| settings.quarantine(Duration::ZERO).sweeps(None)));
    }

    #[test]
    fn a_name_that_is_too_long_is_refused() {
        assert!(catch_unwind(|| Settings::new("n".repeat(LONGEST_NAME + 1), None)).is_err());
        assert_eq!(Settings::new("n".repeat(LONGEST_NAME), None).namespace.len(), LONGEST_NAME);
    }
}
