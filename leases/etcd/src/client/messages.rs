//! The messages of etcd's gRPC API that the engine needs, each with only the fields that it uses.
//!
//! Names and tags are those of `rpc.proto` and `kv.proto` in etcd. Enumerations are plain numbers, which look the same
//! on the wire.

use crate::client::request::Request;

/// A key with its value, as etcd has stored it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(int64, tag = "4")]
    pub(crate) version: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

impl KeyValue {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the value.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// Returns the revision of the cluster at which the key was created.
    #[must_use]
    pub fn create_revision(&self) -> i64 {
        self.create_revision
    }

    /// Returns the revision of the cluster at which the key was last written.
    #[must_use]
    pub fn mod_revision(&self) -> i64 {
        self.mod_revision
    }

    /// Returns how many times the key has been written since its creation, which counts as the first.
    #[must_use]
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Returns the ID of the etcd lease that the key is attached to; 0 if there is none.
    #[must_use]
    pub fn lease(&self) -> i64 {
        self.lease
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

// ---- KV ----

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    /// The greatest number of keys; 0: all.
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
}

impl RangeResponse {
    pub(crate) fn revision(&self) -> i64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PutResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(bool, tag = "3")]
    pub(crate) prev_kv: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeleteRangeResponse {
    #[prost(int64, tag = "2")]
    pub(crate) deleted: i64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) prev_kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Asked", tags = "1, 2, 3, 4")]
    pub(crate) request: Option<Asked>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Asked {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
    #[prost(message, tag = "4")]
    Txn(TxnRequest),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResponseOp {
    #[prost(oneof = "Answered", tags = "1, 2, 3, 4")]
    pub(crate) response: Option<Answered>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Answered {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeResponse),
    #[prost(message, tag = "4")]
    Txn(TxnResponse),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Condition {
    #[prost(int32, tag = "1")]
    pub(crate) result: i32,
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "Operand", tags = "4, 5, 6, 7, 8")]
    pub(crate) operand: Option<Operand>,
    #[prost(bytes = "vec", tag = "64")]
    pub(crate) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Operand {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(bytes = "vec", tag = "7")]
    Value(Vec<u8>),
    #[prost(int64, tag = "8")]
    Lease(i64),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Condition>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

// ---- Lease ----

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseRevokeResponse {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseKeepAliveResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseTimeToLiveResponse {
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "4")]
    pub(crate) granted_ttl: i64,
}

// ---- Watch ----

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchRequest {
    // The other two kinds of request are not used.
    #[prost(message, optional, tag = "1")]
    pub(crate) create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int32, repeated, tag = "5")]
    pub(crate) filters: Vec<i32>,
}

impl WatchCreateRequest {
    /// A filter that drops the events of puts.
    pub(crate) const NO_PUT: i32 = 0;
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchResponse {
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(string, tag = "6")]
    pub(crate) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Event {
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}

// ---- Auth, Maintenance ----

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StatusResponse {
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    /// The index of the last log entry that has been applied to the keys.
    #[prost(uint64, tag = "7")]
    pub(crate) raft_applied_index: u64,
}

/// Declares the method of each request, and the message that answers it.
macro_rules! methods {
    ($($method:literal: $request:ty => $answer:ty,)*) => {
        $(
            impl Request for $request {
                type Answer = $answer;
                const METHOD: &'static str = concat!("/etcdserverpb.", $method);
            }
        )*
    };
}

methods! {
    "KV/Range": RangeRequest => RangeResponse,
    "KV/Put": PutRequest => PutResponse,
    "KV/DeleteRange": DeleteRangeRequest => DeleteRangeResponse,
    "KV/Txn": TxnRequest => TxnResponse,
    "Lease/LeaseGrant": LeaseGrantRequest => LeaseGrantResponse,
    "Lease/LeaseRevoke": LeaseRevokeRequest => LeaseRevokeResponse,
    "Lease/LeaseKeepAlive": LeaseKeepAliveRequest => LeaseKeepAliveResponse,
    "Lease/LeaseTimeToLive": LeaseTimeToLiveRequest => LeaseTimeToLiveResponse,
    "Watch/Watch": WatchRequest => WatchResponse,
    "Auth/Authenticate": AuthenticateRequest => AuthenticateResponse,
    "Maintenance/Status": StatusRequest => StatusResponse,
}
