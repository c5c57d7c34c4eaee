//! Acquires and releases that wait for the connection at the same moment: one statement decides about them, and one
//! flush to the disk keeps them.

use std::{sync::Arc, time::Duration};

use keylatch_lease::{
    Owner, Resource, Token,
    engine::{Answer, Ask, Fail, Gone, Want},
};
use keylatch_lease_remote::{Limit, Link, Policy, from_micros, micros};
use tokio_postgres::{Row, types::ToSql};

use crate::{
    convert::{number, parts},
    error::{Error, Verdict, judge},
    session::{Session, is_guarded, what},
};

/// The number of questions in a batch.
pub(crate) const MOST: usize = 128;

/// The remaining time of a lease that has expired and that a guarded transaction keeps, in the answer to a waiter.
const GUARDED: Duration = Duration::from_millis(100);

/// The questions of a connection, and their answers.
pub(crate) type Together = keylatch_lease_remote::Together<Question, Outcome>;

/// The outcome of a question.
pub(crate) type Outcome = Result<Decided, Fail<Error>>;

/// What an acquire asks for, apart from the resource and the owner.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    want: Want,
    waiting: bool,
    has_term: bool,
    idle: Option<i64>,
    total: Option<i64>,
    policy: Policy,
}

/// A question about a resource.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) resource: Resource,
    owner: Owner,
    asked: Asked,
}

#[derive(Clone, Debug)]
enum Asked {
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
    pub(crate) fn of(ask: &Ask<'_>) -> Self {
        Wish {
            want: ask.want,
            waiting: ask.waiting,
            has_term: ask.term.is_some(),
            idle: ask.term.and_then(|term| term.idle).and_then(micros),
            total: ask.term.and_then(|term| term.total).and_then(micros),
            policy: Policy::of(ask.expiry),
        }
    }
}

impl Question {
    /// Returns the question of an acquire; `None` if its answer is seldom a grant.
    pub(crate) fn acquire(ask: &Ask<'_>) -> Option<Self> {
        let wish = Wish::of(ask);
        if !wish.has_term || wish.want == Want::Mine {
            return None;
        }
        Some(Question { resource: ask.resource.clone(), owner: ask.owner.clone(), asked: Asked::Acquire(wish) })
    }

    pub(crate) fn release(resource: &Resource, owner: &Owner, token: Token) -> Self {
        Question { resource: resource.clone(), owner: owner.clone(), asked: Asked::Release(token) }
    }

    fn wish(&self) -> Option<&Wish> {
        match &self.asked {
            Asked::Acquire(wish) => Some(wish),
            Asked::Release(_) => None,
        }
    }

