//! Requests to acquire and to release that wait for the connection at the same moment: one script decides about them.

use std::{convert::Infallible, str, sync::Arc, time::Duration};

use keylatch_lease::{
    Owner, Resource, Token,
    engine::{Answer, Ask, Fail, Gone, Want},
};
use keylatch_lease_remote::from_micros;
use redis::{ErrorKind, RedisResult};

use crate::{
    convert::{self, micros},
    error::{Error, judge},
    scripts::{ACQUIRE, DECIDE, RELEASE},
    session::Session,
};

/// The number of questions in a batch, which blocks the server for less than a millisecond.
pub(crate) const MOST: usize = 128;

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

    /// Returns the question of a release; without an owner or a token, any will do.
    pub(crate) fn release(resource: &Resource, owner: Option<&Owner>, token: Option<Token>) -> Self {
        let wish = token.map_or_else(|| "r".to_owned(), |token| format!("r{token}"));
        Question { name: convert::name(resource), owner: owner.cloned(), wish }
    }

    fn is_release(&self) -> bool {
        self.wish.starts_with('r')
    }

    fn words(&self) -> [&str; 3] {
        [&self.name, self.owner.as_ref().map_or("", Owner::id), &self.wish]
    }

    /// Parses the script's text; `None` if the question must be sent alone.
    fn decided(&self, text: &[u8]) -> Option<Decided> {
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

fn token(text: &[u8]) -> Option<Token> {
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

impl Session {
    /// Sends a question alone.
    pub(crate) async fn decide_one(&self, question: &Question) -> Outcome {
        let script = if question.is_release() { &RELEASE } else { &ACQUIRE };
        let answer = self.call::<Vec<u8>>(script, &self.arguments(&[question])).await.map_err(judge)?;
        let decided = question.decided(&answer);
        decided.ok_or_else(|| judge((ErrorKind::UnexpectedReturnType, "the script's answer cannot be read").into()))
    }

    fn arguments<'a>(&'a self, batch: &[&'a Question]) -> Vec<&'a str> {
        let place = &*self.place;
        let mut arguments = Vec::with_capacity(4 + 3 * batch.len());
        arguments.extend([&*self.run, &place.quarantine, place.trusts(), &place.channel]);
        arguments.extend(batch.iter().flat_map(|question| question.words()));
        arguments
    }

    async fn decide(&self, batch: &[&Question]) -> RedisResult<Vec<Option<Decided>>> {
        let answers = self.call::<Vec<Vec<u8>>>(&DECIDE, &self.arguments(batch)).await?;
        Ok(batch.iter().zip(answers).map(|(question, answer)| question.decided(&answer)).collect())
    }

    /// Sends a batch of questions. Those that have no answer are left to their callers: all of them if the server has
    /// refused the script, because it may be the fault of one of them, and the script has changed nothing.
    async fn decide_all(&self, batch: &[Arc<Question>]) -> Vec<Option<Outcome>> {
        if let [one] = batch {
            return vec![Some(self.decide_one(one).await)];
        }
        let questions: Vec<&Question> = batch.iter().map(|question| &**question).collect();
        match self.decide(&questions).await.map_err(judge) {
            Ok(answers) => answers.into_iter().map(|answer| answer.map(Ok)).collect(),
            Err(Fail::NotDone(_)) => vec![None; batch.len()],
            Err(fail @ Fail::Unknown(_)) => vec![Some(Err(fail)); batch.len()],
        }
    }
}

/// Carries the questions of a connection until it ends.
pub(crate) async fn carry(session: Session) -> Infallible {
    let together = Arc::clone(&session.together);
    let send = |batch: Arc<[Arc<Question>]>| {
        let session = session.clone();
        async move { session.decide_all(&batch).await }
    };
    together.carry(send).await
}
