use core::convert::Infallible;
use core::error::Error;
use core::fmt;
use core::time::Duration;

use crate::{Owner, Resource, invalid::Invalid};

/// Why a lease was not acquired.
///
/// `X` is the error of the engine; in memory there is none. The [`source`](Error::source) of [`Engine`](Self::Engine) is
/// that error, and the other variants have no source.
///
/// # Examples
///
/// ```
/// use core::time::Duration;
/// use keylatch_lease::{AcquireError, Owner, Resource};
///
/// fn tell(error: &AcquireError) -> String {
///     match error {
///         AcquireError::Busy { owner, .. } => format!("{owner} is editing this"),
///         other => other.to_string(),
///     }
/// }
///
/// let resource = Resource::new("invoice", "2024-17");
/// let busy = AcquireError::Busy {
///     resource: resource.clone(),
///     owner: Owner::named("jane"),
///     remaining: Some(Duration::from_secs(90)),
/// };
/// assert_eq!(tell(&busy), "jane is editing this");
/// assert_eq!(busy.to_string(), "invoice/2024-17 is leased to jane for another 90s");
/// assert_eq!(tell(&AcquireError::Limit { resource }), "invoice/2024-17 did not come free in time");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError<X = Infallible> {
    /// Another owner has it, and the call does not wait.
    Busy {
        /// The request.
        resource: Resource,
        /// Its owner.
        owner: Owner,
        /// The time left of that lease, unless it is renewed; `None`: it never expires.
        remaining: Option<Duration>,
    },
    /// The limit of the wait came first.
    Limit {
        /// The request.
        resource: Resource,
    },
    /// The custom expiry policy grants no time at all.
    Refused {
        /// The request.
        resource: Resource,
    },
    /// The engine cannot keep leases as short as that.
    TtlTooShort {
        /// The request.
        resource: Resource,
        /// The shortest the engine takes.
        min: Duration,
    },
    /// The engine has lost its data and grants nothing until every lease it may have forgotten has expired.
    Quarantined {
        /// The request.
        resource: Resource,
        /// The additional time that it takes.
        remaining: Duration,
    },
    /// An argument that no call takes: an owner with an empty name, or a name or resource longer than 1,024 bytes.
    Invalid {
        /// `"owner"` or `"resource"`.
        argument: &'static str,
    },
    /// The engine failed. It may have granted the lease all the same; asking again then resumes it.
    Engine(X),
}

/// Why a lease was not renewed.
///
/// `X` is the error of the engine; in memory there is none. The [`source`](Error::source) of [`Engine`](Self::Engine) is
/// that error, and the other variants have no source.
///
/// # Examples
///
/// ```
/// use keylatch_lease::{Lost, RenewError};
///
/// fn may_go_on(error: &RenewError) -> bool {
///     // A lease that cannot be renewed runs on to its end.
///     matches!(error, RenewError::NotRenewable { .. })
/// }
///
/// let lost = RenewError::Lost(Lost::TakenOver);
/// assert!(!may_go_on(&lost));
/// assert_eq!(lost.to_string(), "the lease is lost: it has been taken over");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RenewError<X = Infallible> {
    /// The tenure is over: there is nothing left to renew.
    Lost(Lost),
    /// The expiry is `Fixed`, or the custom policy says no, or was lost on the way through serde. The lease runs on to
    /// its end.
    NotRenewable {
        /// The leased resource.
        resource: Resource,
    },
    /// An argument that no call takes: an owner with an empty name, or a name or resource longer than 1,024 bytes.
    Invalid {
        /// `"owner"` or `"resource"`.
        argument: &'static str,
    },
    /// The engine failed. It may have renewed the lease all the same; asking again does no harm.
    Engine(X),
}

/// Why a lease was not released.
///
/// `X` is the error of the engine; in memory there is none. The [`source`](Error::source) of [`Engine`](Self::Engine) is
/// that error, and the other variants have no source.
///
/// # Examples
///
/// ```
/// use keylatch_lease::{Owner, ReleaseError, Resource};
///
/// let error: ReleaseError = ReleaseError::NotOwner {
///     resource: Resource::new("invoice", "2024-17"),
///     owner: Owner::named("jane"),
/// };
/// assert_eq!(error.to_string(), "invoice/2024-17 was not released: jane has it in another tenure");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseError<X = Infallible> {
    /// Nobody has it: it was released before, or it has expired.
    NotHeld {
        /// The tenure to release.
        resource: Resource,
    },
    /// Another tenure has it: somebody else's, or a newer one of the same owner.
    NotOwner {
        /// The tenure to release.
        resource: Resource,
        /// Its owner.
        owner: Owner,
    },
    /// An argument that no call takes: an owner with an empty name, or a name or resource longer than 1,024 bytes.
    Invalid {
        /// `"owner"` or `"resource"`.
        argument: &'static str,
    },
    /// The engine failed. It may have released the lease all the same; asking again then says `NotHeld`, or `NotOwner` if
    /// somebody else has it by then.
    Engine(X),
}

/// Why a call failed that looks through the leases or clears them away.
///
/// `X` is the error of the engine; in memory there is none. The [`source`](Error::source) of [`Engine`](Self::Engine) is
/// that error, and the other variants have no source.
///
/// # Examples
///
/// ```
/// use keylatch_lease::LookError;
///
/// let error: LookError = LookError::Invalid { argument: "resource" };
/// assert_eq!(error.to_string(), "the resource is longer than 1024 bytes");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LookError<X = Infallible> {
    /// An argument that no call takes: an owner with an empty name, or a name or resource longer than 1,024 bytes.
    Invalid {
        /// `"owner"` or `"resource"`.
        argument: &'static str,
    },
    /// The engine failed. What the call was to clear away may be gone all the same.
    Engine(X),
}

