//! Deadlock reports: which request fails, when, and with which report.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use futures_lite::future::block_on;
use keylatch::deadlock::{Detector, Refused};
use keylatch::{Fairness, KeyedMutex, KeyedRwLock, KeyedSemaphore};

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn the_request_that_closes_a_cycle_of_two_fails_and_the_other_keeps_waiting() {
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
    assert_eq!(locks.status("b").unwrap().waiters(), 0, "the failed request is still queued");
    assert!(poll(waiting.as_mut()).is_pending());
    drop(a);
    assert!(poll(waiting.as_mut()).is_ready());
    drop(b);
    assert!(locks.is_empty());
}

#[test]
fn a_report_of_a_cycle_of_three_over_two_tables_begins_with_the_failed_request() {
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
fn a_cycle_through_a_queue_is_found() {
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
        "a waits for \"lock\", which c holds; c waits for \"page\", for which b is ahead of it in the queue; \
         b waits for \"page\", which a holds"
    );
}

#[test]
fn a_reader_behind_a_writer_that_waits_for_its_own_hold_is_a_reentry() {
    let pages = KeyedRwLock::<String>::builder().fairness(Fairness::Bounded(0)).build();
    let detector = Detector::new();
    let party = detector.party("reader");
    let read = block_on(party.acquire(pages.read("page"))).unwrap();
    let mut writer = pin!(pages.write("page")); // not tracked
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
fn permits_held_only_by_waiting_parties_are_a_deadlock() {
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
fn a_search_uses_the_limit_of_the_key() {
    let (hosts, detector) = (KeyedSemaphore::<String>::new(1), Detector::new());
    let [x, y, z] = ["x", "y", "z"].map(|name| detector.party(name));
    hosts.set_permits("host", 4);
    let _x = block_on(x.acquire(hosts.acquire("host"))).unwrap();
    let _z = block_on(z.acquire(hosts.acquire_n("host", 2))).unwrap();
    let other = block_on(y.acquire(hosts.acquire("other"))).unwrap();
    let mut first = pin!(x.acquire(hosts.acquire("other")));
    let mut second = pin!(y.acquire(hosts.acquire_n("host", 2)));
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll(second.as_mut()).is_pending(), "z releases two permits, and those are enough");
    hosts.set_permits("host", 5);
    assert!(poll(second.as_mut()).is_ready());
    drop(other);
}

#[test]
fn a_request_for_a_key_without_permits_waits_for_no_party() {
    let (hosts, detector) = (KeyedSemaphore::<String>::new(1), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let _x = block_on(x.acquire(hosts.acquire("host"))).unwrap();
    let other = block_on(y.acquire(hosts.acquire("other"))).unwrap();
    hosts.set_permits("host", 0);
    let mut first = pin!(x.acquire(hosts.acquire("other")));
    let mut second = pin!(y.acquire(hosts.acquire("host")));
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll(second.as_mut()).is_pending(), "the limit may be raised");
    hosts.set_permits("host", 2);
    assert!(poll(second.as_mut()).is_ready());
    drop(other);
}

#[test]
fn an_untracked_caller_causes_no_report() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (x, other) = (detector.party("x"), Detector::new().party("of another detector"));
    let _one = block_on(x.acquire(locks.lock(&1))).unwrap();
    let _two = block_on(other.acquire(locks.lock(&2))).unwrap();
    let mut first = pin!(x.acquire(locks.lock(&2)));
    let mut second = pin!(other.acquire(locks.lock(&1)));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
}

