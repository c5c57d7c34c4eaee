use etcd_client::{Compare, CompareOp};
use keylatch_lease::Grant;

use crate::{Etcd, lock::revision};

impl Etcd {
    /// A condition for a transaction of one's own in the same cluster: that this tenure goes on. What the transaction does is then done
    /// under the lease or not at all, however long the process has slept before.
    ///
    /// It needs no fence and no token. The engine must have been connected: see [`Etcd::ready`]. A tenure that began before [something was
    /// forgotten](crate#when-the-cluster-forgets) guards nothing. Whether the lease is over by time is decided by etcd alone, which ends it.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(
    /// #     leases: keylatch_lease::Leases<keylatch_lease_etcd::Etcd>,
    /// #     grant: keylatch_lease::Grant,
    /// #     mut client: etcd_client::Client,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use etcd_client::{Txn, TxnOp};
    ///
    /// let paid = TxnOp::put("account/7/paid", "yes", None);
    /// let answer = client.txn(Txn::new().when([leases.engine().guard(&grant)]).and_then([paid])).await?;
    /// if !answer.succeeded() {
    ///     println!("the lease is over, and nothing was written");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "a condition alone changes nothing"]
    pub fn guard(&self, grant: &Grant) -> Compare {
        // Under the prefix there is one key, or none, of which the create revision is said to be 0.
        let prefix = self.place().lock(grant.resource());
        Compare::create_revision(prefix, CompareOp::Equal, revision(grant.token(), self.place().base())).with_prefix()
    }
}
