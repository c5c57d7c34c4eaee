//! Leases in etcd: an engine for [`keylatch_lease`], for programs that have such a cluster already.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod driver;
mod error;
mod etcd;
mod guard;
mod lock;
mod options;
mod place;
mod session;

pub use error::Error;
pub use etcd::Etcd;
pub use etcd_client::{Client, Compare, ConnectOptions};
pub use keylatch_lease_remote::BoxError;
pub use options::Options;