#[test]
fn a_released_cancelled_or_extracted_guard_is_no_longer_an_edge() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let one = block_on(x.acquire(locks.lock(&1))).unwrap();
    let two = block_on(y.acquire(locks.lock(&2))).unwrap();
    {
        let mut waiting = pin!(x.acquire(locks.lock(&2)));
        assert!(poll(waiting.as_mut()).is_pending());
        assert!(block_on(y.acquire(locks.lock(&1))).is_err());
    }
    // Party x no longer waits.
    let mut waiting = pin!(y.acquire(locks.lock(&1)));
    assert!(poll(waiting.as_mut()).is_pending());
    let one = one.into_inner();
    let mut untracked = pin!(x.acquire(locks.lock(&2)));
    assert!(poll(untracked.as_mut()).is_pending(), "x holds no tracked guard");
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
fn a_party_whose_acquisition_closes_a_cycle_fails_in_its_waiting_request() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (a, b) = (detector.party("a"), detector.party("b"));
    let _one = block_on(b.acquire(locks.lock(&1))).unwrap();
    let other = block_on(locks.lock(&2));
    let mut first = pin!(a.acquire(locks.lock(&1)));
    let mut of_b = pin!(b.acquire(locks.lock(&2)));
    assert!(poll(first.as_mut()).is_pending() && poll(of_b.as_mut()).is_pending());
    drop(other);
    // Party a passes b, which has been woken and not polled since.
    let second = block_on(a.acquire(locks.lock(&2))).unwrap();
    let Poll::Ready(Err(deadlock)) = poll(first.as_mut()) else { panic!("the request has not failed") };
    assert_eq!(deadlock.to_string(), "a waits for 1, which b holds; b waits for 2, which a holds");
    drop(second);
    assert!(poll(of_b.as_mut()).is_ready());
}

#[test]
fn a_limit_already_reached_is_no_deadlock() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let party = detector.party("x");
    let _held = block_on(party.acquire(locks.lock(&1))).unwrap();
    let refused = block_on(party.acquire(locks.lock(&1)).until(async { 7 })).unwrap_err();
    assert_eq!(refused, Refused::Limit(7));
    assert!(party.try_acquire_for(locks.lock(&1), std::time::Duration::ZERO).unwrap().is_none());
    assert!(party.try_acquire_for(locks.lock(&1), std::time::Duration::MAX).unwrap_err().is_reentry());
}

#[test]
fn two_upgrades_that_wait_for_each_others_readers_are_reported() {
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

/// When a writer leaves, the waiting readers are admitted before the next writer, except under `Fifo`: the order of the
/// queue alone does not show which party waits for which.
#[test]
fn readers_are_admitted_before_the_writer_at_the_head_when_a_writer_leaves() {
    for fairness in [Fairness::Adaptive, Fairness::Bounded(0), Fairness::Fifo] {
        let pages = KeyedRwLock::<String>::builder().fairness(fairness).build();
        let (locks, detector) = (KeyedMutex::<String>::new(), Detector::new());
        let (p, q) = (detector.party("p"), detector.party("q"));
        let writer = block_on(pages.write("page"));
        let lock = block_on(q.acquire(locks.lock("lock"))).unwrap();
        let mut first = pin!(p.acquire(pages.write("page")));
        let mut second = pin!(p.acquire(locks.lock("lock")));
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        let mut reader = pin!(q.acquire(pages.read("page")));
        if fairness == Fairness::Fifo {
            let Poll::Ready(Err(deadlock)) = poll(reader.as_mut()) else {
                panic!("p is served first and keeps the page")
            };
            assert_eq!(
                deadlock.to_string(),
                "q waits for \"page\", for which p is ahead of it in the queue; p waits for \"lock\", which q holds"
            );
            continue;
        }
        assert!(poll(reader.as_mut()).is_pending(), "{fairness:?}");
        drop(writer);
        let Poll::Ready(Ok(read)) = poll(reader.as_mut()) else { panic!("the readers' phase has begun") };
        drop((read, lock));
        assert!(poll(first.as_mut()).is_ready() && poll(second.as_mut()).is_ready());
    }
}

/// A writer waits for a reader that will be admitted before it and that waits for one of the writer's locks.
#[test]
fn a_writer_waits_for_later_readers_that_are_admitted_before_it() {
    let pages = KeyedRwLock::<String>::new();
    let (locks, detector) = (KeyedMutex::<String>::new(), Detector::new());
    let (p, q) = (detector.party("p"), detector.party("q"));
    let held = block_on(pages.write("page"));
    let _lock = block_on(q.acquire(locks.lock("lock"))).unwrap();
    let mut writer = pin!(q.acquire(pages.write("page")));
    assert!(poll(writer.as_mut()).is_pending());
    let mut reader = pin!(p.acquire(pages.read("page")));
    assert!(poll(reader.as_mut()).is_pending());
    let Poll::Ready(Err(deadlock)) = poll(pin!(p.acquire(locks.lock("lock")))) else { panic!("this closes a cycle") };
    assert_eq!(
        deadlock.to_string(),
        "p waits for \"lock\", which q holds; q waits for \"page\", for which p is ahead of it in the queue"
    );
    drop(held);
    let Poll::Ready(Ok(read)) = poll(reader) else { panic!("the readers' phase has begun") };
    drop(read);
    assert!(poll(writer.as_mut()).is_ready());
}

#[test]
fn a_reentry_is_reported_even_behind_another_waiter() {
    let pages = KeyedRwLock::<String>::builder().fairness(Fairness::Bounded(0)).build();
    let detector = Detector::new();
    let (reader, writer) = (detector.party("reader"), detector.party("writer"));
    let _read = block_on(reader.acquire(pages.read("page"))).unwrap();
    let mut write = pin!(writer.acquire(pages.write("page")));
    assert!(poll(write.as_mut()).is_pending());
    let deadlock = block_on(reader.acquire(pages.read("page"))).unwrap_err();
    assert!(deadlock.is_reentry());
    assert_eq!(
        deadlock.to_string(),
        "reader waits for \"page\", for which writer is ahead of it in the queue; writer waits for \"page\", which reader holds"
    );
}

#[test]
fn a_key_granted_before_the_detector_got_the_future_is_acquired_despite_the_limit() {
    let locks = KeyedMutex::<u64>::builder().fairness(Fairness::Fifo).build();
    let detector = Detector::new();
    let party = detector.party("x");
    for blocking in [false, true] {
        let held = block_on(locks.lock(&1));
        let mut queued = Box::pin(locks.lock(&1));
        assert!(poll(queued.as_mut()).is_pending());
        let queued = *Pin::into_inner(queued);
        drop(held); // the queued request is granted the key
        let got = if blocking {
            party.try_acquire_for(queued, std::time::Duration::ZERO).unwrap().is_some()
        } else {
            block_on(party.acquire(queued).until(async {})).is_ok()
        };
        assert!(got);
    }
    assert!(locks.is_empty());
}

/// A waker that calls the detector when it is woken or dropped. Called under the detector's lock, it would deadlock.
struct CallsDetector {
    detector: Detector,
    /// Whether the waker panics when it is woken.
    panics: bool,
}

impl std::task::Wake for CallsDetector {
    fn wake(self: std::sync::Arc<Self>) {
        drop(self.detector.party("woken"));
        assert!(!self.panics, "a waker");
    }
}

impl Drop for CallsDetector {
    fn drop(&mut self) {
        drop(self.detector.party("dropped"));
    }
}

fn waker_that_calls(detector: &Detector, panics: bool) -> Waker {
    Waker::from(std::sync::Arc::new(CallsDetector { detector: detector.clone(), panics }))
}

fn poll_by<F: Future>(future: Pin<&mut F>, waker: Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&waker))
}

