//! User code that panics, or calls the leases from inside one of their calls, must not harm other callers. With the
//! exception of one test, all of this also holds without `std`.

mod common;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Wake, Waker};
use std::time::Duration;

use common::{Bell, Table, owners, poll, ready, secs, table, waiting, waiting_with};
use keylatch_lease::{AcquireError, Clock, Expiry, ExpiryPolicy, Leases, ManualClock, Memory, Term};

/// Panics without running the panic hook, which would print a message.
fn fail() -> ! {
    resume_unwind(Box::new("on purpose"))
}

#[track_caller]
fn panics(what: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(what)).is_err(), "the call should panic");
}

/// A policy whose drop panics.
struct Fragile;

impl ExpiryPolicy for Fragile {
    fn remaining(&self, _: Duration) -> Option<Duration> {
        Some(secs(1))
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        fail();
    }
}

/// A waker that panics.
struct Alarm;

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        fail();
    }
}

/// Leaves an expired lease of `resource`, which the next call removes in passing, and whose policy panics in its drop.
fn leave_a_fragile_lease(leases: &Table, clock: &ManualClock, resource: &str) {
    let [.., stranger] = owners::<8>();
    drop(leases.try_acquire_now(resource, &stranger, Expiry::custom(Fragile)).unwrap());
    clock.advance(secs(2));
}

#[test]
fn a_policy_that_panics_in_its_drop_does_not_hide_a_release() {
    for by_name in [true, false] {
        let (leases, clock) = table();
        let [ann, bob] = owners();
        let held = leases.try_acquire_now("r", &ann, Expiry::Never).unwrap();
        let (bell, waker) = Bell::new();
        let mut next = waiting_with(leases.acquire("r", &bob, Expiry::Never), &waker);
        leave_a_fragile_lease(&leases, &clock, "of a stranger");
        panics(|| if by_name { leases.release_as_now("r", &ann).unwrap() } else { leases.release_now(&held).unwrap() });
        assert!(bell.take() > 0, "the resource is free, but bob is not woken");
        assert_eq!(*ready(&mut next).unwrap().owner(), bob);
    }
}

#[test]
fn a_policy_that_panics_in_its_drop_does_not_hide_the_releases_of_a_session() {
    let (leases, clock) = table();
    let [ann, bob] = owners();
    let resources = ["a", "b", "c"];
    for resource in resources {
        leases.try_acquire_now(resource, &ann, Expiry::Never).unwrap();
    }
    let bells = resources.map(|_| Bell::new());
    let mut next: Vec<_> = resources
        .iter()
        .zip(&bells)
        .map(|(resource, (_, waker))| waiting_with(leases.acquire(*resource, &bob, Expiry::Never), waker))
        .collect();
    leave_a_fragile_lease(&leases, &clock, "of a stranger");
    panics(|| drop(leases.release_all_now(&ann)));
    for (next, (bell, _)) in next.iter_mut().zip(&bells) {
        assert!(bell.take() > 0, "the resource is free, but bob is not woken");
        assert_eq!(*ready(next).unwrap().owner(), bob);
    }
}

#[test]
fn a_policy_that_panics_in_its_drop_does_not_hide_that_a_held_was_dropped_or_taken_over() {
    let (leases, clock) = table();
    let [ann, bob] = owners();
    let held = ready(leases.hold("r", &ann, secs(60))).unwrap();
    let (bell, waker) = Bell::new();
    let mut next = waiting_with(leases.acquire("r", &bob, secs(60)), &waker);
    leave_a_fragile_lease(&leases, &clock, "of a stranger");
    panics(|| drop(held));
    assert!(bell.take() > 0, "the resource is free, but bob is not woken");
    ready(&mut next).unwrap();

    let held = ready(leases.hold("s", &ann, secs(60))).unwrap();
    let lost = waiting_with(held.lost(), &waker);
    leave_a_fragile_lease(&leases, &clock, "of another stranger");
    panics(|| drop(ready(leases.try_acquire("s", &ann, secs(60)).fresh_token())));
    assert!(bell.take() > 0, "the tenure was taken over, but the watch is not woken");
    drop(lost);
}

