//! Invalid arguments.

/// The name of an invalid argument. `?` converts it into the error of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Invalid(pub(crate) &'static str);
