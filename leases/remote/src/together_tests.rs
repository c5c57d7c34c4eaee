use std::{
    cell::RefCell,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_lite::future::{Future, block_on, pending, poll_once, yield_now};
use keylatch_lease::Resource;

use super::{Together, Turn};

type Numbers = Together<u32, u32>;

fn named(number: u32) -> Resource {
    Resource::from(number.to_string())
}

/// A server that records the batches, and doubles numbers once it is told to. It answers no odd numbers: their callers
/// must send them.
#[derive(Default)]
struct Server {
    batches: RefCell<Vec<Vec<u32>>>,
    answers: RefCell<usize>,
}

impl Server {
    async fn send(&self, batch: Arc<[u32]>) -> Vec<Option<u32>> {
        self.batches.borrow_mut().push(batch.to_vec());
        let number = self.batches.borrow().len();
        while *self.answers.borrow() < number {
            yield_now().await;
        }
        batch.iter().map(|number| (number % 2 == 0).then_some(2 * number)).collect()
    }

    fn answer(&self) {
        *self.answers.borrow_mut() += 1;
    }

    fn batches(&self) -> Vec<Vec<u32>> {
        self.batches.borrow().clone()
    }
}

fn poll<F: Future>(future: F) -> Option<F::Output> {
    block_on(poll_once(future))
}

#[test]
fn questions_that_arrive_during_a_batch_travel_together() {
    let (together, server) = (Numbers::new(3), Server::default());
    let mut carried = pin!(together.carry(|batch| server.send(batch)));
    assert!(poll(carried.as_mut()).is_none());
    let resources: Vec<_> = (0..6).map(named).collect();
    let mut asked: Vec<_> = (0..6).map(|i| Box::pin(together.ask(&resources[i as usize], 2 * i))).collect();
    let [first, rest @ ..] = &mut asked[..] else { unreachable!() };
    assert!(poll(first).is_none() && poll(carried.as_mut()).is_none());
    assert_eq!(server.batches(), [[0]], "a lone question waited for others");
    assert_eq!(together.lock().under_way, 1);
    assert!(rest.iter_mut().all(|ask| poll(ask).is_none()));
    assert!(poll(carried.as_mut()).is_none());
    assert_eq!(server.batches(), [[0]], "a batch was sent while another was under way");
    server.answer();
    assert!(poll(carried.as_mut()).is_none());
    assert_eq!(server.batches(), [vec![0], vec![2, 4, 6]]);
    server.answer();
    assert!(poll(carried.as_mut()).is_none());
    assert_eq!(server.batches()[2..], [[8, 10]]);
    server.answer();
    assert!(poll(carried.as_mut()).is_none());
    assert_eq!(together.lock().under_way, 0);
    let turns: Vec<_> = asked.iter_mut().map(|ask| poll(ask).unwrap()).collect();
    assert_eq!(turns, [0, 4, 8, 12, 16, 20].map(Turn::Answered));
}

#[test]
fn as_many_batches_are_under_way_as_are_allowed_and_the_last_waits_for_tasks_that_are_ready() {
    let (together, server) = (Numbers::new(9).with_batches(2), Server::default());
    let driver = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&driver));
    let mut as_driver = Context::from_waker(&waker);
    let mut carried = pin!(together.carry(|batch| server.send(batch)));
    let mut carry = || assert!(carried.as_mut().poll(&mut as_driver).is_pending());
    carry();
    let resources: Vec<_> = (0..6).map(named).collect();
    let mut asked: Vec<_> = (0..6).map(|i| Box::pin(together.ask(&resources[i as usize], 2 * i))).collect();
    let mut ask = |i: usize| assert!(poll(&mut asked[i]).is_none());
    ask(0);
    carry();
    assert_eq!(server.batches(), [[0]], "a lone question waited for others");
    ask(1);
    let before = driver.0.load(SeqCst);
    carry();
    // The driver has woken itself, so that other tasks run once before it goes on.
    assert_eq!((server.batches().len(), driver.0.load(SeqCst)), (1, before + 2));
    ask(2);
    carry();
    assert_eq!(server.batches()[1..], [[2, 4]]);
    (3..6).for_each(&mut ask);
    carry();
    carry();
    assert_eq!((server.batches().len(), together.lock().under_way), (2, 2), "a third batch was sent");
    server.answer();
    carry();
    carry();
    assert_eq!(server.batches()[2..], [[6, 8, 10]]);
    server.answer();
    server.answer();
    carry();
    assert_eq!(together.lock().under_way, 0);
    let turns: Vec<_> = asked.iter_mut().map(|ask| poll(ask).unwrap()).collect();
    assert_eq!(turns, [0, 4, 8, 12, 16, 20].map(Turn::Answered));
}