#[test]
fn a_served_request_that_is_dropped_is_passed_on_though_a_policy_panics_in_its_drop() {
    let (leases, _) = table();
    let [ann, bob, cid] = owners();
    let held = leases.try_acquire_now("r", &ann, Expiry::Never).unwrap();
    let served = waiting(leases.acquire("r", &bob, Expiry::Never));
    let served_too = waiting(leases.acquire("r", &bob, Expiry::custom(Fragile)));
    let (bell, waker) = Bell::new();
    let mut next = waiting_with(leases.acquire("r", &cid, Expiry::Never), &waker);
    leases.release_now(&held).unwrap();
    drop(served_too); // from here on, only the tenure's record has the policy
    panics(|| drop(served));
    assert!(bell.take() > 0, "the lease has ended, and cid was not woken");
    assert_eq!(*ready(&mut next).unwrap().owner(), cid);
}

/// A panic during a panic would end the process.
#[cfg(feature = "std")]
#[test]
fn policies_that_panic_in_their_drops_are_all_dropped() {
    let (leases, clock) = table();
    let [ann] = owners();
    for resource in ["a", "b", "c"] {
        drop(leases.try_acquire_now(resource, &ann, Expiry::custom(Fragile)).unwrap());
    }
    clock.advance(secs(2));
    panics(|| drop(leases.release_expired_now()));
    assert_eq!(leases.release_expired_now().unwrap(), 0);
}

#[test]
fn a_policy_that_panics_counts_as_a_refusal_and_the_next_in_line_is_served() {
    let (leases, _) = table();
    let [ann, bob, cid] = owners();
    let held = leases.try_acquire_now("r", &ann, Expiry::Never).unwrap();
    let mut refused = waiting(leases.acquire("r", &bob, Expiry::custom(|_| fail())));
    let (bell, waker) = Bell::new();
    let mut next = waiting_with(leases.acquire("r", &cid, secs(60)), &waker);
    panics(|| leases.release_now(&held).unwrap());
    assert!(bell.take() > 0, "the resource is free, but cid is not woken");
    assert_eq!(*ready(&mut next).unwrap().owner(), cid);
    assert!(matches!(ready(&mut refused), Err(AcquireError::Refused { .. })));
}

#[test]
fn all_waiters_are_woken_even_if_a_waker_panics() {
    let (leases, _) = table();
    let [ann] = owners();
    let held = ready(leases.hold("r", &ann, secs(60))).unwrap();
    let bells = [Bell::new(), Bell::new()];
    let lost = [
        waiting_with(held.lost(), &bells[0].1),
        waiting_with(held.lost(), &Waker::from(Arc::new(Alarm))),
        waiting_with(held.lost(), &bells[1].1),
    ];
    panics(|| leases.release_as_now("r", &ann).unwrap());
    assert_eq!(bells.map(|(bell, _)| bell.take()), [1, 1]);
    drop(lost);
}

#[test]
fn the_next_in_line_is_woken_even_if_the_waker_of_a_watch_panics() {
    let (leases, _) = table();
    let [ann, bob] = owners();
    let held = ready(leases.hold("r", &ann, secs(60))).unwrap();
    let lost = waiting_with(held.lost(), &Waker::from(Arc::new(Alarm)));
    let (bell, waker) = Bell::new();
    let mut next = waiting_with(leases.acquire("r", &bob, secs(60)), &waker);
    panics(|| leases.release_as_now("r", &ann).unwrap());
    assert!(bell.take() > 0, "the resource is free, but bob is not woken");
    ready(&mut next).unwrap();
    drop(lost);
}

/// A clock whose next reading panics if the test says so.
#[derive(Clone, Default)]
struct Panicky(ManualClock, Arc<AtomicBool>);

impl Clock for Panicky {
    fn now(&self) -> Duration {
        if self.1.swap(false, SeqCst) {
            fail();
        }
        self.0.now()
    }

    fn is_real_time(&self) -> bool {
        false
    }
}

#[test]
fn a_dropped_held_is_released_even_if_the_clock_panics() {
    let clock = Panicky::default();
    let leases = Leases::in_memory_with(clock.clone());
    let [ann, bob] = owners();
    let held = ready(leases.hold("r", &ann, secs(600))).unwrap();
    let (bell, waker) = Bell::new();
    let mut next = waiting_with(leases.acquire("r", &bob, secs(60)), &waker);
    clock.1.store(true, SeqCst);
    panics(|| drop(held));
    assert!(bell.take() > 0, "the resource is free, but bob is not woken");
    assert_eq!(*ready(&mut next).unwrap().owner(), bob);
}

// ---- user code that calls the leases --------------------------------------------------------------------------------

/// The present and the greatest nesting of user code, and the number of its calls.
#[derive(Default)]
struct Depth {
    now: AtomicUsize,
    most: AtomicUsize,
    calls: AtomicUsize,
}

