use crate::client::{
    keys::Keys,
    messages::{
        Answered, Asked, Condition, DeleteRangeRequest, KeyValue, Operand, PutRequest, RangeRequest, RequestOp,
        TxnRequest, TxnResponse,
    },
};

/// A condition of a [transaction](Txn).
///
/// A condition on several keys holds if it holds for each of them. For a missing key all numbers are 0.
///
/// # Examples
/// ```
/// use keylatch_lease_etcd::client::{Compare, CompareOp, Keys};
///
/// let is_new = Compare::create_revision("account/7/paid", CompareOp::Equal, 0);
/// let no_account_exists = Compare::create_revision(Keys::prefix("account/"), CompareOp::Equal, 0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Compare(Condition);

/// The way in which a [`Compare`] compares the stored value with the given one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// The two must be equal.
    Equal = 0,
    /// The stored value must be greater.
    Greater = 1,
    /// The stored value must be less.
    Less = 2,
    /// The two must differ.
    NotEqual = 3,
}

impl Compare {
    fn new(keys: Keys, op: CompareOp, operand: Operand) -> Self {
        let target = match operand {
            Operand::Version(_) => 0,
            Operand::CreateRevision(_) => 1,
            Operand::ModRevision(_) => 2,
            Operand::Value(_) => 3,
            Operand::Lease(_) => 4,
        };
        let Keys { start: key, end: range_end } = keys;
        Compare(Condition { result: op as i32, target, key, operand: Some(operand), range_end })
    }

    /// Compares how many times a key has been written since its creation, which counts as the first.
    #[must_use]
    pub fn version(keys: impl Into<Keys>, op: CompareOp, version: i64) -> Self {
        Self::new(keys.into(), op, Operand::Version(version))
    }

    /// Compares the revision at which a key was created.
    #[must_use]
    pub fn create_revision(keys: impl Into<Keys>, op: CompareOp, revision: i64) -> Self {
        Self::new(keys.into(), op, Operand::CreateRevision(revision))
    }

    /// Compares the revision at which a key was last written.
    #[must_use]
    pub fn mod_revision(keys: impl Into<Keys>, op: CompareOp, revision: i64) -> Self {
        Self::new(keys.into(), op, Operand::ModRevision(revision))
    }

    /// Compares the value of a key, byte by byte. A missing key has no value, so no comparison holds for it.
    #[must_use]
    pub fn value(keys: impl Into<Keys>, op: CompareOp, value: impl Into<Vec<u8>>) -> Self {
        Self::new(keys.into(), op, Operand::Value(value.into()))
    }

    /// Compares the ID of the etcd lease that a key is attached to.
    #[must_use]
    pub fn lease(keys: impl Into<Keys>, op: CompareOp, id: i64) -> Self {
        Self::new(keys.into(), op, Operand::Lease(id))
    }
}

/// One operation of a [transaction](Txn).
#[derive(Clone, Debug, PartialEq)]
pub struct TxnOp(Asked);

impl TxnOp {
    /// Reads keys.
    #[must_use]
    pub fn get(keys: impl Into<Keys>) -> Self {
        let Keys { start: key, end: range_end } = keys.into();
        TxnOp(Asked::Range(RangeRequest { key, range_end, limit: 0, keys_only: false }))
    }

    /// Reads keys without their values.
    #[must_use]
    pub fn get_keys(keys: impl Into<Keys>) -> Self {
        let Keys { start: key, end: range_end } = keys.into();
        TxnOp(Asked::Range(RangeRequest { key, range_end, limit: 0, keys_only: true }))
    }

    /// Writes a key that is attached to no etcd lease.
    #[must_use]
    pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::put_with_lease(key, value, 0)
    }

    /// Writes a key that is deleted when this etcd lease ends.
    #[must_use]
    pub fn put_with_lease(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>, lease: i64) -> Self {
        TxnOp(Asked::Put(PutRequest { key: key.into(), value: value.into(), lease }))
    }

    /// Deletes keys.
    #[must_use]
    pub fn delete(keys: impl Into<Keys>) -> Self {
        let Keys { start: key, end: range_end } = keys.into();
        TxnOp(Asked::DeleteRange(DeleteRangeRequest { key, range_end, prev_kv: false }))
    }

    /// Deletes keys, and answers with their last values.
    #[must_use]
    pub fn take(keys: impl Into<Keys>) -> Self {
        let Keys { start: key, end: range_end } = keys.into();
        TxnOp(Asked::DeleteRange(DeleteRangeRequest { key, range_end, prev_kv: true }))
    }

    /// Runs another transaction inside.
    #[must_use]
    pub fn txn(txn: Txn) -> Self {
        TxnOp(Asked::Txn(txn.0))
    }
}

