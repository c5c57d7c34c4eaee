use core::convert::Infallible;
use core::error::Error;
use core::fmt;
use core::time::Duration;

use crate::{Owner, Resource, invalid::Invalid};

/// The reason why a lease was not acquired.
///
/// `X` is the error of the engine; in memory there is none. The [`source`](Error::source) of [`Engine`](Self::Engine)
/// is that error, and the other variants have no source.
///
/// # Examples
///
/// ```
/// use core::time::Duration;
/// use keylatch_lease::{AcquireError, Owner, Resource};
///
/// fn message(error: &AcquireError) -> String {
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
/// assert_eq!(message(&busy), "jane is editing this");
/// assert_eq!(busy.to_string(), "invoice/2024-17 is leased to jane for another 90s");
/// let limit = AcquireError::Limit { resource };
/// assert_eq!(message(&limit), "gave up waiting for invoice/2024-17: the limit of the wait was reached");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError<X = Infallible> {
    /// Another owner has the lease, or a request waits for it, and the call does not wait. With
    /// [`try_hold_new`](crate::Leases::try_hold_new), the owner may be the one that makes the request.
    Busy {
        /// The requested resource.
        resource: Resource,
        /// The owner that has the resource or, if it is free, the owner of the first waiting request.
        owner: Owner,
        /// The time left of that owner's lease, unless it is renewed; `None` if it never expires, and zero if the
        /// resource is free.
        remaining: Option<Duration>,
    },
    /// The limit of the wait was reached before the lease was acquired.
    Limit {
        /// The requested resource.
        resource: Resource,
    },
    /// The custom expiry policy granted no time.
    Refused {
        /// The requested resource.
        resource: Resource,
    },
    /// The requested lease is shorter than the engine supports.
    TtlTooShort {
        /// The requested resource.
        resource: Resource,
        /// The shortest lease that the engine supports.
        min: Duration,
    },
    /// The engine has lost its data, or its namespace is new, and it grants nothing until every lease that it may have
    /// forgotten has expired.
    Quarantined {
        /// The requested resource.
        resource: Resource,
        /// The time left until the engine grants leases again.
        remaining: Duration,
    },
    /// An argument is invalid: the owner's name is empty, or the name or the resource is longer than 1,024 bytes.
    Invalid {
        /// `"owner"` or `"resource"`.
        argument: &'static str,
    },
    /// The engine failed. It may still have granted the lease; acquiring again then resumes it.
    Engine(X),
}

/// The reason why a lease was not renewed.
///
/// `X` is the error of the engine; in memory there is none. The [`source`](Error::source) of [`Engine`](Self::Engine)
/// is that error, and the other variants have no source.
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
    /// The tenure has ended: there is nothing left to renew.
    Lost(Lost),
    /// The expiry is `Fixed`, or its custom policy refused, or the grant has no policy, because a custom policy was
    /// lost when the grant was serialised or is not kept by the engine that returned the grant. The lease runs on to
    /// its end.
    NotRenewable {
        /// The leased resource.
        resource: Resource,
    },
    /// An argument is invalid: the owner's name is empty, or the name or the resource is longer than 1,024 bytes.
    Invalid {
        /// `"owner"` or `"resource"`.
        argument: &'static str,
    },
    /// The engine failed. It may still have renewed the lease; renewing again does no harm.
    Engine(X),
}

/// The reason why a lease was not released.
///
/// `X` is the error of the engine; in memory there is none. The [`source`](Error::source) of [`Engine`](Self::Engine)
/// is that error, and the other variants have no source.
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
/// assert_eq!(
///     error.to_string(),
///     "invoice/2024-17 was not released: jane holds it in a tenure other than that of the grant"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseError<X = Infallible> {
    /// No owner has the resource: its lease has already been released, or has expired.
    NotHeld {
        /// The resource to release.
        resource: Resource,
    },
    /// Another tenure has the resource: another owner's, or a newer one of the same owner.
    NotOwner {
        /// The resource to release.
        resource: Resource,
        /// The owner that has the resource.
        owner: Owner,
    },
    /// An argument is invalid: the owner's name is empty, or the name or the resource is longer than 1,024 bytes.
    Invalid {
        /// `"owner"` or `"resource"`.
        argument: &'static str,
    },
    /// The engine failed. It may still have released the lease; releasing again then returns `NotHeld`, or `NotOwner`
    /// if another tenure has begun since.
    Engine(X),
}