impl Depth {
    fn of<R>(&self, call: impl FnOnce() -> R) -> R {
        self.calls.fetch_add(1, SeqCst);
        self.most.fetch_max(self.now.fetch_add(1, SeqCst) + 1, SeqCst);
        let result = call();
        self.now.fetch_sub(1, SeqCst);
        result
    }
}

fn leaked() -> (&'static Table, ManualClock) {
    let (leases, clock) = table();
    (Box::leak(Box::new(leases)), clock)
}

const MANY: usize = 400;
/// The deepest nesting of user code that is allowed, however much there is to do.
const DEEP: usize = 32;

#[test]
fn policies_that_call_the_leases_are_not_nested_without_limit() {
    let (leases, clock) = leaked();
    let [ann, bob] = owners();
    let depth: Arc<Depth> = Arc::default();
    let mut next: Vec<_> = (0..MANY)
        .map(|n| {
            let resource = n.to_string();
            leases.try_acquire_now(&resource, &ann, secs(1)).unwrap();
            let depth = depth.clone();
            let policy = Expiry::custom(move |_| {
                depth.of(|| leases.len());
                Some(secs(60))
            });
            waiting(leases.acquire(&resource, &bob, policy))
        })
        .collect();
    clock.advance(secs(1));
    leases.tick();
    assert_eq!(depth.calls.load(SeqCst), MANY);
    assert!(depth.most.load(SeqCst) <= DEEP, "{} deep", depth.most.load(SeqCst));
    for next in &mut next {
        assert_eq!(*ready(next).unwrap().owner(), bob);
    }
    assert_eq!(leases.len(), MANY);
}

