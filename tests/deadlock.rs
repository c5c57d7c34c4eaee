//! Deadlocks that are reported: who fails, when, and with what report.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use futures_lite::future::block_on;
use keylatch::deadlock::{Detector, Refused};
use keylatch::{Fairness, KeyedMutex, KeyedRwLock, KeyedSemaphore};

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn the_request_that_closes_a_circle_of_two_fails_and_the_other_waits_on() {
    let (locks, detector) = (KeyedMutex::<String>::new(), Detector::new());
    let (import, export) = (detector.party("import"), detector.party("export"));
    let a = block_on(import.acquire(locks.lock("a"))).unwrap();
    let b = block_on(export.acquire(locks.lock("b"))).unwrap();
    let mut waiting = pin!(export.acquire(locks.lock("a")));
    assert!(poll(waiting.as_mut()).is_pending());
    let deadlock = block_on(import.acquire(locks.lock("b"))).unwrap_err();
    assert_eq!(
        deadlock.to_string(),
        "import waits for \"b\", which export holds; export waits for \"a\", which import holds"
    );
    assert!(!deadlock.is_reentry());
    assert_eq!(locks.status("b").unwrap().waiters(), 0, "the place in the queue is given up");
    assert!(poll(waiting.as_mut()).is_pending());
    drop(a);
    assert!(poll(waiting.as_mut()).is_ready());
    drop(b);
    assert!(locks.is_empty());
}

#[test]
fn a_circle_of_three_over_two_tables_is_told_from_its_beginning() {
    let (locks, pages) = (KeyedMutex::<u64>::new(), KeyedRwLock::<String>::new());
    let detector = Detector::new();
    let [x, y, z] = ["x", "y", "z"].map(|name| detector.party(name));
    let _one = block_on(x.acquire(locks.lock(&1))).unwrap();
    let _two = block_on(y.acquire(locks.lock(&2))).unwrap();
    let _three = block_on(z.acquire(pages.read("home"))).unwrap();
    let mut first = pin!(x.acquire(locks.lock(&2)));
    let mut second = pin!(y.acquire(pages.write("home")));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    let deadlock = block_on(z.acquire(locks.lock(&1))).unwrap_err();
    assert_eq!(
        deadlock.to_string(),
        "z waits for 1, which x holds; x waits for 2, which y holds; y waits for \"home\", which z holds"
    );
}

#[test]
fn a_circle_through_a_queue_is_seen() {
    let pages = KeyedRwLock::<String>::builder().fairness(Fairness::Fifo).build();
    let (locks, detector) = (KeyedMutex::<String>::new(), Detector::new());
    let [a, b, c] = ["a", "b", "c"].map(|name| detector.party(name));
    let _read = block_on(a.acquire(pages.read("page"))).unwrap();
    let _lock = block_on(c.acquire(locks.lock("lock"))).unwrap();
    let mut writer = pin!(b.acquire(pages.write("page")));
    let mut reader = pin!(c.acquire(pages.read("page")));
    assert!(poll(writer.as_mut()).is_pending() && poll(reader.as_mut()).is_pending());
    let deadlock = block_on(a.acquire(locks.lock("lock"))).unwrap_err();
    assert_eq!(
        deadlock.to_string(),
        "a waits for \"lock\", which c holds; c waits for \"page\", which b waits for before it; \
         b waits for \"page\", which a holds"
    );
}

#[test]
fn a_reader_behind_a_writer_that_waits_for_its_own_hold_is_a_reentry() {
    let pages = KeyedRwLock::<String>::builder().fairness(Fairness::Bounded(0)).build();
    let detector = Detector::new();
    let party = detector.party("reader");
    let read = block_on(party.acquire(pages.read("page"))).unwrap();
    let mut writer = pin!(pages.write("page")); // nobody tracks it
    assert!(poll(writer.as_mut()).is_pending());
    assert!(block_on(party.acquire(pages.read("page"))).unwrap_err().is_reentry());
    drop(read);
    assert!(poll(writer.as_mut()).is_ready());
}

#[test]
fn permits_are_deadlocked_only_if_no_release_can_serve() {
    let (hosts, detector) = (KeyedSemaphore::<String>::new(3), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let _x = block_on(x.acquire(hosts.acquire("host"))).unwrap();
    let _y = block_on(y.acquire(hosts.acquire("host"))).unwrap();
    let other = block_on(hosts.acquire("host"));
    let mut first = pin!(x.acquire(hosts.acquire("host")));
    let mut second = pin!(y.acquire(hosts.acquire("host")));
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll(second.as_mut()).is_pending(), "the third permit will be released, and then the others");
    drop(other);
    assert!(poll(first.as_mut()).is_ready());
}

