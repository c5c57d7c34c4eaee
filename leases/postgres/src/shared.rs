//! Sessions that a pooler shares among its clients: each statement is a transaction, which brings its own settings.
//!
//! Any transaction may run in a different session from the last one, after a failover even on a different server, and
//! other clients may have left their settings there. So each transaction makes all settings again, and only for its own
//! duration. Its three parts are sent at once, without waiting for answers: whatever becomes of the caller, no
//! transaction stays open.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Mutex, TryLockError},
    task::{Context, Poll},
    time::Duration,
};

use tokio_postgres::{Client, Row};

use crate::{
    error::{Error, Failed, unusable},
    statements::{FIND, Parameters, Statement, statement_timeout},
};

/// The means to run each statement in a transaction that makes its own settings.
pub(crate) struct Shared {
    /// The statements that begin a transaction and apply its settings.
    begin: String,
    /// The lock that is held while the parts of a transaction are sent.
    sending: Mutex<()>,
}

impl Shared {
    /// Checks that the pooler passes on transactions, and that the table can be used.
    pub(crate) async fn open(client: &Client, timeout: Duration) -> Result<Self, Error> {
        // The path and the durability (unless it is `off`) are those of the role and the database, whatever other
        // clients have set.
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
             SET LOCAL search_path TO DEFAULT; \
             SET LOCAL statement_timeout = {}; \
             SET LOCAL lock_timeout = 0; \
             SET LOCAL synchronous_commit TO DEFAULT; \
             SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'",
            statement_timeout(timeout)
        );
        // Only if these are sent alone does a pooler in statement mode say that it has no transactions.
        for alone in [&*begin, "COMMIT"] {
            client.batch_execute(alone).await.map_err(|error| unusable(error.into()))?;
        }
        let shared = Shared { begin, sending: Mutex::new(()) };
        shared.query(client, &FIND, &[]).await.map_err(|failed| unusable(failed.error.into()))?;
        Ok(shared)
    }

    /// Carries a statement out in a transaction of its own, and returns the server's answer.
    pub(crate) async fn query(
        &self,
        client: &Client,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Failed> {
        let parameters = statement.typed(parameters);
        // The client sends a request when its future is first polled.
        let (begun, asked, ended) = as_one(
            &self.sending,
            client.batch_execute(&self.begin),
            client.query_typed(statement.sql, &parameters),
            client.batch_execute("COMMIT"),
        )
        .await;
        outcome(begun, asked, ended, |error: &tokio_postgres::Error| error.as_db_error().is_some())
    }
}

/// Polls three futures until each is ready, and returns their outputs. No other call's futures get their first poll
/// between the first polls of these three.
async fn as_one<A: Future, B: Future, C: Future>(
    sending: &Mutex<()>,
    beginning: A,
    asking: B,
    ending: C,
) -> (A::Output, B::Output, C::Output) {
    let (mut beginning, mut asking, mut ending) = (pin!(beginning), pin!(asking), pin!(ending));
    let (mut begun, mut asked, mut ended) = (None, None, None);
    let mut is_sent = false;
    poll_fn(|cx| {
        let sending = (!is_sent).then(|| sending.try_lock());
        if let Some(Err(TryLockError::WouldBlock)) = sending {
            cx.waker().wake_by_ref(); // another thread sends, which takes a moment
            return Poll::Pending;
        }
        is_sent = true;
        step(beginning.as_mut(), &mut begun, cx);
        step(asking.as_mut(), &mut asked, cx);
        step(ending.as_mut(), &mut ended, cx);
        drop(sending);
        match (begun.take(), asked.take(), ended.take()) {
            (Some(begun), Some(asked), Some(ended)) => Poll::Ready((begun, asked, ended)),
            some => {
                (begun, asked, ended) = some;
                Poll::Pending
            }
        }
    })
    .await
}

/// Polls a future that has no output yet.
fn step<F: Future>(future: Pin<&mut F>, output: &mut Option<F::Output>, cx: &mut Context<'_>) {
    if output.is_none() {
        if let Poll::Ready(ready) = future.poll(cx) {
            *output = Some(ready);
        }
    }
}

