//! Requests to acquire and to release. Those that wait for the connection at the same moment are sent together.

use std::{str, sync::Arc, time::Duration};

use keylatch_lease::{
    Owner, Resource, Token,
    engine::{Answer, Ask, Fail, Gone, Want},
};
use keylatch_lease_remote::from_micros;

use crate::{
    convert::{self, micros},
    error::Error,
};

/// The greatest number of questions in a batch, which blocks the server for less than a millisecond.
pub(crate) const MOST: usize = 128;

/// The greatest number of batches that are under way at the same time: the server works on one while this process reads
/// the answers to the other, and sends the next. With more batches each would be smaller, and a batch costs as much as
/// several questions.
pub(crate) const BATCHES: usize = 2;

/// The questions of a connection, and their answers.
pub(crate) type Together = keylatch_lease_remote::Together<Arc<Question>, Outcome>;

/// The outcome of a question.
pub(crate) type Outcome = Result<Decided, Fail<Error>>;

/// A request about one resource, in the words of the script.
#[derive(Debug)]
pub(crate) struct Question {
    name: String,
    owner: Option<Owner>,
    wish: String,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decided {
    /// The resource has the tenure that was asked for.
    Granted { token: Token, resumed: bool, held_for: Duration, remaining: Option<Duration> },
    /// The tenure was ended.
    Gone,
    /// The resource has another tenure.
    Busy { owner: Owner, remaining: Option<Duration> },
    /// The resource has no tenure.
    Free,
    /// Nothing is granted yet.
    Quarantined { remaining: Duration },
}

impl Question {
    pub(crate) fn acquire(ask: &Ask<'_>) -> Self {
        let letters = match ask.want {
            Want::Any => ["a", "A"],
            Want::Fresh => ["f", "F"],
            Want::Mine => ["m", "M"],
            Want::New => ["n", "N"],
        };
        let [idle, total] = match ask.term {
            Some(term) => [term.idle, term.total].map(micros),
            None => [String::new(), String::new()],
        };
        let (letter, policy) = (letters[usize::from(ask.waiting)], convert::policy(ask.expiry));
        let wish = [letter, &idle, " ", &total, " ", &policy].concat();
        Question { name: convert::name(ask.resource), owner: Some(ask.owner.clone()), wish }
    }

    /// Returns the question of a release. `None` stands for any owner, or for any token.
    pub(crate) fn release(resource: &Resource, owner: Option<&Owner>, token: Option<Token>) -> Self {
        let wish = token.map_or_else(|| "r".to_owned(), |token| format!("r{token}"));
        Question { name: convert::name(resource), owner: owner.cloned(), wish }
    }

    pub(crate) fn is_release(&self) -> bool {
        self.wish.starts_with('r')
    }

    pub(crate) fn words(&self) -> [&str; 3] {
        [&self.name, self.owner.as_ref().map_or("", Owner::id), &self.wish]
    }

    /// Parses the script's text; `None` if the question must be sent alone.
    pub(crate) fn decided(&self, text: &[u8]) -> Option<Decided> {
        let (letter, rest) = text.split_first()?;
        let mut words = rest.splitn(3, |byte| *byte == b' ');
        let mut word = || words.next().unwrap_or_default();
        Some(match letter {
            b'g' if self.is_release() => Decided::Gone,
            b'g' | b'r' => Decided::Granted {
                token: token(word())?,
                resumed: *letter == b'r',
                held_for: time(word())?,
                remaining: limit(word())?,
            },
            b'b' => {
                let (remaining, owner) = rest.split_at_checked(rest.iter().position(|byte| *byte == b' ')?)?;
                Decided::Busy { owner: owner_of(&owner[1..]), remaining: limit(remaining)? }
            }
            b'f' => Decided::Free,
            b'q' => Decided::Quarantined { remaining: time(rest)? },
            _ => return None,
        })
    }
}

fn number(text: &[u8]) -> Option<i64> {
    str::from_utf8(text).ok()?.parse().ok()
}

fn time(text: &[u8]) -> Option<Duration> {
    number(text).map(from_micros)
}

/// Parses a time that may be infinite.
fn limit(text: &[u8]) -> Option<Option<Duration>> {
    if text == b"-" { Some(None) } else { time(text).map(Some) }
}

pub(crate) fn token(text: &[u8]) -> Option<Token> {
    Token::new(u64::try_from(number(text)?).ok()?)
}

pub(crate) fn owner_of(id: &[u8]) -> Owner {
    Owner::from_id(&String::from_utf8_lossy(id))
}

impl From<Decided> for Answer {
    fn from(decided: Decided) -> Self {
        match decided {
            Decided::Granted { token, resumed, held_for, remaining } => {
                Answer::Granted { token, resumed, held_for, remaining }
            }
            Decided::Busy { owner, remaining } => Answer::Busy { owner, remaining },
            Decided::Quarantined { remaining } => Answer::Quarantined { remaining },
            Decided::Free | Decided::Gone => Answer::Free,
        }
    }
}

impl From<Decided> for Gone {
    fn from(decided: Decided) -> Self {
        match decided {
            Decided::Gone => Gone::Released,
            Decided::Busy { owner, .. } => Gone::NotOwner(owner),
            _ => Gone::NotHeld,
        }
    }
}