/// A policy whose drop calls the leases.
struct Curious(Arc<Depth>, &'static Table);

impl ExpiryPolicy for Curious {
    fn remaining(&self, _: Duration) -> Option<Duration> {
        Some(secs(1))
    }
}

impl Drop for Curious {
    fn drop(&mut self) {
        self.0.of(|| assert!(self.1.status_now("r").unwrap().is_none()));
    }
}

#[test]
fn policies_whose_drops_call_the_leases_are_not_nested_without_limit() {
    let (leases, clock) = leaked();
    let [ann] = owners();
    let depth: Arc<Depth> = Arc::default();
    for n in 0..MANY {
        drop(leases.try_acquire_now(n.to_string(), &ann, Expiry::custom(Curious(depth.clone(), leases))).unwrap());
    }
    clock.advance(secs(2));
    // Each call removes a few expired leases in passing and drops their policies, which call the leases, which remove a
    // few more.
    (0..MANY).for_each(|_| drop(leases.status_now("r")));
    assert_eq!(depth.calls.load(SeqCst), MANY, "all policies must have been dropped");
    assert!(depth.most.load(SeqCst) <= DEEP, "{} deep", depth.most.load(SeqCst));
}

#[test]
fn a_tenure_starts_when_its_policy_has_answered() {
    for takes in [secs(2), secs(10)] {
        let (leases, clock) = table();
        let [ann, bob] = owners();
        let held = leases.try_acquire_now("r", &ann, Expiry::Never).unwrap();
        let (slow, asked) = (clock.clone(), Arc::new(AtomicUsize::new(0)));
        let count = asked.clone();
        let policy = Expiry::custom(move |_| {
            count.fetch_add(1, SeqCst);
            slow.advance(takes); // the time that the policy takes
            Some(secs(5))
        });
        let mut next = waiting(leases.acquire("r", &bob, policy));
        leases.release_now(&held).unwrap();
        let grant = ready(&mut next).unwrap();
        assert_eq!(leases.remaining(&grant), Some(secs(5)), "the lease lasts for the time that the policy granted");
        assert_eq!(asked.load(SeqCst), 1);
        assert_eq!(leases.status_now("r").unwrap().unwrap().remaining(), Some(secs(5)));
    }
}

// ---- cases that no other test covers --------------------------------------------------------------------------------

/// A clock that the test moves, although it claims to be real time.
#[derive(Clone, Default)]
struct Real(ManualClock);

impl Clock for Real {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn is_real_time(&self) -> bool {
        true
    }
}

thread_local! {
    static LATE: Cell<usize> = const { Cell::new(0) };
}

#[test]
fn requests_that_came_while_a_policy_ran_learn_how_long_to_sleep() {
    let leases: &'static Leases<Memory<Real>> = Box::leak(Box::new(Leases::in_memory_with(Real::default())));
    let [ann, bob, cid, dan] = owners();
    let held = leases.try_acquire_now("r", &ann, secs(30)).unwrap();
    let bells = [Bell::new(), Bell::new()];
    type Late = Vec<std::pin::Pin<Box<dyn std::future::Future<Output = ()> + Send>>>;
    let late: Arc<std::sync::Mutex<Late>> = Arc::default();
    let (come, wakers) = (late.clone(), [bells[0].1.clone(), bells[1].1.clone()]);
    let policy = Expiry::custom(move |_| {
        for (owner, waker) in [&cid, &dan].into_iter().zip(&wakers) {
            let request = leases.acquire("r", owner, secs(60));
            come.lock().unwrap().push(waiting_with(async move { drop(request.await) }, waker));
            LATE.set(LATE.get() + 1);
        }
        Some(secs(60))
    });
    let mut first = waiting(leases.acquire("r", &bob, policy));
    leases.release_now(&held).unwrap();
    assert_eq!(LATE.get(), 2);
    assert_eq!(*ready(&mut first).unwrap().owner(), bob);
    // The requests went to sleep without a timer, because the end of bob's lease was not known yet.
    assert!(bells.iter().all(|(bell, _)| bell.take() > 0), "a late request is not woken, so it sleeps for ever");
    late.lock().unwrap().clear();
}

/// The requests arrive while a policy runs, which then refuses. After that, the policy of the next in line is asked.
#[test]
fn requests_that_came_before_a_second_policy_ran_learn_it_too() {
    let leases: &'static Leases<Memory<Real>> = Box::leak(Box::new(Leases::in_memory_with(Real::default())));
    let [ann, bob, cid, dan, eve] = owners();
    let held = leases.try_acquire_now("r", &ann, secs(30)).unwrap();
    let bells = [Bell::new(), Bell::new()];
    type Late = Vec<std::pin::Pin<Box<dyn std::future::Future<Output = ()> + Send>>>;
    let late: Arc<std::sync::Mutex<Late>> = Arc::default();
    let (come, wakers) = (late.clone(), [bells[0].1.clone(), bells[1].1.clone()]);
    let refuses = Expiry::custom(move |_| {
        for (owner, waker) in [&cid, &dan].into_iter().zip(&wakers) {
            let request = leases.acquire("r", owner, secs(60));
            come.lock().unwrap().push(waiting_with(async move { drop(request.await) }, waker));
        }
        None
    });
    let mut of_bob = waiting(leases.acquire("r", &bob, refuses));
    let mut of_eve = waiting(leases.acquire("r", &eve, Expiry::custom(|_| Some(secs(60)))));
    leases.release_now(&held).unwrap();
    assert!(matches!(ready(&mut of_bob), Err(AcquireError::Refused { .. })));
    assert_eq!(*ready(&mut of_eve).unwrap().owner(), eve);
    assert_eq!(late.lock().unwrap().len(), 2);
    assert!(bells.iter().all(|(bell, _)| bell.take() > 0), "a late request is not woken, so it sleeps for ever");
    late.lock().unwrap().clear();
}

#[test]
fn a_hand_off_wakes_the_watchers_of_the_expired_lease() {
    let (leases, clock) = table();
    let [ann, bob] = owners();
    let held = ready(leases.hold("r", &ann, secs(1))).unwrap();
    let (bell, waker) = Bell::new();
    let mut lost = waiting_with(held.lost(), &waker);
    let mut next = waiting(leases.acquire("r", &bob, secs(60)));
    clock.advance(secs(1));
    bell.take();
    assert_eq!(leases.status_now("r").unwrap().unwrap().owner(), &bob); // bob has been served
    assert!(bell.take() > 0, "ann is not notified that bob has the lease");
    assert!(poll(&mut lost).is_ready());
    ready(&mut next).unwrap();
}

/// Ann's request has a custom policy and waits behind bob. It would resume a tenure that another request of ann has
/// acquired. The policy calls `meanwhile` when it is first asked. Returns the questions to the policy, and the result
/// of the request.
fn asked_as_resumed(
    leases: &'static Table,
    clock: &ManualClock,
    meanwhile: impl Fn() + Send + Sync + 'static,
) -> (Vec<Duration>, common::Acquired) {
    let [ann, bob] = owners();
    let asked: Arc<std::sync::Mutex<Vec<Duration>>> = Arc::default();
    let list = asked.clone();
    let policy = Expiry::custom(move |held_for: Duration| {
        let is_first = {
            let mut list = list.lock().unwrap();
            list.push(held_for);
            list.len() == 1
        };
        if is_first {
            meanwhile();
        }
        held_for.is_zero().then_some(secs(60))
    });
    let held = leases.try_acquire_now("r", &bob, Expiry::Never).unwrap();
    let mut with_policy = waiting(leases.acquire("r", &ann, policy));
    // Bob's tenure ends and ann's begins by direct calls of the engine, which another program with the same engine
    // might make. The waiters do not notice.
    let engine = leases.engine();
    use keylatch_lease::engine::{Ask, Engine, Want};
    let at = engine.now();
    drop(ready(engine.release(held.resource(), &bob, None, at)));
    let term = Some(Term { idle: None, total: Some(secs(30)) });
    let ask = Ask {
        resource: held.resource(),
        owner: &ann,
        want: Want::New,
        term,
        expiry: &Expiry::Never,
        waiting: false,
        at,
    };
    ready(engine.acquire(ask)).unwrap();
    clock.advance(secs(1));
    let _ = leases.status_now("r");
    let got = ready(&mut with_policy);
    let asked = asked.lock().unwrap().clone();
    (asked, got)
}

#[test]
fn a_policy_is_asked_again_when_the_tenure_that_it_was_asked_about_has_ended() {
    let (leases, clock) = leaked();
    let [ann] = owners();
    let owner = ann.clone();
    let (asked, got) = asked_as_resumed(leases, &clock, move || leases.release_as_now("r", &owner).unwrap());
    assert_eq!(asked, [secs(1), secs(0)], "an answer about the old tenure must not be used for the new one");
    assert_eq!(leases.remaining(&got.unwrap()), Some(secs(60)));
}

#[test]
fn an_owner_is_told_of_its_tenure_while_a_waiters_policy_runs() {
    let (leases, clock) = leaked();
    let seen: Arc<std::sync::Mutex<Option<common::Acquired>>> = Arc::default();
    let see = seen.clone();
    let (asked, got) = asked_as_resumed(leases, &clock, move || {
        let [_, _, cid] = owners();
        *see.lock().unwrap() = Some(leases.try_acquire_now("r", &cid, secs(1)));
    });
    assert_eq!(asked, [secs(1)]);
    assert!(got.unwrap().is_resumed());
    let [ann] = owners();
    match seen.lock().unwrap().take() {
        Some(Err(AcquireError::Busy { owner, remaining, .. })) => {
            assert_eq!((owner, remaining), (ann, Some(secs(29))));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn expired_leases_are_removed_as_fast_as_new_ones_come() {
    // The leases go through several levels of the wheel, and each call removes a few in passing.
    for (ttl, step) in [(secs(16_777), secs(61)), (secs(1_000_000), secs(1_000)), (secs(4_096), secs(1))] {
        let (leases, clock) = table();
        let [ann] = owners();
        let live = usize::try_from(ttl.as_nanos() / step.as_nanos()).unwrap();
        let mut most = 0;
        for n in 0..5 * live {
            leases.try_acquire_now(n.to_string(), &ann, ttl).unwrap();
            clock.advance(step + Duration::from_nanos(7));
            most = most.max(kept(&leases));
        }
        assert!(most <= live + live / 5, "{most} are kept, of which {live} have not expired");
    }
}

/// Returns the number of leases that the engine keeps, including expired ones.
fn kept(leases: &Table) -> usize {
    let text = format!("{:?}", leases.engine());
    let digits = text.split("kept: ").nth(1).unwrap().chars().take_while(char::is_ascii_digit);
    digits.collect::<String>().parse().unwrap()
}

#[test]
fn a_waiter_that_gives_up_does_not_wake_all_others() {
    let clock = Real::default();
    let leases = Leases::in_memory_with(clock.clone());
    let [ann] = owners();
    leases.try_acquire_now("r", &ann, secs(600)).unwrap();
    const CROWD: usize = 200;
    let mut crowd: Vec<_> = (0..CROWD)
        .map(|n| {
            let (bell, waker) = Bell::new();
            (Some(waiting_with(leases.acquire("r", &format!("{n}").as_str().into(), secs(60)), &waker)), bell, waker)
        })
        .collect();
    let mut polls = 0;
    for first in 0..CROWD {
        crowd[first].0 = None; // the waiter gives up
        while let Some((request, _, waker)) = crowd.iter_mut().find(|(_, bell, _)| bell.take() > 0) {
            let Some(request) = request else { continue };
            polls += 1;
            assert!(common::poll_with(request, waker).is_pending());
        }
    }
    assert!(polls <= CROWD, "{polls} polls");
}
