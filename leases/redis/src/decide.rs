//! Sends the questions that wait for the connection: a single question by its own script, several in one script.

use std::{convert::Infallible, sync::Arc};

use keylatch_lease::engine::Fail;
use keylatch_lease_remote::Session as _;
use redis::{ErrorKind, RedisResult};

use crate::{
    error::judge,
    scripts::{ACQUIRE, DECIDE, RELEASE, Script},
    session::{Session, is_unknown},
    together::{Outcome, Question},
};

impl Session {
    /// Sends a question alone.
    pub(crate) async fn decide_one(&self, question: &Question) -> Outcome {
        outcome(question, self.call(script_of(question), &self.arguments(&[question])).await)
    }

    fn arguments<'a>(&'a self, batch: &[&'a Question]) -> Vec<&'a str> {
        let place = &*self.place;
        let mut arguments = Vec::with_capacity(4 + 3 * batch.len());
        arguments.extend([&*self.run, &place.quarantine, place.trusts(), &place.channel]);
        arguments.extend(batch.iter().flat_map(|question| question.words()));
        arguments
    }

    /// Sends a batch of questions. The outcome is `None` for a question that its caller must send again, alone. If the
    /// server has refused the script of several questions, that is every one of them, because any may be at fault; the
    /// script has changed nothing.
    ///
    /// If the server does not know the script, the questions are not sent a second time: by then their callers may have
    /// given up and made other requests.
    async fn decide_all(&self, batch: &[Arc<Question>]) -> Vec<Option<Outcome>> {
        if let [one] = batch {
            let answer = self.call_known(script_of(one), &self.arguments(&[one])).await;
            let is_known = !answer.as_ref().is_err_and(is_unknown);
            return vec![is_known.then(|| outcome(one, answer))];
        }
        let questions: Vec<&Question> = batch.iter().map(|question| &**question).collect();
        let answer = self.call_known::<Vec<Vec<u8>>>(&DECIDE, &self.arguments(&questions)).await;
        if answer.as_ref().is_err_and(is_unknown) {
            let loaded = self.call::<Vec<Vec<u8>>>(&DECIDE, &self.arguments(&[])).await;
            drop(loaded);
        }
        match answer.map_err(judge) {
            Ok(answers) => {
                questions.iter().zip(answers).map(|(question, answer)| question.decided(&answer).map(Ok)).collect()
            }
            Err(Fail::NotDone(_)) if !self.is_closed() => vec![None; batch.len()],
            Err(fail) => vec![Some(Err(fail)); batch.len()],
        }
    }
}

fn script_of(question: &Question) -> &'static Script {
    if question.is_release() { &RELEASE } else { &ACQUIRE }
}

fn outcome(question: &Question, answer: RedisResult<Vec<u8>>) -> Outcome {
    let decided = question.decided(&answer.map_err(judge)?);
    decided.ok_or_else(|| judge((ErrorKind::UnexpectedReturnType, "the script's answer cannot be read").into()))
}

/// Sends the questions that wait for a connection, in batches, until the connection ends.
pub(crate) async fn carry(session: Session) -> Infallible {
    let together = Arc::clone(&session.together);
    let send = |batch: Arc<[Arc<Question>]>| {
        let session = session.clone();
        async move { session.decide_all(&batch).await }
    };
    together.carry(send).await
}
