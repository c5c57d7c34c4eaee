//! Calls of etcd that the engine's crate does not export.

use futures_util::stream::{self, StreamExt};
use keylatch_lease_etcd::{
    Client,
    client::{Answers, ClientError, KeyValue, Keys, Request},
};

/// The empty answer of calls that only succeed or fail.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Done {}

macro_rules! calls {
    ($($method:literal: $request:ident { $($field:ident: $kind:ident = $tag:literal,)* },)*) => {
        $(
            #[derive(Clone, PartialEq, prost::Message)]
            pub(crate) struct $request {
                $(#[prost($kind, tag = $tag)] pub(crate) $field: calls!(@$kind),)*
            }

            impl Request for $request {
                type Answer = Done;
                const METHOD: &'static str = concat!("/etcdserverpb.", $method);
            }
        )*
    };
    (@string) => { String };
    (@int64) => { i64 };
}

calls! {
    "KV/Compact": Compact { revision: int64 = "1", },
    "Maintenance/Defragment": Defragment {},
    "Lease/LeaseRevoke": LeaseRevoke { id: int64 = "1", },
    "Auth/AuthEnable": AuthEnable {},
    "Auth/UserAdd": UserAdd { name: string = "1", password: string = "2", },
    "Auth/UserChangePassword": UserChangePassword { name: string = "1", password: string = "2", },
    "Auth/UserGrantRole": UserGrantRole { user: string = "1", role: string = "2", },
    "Auth/RoleAdd": RoleAdd { name: string = "1", },
    "Auth/RoleDelete": RoleDelete { role: string = "1", },
}

pub(crate) async fn add_user(client: &Client, name: &str, role: &str) {
    client.call(UserAdd { name: name.into(), password: "secret".into() }).await.unwrap();
    client.call(UserGrantRole { user: name.into(), role: role.into() }).await.unwrap();
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RoleGrantPermission {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) permission: Option<Permission>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Permission {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(string, tag = "2")]
    pub(crate) key: String,
    #[prost(string, tag = "3")]
    pub(crate) range_end: String,
}

impl Permission {
    pub(crate) const READ_AND_WRITE: i32 = 2;
}

impl Request for RoleGrantPermission {
    type Answer = Done;
    const METHOD: &'static str = "/etcdserverpb.Auth/RoleGrantPermission";
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseLeases {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeasesThere {
    // Each message has only an ID.
    #[prost(message, repeated, tag = "2")]
    pub(crate) leases: Vec<LeaseRevoke>,
}

impl Request for LeaseLeases {
    type Answer = LeasesThere;
    const METHOD: &'static str = "/etcdserverpb.Lease/LeaseLeases";
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Status {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StatusOf {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(uint64, tag = "4")]
    pub(crate) leader: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "2")]
    pub(crate) member_id: u64,
}

impl Request for Status {
    type Answer = StatusOf;
    const METHOD: &'static str = "/etcdserverpb.Maintenance/Status";
}

#[derive(Clone, PartialEq, prost::Message)]
struct Watch {
    #[prost(message, optional, tag = "1")]
    create: Option<CreateWatch>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CreateWatch {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    range_end: String,
    /// The filter 0 drops the events of puts.
    #[prost(int32, repeated, tag = "5")]
    filters: Vec<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Heard {
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Event {
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}

impl Request for Watch {
    type Answer = Heard;
    const METHOD: &'static str = "/etcdserverpb.Watch/Watch";
}

/// Watches the deletions below a prefix, which must end with a slash.
pub(crate) async fn watch_deletions(client: &Client, prefix: &str) -> Result<Answers<Heard>, ClientError> {
    let create = CreateWatch { key: prefix.into(), range_end: end_of(prefix), filters: vec![0] };
    let requests = stream::iter([Watch { create: Some(create) }]).chain(stream::pending());
    let mut heard = client.stream(requests).await?;
    heard.next().await?; // the watch has been created
    Ok(heard)
}

/// Returns the first key after all that begin with this prefix, which must end with a slash.
pub(crate) fn end_of(prefix: &str) -> String {
    format!("{}0", prefix.strip_suffix('/').unwrap())
}

/// Returns all keys below a prefix.
pub(crate) async fn list(client: &Client, prefix: String) -> Vec<KeyValue> {
    client.get(Keys::prefix(prefix)).await.unwrap()
}