    /// Returns the answer of the batch's function, in which everything but a grant and a release is left out.
    fn decided(&self, row: &Row) -> Decided {
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

impl Session {
    pub(crate) async fn acquire(
        &self,
        resource: &Resource,
        owner: &Owner,
        wish: &Wish,
    ) -> Result<Row, tokio_postgres::Error> {
        let ((entity, key), id) = (parts(resource), owner.id().as_bytes());
        let want = match wish.want {
            Want::Any => b'a',
            Want::Fresh => b'f',
            Want::Mine => b'm',
            Want::New => b'n',
        } as i8;
        let Wish { waiting, has_term, idle, total, policy, .. } = wish;
        let kind = policy.kind as i8;
        let arguments: [&(dyn ToSql + Sync); 16] = [
            &self.place.namespace,
            &entity,
            &key,
            &id,
            &want,
            waiting,
            has_term,
            idle,
            total,
            &kind,
            &policy.idle,
            &policy.total,
            &self.place.channel,
            &self.system,
            &self.place.quarantine,
            &self.place.trusts,
        ];
        self.ask_one(&self.acquire, &arguments).await
    }

    /// Sends a question alone.
    async fn decide_one(&self, question: &Question) -> Result<Option<Decided>, tokio_postgres::Error> {
        let Question { resource, owner, asked } = question;
        match asked {
            Asked::Acquire(wish) => {
                Ok(Some(Decided::Acquire(answer(&self.acquire(resource, owner, wish).await?))))
            }
            Asked::Release(token) => {
                let row = self.release(resource, Some(owner), Some(*token)).await?;
                Ok((!is_guarded(&row)).then(|| Decided::Release(gone(&row))))
            }
        }
    }

    /// Sends several questions in one statement.
    async fn decide_all(&self, batch: &[Question]) -> Result<Vec<Option<Decided>>, tokio_postgres::Error> {
        let entities: Vec<_> = batch.iter().map(|one| one.resource.entity().as_bytes()).collect();
        let keys: Vec<_> = batch.iter().map(|one| one.resource.key().as_bytes()).collect();
        let owners: Vec<_> = batch.iter().map(|one| one.owner.id().as_bytes()).collect();
        let token = |one: &Question| match one.asked {
            Asked::Acquire(_) => None,
            Asked::Release(token) => Some(number(token)),
        };
        let tokens: Vec<_> = batch.iter().map(token).collect();
        let wishes = || batch.iter().map(Question::wish);
        let waiting: Vec<_> = wishes().map(|wish| wish.is_some_and(|wish| wish.waiting)).collect();
        let idles: Vec<_> = wishes().map(|wish| wish?.idle).collect();
        let totals: Vec<_> = wishes().map(|wish| wish?.total).collect();
        let kinds: Vec<_> = wishes().map(|wish| wish.map_or(b'-', |wish| wish.policy.kind) as i8).collect();
        let policy_idles: Vec<_> = wishes().map(|wish| wish?.policy.idle).collect();
        let policy_totals: Vec<_> = wishes().map(|wish| wish?.policy.total).collect();
        let arguments: [&(dyn ToSql + Sync); 15] = [
            &self.place.namespace,
            &entities,
            &keys,
            &owners,
            &tokens,
            &waiting,
            &idles,
            &totals,
            &kinds,
            &policy_idles,
            &policy_totals,
            &self.place.channel,
            &self.system,
            &self.place.quarantine,
            &self.place.trusts,
        ];
        let mut decided = vec![None; batch.len()];
        for row in self.ask(&self.together, &arguments).await? {
            let place = usize::try_from(row.get::<_, i64>(4)).ok().and_then(|n| n.checked_sub(1));
            if let Some(place) = place.filter(|&place| place < batch.len()) {
                decided[place] = Some(batch[place].decided(&row));
            }
        }
        Ok(decided)
    }

    /// Sends a batch of questions. What needs another attempt is left to its caller: a question about which the batch
    /// decided nothing, and each question of a batch that the server refused as a whole.
    async fn decide(&self, batch: &[Question]) -> Vec<Option<Outcome>> {
        let decided = match batch {
            [one] => self.decide_one(one).await.map(|decided| vec![decided]),
            _ => self.decide_all(batch).await,
        };
        match decided.map_err(judge) {
            // A shared session receives no notifications, and its settings may be those of another client.
            Ok(_) if self.is_pooled() => vec![Some(Err(Fail::Unknown(Error::Pooled))); batch.len()],
            Ok(decided) => decided.into_iter().map(|decided| decided.map(Ok)).collect(),
            Err(Verdict::Failed(fail @ Fail::Unknown(_))) => vec![Some(Err(fail)); batch.len()],
            Err(Verdict::Failed(fail)) if batch.len() == 1 => vec![Some(Err(fail))],
            Err(_) => vec![None; batch.len()],
        }
    }
}

/// Carries the questions of a connection until it ends.
pub(crate) async fn carry(link: Arc<Link<Session>>, together: Arc<Together>) -> ! {
    let send = |batch: Arc<[Question]>| {
        let link = Arc::clone(&link);
        async move {
            match link.session(&mut Limit::after(link.timeout())).await {
                Ok(session) => session.decide(&batch).await,
                Err(_) => vec![None; batch.len()],
            }
        }
    };
    together.carry(send).await
}