#[test]
fn wakers_run_outside_the_lock_of_the_detector() {
    let (locks, pages, detector) = (KeyedMutex::<u64>::new(), KeyedRwLock::<u64>::new(), Detector::new());
    let (a, b) = (detector.party("a"), detector.party("b"));
    let one = block_on(b.acquire(locks.lock(&1))).unwrap();
    let other = block_on(locks.lock(&2));
    let mut first = pin!(a.acquire(locks.lock(&1)));
    let mut of_b = pin!(b.acquire(locks.lock(&2)));
    for _ in 0..3 {
        assert!(poll_by(first.as_mut(), waker_that_calls(&detector, false)).is_pending());
        assert!(poll_by(of_b.as_mut(), waker_that_calls(&detector, false)).is_pending());
    }
    drop(other);
    let second = block_on(a.acquire(locks.lock(&2))).unwrap();
    assert!(matches!(poll_by(first.as_mut(), waker_that_calls(&detector, false)), Poll::Ready(Err(_))));
    drop((one, second));
    assert!(poll_by(of_b, waker_that_calls(&detector, false)).is_ready());

    let reader = block_on(a.acquire(pages.upgradable_read(&1))).unwrap();
    let other = block_on(b.acquire(pages.read(&1))).unwrap();
    let mut upgrade = Box::pin(reader.upgrade());
    for _ in 0..3 {
        assert!(poll_by(upgrade.as_mut(), waker_that_calls(&detector, false)).is_pending());
    }
    drop(upgrade);
    drop(other);
    assert!(pages.is_empty());
}

