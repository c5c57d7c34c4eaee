//! The messages of an acquire.

use keylatch_lease::{
    Clock, Lost, Owner, Term,
    engine::{Answer, Ask, Fail, Want},
};

use super::{Last, On, Put, Session, granted, perhaps};
use crate::{
    error::Error,
    known::Known,
    record::{Message, Tenure},
};

/// The outcome of an acquire of a resource that has a tenure.
enum Instead {
    Answer(Answer),
    /// A tenure may begin after the message `behind`. `frees` is the present tenure, and how it ends, if somebody must
    /// be told of its end.
    Begins {
        behind: u64,
        frees: Option<(u64, Lost)>,
    },
    /// Another message came first.
    Changed,
}

/// The outcome of the first message of a tenure.
enum Begun {
    Answer(Answer),
    /// The message was stored with this sequence, but does not count, because a tenure with a greater token was swept
    /// in between.
    Void(u64),
    /// Another message came first.
    Changed,
}

impl Session {
    pub(crate) async fn acquire(&self, ask: Ask<'_>) -> Result<Answer, Fail<Error>> {
        let mut last = self.likely(&ask).await.map_err(perhaps)?;
        loop {
            let (mut behind, mut frees) = (last.sequence, None);
            if let Some(tenure) = last.tenure {
                match self.instead_of(&ask, tenure, behind).await? {
                    Instead::Answer(answer) => return Ok(answer),
                    Instead::Begins { behind: next, frees: freed } => (behind, frees) = (next, freed),
                    Instead::Changed => {
                        last = self.last(ask.resource).await.map_err(perhaps)?;
                        continue;
                    }
                }
            }
            let (Want::Any | Want::Fresh | Want::New, Some(term)) = (ask.want, ask.term) else {
                return Ok(Answer::Free);
            };
            if let Some(remaining) = self.quarantined().await.map_err(perhaps)? {
                return Ok(Answer::Quarantined { remaining });
            }
            let token = self.next_token(last.token).await.map_err(perhaps)?;
            match self.begin(&ask, term, token, behind, frees).await? {
                Begun::Answer(answer) => return Ok(answer),
                Begun::Void(sequence) => last = Last::free(sequence, token),
                Begun::Changed => last = self.last(ask.resource).await.map_err(perhaps)?,
            }
        }
    }

    /// Returns the probable last message of the resource: the remembered one, or none, or, if neither will do, the one
    /// that it reads. A wrong guess is detected when the next message is stored.
    async fn likely(&self, ask: &Ask<'_>) -> Result<Last, Error> {
        let Ask { resource, want, term, .. } = *ask;
        match self.memory.take(resource) {
            Some(Known::Free { sequence, token }) if want != Want::Mine => Ok(Last::free(sequence, token)),
            Some(Known::Held { sequence, owner, tenure: Some(tenure), .. })
                if owner == ask.owner.id() && want != Want::New && term.is_some() =>
            {
                Ok(Last::held(sequence, tenure))
            }
            // Usually there is no message. If there is one, it is read later.
            None if want != Want::Mine => Ok(Last::free(0, 0)),
            _ => self.last(resource).await,
        }
    }

    /// Answers an acquire with the tenure of the last message, unless another tenure may begin.
    async fn instead_of(&self, ask: &Ask<'_>, tenure: Tenure, behind: u64) -> Result<Instead, Fail<Error>> {
        let Ask { resource, want, term, .. } = *ask;
        let is_mine = tenure.owner == ask.owner.id();
        // The stream may have forgotten that the tenure was released, and that another one with a greater token began.
        let is_in_doubt = is_mine && tenure.token <= self.marked().await.map_err(perhaps)?.doubt;
        // The holders of the tenure do not know that it is taken over, and its waiters may be served sooner than they
        // expect.
        let taken_over = Instead::Begins { behind, frees: Some((tenure.token, Lost::TakenOver)) };
        match (want, term) {
            (Want::Fresh, _) if is_mine => Ok(taken_over),
            (Want::Any, Some(_)) if is_in_doubt => Ok(taken_over),
            (Want::Mine, _) if is_in_doubt => Ok(Instead::Answer(Answer::Free)),
            (Want::Any | Want::Mine, Some(term)) if is_mine => {
                if let Some(remaining) = self.quarantined().await.map_err(perhaps)? {
                    return Ok(Instead::Answer(Answer::Quarantined { remaining }));
                }
                Ok(match self.go_on(resource, behind, &tenure, term, Some(ask.expiry)).await? {
                    On::Goes { tenure, at } => {
                        self.same_mark().await.map_err(Fail::Unknown)?;
                        Instead::Answer(granted(&tenure, true, at, at))
                    }
                    On::Over { last } => Instead::Begins { behind: last, frees: None },
                    On::Changed => Instead::Changed,
                })
            }
            _ => {
                let (is_over, now) = self.is_over(&tenure, behind).await.map_err(perhaps)?;
                if is_over {
                    return Ok(Instead::Begins { behind, frees: None });
                }
                if is_mine && want != Want::New {
                    return Ok(Instead::Answer(granted(&tenure, true, now.latest, now.latest)));
                }
                self.memory.keep(resource, Known::Some);
                let owner = Owner::from_id(&tenure.owner);
                Ok(Instead::Answer(Answer::Busy { owner, remaining: tenure.remaining(now.earliest) }))
            }
        }
    }

    /// Stores the first message of a tenure after the last one of the resource.
    async fn begin(
        &self,
        ask: &Ask<'_>,
        term: Term,
        token: u64,
        behind: u64,
        frees: Option<(u64, Lost)>,
    ) -> Result<Begun, Fail<Error>> {
        let message = Message::begin(ask.owner.id(), token, term, ask.expiry);
        let from = self.clock.now();
        let sequence = match self.put_lease(ask.resource, behind, &message, frees).await.map_err(perhaps)? {
            Put::Changed => return Ok(Begun::Changed),
            Put::Stored(sequence) => sequence,
        };
        if !self.stands(ask.resource, token).await.map_err(Fail::Unknown)? {
            return Ok(Begun::Void(sequence));
        }
        // The times are relative to the time at which the message was stored, which is not known.
        let Some(tenure) = message.tenure(0) else { return Ok(Begun::Answer(Answer::Free)) };
        let known = Known::Held {
            sequence,
            owner: tenure.owner.clone(),
            token: tenure.token,
            until: Self::sure(from, tenure.remaining(0)),
            tenure: None,
        };
        self.memory.keep(ask.resource, known);
        Ok(Begun::Answer(granted(&tenure, false, 0, 0)))
    }
}