/// The reason why a call that looks up leases, or that ends several of them, failed.
///
/// `X` is the error of the engine; in memory there is none. The [`source`](Error::source) of [`Engine`](Self::Engine)
/// is that error, and the other variants have no source.
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
    /// An argument is invalid: the owner's name is empty, or the name or the resource is longer than 1,024 bytes, or
    /// the cursor of a list is not one of this engine's.
    Invalid {
        /// `"owner"`, `"resource"` or `"cursor"`.
        argument: &'static str,
    },
    /// The engine cannot list leases.
    Unsupported,
    /// The engine failed. It may still have ended the leases that the call was meant to end.
    Engine(X),
}

/// The way in which a tenure ended before its holder ended it, or the reason why [`check_for`](crate::Held::check_for)
/// failed although the tenure goes on ([`TooShort`](Self::TooShort)).
///
/// # Examples
///
/// ```
/// use keylatch_lease::Lost;
///
/// fn worth_another_try(lost: Lost) -> bool {
///     // After a take-over another holder is at work, and a release was somebody's decision.
///     matches!(lost, Lost::Expired | Lost::EngineForgot)
/// }
///
/// assert!(worth_another_try(Lost::Expired));
/// assert_eq!(Lost::Expired.to_string(), "the lease is lost: it has expired");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// The lease has expired. The tenure has ended, even if no other owner has acquired the resource yet.
    Expired,
    /// Another tenure has the resource: another owner's, or a newer one of the same owner.
    TakenOver,
    /// The lease was released: by its owner, by a caller that used the owner's name, or by an operator with the token.
    Released,
    /// The lease has not expired, but the engine no longer has it, because it was deleted in the store. This is also
    /// reported if the cause is unknown: because the engine did not answer, or because several leases were lost while
    /// there was no connection.
    EngineForgot,
    /// The lease is still valid, but for less time than the caller required.
    TooShort,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the lease is lost: it has expired",
            Self::TakenOver => "the lease is lost: it has been taken over",
            Self::Released => "the lease is lost: it has been released",
            Self::EngineForgot => "the lease is lost: the engine has forgotten it",
            Self::TooShort => "the lease is still valid, but ends sooner than required",
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
            Self::Limit { resource } => {
                write!(f, "gave up waiting for {resource}: the limit of the wait was reached")
            }
            Self::Refused { resource } => write!(f, "the expiry policy refused a lease of {resource}"),
            Self::TtlTooShort { resource, min } => {
                write!(f, "the engine cannot lease {resource} for less than {min:?}")
            }
            Self::Quarantined { resource, remaining } => write!(
                f,
                "{resource} cannot be leased for another {remaining:?}: the engine may have forgotten leases that are \
                 still in use, or its namespace is new (if so, call the engine's `init` once before any program uses it)"
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
            Self::NotRenewable { resource } => write!(
                f,
                "the lease of {resource} cannot be renewed: its expiry is `Fixed`, or its custom policy refused, or the \
                 policy was lost when the grant was serialised; acquire the lease again with a new expiry"
            ),
            Self::Invalid { argument } => write_invalid(f, argument),
            Self::Engine(error) => write_engine(f, error),
        }
    }
}

impl<X: fmt::Display> fmt::Display for ReleaseError<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld { resource } => write!(f, "{resource} was not released: no owner has a lease of it"),
            Self::NotOwner { resource, owner } => {
                write!(f, "{resource} was not released: {owner} holds it in a tenure other than that of the grant")
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
            Self::Unsupported => f.write_str("this engine cannot list leases"),
            Self::Engine(error) => write_engine(f, error),
        }
    }
}

fn write_invalid(f: &mut fmt::Formatter<'_>, argument: &str) -> fmt::Result {
    match argument {
        "owner" => f.write_str("the owner's name is empty or longer than 1024 bytes"),
        "resource" => f.write_str("the resource is longer than 1024 bytes"),
        "cursor" => f.write_str("the cursor is not one of this engine's lists"),
        other => write!(f, "the argument `{other}` is invalid"),
    }
}

// The engine's text is included although it is also the source: most programs log only the text.
fn write_engine(f: &mut fmt::Formatter<'_>, error: &impl fmt::Display) -> fmt::Result {
    write!(f, "the lease engine failed: {error}")
}

impl Error for Lost {}

/// Implements the traits that the errors of all calls share: their source, and the conversion from [`Invalid`].
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
