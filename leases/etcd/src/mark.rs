//! The mark that identifies a namespace.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::SeqCst},
};

use crate::client::KeyValue;

/// The version of the mark's format.
const VERSION: &str = "1";

/// The mark as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) cluster: u64,
    /// A lower bound of the number of entries by which the cluster's log was ahead of its revision when the mark was
    /// written. The difference never shrinks, because each revision takes an entry. When a snapshot is restored the log
    /// begins again, but the revision does not.
    pub(crate) ahead: i64,
    /// The difference between tokens and revisions.
    pub(crate) base: i64,
    pub(crate) modified: i64,
}

impl Mark {
    pub(crate) fn to_text(&self) -> String {
        let Mark { cluster, ahead, base, .. } = self;
        format!("{VERSION} {cluster:x} {ahead} {base}")
    }

    pub(crate) fn parse(kv: &KeyValue) -> Option<Self> {
        let mut words = std::str::from_utf8(kv.value()).ok()?.split(' ');
        if words.next()? != VERSION {
            return None;
        }
        let cluster = u64::from_str_radix(words.next()?, 16).ok()?;
        let (ahead, base) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Mark { cluster, ahead, base, modified: kv.mod_revision() })
    }
}

/// The mark that the last connection found, and the greatest revision that it has seen.
#[derive(Debug)]
pub(crate) struct Before {
    pub(crate) mark: Mark,
    pub(crate) seen: Arc<Seen>,
}

/// The greatest revision that the cluster has reported on a connection.
#[derive(Debug, Default)]
pub(crate) struct Seen(AtomicI64);

impl Seen {
    pub(crate) fn get(&self) -> i64 {
        self.0.load(SeqCst)
    }

    pub(crate) fn sees(&self, revision: i64) {
        self.0.fetch_max(revision, SeqCst);
    }
}
