//! Sends the questions that wait for the connection: one by a script of its own, several in one script.

use std::{convert::Infallible, sync::Arc};

use keylatch_lease::engine::Fail;
use redis::{ErrorKind, RedisResult};

use crate::{
    error::judge,
    scripts::{ACQUIRE, DECIDE, RELEASE},
    session::Session,
    together::{Decided, Outcome, Question},
};

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
