//! The messages of a resource, and the owner that they imply.
//!
//! The last message of a resource's subject decides, and the time at which the server stored it: all durations in it count from there. So everybody
//! who reads it comes to the same end, and no clock but the server's is in it.

use std::time::Duration;

use keylatch_lease::{Expiry, Term};
use keylatch_lease_remote::Policy;
use serde::{Deserialize, Serialize};

/// An end that does not come. Times are nanoseconds since 1970, by the server.
pub(crate) const NEVER: u64 = u64::MAX;

const VERSION: u8 = 2;

/// A message, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    v: u8,
    /// Whose. `None`: nobody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// The number of the tenure. Where the resource is free, of the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    /// When it began; `None`: with this message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    /// Its duration from this message on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idle: Option<u64>,
    /// And from its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    /// It does not end before: the end that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    least: Option<u64>,
    /// A message that was stored later came too late, and the tenure keeps its earlier end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<u64>,
    /// The policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<Kept>,
}

/// A policy as the crate in common has it: kind, idle, total.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept(u8, Option<i64>, Option<i64>);

impl Kept {
    fn of(expiry: &Expiry) -> Self {
        let Policy { kind, idle, total } = Policy::of(expiry);
        Kept(kind, idle, total)
    }

    fn expiry(&self) -> Option<Expiry> {
        let Kept(kind, idle, total) = *self;
        Policy { kind, idle, total }.expiry()
    }
}

/// `None`: for longer than there are numbers, which is for ever.
fn nanos(time: Duration) -> Option<u64> {
    u64::try_from(time.as_nanos()).ok()
}

impl Message {
    /// The tenure of this token is over; zero: there was none.
    pub(crate) fn free(token: u64) -> Self {
        Message {
            v: VERSION,
            owner: None,
            token: (token > 0).then_some(token),
            since: None,
            idle: None,
            total: None,
            least: None,
            by: None,
            policy: None,
        }
    }

    /// A tenure begins.
    pub(crate) fn begin(owner: &str, token: u64, term: Term, expiry: &Expiry) -> Self {
        Message {
            owner: Some(owner.to_owned()),
            idle: term.idle.and_then(nanos),
            total: term.total.and_then(nanos),
            policy: Some(Kept::of(expiry)),
            ..Message::free(token)
        }
    }

    /// A tenure goes on, and ends no earlier; unless this is stored too late. Without a policy it keeps the one that it has.
    pub(crate) fn go_on(tenure: &Tenure, term: Term, expiry: Option<&Expiry>) -> Self {
        Message {
            owner: Some(tenure.owner.clone()),
            since: Some(tenure.since),
            idle: term.idle.and_then(nanos),
            total: term.total.and_then(nanos),
            least: Some(tenure.end),
            by: Some(tenure.end),
            policy: expiry.map(Kept::of).or_else(|| tenure.policy.clone()),
            ..Message::free(tenure.token)
        }
    }

    /// `None`: it is not one of ours, or of another version.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // A list of the fields' values would be read as well.
        let object = bytes.strip_prefix(b"{").map(|_| bytes)?;
        let message: Message = serde_json::from_slice(object).ok()?;
        let has_token = message.token.map_or(message.owner.is_none(), |token| token > 0);
        (message.v == VERSION && has_token).then_some(message)
    }

    /// The greatest token that the resource is known to have had. Zero: none.
    pub(crate) fn token(&self) -> u64 {
        self.token.unwrap_or(0)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|_| unreachable!("it has strings and numbers only"))
    }

    /// Whose it is by this message, stored at that time; it may have ended since. `None`: nobody's.
    pub(crate) fn tenure(self, at: u64) -> Option<Tenure> {
        let token = self.token();
        let owner = self.owner?;
        if self.by.is_some_and(|by| at > by) {
            return None;
        }
        let since = self.since.unwrap_or(at);
        let end = |from: u64, lasts: Option<u64>| lasts.map_or(NEVER, |lasts| from.saturating_add(lasts));
        let end = end(at, self.idle).min(end(since, self.total)).max(self.least.unwrap_or(0));
        Some(Tenure { owner, token, since, end, policy: self.policy })
    }
}

/// Somebody's lease, by the server's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tenure {
    pub(crate) owner: String,
    pub(crate) token: u64,
    pub(crate) since: u64,
    /// Maybe [`NEVER`].
    pub(crate) end: u64,
    policy: Option<Kept>,
}

