//! The messages of a resource, and the tenure that they describe.
//!
//! The last message of a resource's subject decides, together with the time at which the server stored it: all
//! durations in the message count from that time. So every program that reads it computes the same end, and only the
//! server's clock matters.

use std::time::Duration;

use keylatch_lease::{Expiry, Term};
use keylatch_lease_remote::Policy;
use serde::{Deserialize, Serialize};

/// The end of a tenure that never expires. Times are the server's, in nanoseconds since 1970.
pub(crate) const NEVER: u64 = u64::MAX;

const VERSION: u8 = 2;

/// A message, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    v: u8,
    /// The owner; `None` if the resource is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// The token of the tenure, or of the last one if the resource is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    /// The time at which the tenure began; `None` if it begins with this message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    /// The longest duration from this message on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idle: Option<u64>,
    /// The longest duration from the beginning of the tenure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    /// The end that the tenure had before: the tenure does not end earlier than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    least: Option<u64>,
    /// The time before which this message must have been stored; if it was stored later, it has no effect, and the
    /// tenure has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<u64>,
    /// The policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<Kept>,
}

/// The fields of a [`Policy`]: kind, idle, total.
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

/// Returns nanoseconds; `None` if they do not fit, which counts as infinite.
fn nanos(time: Duration) -> Option<u64> {
    u64::try_from(time.as_nanos()).ok()
}

impl Message {
    /// Returns the message that says that the resource is free after the tenure with this token, which is zero if there
    /// was no tenure.
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

    /// Returns the message that begins a tenure.
    pub(crate) fn begin(owner: &str, token: u64, term: Term, expiry: &Expiry) -> Self {
        Message {
            owner: Some(owner.to_owned()),
            idle: term.idle.and_then(nanos),
            total: term.total.and_then(nanos),
            policy: Some(Kept::of(expiry)),
            ..Message::free(token)
        }
    }

    /// Returns the message that continues a tenure. It never makes the tenure end earlier, and has no effect if it is
    /// stored after the tenure's end. If `expiry` is `None`, the tenure keeps its policy.
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

    /// Parses a message. Returns `None` if it was not written by this version of the engine.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // Without this check, a list of the fields' values would be accepted too.
        let object = bytes.strip_prefix(b"{").map(|_| bytes)?;
        let message: Message = serde_json::from_slice(object).ok()?;
        let has_token = message.token.map_or(message.owner.is_none(), |token| token > 0);
        (message.v == VERSION && has_token).then_some(message)
    }

    /// Returns the greatest token that the resource is known to have had; zero if there is none.
    pub(crate) fn token(&self) -> u64 {
        self.token.unwrap_or(0)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|_| unreachable!("a message contains only strings and numbers"))
    }

    /// Returns the tenure that this message, stored at time `at`, describes; it may have ended since. `None` if the
    /// resource is free, or if the message was stored too late.
    pub(crate) fn tenure(self, at: u64) -> Option<Tenure> {
        let token = self.token();
        let owner = self.owner?;
        if self.by.is_some_and(|by| at >= by) {
            return None;
        }
        let since = self.since.unwrap_or(at);
        let end = |from: u64, lasts: Option<u64>| lasts.map_or(NEVER, |lasts| from.saturating_add(lasts));
        let end = end(at, self.idle).min(end(since, self.total)).max(self.least.unwrap_or(0));
        Some(Tenure { owner, token, since, end, policy: self.policy })
    }
}

/// A tenure, by the server's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tenure {
    pub(crate) owner: String,
    pub(crate) token: u64,
    pub(crate) since: u64,
    /// The end, which may be [`NEVER`].
    pub(crate) end: u64,
    policy: Option<Kept>,
}

impl Tenure {
    /// Returns the time left at the time `at`; `None` if the tenure never expires.
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
    fn a_tenure_counts_from_the_time_at_which_it_was_stored() {
        let tenure = begun(seconds(2), &Expiry::Sliding(Duration::from_secs(2)), SECOND);
        assert_eq!((tenure.token, tenure.since, tenure.end), (7, SECOND, 3 * SECOND));
        assert_eq!(tenure.remaining(2 * SECOND), Some(Duration::from_secs(1)));
        assert_eq!(tenure.remaining(4 * SECOND), Some(Duration::ZERO));
        assert_eq!(tenure.held_for(2 * SECOND), Duration::from_secs(1));
        assert_eq!(tenure.expiry(), Some(Expiry::Sliding(Duration::from_secs(2))));
    }

    #[test]
    fn a_continued_tenure_keeps_its_token_and_never_ends_earlier() {
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
    fn a_message_stored_after_the_end_revives_nothing() {
        let tenure = begun(seconds(2), &Expiry::Never, SECOND);
        let on = Message::go_on(&tenure, seconds(2), None);
        assert!(on.clone().tenure(3 * SECOND - 1).is_some());
        // At its end a tenure has ended for everybody, even for a caller that only reads the status.
        assert_eq!(on.tenure(3 * SECOND), None);
    }

    #[test]
    fn a_free_resource_has_a_last_token_and_no_tenure() {
        let free = Message::from_bytes(&Message::free(7).to_bytes()).unwrap();
        assert_eq!(free.token(), 7, "the last token is lost");
        assert_eq!(free.tenure(SECOND), None);
    }

    #[test]
    fn a_duration_beyond_the_range_of_numbers_never_ends() {
        let term = Term { idle: Some(Duration::MAX), total: None };
        let tenure = begun(term, &Expiry::Sliding(Duration::MAX), SECOND);
        assert_eq!((tenure.end, tenure.remaining(SECOND), tenure.expiry()), (NEVER, None, None));
        let term = Term { idle: Some(Duration::from_nanos(u64::MAX - 1)), total: None };
        assert_eq!(begun(term, &Expiry::Never, SECOND).end, NEVER);
    }

    #[test]
    fn a_policy_is_read_back_as_it_was_written() {
        for before in policies(Duration::new(1, 1)) {
            assert_eq!(begun(seconds(1), &before, SECOND).expiry(), Some(before));
        }
        assert_eq!(begun(seconds(1), &Expiry::custom(Some), SECOND).expiry(), None);
    }

    #[test]
    fn a_foreign_message_is_not_a_lease() {
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
