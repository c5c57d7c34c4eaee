/// Implements [`Error`](std::error::Error) and [`Failure`](crate::Failure) for an engine's error. The engine itself
/// implements [`Display`](std::fmt::Display).
///
/// The error must have the variants `Unconnected`, with `source: Option<Arc<dyn Error + Send + Sync>>`, `Timeout` and
/// `Stopped`. The variants listed after `sources` have a `source` of another type, in an `Arc`. Those listed after
/// `lasting` make operations fail at once: see [`is_lasting`](crate::Failure::is_lasting).
///
/// # Examples
/// ```
/// use std::{error::Error as _, fmt, io, sync::Arc};
///
/// use keylatch_lease_remote::{Failure, failure};
///
/// #[derive(Clone, Debug)]
/// enum Error {
///     Unconnected { source: Option<Arc<dyn std::error::Error + Send + Sync>> },
///     Timeout,
///     Denied { source: Arc<io::Error> },
///     Stopped,
/// }
///
/// impl fmt::Display for Error {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         f.write_str("my server: it failed")
///     }
/// }
///
/// failure! { Error; sources: Denied; lasting: Denied }
///
/// let denied = Error::Denied { source: Arc::new(io::Error::other("no such user")) };
/// assert!(denied.is_lasting() && !Error::timeout().is_lasting());
/// assert_eq!(denied.source().unwrap().to_string(), "no such user");
/// assert!(Error::unconnected(None).source().is_none());
/// ```
#[macro_export]
macro_rules! failure {
    ($Error:ident; sources: $($Caused:ident),+; lasting: $($Lasting:ident),+) => {
        impl ::std::error::Error for $Error {
            fn source(&self) -> ::core::option::Option<&(dyn ::std::error::Error + 'static)> {
                match self {
                    $Error::Unconnected { source } => source.as_ref().map(|source| &**source as _),
                    $($Error::$Caused { source })|+ => ::core::option::Option::Some(&**source),
                    _ => ::core::option::Option::None,
                }
            }
        }

        impl $crate::Failure for $Error {
            fn unconnected(cause: ::core::option::Option<$crate::BoxError>) -> Self {
                $Error::Unconnected { source: cause.map(::std::sync::Arc::from) }
            }

            fn timeout() -> Self {
                $Error::Timeout
            }

            fn stopped() -> Self {
                $Error::Stopped
            }

            fn is_lasting(&self) -> bool {
                ::core::matches!(self, $($Error::$Lasting { .. })|+)
            }
        }
    };
}
