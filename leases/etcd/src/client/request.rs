use prost::Message;

/// A request of etcd's gRPC API: a message, its method, and the message that answers it.
///
/// The messages of the engine's own requests are private. With this trait a program can make any other call, by [`Client::call`] or
/// [`Client::stream`]: with a message that it has written itself, with the derive macro of `prost` 0.14, or that `prost` has generated.
/// Fields that are left out are left unset in a request, and skipped in an answer.
///
/// [`Client::call`]: crate::client::Client::call
/// [`Client::stream`]: crate::client::Client::stream
///
/// # Examples
/// ```no_run
/// # async fn example(client: keylatch_lease_etcd::Client) -> Result<(), keylatch_lease_etcd::client::ClientError> {
/// use keylatch_lease_etcd::client::Request;
///
/// #[derive(Clone, PartialEq, prost::Message)]
/// struct LeaseRevokeRequest {
///     #[prost(int64, tag = "1")]
///     id: i64,
/// }
///
/// #[derive(Clone, PartialEq, prost::Message)]
/// struct LeaseRevokeResponse {}
///
/// impl Request for LeaseRevokeRequest {
///     type Answer = LeaseRevokeResponse;
///     const METHOD: &'static str = "/etcdserverpb.Lease/LeaseRevoke";
/// }
///
/// client.call(LeaseRevokeRequest { id: 7 }).await?;
/// # Ok(())
/// # }
/// ```
pub trait Request: Message + Clone + 'static {
    /// The message of the answer, or of each of them.
    type Answer: Message + Default + 'static;

    /// The path of the method: `/PACKAGE.SERVICE/METHOD`.
    const METHOD: &'static str;
}
