use std::fmt;

/// The reason that a case has not passed.
///
/// `?` converts every error into a `Failure`.
///
/// # Examples
/// ```
/// use keylatch_lease_conformance::Failure;
///
/// let no_server = Failure::does_not_apply("there is no server to kill");
/// assert_eq!(no_server.to_string(), "there is no server to kill");
/// let wrong = Failure::from(std::io::Error::other("the server did not start"));
/// assert!(wrong.to_string().contains("did not start"));
/// ```
#[derive(Clone, Debug)]
pub struct Failure {
    pub(crate) applies: bool,
    message: String,
}

impl Failure {
    /// Returns the reason that the case cannot be run here, which is not a failure of the case.
    ///
    /// # Examples
    /// See [`Failure`].
    #[must_use]
    pub fn does_not_apply(reason: impl Into<String>) -> Self {
        Failure { applies: false, message: reason.into() }
    }

    /// Returns a failure of the engine or its environment.
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

// `Failure` does not implement `Error`, so that every error can convert into it.
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