/// How a tenure ended that its holder thought was still running.
///
/// # Examples
///
/// ```
/// use keylatch_lease::Lost;
///
/// fn worth_another_try(lost: Lost) -> bool {
///     // Who took it over is at work on it; a release was somebody's decision.
///     matches!(lost, Lost::Expired | Lost::EngineForgot)
/// }
///
/// assert!(worth_another_try(Lost::Expired));
/// assert_eq!(Lost::Expired.to_string(), "the lease is lost: it has expired");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// Its time has run out. Perhaps nobody else has it yet; the tenure is over all the same.
    Expired,
    /// Another tenure has it: somebody else's, or a newer one of the same owner.
    TakenOver,
    /// It was released: by its owner, or by somebody with the owner's name.
    Released,
    /// The engine does not know of it any more, though it has not expired: somebody has deleted it in the store; or it is not known how it was
    /// lost, as the engine did not answer that question, or several were lost while there was no connection.
    EngineForgot,
    /// It is still valid, but not for as long as was asked for.
    TooShort,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the lease is lost: it has expired",
            Self::TakenOver => "the lease is lost: it has been taken over",
            Self::Released => "the lease is lost: it has been released",
            Self::EngineForgot => "the lease is lost: the engine has forgotten it",
            Self::TooShort => "the lease does not run long enough",
        })
    }
}

impl<X: fmt::Display> fmt::Display for AcquireError<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy { resource, owner, remaining: Some(remaining) } => {
                write!(f, "{resource} is leased to {owner} for another {remaining:?}")
            }
            Self::Busy { resource, owner, remaining: None } => {
                write!(f, "{resource} is leased to {owner} until it is released")
            }
            Self::Limit { resource } => write!(f, "{resource} did not come free in time"),
            Self::Refused { resource } => write!(f, "the expiry policy refused a lease of {resource}"),
            Self::TtlTooShort { resource, min } => {
                write!(f, "the engine cannot lease {resource} for less than {min:?}")
            }
            Self::Quarantined { resource, remaining } => write!(
                f,
                "{resource} cannot be leased for another {remaining:?}: the engine may have forgotten leases that are \
                 still in use, or its namespace is new (then call the engine's `init` once, before the first program)"
            ),
            Self::Invalid { argument } => write_invalid(f, argument),
            Self::Engine(error) => write_engine(f, error),
        }
    }
}

impl<X: fmt::Display> fmt::Display for RenewError<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(lost) => fmt::Display::fmt(lost, f),
            Self::NotRenewable { resource } => write!(f, "the lease of {resource} cannot be renewed"),
            Self::Invalid { argument } => write_invalid(f, argument),
            Self::Engine(error) => write_engine(f, error),
        }
    }
}

impl<X: fmt::Display> fmt::Display for ReleaseError<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld { resource } => write!(f, "{resource} is not leased to anybody"),
            Self::NotOwner { resource, owner } => {
                write!(f, "{resource} was not released: {owner} has it in another tenure")
            }
            Self::Invalid { argument } => write_invalid(f, argument),
            Self::Engine(error) => write_engine(f, error),
        }
    }
}

impl<X: fmt::Display> fmt::Display for LookError<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { argument } => write_invalid(f, argument),
            Self::Engine(error) => write_engine(f, error),
        }
    }
}

fn write_invalid(f: &mut fmt::Formatter<'_>, argument: &str) -> fmt::Result {
    match argument {
        "owner" => f.write_str("the owner's name is empty or longer than 1024 bytes"),
        "resource" => f.write_str("the resource is longer than 1024 bytes"),
        other => write!(f, "the argument `{other}` is invalid"),
    }
}

// With what the engine says, though it is the source, too: most programs log the text and nothing else.
fn write_engine(f: &mut fmt::Formatter<'_>, error: &impl fmt::Display) -> fmt::Result {
    write!(f, "the lease engine failed: {error}")
}

impl Error for Lost {}

/// The part that the errors of all calls share: their origin.
macro_rules! call_error {
    ($($error:ident)*) => {$(
        impl<X: Error + 'static> Error for $error<X> {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                if let Self::Engine(error) = self { Some(error) } else { None }
            }
        }

        impl<X> From<Invalid> for $error<X> {
            fn from(Invalid(argument): Invalid) -> Self {
                Self::Invalid { argument }
            }
        }
    )*};
}

call_error!(AcquireError RenewError ReleaseError LookError);

impl<X> From<Lost> for RenewError<X> {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::{AcquireError, Invalid, LookError, ReleaseError, RenewError};

    #[test]
    fn an_invalid_argument_becomes_the_error_of_each_call() {
        fn ask<E: From<Invalid>>() -> Result<(), E> {
            Err(Invalid("owner"))?
        }
        assert_eq!(ask(), Err(AcquireError::<()>::Invalid { argument: "owner" }));
        assert_eq!(ask(), Err(RenewError::<()>::Invalid { argument: "owner" }));
        assert_eq!(ask(), Err(ReleaseError::<()>::Invalid { argument: "owner" }));
        assert_eq!(ask(), Err(LookError::<()>::Invalid { argument: "owner" }));
    }
}
