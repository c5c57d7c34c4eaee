use keylatch_lease::{Owner, Resource, Token};

/// A tenure that was dropped: what [`Engine::abandon`](keylatch_lease::engine::Engine::abandon) is told.
///
/// # Examples
/// See [`Link::abandon`](crate::Link::abandon).
#[derive(Clone, Debug)]
pub struct Tenure {
    /// Of what.
    pub resource: Resource,
    /// Whose.
    pub owner: Owner,
    /// Its number.
    pub token: Token,
}