/// A transaction: if all conditions hold, one list of operations is run as a whole, otherwise another list.
///
/// # Examples
/// ```no_run
/// # async fn example(
/// #     leases: keylatch_lease::Leases<keylatch_lease_etcd::Etcd>,
/// #     grant: keylatch_lease::Grant,
/// #     client: keylatch_lease_etcd::Client,
/// # ) -> Result<(), keylatch_lease_etcd::client::ClientError> {
/// use keylatch_lease_etcd::client::{Txn, TxnOp};
///
/// let guard = leases.engine().guard(&grant);
/// let paid = TxnOp::put("account/7/paid", "yes");
/// let answer = client.txn(Txn::new().when([guard]).and_then([paid])).await?;
/// assert!(answer.succeeded(), "the lease has ended, and nothing was written");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "it does nothing until it is given to `Client::txn`"]
pub struct Txn(pub(crate) TxnRequest);

impl Txn {
    /// Returns a transaction without conditions or operations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds conditions.
    pub fn when<C: Into<Compare>>(mut self, conditions: impl IntoIterator<Item = C>) -> Self {
        self.0.compare.extend(conditions.into_iter().map(|condition| condition.into().0));
        self
    }

    /// Adds operations that are run if all conditions hold.
    pub fn and_then(mut self, ops: impl IntoIterator<Item = TxnOp>) -> Self {
        self.0.success.extend(requests(ops));
        self
    }

    /// Adds operations that are run if a condition does not hold.
    pub fn or_else(mut self, ops: impl IntoIterator<Item = TxnOp>) -> Self {
        self.0.failure.extend(requests(ops));
        self
    }
}

fn requests(ops: impl IntoIterator<Item = TxnOp>) -> impl Iterator<Item = RequestOp> {
    ops.into_iter().map(|TxnOp(asked)| RequestOp { request: Some(asked) })
}

/// The outcome of a [transaction](Txn).
#[derive(Clone, Debug)]
pub struct TxnAnswer {
    succeeded: bool,
    revision: i64,
    answers: Vec<OpAnswer>,
}

/// The answer to one operation of a [transaction](Txn).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OpAnswer {
    /// The keys that were read.
    Got(Vec<KeyValue>),
    /// A key was written.
    Put,
    /// Keys were deleted.
    Deleted {
        /// Their number.
        count: i64,
        /// The deleted keys, if the operation was a [`TxnOp::take`].
        previous: Vec<KeyValue>,
    },
    /// The outcome of the inner transaction.
    Txn(TxnAnswer),
}

impl TxnAnswer {
    /// Returns whether all conditions held.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.succeeded
    }

    /// Returns the revision of the cluster at the transaction: the one that it made, if it wrote. It may be 0 for a
    /// transaction inside another one.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Returns the same answer with another revision.
    pub(crate) fn with_revision(self, revision: i64) -> Self {
        TxnAnswer { revision, ..self }
    }

    /// Returns the answers to the operations that were run, in their order.
    #[must_use]
    pub fn answers(&self) -> &[OpAnswer] {
        &self.answers
    }

    /// Returns the answers to the operations that were run, in their order.
    #[must_use]
    pub fn into_answers(self) -> Vec<OpAnswer> {
        self.answers
    }
}

impl From<TxnResponse> for TxnAnswer {
    fn from(TxnResponse { header, succeeded, responses }: TxnResponse) -> Self {
        let answers = responses.into_iter().map(|answer| match answer.response {
            Some(Answered::Range(got)) => OpAnswer::Got(got.kvs),
            Some(Answered::DeleteRange(gone)) => OpAnswer::Deleted { count: gone.deleted, previous: gone.prev_kvs },
            Some(Answered::Txn(inner)) => OpAnswer::Txn(inner.into()),
            // The answer to a put may be empty.
            Some(Answered::Put(_)) | None => OpAnswer::Put,
        });
        TxnAnswer { succeeded, revision: header.map_or(0, |header| header.revision), answers: answers.collect() }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::{Compare, CompareOp, Txn, TxnOp};
    use crate::client::keys::Keys;

    #[test]
    fn a_condition_is_encoded_as_etcd_reads_it() {
        let Compare(condition) = Compare::create_revision(Keys::prefix("a/"), CompareOp::NotEqual, 300);
        // result = 3, target = CREATE, key, create_revision; range_end has tag 64.
        assert_eq!(condition.encode_to_vec(), b"\x08\x03\x10\x01\x1a\x02a/\x28\xac\x02\x82\x04\x02a0");
        let Compare(condition) = Compare::lease("a", CompareOp::Equal, 0);
        // The 0 must be sent explicitly: an unset field would not be compared.
        assert_eq!(condition.encode_to_vec(), b"\x10\x04\x1a\x01a\x40\x00");
    }

    #[test]
    fn a_transaction_is_encoded_as_etcd_reads_it() {
        let Txn(request) = Txn::new()
            .and_then([TxnOp::put_with_lease("k", "v", 5), TxnOp::take("k")])
            .or_else([TxnOp::txn(Txn::new().and_then([TxnOp::get_keys("g")]))]);
        let put = b"\x12\x0a\x12\x08\x0a\x01k\x12\x01v\x18\x05";
        let take = b"\x12\x07\x1a\x05\x0a\x01k\x18\x01";
        let inner = b"\x1a\x0b\x22\x09\x12\x07\x0a\x05\x0a\x01g\x40\x01";
        assert_eq!(request.encode_to_vec(), [&put[..], take, inner].concat());
    }
}
