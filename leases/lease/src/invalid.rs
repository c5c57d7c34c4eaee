//! Arguments that no call takes.

/// An argument that no call takes, by its name. Each call's error is made from it by `?`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Invalid(pub(crate) &'static str);
