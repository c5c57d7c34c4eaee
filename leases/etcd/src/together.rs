//! Transactions that wait for the connection at the same moment: etcd runs them inside one transaction.
//!
//! Each of them keeps its own conditions and operations, so it does what it would have done alone. One request carries
//! all of them, unless they are too large for it, and they are one entry of the cluster's log and one flush to its
//! disks. If etcd refuses that request, it has run none of them, and each caller sends its own transaction.

use std::{convert::Infallible, iter, sync::Arc};

use futures_util::future::join_all;
use prost::Message;

use crate::{
    client::{Client, ClientError, OpAnswer, Txn, TxnAnswer, TxnOp},
    error::{Error, Trouble},
};

/// The greatest number of transactions that are sent as one. etcd counts the operations and conditions on each level of
/// a transaction, and by default accepts 128 on all levels together.
pub(crate) const MOST: usize = 64;

/// The greatest size of a part with more than one transaction, in bytes. By default etcd accepts requests of 1.5 MiB.
const LARGEST: usize = 1 << 20;

/// The transactions of a connection, and their outcomes.
pub(crate) type Together = keylatch_lease_remote::Together<Arc<Txn>, Outcome>;

type Outcome = Result<TxnAnswer, Trouble>;

/// Sends the transactions that wait for a connection, in batches, until the connection ends.
pub(crate) async fn carry(client: Client, together: Arc<Together>) -> Infallible {
    let send = |batch: Arc<[Arc<Txn>]>| {
        let client = client.clone();
        async move {
            let parts = parts(&batch).into_iter().map(|part| run(&client, part));
            join_all(parts).await.into_iter().flatten().collect()
        }
    };
    together.carry(send).await
}

/// Divides a batch into parts that etcd accepts. A transaction that is too large by itself becomes a part of its own.
fn parts(mut batch: &[Arc<Txn>]) -> Vec<&[Arc<Txn>]> {
    let mut parts = Vec::new();
    while !batch.is_empty() {
        let mut size = 0;
        let fits = |one: &&Arc<Txn>| {
            size += one.0.encoded_len();
            size <= LARGEST
        };
        let count = batch.iter().take_while(fits).count().max(1);
        let (part, rest) = batch.split_at(count);
        parts.push(part);
        batch = rest;
    }
    parts
}

/// Runs transactions as one. `None` is the outcome of a transaction that must be sent alone.
async fn run(client: &Client, part: &[Arc<Txn>]) -> Vec<Option<Outcome>> {
    let count = part.len();
    let txn = match part {
        [one] => Txn::clone(one),
        _ => Txn::new().and_then(part.iter().map(|one| TxnOp::txn(Txn::clone(one)))),
    };
    match client.txn(txn).await.map_err(Trouble::from) {
        Ok(answer) if count == 1 => vec![Some(Ok(answer))],
        Ok(answer) => {
            let at = answer.revision();
            let outcomes = answer.into_answers().into_iter().map(|answer| match answer {
                OpAnswer::Txn(inner) => Some(Ok(inner.with_revision(at))),
                _ => Some(Err(unanswered())),
            });
            outcomes.chain(iter::repeat_with(|| Some(Err(unanswered())))).take(count).collect()
        }
        // One of the transactions may be at fault, and none was run.
        Err(Trouble::Refused(_) | Trouble::NoLease) if count > 1 => vec![None; count],
        Err(trouble) => vec![Some(Err(trouble)); count],
    }
}

fn unanswered() -> Trouble {
    let source = ClientError::answer("etcd did not answer to each part of a transaction");
    Trouble::Broken(Error::Closed { source: Arc::new(source) })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{LARGEST, parts};
    use crate::client::{Txn, TxnOp};

    fn sizes(lengths: &[usize]) -> Vec<usize> {
        let batch = lengths.iter().map(|&length| Arc::new(Txn::new().and_then([TxnOp::put("k", "v".repeat(length))])));
        parts(&batch.collect::<Vec<_>>()).into_iter().map(<[_]>::len).collect()
    }

    #[test]
    fn a_batch_is_divided_where_etcd_would_refuse_it() {
        let half = LARGEST / 2;
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[1, 1, 1]), [3]);
        assert_eq!(sizes(&[half, half, 1]), [1, 2]);
        assert_eq!(sizes(&[1, 2 * half, 1, 1]), [1, 1, 2]);
        assert_eq!(sizes(&[3 * half]), [1]);
    }
}