impl Tenure {
    /// Returns the time left at this time. `None`: it never expires.
    pub(crate) fn remaining(&self, at: u64) -> Option<Duration> {
        (self.end != NEVER).then(|| Duration::from_nanos(self.end.saturating_sub(at)))
    }

    pub(crate) fn held_for(&self, at: u64) -> Duration {
        Duration::from_nanos(at.saturating_sub(self.since))
    }

    pub(crate) fn expiry(&self) -> Option<Expiry> {
        self.policy.as_ref().and_then(Kept::expiry)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keylatch_lease::{Expiry, Term};
    use keylatch_lease_conformance::servers::policies;

    use super::{Message, NEVER, Tenure};

    const SECOND: u64 = 1_000_000_000;

    fn seconds(idle: u64) -> Term {
        Term { idle: Some(Duration::from_secs(idle)), total: None }
    }

    fn begun(term: Term, expiry: &Expiry, at: u64) -> Tenure {
        let message = Message::begin("ann", 7, term, expiry);
        Message::from_bytes(&message.to_bytes()).unwrap().tenure(at).unwrap()
    }

    #[test]
    fn a_tenure_counts_from_when_it_was_stored() {
        let tenure = begun(seconds(2), &Expiry::Sliding(Duration::from_secs(2)), SECOND);
        assert_eq!((tenure.token, tenure.since, tenure.end), (7, SECOND, 3 * SECOND));
        assert_eq!(tenure.remaining(2 * SECOND), Some(Duration::from_secs(1)));
        assert_eq!(tenure.remaining(4 * SECOND), Some(Duration::ZERO));
        assert_eq!(tenure.held_for(2 * SECOND), Duration::from_secs(1));
        assert_eq!(tenure.expiry(), Some(Expiry::Sliding(Duration::from_secs(2))));
    }

    #[test]
    fn it_goes_on_with_its_token_and_never_ends_earlier() {
        let tenure = begun(seconds(9), &Expiry::Never, SECOND);
        let on = |term, at| Message::go_on(&tenure, term, None).tenure(at).unwrap();
        let longer = on(seconds(9), 4 * SECOND);
        assert_eq!((longer.token, longer.since, longer.end), (7, SECOND, 13 * SECOND));
        assert_eq!(longer.expiry(), Some(Expiry::Never));
        assert_eq!(on(seconds(1), 4 * SECOND).end, tenure.end);
        let capped = Term { idle: Some(Duration::from_secs(20)), total: Some(Duration::from_secs(11)) };
        assert_eq!(on(capped, 4 * SECOND).end, 12 * SECOND);
        assert_eq!(on(Term::FOREVER, 4 * SECOND).end, NEVER);
    }

    #[test]
    fn what_is_stored_after_the_end_revives_nothing() {
        let tenure = begun(seconds(2), &Expiry::Never, SECOND);
        let on = Message::go_on(&tenure, seconds(2), None);
        assert!(on.clone().tenure(3 * SECOND).is_some());
        assert_eq!(on.tenure(3 * SECOND + 1), None);
    }

    #[test]
    fn what_is_free_is_nobodys() {
        let free = Message::from_bytes(&Message::free(7).to_bytes()).unwrap();
        assert_eq!(free.token(), 7, "the next one must be greater");
        assert_eq!(free.tenure(SECOND), None);
    }

    #[test]
    fn what_is_longer_than_there_are_numbers_never_ends() {
        let term = Term { idle: Some(Duration::MAX), total: None };
        let tenure = begun(term, &Expiry::Sliding(Duration::MAX), SECOND);
        assert_eq!((tenure.end, tenure.remaining(SECOND), tenure.expiry()), (NEVER, None, None));
        let term = Term { idle: Some(Duration::from_nanos(u64::MAX - 1)), total: None };
        assert_eq!(begun(term, &Expiry::Never, SECOND).end, NEVER);
    }

    #[test]
    fn policies_come_back() {
        for before in policies(Duration::new(1, 1)) {
            assert_eq!(begun(seconds(1), &before, SECOND).expiry(), Some(before));
        }
        assert_eq!(begun(seconds(1), &Expiry::custom(Some), SECOND).expiry(), None);
    }

    #[test]
    fn what_others_wrote_is_not_taken_for_a_lease() {
        for nonsense in [
            "",
            "{}",
            "null",
            "[1]",
            "{\"v\":1}",
            "{\"v\":2,\"owner\":7}",
            "{\"v\":2,\"token\":0}",
            "{\"v\":2,\"owner\":\"a\"}",
        ] {
            assert_eq!(Message::from_bytes(nonsense.as_bytes()), None, "{nonsense}");
        }
    }
}
