use keylatch_lease::{Owner, Resource, Token};

/// A tenure that was abandoned: the arguments of [`Engine::abandon`](keylatch_lease::engine::Engine::abandon).
///
/// # Examples
/// See [`Link::abandon`](crate::Link::abandon).
#[derive(Clone, Debug)]
pub struct Tenure {
    /// The resource.
    pub resource: Resource,
    /// The owner.
    pub owner: Owner,
    /// The token.
    pub token: Token,
}
