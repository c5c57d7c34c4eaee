//! The mark that identifies a namespace: a message that is deleted with the leases, and differs if they are replaced.

use serde::{Deserialize, Serialize};

const VERSION: u8 = 1;

/// The mark, as it is stored. Times are nanoseconds since 1970, by the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    v: u8,
    /// When the stream was made, as the server says it.
    pub(crate) stream: String,
    /// Which run of the server has it.
    pub(crate) run: String,
    /// Until when nothing is granted.
    pub(crate) until: u64,
    /// Tokens up to this one are in doubt: their leases may have been released, and granted to others, in what was forgotten. Each time
    /// that something may have been forgotten it is another one.
    pub(crate) doubt: u64,
    /// The greatest token of a message that has been deleted, or in doubt.
    pub(crate) swept: u64,
}

impl Mark {
    /// Something may have been forgotten: also whatever was granted until now.
    pub(crate) fn new(stream: &str, run: &str, until: u64, now: u64, before: Option<&Mark>) -> Self {
        let least = before.map_or(0, |before| before.swept.max(before.doubt) + 1);
        let doubt = micros(now).max(least);
        Mark { v: VERSION, stream: stream.to_owned(), run: run.to_owned(), until, doubt, swept: doubt }
    }

    /// `None`: it is not one of ours, or of another version.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mark: Mark = serde_json::from_slice(bytes).ok()?;
        (mark.v == VERSION).then_some(mark)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|_| unreachable!("it has strings and numbers only"))
    }

    /// Whether nothing has been forgotten between the two.
    pub(crate) fn is_same(&self, other: &Mark) -> bool {
        (&self.stream, self.doubt) == (&other.stream, other.doubt)
    }

    /// The next token behind this one, at this time.
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
    fn tokens_go_on_above_all_that_were_given() {
        let first = Mark::new("s", "r", 0, 5_000_000, None);
        assert_eq!(first.token(0, 6_000_000), 6000);
        assert_eq!(first.token(6000, 6_000_000), 6001);
        assert_eq!(first.token(0, 1_000_000), 5001, "the clock was set back");
        let later = Mark { swept: 9000, ..first.clone() };
        assert_eq!(later.token(0, 6_000_000), 9001);
        let other = Mark::new("s", "r", 0, 6_000_000, Some(&later));
        assert_eq!((other.doubt, other.token(0, 0)), (9001, 9002));
        assert!(first.is_same(&later) && !other.is_same(&later));
    }

    #[test]
    fn a_mark_is_as_long_when_something_has_been_swept() {
        let first = Mark::new("s", "r", 0, 1_700_000_000_000_000_000, None);
        let later = Mark { swept: first.swept + 1_000_000, ..first.clone() };
        assert_eq!(first.to_bytes().len(), later.to_bytes().len());
    }

    #[test]
    fn what_others_wrote_is_no_mark() {
        let mark = Mark::new("s", "r", 1, 2000, None);
        assert_eq!(Mark::from_bytes(&mark.to_bytes()), Some(mark));
        for nonsense in ["", "{}", "null", "{\"v\":2}"] {
            assert_eq!(Mark::from_bytes(nonsense.as_bytes()), None);
        }
    }
}
