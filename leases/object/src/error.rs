use std::{error::Error as StdError, fmt, sync::Arc};

use keylatch_lease_remote::Causes;

/// The reason that an operation of the engine failed, or that the bucket cannot be used.
///
/// Its text says what failed, why, and what to do about the most common mistakes. The underlying error, if there is
/// one, is its [`source`](StdError::source).
///
/// # Examples
/// ```
/// use keylatch_lease_object::Error;
///
/// fn tell(error: &Error) -> &'static str {
///     match error {
///         Error::Throttled { .. } | Error::Timeout => "the store is busy: try again in a minute",
///         Error::Denied { .. } => "the program lacks a permission",
///         _ => "it is not available",
///     }
/// }
///
/// assert_eq!(tell(&Error::Timeout), "the store is busy: try again in a minute");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The engine's driver has not started yet.
    Unconnected {
        /// The reason, if it is known.
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
    /// There was no answer in time. The operation may have been carried out.
    Timeout,
    /// The store refuses requests because there are too many (`503 SlowDown`, `429`). The engine has sent the request
    /// several times, with growing pauses.
    Throttled {
        /// The error of the store's client.
        source: Arc<object_store::Error>,
    },
    /// The store does not accept the credentials, or they lack a permission: see the
    /// [crate's page](crate#what-the-store-needs).
    Denied {
        /// The error of the store's client.
        source: Arc<object_store::Error>,
    },
    /// The store lacks conditional writes, or its client is set up not to use them. Without them leases are impossible.
    Unsupported {
        /// The operation that the store lacks.
        what: &'static str,
    },
    /// An object in the folder of the namespace was not written by this engine, or was written by a newer version of
    /// it. `owned_by` fails because of any such object that has the name and at least the size of a leased one, `list`
    /// because of one on its page; `release_all` and `release_expired` pass it over.
    Foreign {
        /// The path of the object.
        path: String,
    },
    /// The store or the network failed. The operation may have been carried out.
    Store {
        /// The error of the store's client.
        source: Arc<object_store::Error>,
    },
    /// The lease was acquired or renewed, but before the answer was known, another call ended it, or it expired, or it
    /// seems to have expired because a time of day is wrong. The calls of [`Leases`](keylatch_lease::Leases) ask up to
    /// three times in all before they return this.
    Undone,
    /// The tokio runtime has been shut down.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("object store: ")?;
        match self {
            Error::Unconnected { source: None } => f.write_str("the engine's driver does not run"),
            Error::Unconnected { source: Some(source) } => Causes(source).fmt(f),
            Error::Timeout => f.write_str("the store did not answer in time"),
            Error::Throttled { source } => write!(f, "there are too many requests: {}", Causes(source)),
            Error::Denied { source } => {
                write!(f, "the credentials are not accepted, or lack a permission: {}", Causes(source))
            }
            Error::Unsupported { what } => write!(
                f,
                "the store does not support {what}, which leases need: use a store with conditional writes (in a local \
                 folder, the engine for SQLite), and do not disable them in its client"
            ),
            Error::Foreign { path } => write!(
                f,
                "{path} is not an object of this engine, or of a newer version: update the program, or use another \
                 namespace"
            ),
            Error::Store { source } if matches!(**source, object_store::Error::NotFound { .. }) => {
                write!(f, "{} (if it is the bucket that does not exist, check its name)", Causes(source))
            }
            Error::Store { source } => Causes(source).fmt(f),
            Error::Undone => f.write_str("the lease ended before the store's answer was known: ask again"),
            Error::Stopped => f.write_str("the tokio runtime has been shut down"),
        }
    }
}

keylatch_lease_remote::failure! {
    Error; sources: Throttled, Denied, Store; lasting: Unsupported
}

impl Error {
    /// Interprets the answer to a read. Returns `None` if there is no such object.
    pub(crate) fn sort_read<T>(read: object_store::Result<T>) -> Result<Option<T>, Self> {
        match read {
            Ok(object) => Ok(Some(object)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::of(error)),
        }
    }

