//! The stored record of a tenure.

use std::time::Duration;

use keylatch_lease::{Owner, Resource, Token};
use keylatch_lease_remote::Policy;

use crate::{
    client::KeyValue,
    names::{escape, resource_of, unescape},
};

/// The version of the values' format.
const VERSION: &str = "2";

/// The longest time to live that etcd accepts, in seconds.
pub(crate) const LONGEST: i64 = 9_000_000_000;

/// The number of seconds by which the estimate of the stopwatch may be ahead of its reading.
const INEXACT: i64 = 2;

/// The content of a tenure's keys. It is text: version, base of the token, owner, time to live of the etcd lease in
/// seconds, reading of the stopwatch when the tenure began, policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    /// The difference between the token and the revision at which the tenure began.
    pub(crate) base: i64,
    pub(crate) owner: Owner,
    /// The time to live of the etcd lease, without its [slack]; 0 if there is no etcd lease. Each keep-alive restores
    /// this time.
    pub(crate) seconds: i64,
    pub(crate) since: i64,
    pub(crate) policy: Policy,
}

impl Value {
    pub(crate) fn to_text(&self) -> String {
        let Value { base, owner, seconds, since, policy } = self;
        let number = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let (kind, idle, total) = (char::from(policy.kind), number(policy.idle), number(policy.total));
        format!("{VERSION} {base} {} {seconds} {since} {kind} {idle} {total}", escape(owner.id()))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(text).ok()?.strip_prefix(VERSION)?.strip_prefix(' ')?.split(' ');
        let base = words.next()?.parse().ok()?;
        let owner = Owner::from_id(&unescape(words.next()?)?);
        let seconds = words.next()?.parse().ok()?;
        let since = words.next()?.parse().ok()?;
        let kind = *words.next()?.as_bytes().first()?;
        let mut number = || match words.next()? {
            "-" => Some(None),
            digits => Some(Some(digits.parse().ok()?)),
        };
        let policy = Policy { kind, idle: number()?, total: number()? };
        Some(Value { base, owner, seconds, since, policy })
    }
}

/// A tenure as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) resource: Resource,
    pub(crate) slot: u8,
    pub(crate) token: Token,
    /// The revision at which the tenure began.
    pub(crate) created: i64,
    /// The ID of the etcd lease; 0 if there is none, because the tenure never expires.
    pub(crate) lease: i64,
    pub(crate) modified: i64,
    pub(crate) value: Value,
}

impl Lock {
    /// Reads a tenure from a key below this prefix. Returns `None` if the key was not written by this engine.
    pub(crate) fn new(prefix: &str, kv: &KeyValue) -> Option<Self> {
        let (resource, slot) = resource_of(prefix, kv.key())?;
        let value = Value::parse(kv.value())?;
        let created = kv.create_revision();
        let token = token(value.base.checked_add(created)?)?;
        Some(Lock { resource, slot, token, created, lease: kv.lease(), modified: kv.mod_revision(), value })
    }

    /// Returns how long the tenure has lasted when the stopwatch shows `now`. The stopwatch starts again when the
    /// cluster has a new leader; the result is then a lower bound.
    pub(crate) fn held_for(&self, now: i64) -> Duration {
        let since = self.value.since;
        seconds(if now.saturating_add(INEXACT) < since { now } else { now.saturating_sub(since) })
    }
}

/// The outcome of a transaction.
pub(crate) enum Changed {
    /// The transaction was carried out at this revision. If it began a tenure,
    /// [`Session::begin`](crate::session::Session::begin) adds the base, which makes this the token.
    Yes(i64),
    /// The transaction was not carried out. This is the tenure that the resource has instead.
    No(Option<Lock>),
}

pub(crate) fn token(revision: i64) -> Option<Token> {
    Token::new(u64::try_from(revision).ok()?)
}

