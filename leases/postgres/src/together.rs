//! Requests to acquire or release that wait for the connection at the same moment: one statement decides about them,
//! and one flush to disk makes the decisions durable.

use std::time::Duration;

use keylatch_lease::{
    Owner, Resource, Token,
    engine::{Answer, Ask, Fail, Gone, Want},
};
use keylatch_lease_remote::{Policy, from_micros, micros};
use tokio_postgres::Row;

use crate::error::Error;

/// The greatest number of questions in a batch.
pub(crate) const MOST: usize = 128;

/// The remaining time that a waiter is told when a guarded transaction keeps an expired lease from ending.
const GUARDED: Duration = Duration::from_millis(100);

/// The questions of a connection, and their answers.
pub(crate) type Together = keylatch_lease_remote::Together<Question, Outcome>;

/// The outcome of a question.
pub(crate) type Outcome = Result<Decided, Fail<Error>>;

/// The arguments of an acquire, except for the resource and the owner.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) want: Want,
    pub(crate) waiting: bool,
    pub(crate) has_term: bool,
    pub(crate) idle: Option<i64>,
    pub(crate) total: Option<i64>,
    pub(crate) policy: Policy,
}

/// A question about a resource.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) asked: Asked,
}

#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Acquire(Wish),
    Release(Token),
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decided {
    Acquire(Answer),
    Release(Gone),
}

impl Wish {
    /// Returns the arguments of an acquire. A waiter that polls need not be known to the server.
    pub(crate) fn of(ask: &Ask<'_>, polls: bool) -> Self {
        Wish {
            want: ask.want,
            waiting: ask.waiting && !polls,
            has_term: ask.term.is_some(),
            idle: ask.term.and_then(|term| term.idle).and_then(micros),
            total: ask.term.and_then(|term| term.total).and_then(micros),
            policy: Policy::of(ask.expiry),
        }
    }
}

impl Question {
    /// Returns the question for an acquire; `None` if it should be sent alone, because the server rarely grants an
    /// acquire of its kind.
    pub(crate) fn acquire(ask: &Ask<'_>, wish: &Wish) -> Option<Self> {
        if !wish.has_term || wish.want == Want::Mine {
            return None;
        }
        let asked = Asked::Acquire(wish.clone());
        Some(Question { resource: ask.resource.clone(), owner: ask.owner.clone(), asked })
    }

    pub(crate) fn release(resource: &Resource, owner: &Owner, token: Token) -> Self {
        Question { resource: resource.clone(), owner: owner.clone(), asked: Asked::Release(token) }
    }

    pub(crate) fn wish(&self) -> Option<&Wish> {
        match &self.asked {
            Asked::Acquire(wish) => Some(wish),
            Asked::Release(_) => None,
        }
    }

    /// Returns the answer in a row of the batch's function, which has rows only for grants, busy resources and
    /// releases.
    pub(crate) fn decided(&self, row: &Row) -> Decided {
        match &self.asked {
            Asked::Acquire(_) if what(row) == b'b' => {
                Decided::Acquire(Answer::Busy { owner: owner(row, 1), remaining: remaining(row, 3) })
            }
            Asked::Acquire(_) => Decided::Acquire(Answer::Granted {
                token: token(row, 2),
                resumed: false,
                held_for: Duration::ZERO,
                remaining: remaining(row, 3),
            }),
            Asked::Release(_) => Decided::Release(Gone::Released),
        }
    }
}

/// Returns the first column of a function's answer: a letter for what was done.
pub(crate) fn what(row: &Row) -> u8 {
    row.get::<_, i8>(0) as u8
}

/// Returns whether a guarded transaction keeps the lease from ending.
pub(crate) fn is_guarded(row: &Row) -> bool {
    what(row) == b't'
}

pub(crate) fn owner(row: &Row, column: usize) -> Owner {
    Owner::from_id(&String::from_utf8_lossy(row.get(column)))
}

pub(crate) fn token(row: &Row, column: usize) -> Token {
    let number = u64::try_from(row.get::<_, i64>(column)).ok();
    number.and_then(Token::new).unwrap_or_else(|| unreachable!("the table contains only positive tokens"))
}

pub(crate) fn remaining(row: &Row, column: usize) -> Option<Duration> {
    row.get::<_, Option<i64>>(column).map(from_micros)
}

/// Returns the answer of the function that acquires one lease.
pub(crate) fn answer(row: &Row) -> Answer {
    match what(row) {
        b'f' => Answer::Free,
        b'q' => Answer::Quarantined { remaining: remaining(row, 4).unwrap_or_default() },
        b'b' => Answer::Busy { owner: owner(row, 1), remaining: remaining(row, 4) },
        b't' => Answer::Busy { owner: owner(row, 1), remaining: Some(GUARDED) },
        what => Answer::Granted {
            token: token(row, 2),
            resumed: what == b'r',
            held_for: from_micros(row.get(3)),
            remaining: remaining(row, 4),
        },
    }
}

/// Returns the answer of the function that releases one lease.
pub(crate) fn gone(row: &Row) -> Gone {
    match what(row) {
        b'g' => Gone::Released,
        b'b' => Gone::NotOwner(owner(row, 1)),
        _ => Gone::NotHeld,
    }
}
