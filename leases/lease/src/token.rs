use core::fmt;
use core::num::NonZeroU64;

/// The number of a tenure: a *fencing token*.
///
/// Every new tenure of a resource has a greater token than all its earlier tenures, of any owner. A store that
/// remembers the greatest token it has seen can therefore refuse a writer whose lease has passed to another holder,
/// even if that writer was suspended and still believes it is the holder. [`Fence`](crate::Fence) does so for resources
/// in this process, and its page shows how to do it in SQL.
///
/// Tokens of different resources say nothing about each other. A token is never zero, so a column that starts at zero
/// admits the first tenure. With the feature `serde`, a token is serialised as a number.
///
/// # Examples
///
/// ```
/// use keylatch_lease::Token;
///
/// let earlier = Token::new(41).unwrap();
/// let later = Token::new(42).unwrap();
/// assert!(later > earlier);
/// assert_eq!(later.to_string(), "42");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// Returns the token with this number; `None` for zero, which is not a token.
    ///
    /// Use this for stored tokens that are read back. New tokens come from acquiring.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::Token;
    ///
    /// assert_eq!(Token::new(7).map(Token::get), Some(7));
    /// assert_eq!(Token::new(0), None);
    /// ```
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the number, to be sent with a write.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::Token;
    ///
    /// let token = Token::new(7).unwrap();
    /// assert_eq!(token.get(), 7);
    /// ```
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Token").field(&self.get()).finish()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