#[test]
fn all_batches_under_way_are_lost_with_the_connection() {
    let (together, server) = (Numbers::new(9).with_batches(2), Server::default());
    let resources = [1, 2, 3].map(named);
    let [mut one, mut other, mut waits] = [0, 1, 2].map(|i| Box::pin(together.ask(&resources[i], 2)));
    {
        let mut carried = Box::pin(together.carry(|batch| server.send(batch)));
        assert!(poll(&mut carried).is_none());
        for ask in [&mut one, &mut other, &mut waits] {
            assert!(poll(ask).is_none() && poll(&mut carried).is_none() && poll(&mut carried).is_none());
        }
        assert_eq!(server.batches().len(), 2);
    }
    let turns = [&mut one, &mut other, &mut waits].map(|ask| poll(ask).unwrap());
    assert_eq!(turns, [Turn::Lost, Turn::Lost, Turn::NotSent]);
}

#[test]
fn one_question_may_go_without_the_driver_while_nothing_waits_or_is_under_way() {
    let (together, server) = (Numbers::new(9), Server::default());
    let mut carried = pin!(together.carry(|batch| server.send(batch)));
    assert!(poll(carried.as_mut()).is_none());
    let permit = together.at_once();
    assert!(permit.is_some() && together.at_once().is_none());
    // A question that arrives now does not wait for the end of the permit.
    let (one, other) = (named(1), named(2));
    let mut asked = Box::pin(together.ask(&one, 2));
    assert!(poll(&mut asked).is_none());
    drop(permit);
    assert!(together.at_once().is_none(), "a question waits");
    assert!(poll(carried.as_mut()).is_none());
    assert_eq!(server.batches(), [[2]]);
    assert!(together.at_once().is_none(), "a question is under way");
    let mut late = Box::pin(together.ask(&other, 4));
    assert!(poll(&mut late).is_none());
    server.answer();
    assert!(poll(carried.as_mut()).is_none());
    server.answer();
    assert!(poll(carried.as_mut()).is_none());
    assert!(together.at_once().is_some());
}

#[test]
fn questions_about_one_resource_do_not_wait_for_each_other() {
    let (together, server) = (Numbers::new(9), Server::default());
    let mut carried = pin!(together.carry(|batch| server.send(batch)));
    assert!(poll(carried.as_mut()).is_none());
    let (one, other) = (named(1), named(2));
    let mut first = Box::pin(together.ask(&one, 2));
    assert!(poll(&mut first).is_none());
    assert_eq!(poll(together.ask(&one, 4)), Some(Turn::Alone), "one waits already");
    assert!(poll(carried.as_mut()).is_none());
    assert_eq!(poll(together.ask(&one, 4)), Some(Turn::Alone), "one is under way");
    let mut dropped = Box::pin(together.ask(&other, 6));
    assert!(poll(&mut dropped).is_none());
    drop(dropped);
    server.answer();
    assert!(poll(carried.as_mut()).is_none());
    let mut asked = [&one, &other].map(|of| Box::pin(together.ask(of, 8)));
    assert!(asked.iter_mut().all(|ask| poll(ask).is_none()));
    assert!(poll(carried.as_mut()).is_none());
    assert_eq!(server.batches(), [vec![2], vec![8, 8]]);
}

#[test]
fn a_dropped_question_is_not_sent_and_its_answer_is_nobody_elses() {
    let (together, server) = (Numbers::new(9), Server::default());
    let mut carried = pin!(together.carry(|batch| server.send(batch)));
    assert!(poll(carried.as_mut()).is_none());
    let resources = [1, 2, 3].map(named);
    let [mut a, mut b, mut c] = [0, 1, 2].map(|i| Some(Box::pin(together.ask(&resources[i], 2 * (i as u32 + 1)))));
    for ask in [&mut a, &mut b, &mut c] {
        assert!(poll(ask.as_mut().unwrap()).is_none());
    }
    b = None; // its question waits
    assert!(poll(carried.as_mut()).is_none());
    assert_eq!(server.batches(), [[2, 6]]);
    a = None; // its question is under way
    server.answer();
    assert!(poll(carried.as_mut()).is_none());
    assert_eq!(poll(c.as_mut().unwrap()), Some(Turn::Answered(12)));
    drop((a, b, c));
    let state = together.lock();
    assert!(state.callers.is_empty() && state.waiting.is_empty() && state.resources.is_empty());
}

#[test]
fn an_unanswered_question_is_for_its_caller() {
    let (together, server) = (Numbers::new(9), Server::default());
    let mut carried = pin!(together.carry(|batch| server.send(batch)));
    assert_eq!(poll(together.ask(&named(0), 0)), Some(Turn::Alone), "nothing carries it yet");
    assert!(poll(carried.as_mut()).is_none());
    let resources = [1, 2, 3].map(named);
    let mut asked = [0, 1, 2].map(|i| Box::pin(together.ask(&resources[i], i as u32)));
    assert!(asked.iter_mut().all(|ask| poll(ask).is_none()));
    server.answer();
    assert!(poll(carried.as_mut()).is_none());
    assert_eq!(asked.each_mut().map(poll), [Turn::Answered(0), Turn::Alone, Turn::Answered(4)].map(Some));
}