/// Returns the outcome of a transaction from the answers to its beginning, its statement and its end.
fn outcome<T, E>(
    begun: Result<(), E>,
    asked: Result<T, E>,
    ended: Result<(), E>,
    is_answer: impl Fn(&E) -> bool,
) -> Result<T, Failed<E>> {
    match (begun, asked, ended) {
        (Ok(()), Ok(answer), Ok(())) => Ok(answer),
        (Ok(()), Ok(_), Err(error)) => Err(error.into()),
        // The transaction did not begin, so the statement was carried out by itself, with the session's settings: a
        // crash of the server may undo it.
        (Err(error), Ok(_), _) => Err(Failed { error, may_be_done: true }),
        // The transaction had failed before the statement, so the statement failed too; or the statement has no answer.
        (Err(error), Err(asked), _) if is_answer(&error) => Err(Failed { error, may_be_done: !is_answer(&asked) }),
        (_, Err(error), _) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{as_one, outcome};
    use crate::error::Failed;
    use futures_lite::future::{block_on, poll_once};
    use std::{
        cell::RefCell,
        future::{Future, poll_fn},
        pin::pin,
        sync::Mutex,
        task::Poll,
    };

    /// Returns the outcome as text. An error is the answer of the server unless it is "gone".
    fn told(begun: Result<(), &str>, asked: Result<u8, &str>, ended: Result<(), &str>) -> String {
        match outcome(begun, asked, ended, |error| *error != "gone") {
            Ok(answer) => answer.to_string(),
            Err(Failed { error, may_be_done }) => format!("{error}{}", if may_be_done { "?" } else { "" }),
        }
    }

    #[test]
    fn only_a_transaction_of_which_all_parts_succeeded_is_a_success() {
        assert_eq!(told(Ok(()), Ok(7), Ok(())), "7");
        assert_eq!(told(Ok(()), Ok(7), Err("full")), "full");
        assert_eq!(told(Ok(()), Ok(7), Err("gone")), "gone");
        assert_eq!(told(Ok(()), Err("no right"), Ok(())), "no right");
        assert_eq!(told(Ok(()), Err("gone"), Err("gone")), "gone");
    }

    #[test]
    fn a_statement_outside_of_its_transaction_may_have_been_carried_out() {
        assert_eq!(told(Err("cancelled"), Ok(7), Ok(())), "cancelled?");
        assert_eq!(told(Err("cancelled"), Err("failed before"), Ok(())), "cancelled");
        assert_eq!(told(Err("cancelled"), Err("gone"), Err("gone")), "cancelled?");
        assert_eq!(told(Err("gone"), Err("gone"), Err("gone")), "gone");
    }

    #[test]
    fn nothing_comes_between_the_parts_of_a_transaction() {
        let (sending, log) = (Mutex::new(()), RefCell::new(Vec::new()));
        // Each part is noted at its first poll, and is ready at the second.
        let part = |name: &'static str| {
            let mut polls = 0;
            let log = &log;
            poll_fn(move |cx| {
                if polls == 0 {
                    log.borrow_mut().push(name);
                    cx.waker().wake_by_ref();
                }
                polls += 1;
                if polls == 1 { Poll::Pending } else { Poll::Ready(name) }
            })
        };
        let mut other = Box::pin(as_one(&sending, part("begin 2"), part("ask 2"), part("end 2")));
        // In the middle of the first transaction, the other one is polled.
        let mut asking = pin!(part("ask 1"));
        let asking = poll_fn(|cx| {
            assert!(other.as_mut().poll(cx).is_pending());
            asking.as_mut().poll(cx)
        });
        {
            let mut one = pin!(as_one(&sending, part("begin 1"), asking, part("end 1")));
            assert!(block_on(poll_once(one.as_mut())).is_none());
            assert_eq!(*log.borrow(), ["begin 1", "ask 1", "end 1"]);
        }
        assert_eq!(block_on(other), ("begin 2", "ask 2", "end 2"));
        assert_eq!(*log.borrow(), ["begin 1", "ask 1", "end 1", "begin 2", "ask 2", "end 2"]);
    }
}
