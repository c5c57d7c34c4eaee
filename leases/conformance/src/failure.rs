use std::fmt;

/// Why a case has not passed.
///
/// Any error turns into one by `?`.
///
/// # Examples
/// ```
/// use keylatch_lease_conformance::Failure;
///
/// let no_server = Failure::does_not_apply("there is no server to be killed");
/// assert_eq!(no_server.to_string(), "there is no server to be killed");
/// let wrong = Failure::from(std::io::Error::other("the server did not start"));
/// assert!(wrong.to_string().contains("did not start"));
/// ```
#[derive(Clone, Debug)]
pub struct Failure {
    pub(crate) applies: bool,
    message: String,
}

impl Failure {
    /// The case cannot be run here, for this reason: it has not failed.
    ///
    /// # Examples
    /// See [`Failure`].
    #[must_use]
    pub fn does_not_apply(reason: impl Into<String>) -> Self {
        Failure { applies: false, message: reason.into() }
    }

    /// The engine, or its surroundings, did what they must not.
    ///
    /// # Examples
    /// ```
    /// let failure = keylatch_lease_conformance::Failure::new("two owners at once");
    /// assert_eq!(failure.to_string(), "two owners at once");
    /// ```
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Failure { applies: true, message: message.into() }
    }

    pub(crate) fn context(self, context: impl fmt::Display) -> Self {
        Failure { message: format!("{context}: {}", self.message), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

// It is no error itself, so that every error can turn into one.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Failure::new(message)
    }
}