#[test]
fn nobody_waits_for_a_connection_that_has_ended() {
    let (together, server) = (Numbers::new(9), Server::default());
    let resources = [1, 2].map(named);
    {
        let mut carried = Box::pin(together.carry(|batch| server.send(batch)));
        assert!(poll(&mut carried).is_none());
        let [mut sent, mut waits] = [0, 1].map(|i| Box::pin(together.ask(&resources[i], 2)));
        assert!(poll(&mut sent).is_none() && poll(&mut carried).is_none() && poll(&mut waits).is_none());
        drop(carried);
        assert_eq!((poll(&mut sent), poll(&mut waits)), (Some(Turn::Lost), Some(Turn::NotSent)));
    }
    assert_eq!(poll(together.ask(&resources[0], 2)), Some(Turn::Alone));
    let state = together.lock();
    assert!(state.resources.is_empty() && state.waiting.is_empty());
}

/// Counts how many times it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn each_side_is_woken_when_it_is_its_turn() {
    let (together, resources) = (Numbers::new(9), [1, 2].map(named));
    let carrier = Arc::new(Woken::default());
    let carrier_waker = Waker::from(Arc::clone(&carrier));
    let mut as_carrier = Context::from_waker(&carrier_waker);
    let mut carried = pin!(together.carry(|batch| async move { batch.iter().map(|i| Some(*i)).collect() }));
    assert!(carried.as_mut().poll(&mut as_carrier).is_pending());
    let caller = Arc::new(Woken::default());
    let caller_waker = Waker::from(Arc::clone(&caller));
    let mut as_caller = Context::from_waker(&caller_waker);
    let mut asked = [0, 1].map(|i| Box::pin(together.ask(&resources[i], 7)));
    assert!(asked.iter_mut().all(|ask| ask.as_mut().poll(&mut as_caller).is_pending()));
    assert_eq!((carrier.0.load(SeqCst), caller.0.load(SeqCst)), (1, 0));
    assert!(carried.as_mut().poll(&mut as_carrier).is_pending());
    assert_eq!(caller.0.load(SeqCst), 2);
    assert!(asked.iter_mut().all(|ask| ask.as_mut().poll(&mut as_caller) == Poll::Ready(Turn::Answered(7))));

    // While a batch is under way, the carrier is woken by its answers, and not by questions that can only wait.
    let mut stuck = pin!(together.carry(|_| pending()));
    assert!(stuck.as_mut().poll(&mut as_carrier).is_pending());
    let mut asked = [0, 1].map(|i| Box::pin(together.ask(&resources[i], 7)));
    let [one, other] = &mut asked;
    assert!(one.as_mut().poll(&mut as_caller).is_pending() && stuck.as_mut().poll(&mut as_carrier).is_pending());
    assert!(other.as_mut().poll(&mut as_caller).is_pending());
    assert_eq!(carrier.0.load(SeqCst), 2);
}

#[test]
fn a_request_waits_until_a_batch_is_on_the_connection() {
    let together = Numbers::new(9);
    let (one, two) = (named(1), named(2));
    let given_up = RefCell::new(None);
    let log = RefCell::new(Vec::new());
    // While the batch is being sent, a caller gives up and goes on with other requests.
    let send = |batch: Arc<[u32]>| {
        drop(given_up.take());
        let later = (Box::pin(together.ask(&one, 7)), Box::pin(together.sent()), Box::pin(together.ask(&two, 8)));
        let (mut same, mut sent, mut other) = later;
        assert!(poll(same.as_mut()).is_none() && poll(sent.as_mut()).is_none() && poll(other.as_mut()).is_none());
        log.borrow_mut().push((batch, same, sent));
        pending::<Vec<Option<u32>>>()
    };
    let mut carried = pin!(together.carry(send));
    assert!(poll(carried.as_mut()).is_none());
    let mut asked = Box::pin(together.ask(&one, 1));
    assert!(poll(asked.as_mut()).is_none());
    given_up.replace(Some(asked));
    assert!(poll(carried.as_mut()).is_none());
    let (batch, same, sent) = log.borrow_mut().pop().unwrap();
    assert_eq!(*batch, [1], "the question was under way when its caller gave up");
    assert_eq!((poll(same), poll(sent)), (Some(Turn::Alone), Some(())));
}

#[test]
fn questions_that_wait_when_sending_stops_are_not_sent() {
    let (together, server) = (Numbers::new(9), Server::default());
    let (one, two) = (named(1), named(2));
    let mut asked = [Box::pin(together.ask(&one, 2)), Box::pin(together.ask(&two, 4))];
    {
        let mut carried = pin!(together.carry(|batch| server.send(batch)));
        assert!(poll(carried.as_mut()).is_none());
        assert!(poll(asked[0].as_mut()).is_none() && poll(carried.as_mut()).is_none());
        assert!(poll(asked[1].as_mut()).is_none());
        server.answer();
        together.stop();
        assert!(poll(carried.as_mut()).is_none());
    }
    assert_eq!(server.batches(), [[2]]);
    assert_eq!(asked.map(poll), [Some(Turn::Answered(4)), Some(Turn::NotSent)]);
}