/// Returns the revision at which a tenure with this token began, if the token was given out with that base; -1, which
/// no key has, if etcd cannot have had such a revision.
pub(crate) fn revision(token: Token, base: i64) -> i64 {
    let number = i64::try_from(token.get()).unwrap_or(0);
    if number > base { number - base } else { -1 }
}

pub(crate) fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

/// The shortest time to live, in seconds, to which a second is added.
const WITH_SLACK: i64 = 10;

/// Returns the number of seconds by which an etcd lease is longer than the tenures that use it: 1, or 0 if it is short
/// or already as long as possible. For that many seconds after the time of an etcd lease was restarted, another tenure
/// can use it without restarting its time again.
pub(crate) fn slack(seconds: i64) -> i64 {
    i64::from((WITH_SLACK..LONGEST).contains(&seconds))
}

/// Rounds up to whole seconds, at least one. Returns `None` for a time longer than etcd accepts, which counts as
/// infinite.
pub(crate) fn whole(time: Duration) -> Option<i64> {
    let whole = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)).max(1);
    i64::try_from(whole).ok().filter(|&whole| whole <= LONGEST)
}

#[cfg(test)]
mod tests {
    use super::{Lock, Value, revision, whole};
    use keylatch_lease::{Expiry, Owner, Token};
    use keylatch_lease_remote::Policy;
    use std::time::Duration;

    #[test]
    fn a_value_is_read_back_as_it_was_written() {
        let second = Duration::from_secs(1);
        let policies = [
            Expiry::Fixed(second),
            Expiry::Sliding(second),
            Expiry::SlidingUpTo { idle: second, total: 2 * second },
            Expiry::Never,
            Expiry::custom(Some),
        ];
        let owners = [Owner::named("a b"), Owner::incarnation("worker"), Owner::named("\0/%")];
        for (policy, owner) in policies.iter().flat_map(|policy| owners.iter().map(move |owner| (policy, owner))) {
            let value = Value { base: 9, owner: owner.clone(), seconds: 5, since: 7, policy: Policy::of(policy) };
            assert_eq!(Value::parse(value.to_text().as_bytes()), Some(value));
        }
    }

    #[test]
    fn a_restarted_stopwatch_gives_a_lower_bound_of_a_tenures_time() {
        let value = Value { base: 0, owner: "ann".into(), seconds: 5, since: 100, policy: Policy::of(&Expiry::Never) };
        let (resource, token) = ("form".into(), Token::new(7).unwrap());
        let lock = Lock { resource, slot: 0, token, created: 7, lease: 1, modified: 7, value };
        for (shows, lasted) in [(100, 0), (130, 30), (99, 0), (98, 0), (97, 97), (3, 3), (0, 0), (-1, 0)] {
            assert_eq!(lock.held_for(shows), Duration::from_secs(lasted), "{shows}");
        }
    }

    #[test]
    fn a_token_that_was_not_given_out_has_no_revision() {
        let of = |number| revision(Token::new(number).unwrap(), 100);
        assert_eq!([1, 99, 100, 101, 107, u64::MAX].map(of), [-1, -1, -1, 1, 7, -1]);
    }

    #[test]
    fn a_text_that_the_engine_did_not_write_is_no_value() {
        for text in
            ["", "hello", "2", "2 0", "2 0 a", "2 0 a 5", "2 0 a 5 7", "2 0 a 5 7 s", "2 0 a 5 7 s 1", "1 a 5 7 s 1 -"]
        {
            assert_eq!(Value::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Value::parse(b"\xff\xfe"), None);
    }

    #[test]
    fn seconds_are_rounded_up_and_more_than_etcd_accepts_are_for_ever() {
        assert_eq!(whole(Duration::ZERO), Some(1));
        assert_eq!(whole(Duration::from_secs(2)), Some(2));
        assert_eq!(whole(Duration::new(2, 1)), Some(3));
        assert_eq!(whole(Duration::from_secs(9_000_000_000)), Some(9_000_000_000));
        assert_eq!(whole(Duration::from_secs(9_000_000_001)), None);
        assert_eq!(whole(Duration::MAX), None);
    }
}
