//! The content of an object: who has the resource, or that it is free.
//!
//! It is a short text, so that an operator can read it with the tools of the store. Each write has a number of its own,
//! drawn at random. It makes the object's version unique even in a store whose versions are hashes of the content, and
//! it tells a client whose answer was lost whether its write was carried out.

use std::{
    fmt::{self, Write as _},
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use keylatch_lease::Resource;
use keylatch_lease_remote::{Policy, from_micros, micros};

use crate::names::{decode, encode};

const FIRST_LINE: &str = "keylatch-lease 1";

/// An object with a lease has at least this many bytes, and one that says that a resource is free has fewer. So a list
/// of objects shows which ones need not be read.
pub(crate) const LEASED: usize = 256;

/// The greatest number of earlier writes that an object names.
const CHAIN: usize = 8;

/// The number of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonce(u64);

/// Returns a random number. The process's id makes it differ in forked processes, whose hash keys are the same.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

impl Nonce {
    pub(crate) fn new() -> Self {
        Nonce(random())
    }

    fn from_text(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().map(Nonce)
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// An object's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The token of the tenure, or of the last one if the resource is free.
    pub(crate) token: u64,
    pub(crate) nonce: Nonce,
    /// The writes before this one, the last one first, so that their clients can learn that they were carried out.
    pub(crate) after: Vec<Nonce>,
    /// The lease; `None` if the resource is free.
    pub(crate) lease: Option<Lease>,
}

/// A lease, as of the moment at which its object was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) resource: Resource,
    pub(crate) owner: String,
    /// The time that the lease lasts from this write on, in microseconds; `None` if it never expires.
    pub(crate) lasts: Option<i64>,
    /// The time since the tenure began, in microseconds.
    pub(crate) held: i64,
    /// The writer's time of day, in microseconds since 1970.
    pub(crate) written: i64,
    pub(crate) policy: Policy,
}

impl Lease {
    pub(crate) fn lasts(&self) -> Option<Duration> {
        self.lasts.map(from_micros)
    }

    pub(crate) fn held(&self) -> Duration {
        from_micros(self.held)
    }
}

/// Returns microseconds for a field that must have a number.
pub(crate) fn number(time: Duration) -> i64 {
    micros(time).unwrap_or(i64::MAX)
}

impl Record {
    /// Notes the write that this one replaces, if there is one, and those before that.
    pub(crate) fn replaces(&mut self, before: Option<&Record>) {
        self.after = before.map_or_else(Vec::new, |before| {
            let earlier = before.after.iter().copied().take(CHAIN - 1);
            std::iter::once(before.nonce).chain(earlier).collect()
        });
    }

    /// Returns whether this record was written before another one of the same object. `None` if too many writes have
    /// followed for the other one to show it.
    pub(crate) fn is_before(&self, other: &Record) -> Option<bool> {
        if other.after.contains(&self.nonce) {
            return Some(true);
        }
        let names_all = match self.after.first() {
            Some(before) => other.after.contains(before),
            None => other.after.len() < CHAIN,
        };
        names_all.then_some(false)
    }

    pub(crate) fn to_text(&self) -> String {
        let Record { token, nonce, after, lease } = self;
        let after: String = after.iter().map(|nonce| format!(" {nonce}")).collect();
        let mut text = format!("{FIRST_LINE}\ntoken: {token}\nwrite: {nonce}\nafter:{after}\n");
        if let Some(Lease { resource, owner, lasts, held, written, policy }) = lease {
            let or_dash = |number: Option<i64>| number.map_or("-".into(), |number| number.to_string());
            let (entity, key, owner) = (encode(resource.entity()), encode(resource.key()), encode(owner));
            let Policy { kind, idle, total } = policy;
            let (lasts, idle, total) = (or_dash(*lasts), or_dash(*idle), or_dash(*total));
            let kind = char::from(*kind);
            let _ = write!(
                text,
                "owner: {owner}\nentity: {entity}\nkey: {key}\nlasts: {lasts}\nheld: {held}\nwritten: {written}\n\
                 policy: {kind} {idle} {total}\n"
            );
            while text.len() < LEASED {
                text.push('\n');
            }
        }
        text
    }

    /// Reads an object. Returns `None` if it was not written by a version of this engine that this one knows.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        (lines.next()? == FIRST_LINE).then_some(())?;
        let mut line = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(':');
        let mut field = |name: &str| line(name)?.strip_prefix(' ');
        let token = field("token")?.parse().ok().filter(|token| *token > 0)?;
        let nonce = Nonce::from_text(field("write")?)?;
        let after = line("after")?.split_ascii_whitespace().map(Nonce::from_text).collect::<Option<_>>()?;
        let mut field = |name: &str| line(name)?.strip_prefix(' ');
        let lease = match field("owner") {
            None => None,
            Some(owner) => {
                let positive = |text: &str| text.parse::<i64>().ok().filter(|number| *number >= 0);
                let or_dash = |text: &str| if text == "-" { Some(None) } else { positive(text).map(Some) };
                let owner = decode(owner)?;
                let resource = Resource::new(decode(field("entity")?)?, decode(field("key")?)?);
                let lasts = or_dash(field("lasts")?)?;
                let (held, written) = (positive(field("held")?)?, positive(field("written")?)?);
                let mut policy = field("policy")?.split(' ');
                let kind = policy.next()?.bytes().next()?;
                let (idle, total) = (or_dash(policy.next()?)?, or_dash(policy.next()?)?);
                Some(Lease { resource, owner, lasts, held, written, policy: Policy { kind, idle, total } })
            }
        };
        let is_leased = text.len() >= LEASED;
        (is_leased == lease.is_some()).then_some(Record { token, nonce, after, lease })
    }
}

