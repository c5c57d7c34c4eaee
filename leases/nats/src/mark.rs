//! The mark that identifies a namespace: a message that is deleted with the leases, and differs if they are replaced.

use serde::{Deserialize, Serialize};

const VERSION: u8 = 1;

/// The mark, as it is stored. Times are the server's, in nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    v: u8,
    /// The creation time of the stream, as the server writes it.
    pub(crate) stream: String,
    /// The run of the server that has the stream.
    pub(crate) run: String,
    /// The time until which nothing is granted.
    pub(crate) until: u64,
    /// The greatest token that is in doubt: the stream may have forgotten that leases with tokens up to this one were
    /// released, and their resources granted to other owners. This number changes each time that leases may have been
    /// forgotten.
    pub(crate) doubt: u64,
    /// The greatest token that is in doubt or whose message was deleted.
    pub(crate) swept: u64,
}

impl Mark {
    /// Returns the mark for a stream that may have forgotten leases, including those that were granted until now.
    pub(crate) fn new(stream: &str, run: &str, until: u64, now: u64, before: Option<&Mark>) -> Self {
        let least = before.map_or(0, |before| before.swept.max(before.doubt) + 1);
        let doubt = micros(now).max(least);
        Mark { v: VERSION, stream: stream.to_owned(), run: run.to_owned(), until, doubt, swept: doubt }
    }

    /// Parses a mark. Returns `None` if it was not written by this version of the engine.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mark: Mark = serde_json::from_slice(bytes).ok()?;
        (mark.v == VERSION).then_some(mark)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|_| unreachable!("a mark contains only strings and numbers"))
    }

    /// Returns whether no lease can have been forgotten between the two marks.
    pub(crate) fn is_same(&self, other: &Mark) -> bool {
        (&self.stream, self.doubt) == (&other.stream, other.doubt)
    }

    /// Returns the token that follows `last` at this time.
    pub(crate) fn token(&self, last: u64, now: u64) -> u64 {
        micros(now).max(last.max(self.swept) + 1)
    }
}

fn micros(nanos: u64) -> u64 {
    nanos / 1000
}

#[cfg(test)]
mod tests {
    use super::Mark;

    #[test]
    fn a_new_token_exceeds_all_earlier_ones() {
        let first = Mark::new("s", "r", 0, 5_000_000, None);
        assert_eq!(first.token(0, 6_000_000), 6000);
        assert_eq!(first.token(6000, 6_000_000), 6001);
        assert_eq!(first.token(0, 1_000_000), 5001, "the token did not exceed the doubt after the clock was set back");
        let later = Mark { swept: 9000, ..first.clone() };
        assert_eq!(later.token(0, 6_000_000), 9001);
        let other = Mark::new("s", "r", 0, 6_000_000, Some(&later));
        assert_eq!((other.doubt, other.token(0, 0)), (9001, 9002));
        assert!(first.is_same(&later) && !other.is_same(&later));
    }

    #[test]
    fn a_sweep_does_not_change_the_length_of_the_mark() {
        let first = Mark::new("s", "r", 0, 1_700_000_000_000_000_000, None);
        let later = Mark { swept: first.swept + 1_000_000, ..first.clone() };
        assert_eq!(first.to_bytes().len(), later.to_bytes().len());
    }

    #[test]
    fn a_foreign_message_is_not_a_mark() {
        let mark = Mark::new("s", "r", 1, 2000, None);
        assert_eq!(Mark::from_bytes(&mark.to_bytes()), Some(mark));
        for nonsense in ["", "{}", "null", "{\"v\":2}"] {
            assert_eq!(Mark::from_bytes(nonsense.as_bytes()), None);
        }
    }
}
