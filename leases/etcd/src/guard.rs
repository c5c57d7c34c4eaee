use keylatch_lease::Grant;

use crate::{
    Etcd,
    client::{Compare, CompareOp, Keys},
    lock::revision,
};

impl Etcd {
    /// Returns a condition for your own transaction in the same cluster: that this tenure has not ended. The
    /// transaction is then done under the lease or not at all, however long the process was suspended before.
    ///
    /// The transaction needs no fence and no token. The engine must have been connected: see [`Etcd::ready`]. A tenure
    /// that began before [the cluster forgot something](crate#when-the-cluster-forgets) never meets the condition. Only
    /// etcd decides whether the lease has expired.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(
    /// #     leases: keylatch_lease::Leases<keylatch_lease_etcd::Etcd>,
    /// #     grant: keylatch_lease::Grant,
    /// #     client: keylatch_lease_etcd::Client,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use keylatch_lease_etcd::client::{Txn, TxnOp};
    ///
    /// let paid = TxnOp::put("account/7/paid", "yes");
    /// let answer = client.txn(Txn::new().when([leases.engine().guard(&grant)]).and_then([paid])).await?;
    /// if !answer.succeeded() {
    ///     println!("the lease has ended, and nothing was written");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn guard(&self, grant: &Grant) -> Guard {
        let key_prefix = self.place.lock(grant.resource());
        Guard { key_prefix, create_revision: revision(grant.token(), self.place.base()) }
    }
}

/// The condition that a tenure has not ended: see [`Etcd::guard`].
///
/// It converts into a [`Compare`] for this crate's own [`Client`](crate::Client). For any other client of etcd, build
/// the condition from its two values: it must compare the create revision of all keys that have the prefix.
///
/// ```no_run
/// # fn example(etcd: keylatch_lease_etcd::Etcd, grant: keylatch_lease::Grant) {
/// let guard = etcd.guard(&grant);
/// let (prefix, revision) = (guard.key_prefix(), guard.create_revision());
/// // With the crate `etcd-client`:
/// // Compare::create_revision(prefix, CompareOp::Equal, revision).with_prefix()
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a condition alone changes nothing"]
pub struct Guard {
    key_prefix: String,
    create_revision: i64,
}

impl Guard {
    /// Returns the prefix of the resource's keys. While the resource is held, exactly one key has this prefix.
    /// Otherwise no key has it, and etcd takes the create revision to be 0.
    #[must_use]
    pub fn key_prefix(&self) -> &str {
        &self.key_prefix
    }

    /// Returns the create revision that the key has until the tenure ends.
    #[must_use]
    pub fn create_revision(&self) -> i64 {
        self.create_revision
    }
}

impl From<Guard> for Compare {
    fn from(Guard { key_prefix, create_revision }: Guard) -> Self {
        Compare::create_revision(Keys::prefix(key_prefix), CompareOp::Equal, create_revision)
    }
}