/// An acquisition makes another request fail, whose waker panics: the acquired hold is released, and no record of it
/// is left.
#[test]
fn a_panicking_waker_leaves_no_hold_and_no_record_of_one() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (a, b) = (detector.party("a"), detector.party("b"));
    let one = block_on(b.acquire(locks.lock(&1))).unwrap();
    let other = block_on(locks.lock(&2));
    let mut first = pin!(a.acquire(locks.lock(&1)));
    let mut of_b = pin!(b.acquire(locks.lock(&2)));
    let mut second = pin!(a.acquire(locks.lock(&2)));
    assert!(poll_by(first.as_mut(), waker_that_calls(&detector, true)).is_pending());
    assert!(poll(of_b.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    drop(other);
    // Party a passes b, which has been woken and not polled since.
    let poll_second = std::panic::AssertUnwindSafe(|| poll(second.as_mut()).is_ready());
    assert!(std::panic::catch_unwind(poll_second).is_err());
    assert!(matches!(poll(first), Poll::Ready(Err(_))));
    let mut again = pin!(a.acquire(locks.lock(&1)));
    assert!(poll(again.as_mut()).is_pending(), "a holds nothing that b waits for");
    assert!(poll(of_b).is_ready());
    drop(one);
    assert!(poll(again).is_ready());
}

/// Runs threads that move money between accounts, which they lock one after another, by blocking and by async calls.
/// Returns the number of deadlocks.
fn transfers(sorted: bool) -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    const ACCOUNTS: usize = 5;
    let rounds = if cfg!(miri) { 5 } else { 2_000 };
    let (locks, detector) = (KeyedMutex::<usize>::new(), Detector::new());
    let accounts: [AtomicUsize; ACCOUNTS] = std::array::from_fn(|_| AtomicUsize::new(1_000));
    let deadlocks = AtomicUsize::new(0);
    let run = &|who: usize| {
        let party = detector.party(format!("clerk {who}"));
        let mut random = who as u64 + 1;
        for round in 0..rounds {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let from = (random >> 33) as usize % ACCOUNTS;
            let to = (from + 1 + (random >> 43) as usize % (ACCOUNTS - 1)) % ACCOUNTS;
            let [first, second] = if sorted { [from.min(to), from.max(to)] } else { [from, to] };
            let acquire = |key: usize| match round % 2 {
                0 => party.acquire_blocking(locks.lock(&key)),
                _ => block_on(party.acquire(locks.lock(&key))),
            };
            loop {
                let one = acquire(first).expect("a party that holds nothing cannot deadlock");
                std::thread::yield_now();
                let Ok(two) = acquire(second) else {
                    deadlocks.fetch_add(1, Relaxed);
                    drop(one);
                    std::thread::yield_now();
                    continue;
                };
                // The balance is read and written in two steps, which is correct only for the holder of the account.
                let amount = accounts[from].load(Relaxed).min(7);
                accounts[from].store(accounts[from].load(Relaxed) - amount, Relaxed);
                accounts[to].store(accounts[to].load(Relaxed) + amount, Relaxed);
                drop((one, two));
                break;
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|who| drop(scope.spawn(move || run(who)))));
    assert_eq!(accounts.iter().map(|account| account.load(Relaxed)).sum::<usize>(), ACCOUNTS * 1_000);
    assert!(locks.is_empty());
    deadlocks.into_inner()
}

#[test]
fn threads_that_lock_in_any_order_and_retry_finish() {
    transfers(false);
}

#[test]
fn threads_that_lock_in_one_order_get_no_deadlock_report() {
    assert_eq!(transfers(true), 0);
}

#[test]
fn a_holder_of_permits_that_requests_more_gets_a_report_of_the_other_holders() {
    let (hosts, detector) = (KeyedSemaphore::<String>::new(4), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let two = block_on(x.acquire(hosts.acquire_n("host", 2))).unwrap();
    let one = block_on(y.acquire(hosts.acquire_n("host", 2))).unwrap();
    let mut waiting = pin!(x.acquire(hosts.acquire("host")));
    assert!(poll(waiting.as_mut()).is_pending());
    let deadlock = block_on(y.acquire(hosts.acquire_n("host", 2))).unwrap_err();
    assert_eq!(deadlock.to_string(), "y waits for \"host\", which x holds; x waits for \"host\", which y holds");
    drop(one);
    assert!(poll(waiting.as_mut()).is_ready());
    // This deadlock involves no other party.
    let deadlock = block_on(x.acquire(hosts.acquire_n("host", 3))).unwrap_err();
    assert_eq!(deadlock.to_string(), "x waits for \"host\", which x holds");
    drop(two);
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_request_that_fails_wakes_the_waker_of_its_last_poll() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (a, b) = (detector.party("a"), detector.party("b"));
    let _one = block_on(b.acquire(locks.lock(&1))).unwrap();
    let other = block_on(locks.lock(&2));
    let mut first = pin!(a.acquire(locks.lock(&1)));
    let mut of_b = pin!(b.acquire(locks.lock(&2)));
    let wakes = [Arc::<Wakes>::default(), Arc::default()];
    for wakes in &wakes {
        let waker = Waker::from(Arc::clone(wakes));
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert!(poll(of_b.as_mut()).is_pending());
    drop(other);
    let _second = block_on(a.acquire(locks.lock(&2))).unwrap();
    assert_eq!(wakes.map(|wakes| wakes.0.load(SeqCst)), [0, 1]);
    assert!(matches!(poll(first.as_mut()), Poll::Ready(Err(_))));
}

#[test]
fn a_failed_request_holds_nothing_even_if_it_is_granted_its_key() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let [a, b, c] = ["a", "b", "c"].map(|name| detector.party(name));
    let one = block_on(b.acquire(locks.lock(&1))).unwrap();
    let _three = block_on(c.acquire(locks.lock(&3))).unwrap();
    let other = block_on(locks.lock(&2));
    let mut first = pin!(a.acquire(locks.lock(&1)));
    let mut of_b = pin!(b.acquire(locks.lock(&2)));
    assert!(poll(first.as_mut()).is_pending() && poll(of_b.as_mut()).is_pending());
    drop(other);
    let _two = block_on(a.acquire(locks.lock(&2))).unwrap(); // the first request fails
    one.unlock_fair(); // and is granted its key before it is polled
    let mut third = pin!(a.acquire(locks.lock(&3)));
    assert!(poll(third.as_mut()).is_pending());
    let mut of_c = pin!(c.acquire(locks.lock(&1)));
    assert!(poll(of_c.as_mut()).is_pending(), "the failed request will pass the key on");
    assert!(matches!(poll(first.as_mut()), Poll::Ready(Err(_))));
    assert!(poll(of_c.as_mut()).is_ready());
}

#[test]
fn an_upgrade_that_waits_for_another_party_is_no_reentry() {
    let (locks, pages, detector) = (KeyedMutex::<u64>::new(), KeyedRwLock::<u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let _lock = block_on(x.acquire(locks.lock(&1))).unwrap();
    let editor = block_on(x.acquire(pages.upgradable_read(&2))).unwrap();
    let _reader = block_on(y.acquire(pages.read(&2))).unwrap();
    let mut of_y = pin!(y.acquire(locks.lock(&1)));
    assert!(poll(of_y.as_mut()).is_pending());
    let Err((deadlock, _editor)) = block_on(editor.upgrade()) else { panic!("this closes a cycle") };
    assert!(!deadlock.is_reentry());
}

#[test]
fn merged_permits_count_together() {
    let (locks, hosts, detector) = (KeyedMutex::<u64>::new(), KeyedSemaphore::<u64>::new(3), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let mut permits = block_on(x.acquire(hosts.acquire(&1))).unwrap();
    permits.merge(block_on(x.acquire(hosts.acquire_n(&1, 2))).unwrap());
    let _lock = block_on(y.acquire(locks.lock(&2))).unwrap();
    let mut of_x = pin!(x.acquire(locks.lock(&2)));
    assert!(poll(of_x.as_mut()).is_pending());
    let mut of_y = pin!(y.acquire(hosts.acquire(&1)));
    assert!(matches!(poll(of_y.as_mut()), Poll::Ready(Err(_))));
}

/// When the limit is reached, the key may be free: the limit may have taken a while, or may have released the key
/// itself.
#[test]
fn the_key_is_tried_once_more_when_the_limit_is_reached() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let party = detector.party("party");
    let held = locks.try_lock(&1).unwrap();
    let limit = async { drop(held) };
    assert!(block_on(party.acquire(locks.lock(&1)).until(limit)).is_ok());
    assert!(locks.is_empty());
}

/// A party that acquires a key at once, passing a waiter that was woken for it, may complete a cycle with another of
/// its own requests.
#[test]
fn passing_a_waiter_can_close_a_cycle_with_another_request_of_the_same_party() {
    for has_limit in [false, true] {
        let locks = KeyedMutex::<u64>::builder().fairness(Fairness::Barging).build();
        let detector = Detector::new();
        let [p, q] = ["p", "q"].map(|name| detector.party(name));
        let one = block_on(q.acquire(locks.lock(&1))).unwrap();
        let two = locks.try_lock(&2).unwrap();
        let mut of_q = pin!(q.acquire(locks.lock(&2)));
        let mut of_p = pin!(p.acquire(locks.lock(&1)));
        assert!(poll(of_q.as_mut()).is_pending() && poll(of_p.as_mut()).is_pending());
        drop(two); // q is woken and not polled yet
        let two = match has_limit {
            true => block_on(p.acquire(locks.lock(&2)).until(std::future::pending::<()>())).unwrap(),
            false => block_on(p.acquire(locks.lock(&2))).unwrap(),
        };
        let Poll::Ready(Err(deadlock)) = poll(of_p.as_mut()) else { panic!("the request waits for ever") };
        assert_eq!(deadlock.to_string(), "p waits for 1, which q holds; q waits for 2, which p holds");
        assert!(poll(of_q.as_mut()).is_pending());
        drop(two);
        assert!(poll(of_q.as_mut()).is_ready());
        drop(one);
    }
}

/// A failed request no longer waits, even before it is polled.
#[test]
fn a_party_does_not_wait_for_its_failed_request() {
    let locks = KeyedMutex::<u64>::builder().fairness(Fairness::Barging).build();
    let hosts = KeyedSemaphore::<u64>::new(2);
    let detector = Detector::new();
    let [p, q, z] = ["p", "q", "z"].map(|name| detector.party(name));
    let one = block_on(q.acquire(locks.lock(&1))).unwrap();
    let three = block_on(z.acquire(locks.lock(&3))).unwrap();
    let both = [&p, &q].map(|party| block_on(party.acquire(hosts.acquire(&4))).unwrap());
    let two = locks.try_lock(&2).unwrap();
    let mut of_p = pin!(p.acquire(locks.lock(&1)));
    let mut of_q = [2, 3].map(|key| Box::pin(q.acquire(locks.lock(&key))));
    assert!(poll(of_p.as_mut()).is_pending());
    assert!(of_q.iter_mut().all(|request| poll(request.as_mut()).is_pending()));
    drop(two);
    let two = block_on(p.acquire(locks.lock(&2))).unwrap(); // so p's request for 1 fails
    let mut of_z = pin!(z.acquire(hosts.acquire(&4)));
    assert!(poll(of_z.as_mut()).is_pending(), "p waits for nothing and may return its permit");
    assert!(matches!(poll(of_p.as_mut()), Poll::Ready(Err(_))));
    drop((two, both));
    assert!(poll(of_z.as_mut()).is_ready());
    drop((one, three));
}

/// A hold that was granted to a failed request goes to the next waiter, and not to the first newcomer.
#[test]
fn a_hold_granted_to_a_failed_request_is_passed_on() {
    let locks = KeyedMutex::<u64>::builder().fairness(Fairness::Barging).build();
    let detector = Detector::new();
    let [p, q] = ["p", "q"].map(|name| detector.party(name));
    let one = block_on(q.acquire(locks.lock(&1))).unwrap();
    let two = locks.try_lock(&2).unwrap();
    let mut of_p = pin!(p.acquire(locks.lock(&1)));
    let mut next = pin!(locks.lock(&1));
    let mut of_q = pin!(q.acquire(locks.lock(&2)));
    assert!(poll(of_p.as_mut()).is_pending() && poll(next.as_mut()).is_pending() && poll(of_q.as_mut()).is_pending());
    drop(two);
    let two = block_on(p.acquire(locks.lock(&2))).unwrap(); // so p's request for 1 fails
    one.unlock_fair();
    assert!(matches!(poll(of_p.as_mut()), Poll::Ready(Err(_))));
    assert!(locks.try_lock(&1).is_none());
    assert!(poll(next.as_mut()).is_ready());
    drop(two);
}
