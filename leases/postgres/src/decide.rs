//! Sends the questions that wait for the connection: a single question by its own function, several in one statement.

use std::sync::Arc;

use keylatch_lease::{
    Owner, Resource,
    engine::{Fail, Want},
};
use keylatch_lease_remote::{Limit, Link};
use tokio_postgres::Row;

use crate::{
    convert::{number, parts},
    error::{Error, Failed, Verdict, judge},
    session::Session,
    statements::{ACQUIRE, Parameters, TOGETHER},
    together::{Asked, Decided, Outcome, Question, Together, Wish, answer, gone, is_guarded},
};

impl Session {
    pub(crate) async fn acquire(&self, resource: &Resource, owner: &Owner, wish: &Wish) -> Result<Row, Failed> {
        let ((entity, key), id) = (parts(resource), owner.id().as_bytes());
        let want = match wish.want {
            Want::Any => b'a',
            Want::Fresh => b'f',
            Want::Mine => b'm',
            Want::New => b'n',
        } as i8;
        let Wish { waiting, has_term, idle, total, policy, .. } = wish;
        let kind = policy.kind as i8;
        let arguments: Parameters<'_> = &[
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
            &self.system(),
            &self.place.quarantine,
            &self.place.trusts,
        ];
        self.ask_one(&ACQUIRE, arguments).await
    }

    /// Sends a question alone.
    async fn decide_one(&self, question: &Question) -> Result<Option<Decided>, Failed> {
        let Question { resource, owner, asked } = question;
        match asked {
            Asked::Acquire(wish) => Ok(Some(Decided::Acquire(answer(&self.acquire(resource, owner, wish).await?)))),
            Asked::Release(token) => {
                let row = self.release(resource, Some(owner), Some(*token)).await?;
                Ok((!is_guarded(&row)).then(|| Decided::Release(gone(&row))))
            }
        }
    }

    /// Sends several questions in one statement.
    async fn decide_all(&self, batch: &[Question]) -> Result<Vec<Option<Decided>>, Failed> {
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
        let arguments: Parameters<'_> = &[
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
            &self.system(),
            &self.place.quarantine,
            &self.place.trusts,
        ];
        let mut decided = vec![None; batch.len()];
        for row in self.ask(&TOGETHER, arguments).await? {
            let place = usize::try_from(row.get::<_, i64>(4)).ok().and_then(|n| n.checked_sub(1));
            if let Some(place) = place.filter(|&place| place < batch.len()) {
                decided[place] = Some(batch[place].decided(&row));
            }
        }
        Ok(decided)
    }

    /// Sends a batch of questions. The outcome is `None` for a question that its caller must send again: one about
    /// which the batch decided nothing, or each question of a batch that the server rolled back in favour of another
    /// statement, or of a batch of several that it refused as a whole.
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

/// Sends the questions that wait for a connection, in batches, until the connection ends.
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
