use core::time::Duration;

use crate::{Expiry, Owner, Resource, Token};

/// The result of acquiring: a tenure, described as plain data.
///
/// A grant states that the owner had the resource when the grant was made. Dropping it releases nothing, and cloning it
/// leases nothing: the lease stays with the owner until it is released or expires. Any code that has the grant can
/// renew and release the lease. The token in it belongs in each write.
///
/// Equality compares everything except [`is_resumed`](Grant::is_resumed).
///
/// # Serde
///
/// With the feature `serde`, a grant can be stored, or passed to another process that uses the same engine. Its start
/// and end are times of the clock of its [`Leases`](crate::Leases), and mean nothing with another clock. A custom
/// policy is not serialised: the deserialised grant keeps its end, but cannot be renewed until its owner has acquired
/// the lease again.
///
/// Deserialised values are trusted. Sign a grant that others could change, such as one in a cookie: a changed grant can
/// make a lease endless.
///
/// # Examples
///
/// ```
/// use keylatch_lease::Grant;
///
/// fn log(grant: &Grant) {
///     println!("{} has {} under token {}", grant.owner(), grant.resource(), grant.token());
/// }
/// # let _ = log;
/// ```
#[derive(Clone, Debug)]
pub struct Grant {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    /// Whether the owner had the lease before the request.
    pub(crate) resumed: bool,
    /// The start of the tenure, by the clock of the [`Leases`](crate::Leases).
    pub(crate) start: Duration,
    /// The end of the lease, by the same clock; `None` if it never ends.
    pub(crate) end: Option<Duration>,
    /// The policy; `None` for a custom policy that was not serialised, or that the engine does not keep.
    pub(crate) expiry: Option<Expiry>,
}

impl Grant {
    pub(crate) fn new(
        resource: Resource,
        owner: Owner,
        token: Token,
        resumed: bool,
        start: Duration,
        end: Option<Duration>,
        expiry: Option<Expiry>,
    ) -> Self {
        Self { resource, owner, token, resumed, start, end, expiry }
    }

    /// Returns the leased resource.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::{Grant, Resource};
    ///
    /// fn invoices(grants: &[Grant]) -> impl Iterator<Item = &Resource> {
    ///     grants.iter().map(Grant::resource).filter(|resource| resource.entity() == "invoice")
    /// }
    /// # let _ = invoices;
    /// ```
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Returns the owner of the lease.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::{Grant, Owner};
    ///
    /// fn is_mine(grant: &Grant, me: &Owner) -> bool {
    ///     grant.owner() == me
    /// }
    /// # let _ = is_mine;
    /// ```
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns the number of the tenure, for the target of the writes to check.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::{Fence, Grant, Stale};
    ///
    /// fn write(fence: &Fence, grant: &Grant) -> Result<(), Stale> {
    ///     fence.admit(grant.resource(), grant.token())?;
    ///     // write
    ///     Ok(())
    /// }
    /// # let _ = write;
    /// ```
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns whether the owner already had the lease when it made the request, so that an earlier tenure continues.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::Grant;
    ///
    /// fn open(grant: &Grant) {
    ///     if grant.is_resumed() {
    ///         println!("you have this open in another window");
    ///     }
    /// }
    /// # let _ = open;
    /// ```
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }
}

/// Compares everything except [`is_resumed`](Grant::is_resumed), which describes the call and not the tenure.
impl PartialEq for Grant {
    fn eq(&self, other: &Self) -> bool {
        let Self { resource, owner, token, resumed: _, start, end, expiry } = self;
        *token == other.token
            && *start == other.start
            && *end == other.end
            && *resource == other.resource
            && *owner == other.owner
            && *expiry == other.expiry
    }
}

impl Eq for Grant {}

#[cfg(test)]
mod tests {
    use super::Grant;
    use crate::{Expiry, Owner, Resource, Token};
    use core::time::Duration;

    fn grant() -> Grant {
        let token = Token::new(7).expect("not zero");
        let expiry = Some(Expiry::Sliding(Duration::from_secs(5)));
        let end = Some(Duration::from_secs(6));
        Grant::new(Resource::new("a", "b"), Owner::named("o"), token, false, Duration::from_secs(1), end, expiry)
    }

    #[test]
    fn grants_that_differ_only_in_being_resumed_are_equal() {
        assert_eq!(grant(), Grant { resumed: true, ..grant() });
    }

    #[test]
    fn grants_that_differ_in_any_other_field_are_not_equal() {
        assert_ne!(grant(), Grant { resource: Resource::new("ab", ""), ..grant() });
        assert_ne!(grant(), Grant { owner: Owner::named("p"), ..grant() });
        assert_ne!(grant(), Grant { token: Token::new(8).expect("not zero"), ..grant() });
        assert_ne!(grant(), Grant { start: Duration::from_secs(2), ..grant() });
        assert_ne!(grant(), Grant { end: None, ..grant() });
        assert_ne!(grant(), Grant { expiry: None, ..grant() });
    }
}
