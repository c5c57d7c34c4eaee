//! A small client of etcd. The engine uses it, and a program can use it to write under a lease.
//!
//! The client has the calls that most transactions need: [`Client::get`], [`put`](Client::put),
//! [`delete`](Client::delete) and [`txn`](Client::txn). For any other call of etcd's API, implement [`Request`] for its
//! message.
//!
//! ```no_run
//! # async fn example() -> Result<(), keylatch_lease_etcd::client::ClientError> {
//! use keylatch_lease_etcd::client::{Client, ConnectOptions, Keys};
//!
//! let options = ConnectOptions::new().with_user("shop", "secret");
//! let client = Client::connect(["http://etcd.example:2379"], Some(options)).await?;
//! client.put("account/7/paid", "yes").await?;
//! for account in client.get(Keys::prefix("account/7/")).await? {
//!     println!("{:?}", account.value());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The messages are written by hand, for `prost`, with only the fields that are used. No build step generates them, so
//! cargo alone builds this crate.

mod connection;
mod error;
mod keys;
pub(crate) mod messages;
mod options;
mod request;
#[cfg(feature = "tls")]
mod tls;
mod txn;

pub use connection::{Answers, Client};
pub use error::ClientError;
pub(crate) use error::OLD_REVISION;
pub use keys::Keys;
pub use messages::KeyValue;
pub use options::ConnectOptions;
pub use request::Request;
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use tls::TlsOptions;
pub use txn::{Compare, CompareOp, OpAnswer, Txn, TxnAnswer, TxnOp};
