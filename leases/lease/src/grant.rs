use core::time::Duration;

use crate::{Expiry, Owner, Resource, Token};

/// The result of acquiring: the facts of a tenure, as plain data.
///
/// A grant says that the owner had the resource when it was made. Dropping it releases nothing, and cloning it leases
/// nothing: the lease stays with the owner until it is released or expires. Whoever has the grant can renew and release
/// the lease, and the token in it goes along with each write.
///
/// Two grants are equal if everything in them is but [`is_resumed`](Grant::is_resumed).
///
/// # Serde
///
/// With the feature `serde`, a grant can be stored, or passed to another process that uses the same engine. Its start
/// and end are times of the table's clock: they mean nothing to a table with another clock. A custom policy is not
/// serialised. The grant that is read back runs to the end it has, but cannot be renewed until its owner has acquired the
/// lease again.
///
/// The values read are trusted. A grant that others could change, in a cookie, say, must be signed: anybody who can
/// change it can make a lease endless.
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
    /// Whether the owner had it already.
    pub(crate) resumed: bool,
    /// When the tenure began, by the table's clock.
    pub(crate) start: Duration,
    /// When it ends, by the table's clock; `None`: never.
    pub(crate) end: Option<Duration>,
    /// `None`: a custom policy, which was lost on the way through serde.
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

    /// The leased resource.
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

    /// Its owner.
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

    /// The number of the tenure, for the place where the writes go to check.
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

    /// Whether the owner had the lease already when it asked: it goes on with a tenure that it began before.
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

/// All but [`is_resumed`](Grant::is_resumed), which tells about the call and not about the tenure.
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
    fn equal_are_grants_that_differ_only_in_how_they_were_got() {
        assert_eq!(grant(), Grant { resumed: true, ..grant() });
    }

    #[test]
    fn each_other_part_counts() {
        assert_ne!(grant(), Grant { resource: Resource::new("ab", ""), ..grant() });
        assert_ne!(grant(), Grant { owner: Owner::named("p"), ..grant() });
        assert_ne!(grant(), Grant { token: Token::new(8).expect("not zero"), ..grant() });
        assert_ne!(grant(), Grant { start: Duration::from_secs(2), ..grant() });
        assert_ne!(grant(), Grant { end: None, ..grant() });
        assert_ne!(grant(), Grant { expiry: None, ..grant() });
    }
}