    /// Interprets the answer to a conditional write. Returns `None` if it was refused because the object has changed.
    ///
    /// If an object to update is not found, it was deleted. If one to create is not found, the bucket is missing.
    pub(crate) fn sort_write<T>(written: object_store::Result<T>, is_update: bool) -> Result<Option<T>, Self> {
        use object_store::Error as E;
        match written {
            Ok(version) => Ok(Some(version)),
            Err(E::AlreadyExists { .. } | E::Precondition { .. }) => Ok(None),
            Err(E::NotFound { .. }) if is_update => Ok(None),
            Err(error) => Err(Error::of(error)),
        }
    }

    /// Converts an error of the store's client.
    pub(crate) fn of(error: object_store::Error) -> Self {
        use object_store::Error as E;
        match error {
            E::NotImplemented { .. } | E::NotSupported { .. } => Error::Unsupported { what: "conditional writes" },
            error @ (E::PermissionDenied { .. } | E::Unauthenticated { .. }) => {
                Error::Denied { source: Arc::new(error) }
            }
            error if is_throttling(&error) => Error::Throttled { source: Arc::new(error) },
            error => Error::Store { source: Arc::new(error) },
        }
    }

    /// Returns whether the request has certainly not been carried out, and would fail again in the same way.
    pub(crate) fn is_certain(&self) -> bool {
        match self {
            Error::Denied { .. } | Error::Unsupported { .. } | Error::Foreign { .. } => true,
            Error::Store { source } => matches!(**source, object_store::Error::NotFound { .. }),
            _ => false,
        }
    }
}

/// Returns whether the store refuses requests because there are too many. The client's errors show this only in their
/// texts. The last cause has the status and the body of the answer; those before it also have the URL.
fn is_throttling(error: &object_store::Error) -> bool {
    let mut last: &dyn StdError = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    let text = last.to_string();
    ["<Code>SlowDown</Code>", "503 Service Unavailable", "429 Too Many Requests"].iter().any(|sign| text.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::Error;
    use std::{error::Error as StdError, fmt, io};

    #[test]
    fn an_error_is_recognised() {
        let generic = |text: &str| Error::of(object_store::Error::Generic { store: "S3", source: text.into() });
        assert!(matches!(generic("<Code>SlowDown</Code>"), Error::Throttled { .. }));
        assert!(matches!(generic("status: 429 Too Many Requests"), Error::Throttled { .. }));
        assert!(matches!(generic("connection reset"), Error::Store { .. }));
        assert!(matches!(generic("500: <Key>a/SlowDown.lease</Key>"), Error::Store { .. }), "the name of an object");
        let denied = object_store::Error::PermissionDenied { path: "a".into(), source: "no".into() };
        let denied = Error::of(denied);
        assert!(matches!(denied, Error::Denied { .. }) && denied.is_certain() && !Error::Timeout.is_certain());
        assert!(denied.to_string().contains("lack a permission"), "{denied}");
    }

    #[test]
    fn the_url_of_a_request_does_not_look_like_throttling() {
        /// A request that failed, with its URL, as the store's client reports it.
        #[derive(Debug)]
        struct Request(io::Error);

        impl fmt::Display for Request {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "Error performing PUT http://a/<Code>SlowDown</Code>: {}", self.0)
            }
        }

        impl StdError for Request {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                Some(&self.0)
            }
        }

        let failed = |text: &str| {
            let request = Request(io::Error::other(text));
            Error::of(object_store::Error::Generic { store: "S3", source: Box::new(request) })
        };
        assert!(matches!(failed("500 Internal Server Error"), Error::Store { .. }));
        assert!(matches!(failed("503 Service Unavailable"), Error::Throttled { .. }));
    }

    #[test]
    fn a_missing_object_is_one_that_has_changed_only_if_it_should_be_updated() {
        let missing = || Err::<(), _>(object_store::Error::NotFound { path: "a".into(), source: "404".into() });
        assert!(matches!(Error::sort_read(missing()), Ok(None)));
        assert!(matches!(Error::sort_write(missing(), true), Ok(None)));
        let error = Error::sort_write(missing(), false).unwrap_err();
        assert!(matches!(error, Error::Store { .. }) && error.is_certain(), "{error:?}");
        assert!(error.to_string().contains("check its name"), "{error}");
    }
}