#[cfg(test)]
mod tests {
    use super::{CHAIN, LEASED, Lease, Nonce, Record};
    use keylatch_lease::{Expiry, Resource};
    use keylatch_lease_conformance::servers::policies;
    use keylatch_lease_remote::Policy;
    use std::time::Duration;

    fn leased(owner: &str, resource: Resource, lasts: Option<i64>, expiry: &Expiry) -> Record {
        let policy = Policy::of(expiry);
        let lease = Lease { resource, owner: owner.into(), lasts, held: 0, written: 1, policy };
        Record { token: 1, nonce: Nonce::new(), after: Vec::new(), lease: Some(lease) }
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let free = Record { token: u64::MAX, nonce: Nonce::new(), after: vec![Nonce::new(); CHAIN], lease: None };
        assert_eq!(Record::from_text(&free.to_text()), Some(free.clone()));
        assert!(free.to_text().len() < LEASED, "a list cannot tell that the resource is free");
        for expiry in policies(Duration::new(1, 1)) {
            for (owner, key) in [("n", ""), ("n:ann\nowner: bob", "a b/ü"), (&"x".repeat(1000), "\0")] {
                for lasts in [None, Some(0), Some(i64::MAX)] {
                    let record = leased(owner, Resource::new("invoice", key), lasts, &expiry);
                    assert!(record.to_text().len() >= LEASED);
                    assert_eq!(Record::from_text(&record.to_text()), Some(record));
                }
            }
        }
    }

    #[test]
    fn a_foreign_object_is_not_a_record() {
        let good = leased("ann", "report".into(), Some(1), &Expiry::Never).to_text();
        assert!(Record::from_text(&good).is_some());
        for (from, to) in [
            ("lease 1", "lease 2"),
            ("token: 1", "token: 0"),
            ("token: 1", "token: x"),
            ("write: ", "rite: "),
            ("lasts: 1", "lasts: -1"),
            ("key: ", "key: ="),
            ("owner: ", "\nowner: "),
            ("policy: n - -", "policy: n"),
        ] {
            let bad = good.replace(from, to);
            assert!(bad != good, "{from}");
            assert_eq!(Record::from_text(&bad), None, "{bad}");
        }
        assert_eq!(Record::from_text(""), None);
        assert_eq!(Record::from_text("{}"), None);
    }

    #[test]
    fn a_record_tells_which_writes_came_before_it() {
        let mut records: Vec<Record> = Vec::new();
        for _ in 0..=CHAIN + 1 {
            let mut next = Record { token: 1, nonce: Nonce::new(), after: Vec::new(), lease: None };
            next.replaces(records.last());
            records.push(next);
        }
        let lost = |before: Option<&Record>| {
            let mut lost = Record { token: 1, nonce: Nonce::new(), after: Vec::new(), lease: None };
            lost.replaces(before);
            lost
        };
        assert_eq!(records[1].is_before(&records[2]), Some(true));
        assert_eq!(records[1].is_before(&records[CHAIN + 1]), Some(true));
        assert_eq!(records[0].is_before(&records[CHAIN + 1]), None, "it is too long ago");
        assert_eq!(lost(Some(&records[1])).is_before(&records[CHAIN + 1]), Some(false));
        assert_eq!(lost(Some(&records[0])).is_before(&records[CHAIN + 1]), None);
        assert_eq!(lost(None).is_before(&records[0]), Some(false));
        assert_eq!(lost(None).is_before(&records[CHAIN - 1]), Some(false));
        assert_eq!(lost(None).is_before(&records[CHAIN]), None);
    }

    #[test]
    fn each_write_has_its_own_number() {
        assert_ne!(Nonce::new(), Nonce::new());
    }
}