#[test]
fn permits_that_only_those_have_who_wait_are_deadlocked() {
    let (hosts, detector) = (KeyedSemaphore::<String>::new(2), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let _x = block_on(x.acquire(hosts.acquire("host"))).unwrap();
    let _y = block_on(y.acquire(hosts.acquire("host"))).unwrap();
    let mut first = pin!(x.acquire(hosts.acquire("host")));
    assert!(poll(first.as_mut()).is_pending());
    assert!(block_on(y.acquire(hosts.acquire("host"))).is_err());
    assert!(poll(first.as_mut()).is_pending());
}

#[test]
fn who_is_not_tracked_raises_no_alarm() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (x, other) = (detector.party("x"), Detector::new().party("of another detector"));
    let _one = block_on(x.acquire(locks.lock(&1))).unwrap();
    let _two = block_on(other.acquire(locks.lock(&2))).unwrap();
    let mut first = pin!(x.acquire(locks.lock(&2)));
    let mut second = pin!(other.acquire(locks.lock(&1)));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
}

#[test]
fn what_is_released_cancelled_or_taken_out_is_no_edge_any_more() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let one = block_on(x.acquire(locks.lock(&1))).unwrap();
    let two = block_on(y.acquire(locks.lock(&2))).unwrap();
    {
        let mut waiting = pin!(x.acquire(locks.lock(&2)));
        assert!(poll(waiting.as_mut()).is_pending());
        assert!(block_on(y.acquire(locks.lock(&1))).is_err());
    }
    // x waits no more.
    let mut waiting = pin!(y.acquire(locks.lock(&1)));
    assert!(poll(waiting.as_mut()).is_pending());
    let one = one.into_inner();
    let mut untracked = pin!(x.acquire(locks.lock(&2)));
    assert!(poll(untracked.as_mut()).is_pending(), "x holds nothing that is tracked");
    drop(one);
    assert!(poll(waiting.as_mut()).is_ready());
    drop(two);
    assert!(poll(untracked.as_mut()).is_ready());
}

#[test]
fn holds_are_known_after_their_party_is_dropped() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let _one = block_on(x.acquire(locks.lock(&1))).unwrap();
    let _two = block_on(y.acquire(locks.lock(&2))).unwrap();
    let mut waiting = pin!(x.acquire(locks.lock(&2)));
    assert!(poll(waiting.as_mut()).is_pending());
    drop(x);
    assert!(block_on(y.acquire(locks.lock(&1))).is_err());
}

#[test]
fn a_party_that_gets_in_and_so_closes_a_circle_fails_where_it_waits() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (a, b) = (detector.party("a"), detector.party("b"));
    let _one = block_on(b.acquire(locks.lock(&1))).unwrap();
    let other = block_on(locks.lock(&2));
    let mut first = pin!(a.acquire(locks.lock(&1)));
    let mut of_b = pin!(b.acquire(locks.lock(&2)));
    assert!(poll(first.as_mut()).is_pending() && poll(of_b.as_mut()).is_pending());
    drop(other);
    // It passes b, which has been woken and has not come.
    let second = block_on(a.acquire(locks.lock(&2))).unwrap();
    let Poll::Ready(Err(deadlock)) = poll(first.as_mut()) else { panic!("it has failed") };
    assert_eq!(deadlock.to_string(), "a waits for 1, which b holds; b waits for 2, which a holds");
    drop(second);
    assert!(poll(of_b.as_mut()).is_ready());
}

#[test]
fn a_limit_that_is_reached_already_is_no_deadlock() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let party = detector.party("x");
    let _held = block_on(party.acquire(locks.lock(&1))).unwrap();
    let refused = block_on(party.acquire(locks.lock(&1)).until(async { 7 })).unwrap_err();
    assert_eq!(refused, Refused::Limit(7));
    assert!(party.try_acquire_for(locks.lock(&1), std::time::Duration::ZERO).unwrap().is_none());
    assert!(party.try_acquire_for(locks.lock(&1), std::time::Duration::MAX).unwrap_err().is_reentry());
}

#[test]
fn two_who_upgrade_what_the_other_reads_are_told() {
    let (pages, detector) = (KeyedRwLock::<u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let (one, _other) =
        (block_on(x.acquire(pages.upgradable_read(&1))).unwrap(), block_on(y.acquire(pages.read(&1))).unwrap());
    let two = block_on(y.acquire(pages.upgradable_read(&2))).unwrap();
    let _read = block_on(x.acquire(pages.read(&2))).unwrap();
    let mut waiting = pin!(one.upgrade());
    assert!(poll(waiting.as_mut()).is_pending());
    let (deadlock, two) = block_on(two.upgrade()).unwrap_err();
    assert_eq!(deadlock.to_string(), "y waits for 2, which x holds; x waits for 1, which y holds");
    assert_eq!(pages.status(&2).unwrap().upgradable(), 1);
    drop((two, _other));
    assert!(poll(waiting.as_mut()).is_ready());
}
