//! Types, calls and errors, as documented, and the hand-off of leases. The guarantees, `Held` and the wakers are tested
//! in other files.
#![cfg(feature = "std")] // threads that block

mod common;

use std::collections::{BTreeSet, HashSet};
use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, pending as never, ready as at_once};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use common::{
    Acquired, HOUR, Scripted, TICK, Table, assert_send, busy, by, holder, left, lost, not_held, not_owner,
    not_renewable, owned, owners, pending, ready, refused, secs, seen, table, take, waiters, waiting,
};
use keylatch_lease::{
    AcquireError, Clock, Expiry, Fence, Grant, Leases, LookError, Lost, ManualClock, Memory, Owner, ReleaseError,
    RenewError, Resource, StdClock, Token,
};

type Renew = fn(&Table, &Grant) -> Result<Grant, RenewError<Infallible>>;
type Release = fn(&Table, &Grant) -> Result<(), ReleaseError<Infallible>>;
type ReleaseAll = fn(&Table, &Owner) -> Result<usize, LookError<Infallible>>;
type Sweep = fn(&Table) -> Result<usize, LookError<Infallible>>;

/// Panics without running the panic hook, which would print a message.
fn panic_quietly() -> ! {
    resume_unwind(Box::new("of the policy"))
}

// ---- types: resources, owners, tokens -------------------------------------------------------------------------------

#[test]
fn a_resource_is_made_of_an_entity_and_a_key() {
    let resource = Resource::new("invoice", "4711");
    assert_eq!((resource.entity(), resource.key()), ("invoice", "4711"));
    assert_eq!(resource.to_string(), "invoice/4711");
    assert_eq!(Resource::from(("invoice", "4711")), resource);
    assert_eq!(Resource::from(&resource), resource);
    let string = String::from("4711");
    for resource in [Resource::from("4711"), Resource::from(&string), Resource::from(string.clone())] {
        assert_eq!((resource.entity(), resource.key()), ("", "4711"));
        assert_eq!(resource, Resource::new("", "4711"));
    }
}

#[test]
fn resources_with_different_parts_differ_even_if_they_print_alike() {
    let parts =
        [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), ("a\0", "bc"), ("a", "\0bc"), ("a/b", "c"), ("a", "b/c")];
    let resources: Vec<_> = parts.iter().map(|&parts| Resource::from(parts)).collect();
    assert_eq!(resources.iter().collect::<HashSet<_>>().len(), parts.len());
    assert_eq!(resources.iter().collect::<BTreeSet<_>>().len(), parts.len());
    for (resource, (entity, key)) in resources.iter().zip(parts) {
        assert_eq!((resource.entity(), resource.key()), (entity, key));
        assert_eq!(&resource.clone(), resource);
    }
}

#[test]
fn owners_of_equal_names_are_equal() {
    let owner = Owner::named("session-42");
    assert_eq!(owner, Owner::named(String::from("session-42")));
    assert_eq!(owner, Owner::from("session-42"));
    assert_ne!(owner, Owner::named("session-43"));
    assert_eq!((owner.name(), owner.clone()), ("session-42", owner.clone()));
    let (table, _clock) = table();
    take(&table, "a", &owner, secs(10));
    assert!(take(&table, "a", &Owner::named("session-42"), secs(10)).is_resumed());
}

#[test]
fn each_incarnation_is_a_different_owner_with_the_same_name() {
    let (first, second) = (Owner::incarnation("worker-3"), Owner::incarnation("worker-3"));
    assert_ne!(first, second);
    assert_ne!(first, Owner::named("worker-3"));
    assert_eq!((first.name(), second.name()), ("worker-3", "worker-3"));
    let (table, _clock) = table();
    take(&table, "a", &first, secs(10));
    assert_eq!(busy(table.try_acquire_now("a", &second, secs(10))).0, first);
    assert_eq!(busy(table.try_acquire_now("a", &Owner::named("worker-3"), secs(10))).0, first);
}

#[test]
fn an_owner_is_restored_from_its_id_and_no_name_equals_another_id() {
    for owner in [Owner::named("x"), Owner::incarnation("x"), Owner::named(""), Owner::named("ü~:#/\0")] {
        assert_eq!(Owner::from_id(owner.id()), owner);
        assert_eq!(Owner::from_id(owner.id()).id(), owner.id());
        assert_eq!(Owner::from_id(owner.id()).name(), owner.name());
        let thief = Owner::named(owner.id());
        assert_ne!(thief, owner);
        assert_ne!(thief.id(), owner.id());
        assert_eq!(Owner::from_id(thief.id()), thief);
    }
    assert_eq!(Owner::from_id("untagged"), Owner::named("untagged"));
}

#[test]
fn a_token_is_a_number_other_than_zero() {
    assert_eq!(Token::new(0), None);
    let (one, two) = (Token::new(1).unwrap(), Token::new(2).unwrap());
    assert!(one < two);
    assert_eq!((one.get(), two.to_string().as_str()), (1, "2"));
    assert_eq!(Token::new(u64::MAX).unwrap().get(), u64::MAX);
    assert_eq!(size_of::<Option<Token>>(), size_of::<u64>());
    let copy = one;
    assert_eq!(HashSet::from([one, copy, two]).len(), 2);
}

#[test]
fn a_grant_names_its_resource_owner_and_tenure() {
    let (table, _clock) = table();
    let [ann] = owners();
    let grant = take(&table, ("invoice", "1"), &ann, secs(10));
    assert_eq!((grant.resource(), grant.owner()), (&Resource::new("invoice", "1"), &ann));
    assert!(!grant.is_resumed());
    let again = take(&table, ("invoice", "1"), &ann, secs(10));
    assert!(again.is_resumed());
    assert_eq!((again.clone(), &again), (again.clone(), &grant)); // equal except for `is_resumed`
    let fresh = table.try_acquire(("invoice", "1"), &ann, secs(10)).fresh_token().now().unwrap();
    assert_ne!(fresh, grant);
}

#[test]
fn advancing_a_manual_clock_advances_all_its_clones() {
    let clock = ManualClock::new();
    let start = clock.now();
    let clone = clock.clone();
    clone.advance(secs(3));
    clock.advance(TICK);
    assert_eq!((clock.now() - start, clone.now() - start), (secs(3) + TICK, secs(3) + TICK));
}

#[test]
fn the_clock_of_the_system_never_goes_back() {
    let clock = StdClock::new();
    let mut last = clock.now();
    for _ in 0..10_000 {
        let now = clock.now();
        assert!(now >= last);
        last = now;
    }
    std::thread::sleep(Duration::from_millis(20));
    assert!(clock.now() - last >= Duration::from_millis(20));
}

#[test]
fn a_custom_clock_decides_when_leases_expire() {
    struct Frozen;
    impl Clock for Frozen {
        fn now(&self) -> Duration {
            secs(1)
        }
    }
    let table = Leases::in_memory_with(Frozen);
    let [ann] = owners();
    table.try_acquire_now("a", &ann, TICK).unwrap();
    assert_eq!(table.status_now("a").unwrap().unwrap().remaining(), Some(TICK));
}

#[test]
fn leases_can_be_shared_and_created_from_an_engine() {
    fn shared<T: Send + Sync + 'static>(_: &T) {}
    shared(&table().0);
    shared(&Leases::in_memory());
    let default: Leases = Leases::in_memory();
    let [ann] = owners();
    assert!(default.try_acquire_now("a", &ann, secs(10)).is_ok());
    fn same(table: Leases<Memory<StdClock>>) -> Leases {
        table
    }
    assert_eq!(same(default).len(), 1);
}

// ---- types: expiry --------------------------------------------------------------------------------------------------

#[test]
fn a_fixed_lease_ends_on_time_and_is_not_renewable() {
    let (table, clock) = table();
    let [ann] = owners();
    let grant = take(&table, "a", &ann, Expiry::Fixed(secs(10)));
    clock.advance(secs(4));
    assert_eq!(not_renewable(table.renew_now(&grant)), Resource::from("a"));
    let again = take(&table, "a", &ann, Expiry::Fixed(secs(10)));
    assert!(again.is_resumed());
    assert_eq!((left(&table, "a"), table.remaining(&again)), (secs(6), Some(secs(6))));
    clock.advance(secs(6));
    assert_eq!(holder(&table, "a"), None);
}

#[test]
fn a_sliding_lease_restarts_with_each_renewal_and_each_acquire() {
    let (table, clock) = table();
    let [ann] = owners();
    let grant = take(&table, "a", &ann, Expiry::from(secs(10)));
    clock.advance(secs(9));
    let grant = table.renew_now(&grant).unwrap();
    assert_eq!((left(&table, "a"), table.remaining(&grant)), (secs(10), Some(secs(10))));
    clock.advance(secs(9));
    take(&table, "a", &ann, Expiry::Sliding(secs(10)));
    assert_eq!(left(&table, "a"), secs(10));
}

#[test]
fn sliding_up_to_stops_at_its_cap_where_renewals_change_nothing() {
    let (table, clock) = table();
    let [ann] = owners();
    let expiry = Expiry::SlidingUpTo { idle: secs(10), total: secs(25) };
    let mut grant = take(&table, "a", &ann, expiry.clone());
    for (at, end) in [(0, 10), (8, 18), (16, 25), (20, 25), (24, 25)] {
        clock.advance(secs(at) - clock.now());
        grant = table.renew_now(&grant).unwrap();
        assert_eq!((left(&table, "a"), table.remaining(&grant)), (secs(end - at), Some(secs(end - at))), "at {at}");
    }
    assert!(take(&table, "a", &ann, expiry.clone()).is_resumed());
    assert_eq!(left(&table, "a"), secs(1));
    clock.advance(secs(1));
    assert_eq!(lost(table.renew_now(&grant)), Lost::Expired);
    take(&table, "b", &ann, Expiry::SlidingUpTo { idle: secs(10), total: secs(4) });
    assert_eq!(left(&table, "b"), secs(4));
}

#[test]
fn renewing_a_lease_that_never_expires_changes_nothing() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, Expiry::Never);
    assert_eq!(table.tick(), None);
    clock.advance(HOUR * 24 * 365 * 100);
    let grant = table.renew_now(&grant).unwrap();
    assert_eq!((table.remaining(&grant), seen(&table, "a")), (None, Some((ann.clone(), grant.token(), None))));
    assert_eq!(busy(table.try_acquire_now("a", &bob, secs(1))), (ann.clone(), None));
    let again = take(&table, "a", &ann, secs(10));
    assert_eq!((table.remaining(&again), seen(&table, "a")), (None, Some((ann, grant.token(), None)))); // still endless
    table.release_now(&grant).unwrap();
    assert_eq!(table.len(), 0);
}

#[test]
fn a_lease_whose_end_does_not_fit_a_duration_never_ends() {
    for expiry in [
        Expiry::Sliding(Duration::MAX),
        Expiry::Fixed(Duration::MAX),
        Expiry::SlidingUpTo { idle: Duration::MAX, total: Duration::MAX },
        by(|_| Some(Duration::MAX)),
    ] {
        let (table, clock) = table();
        let [ann, bob] = owners();
        clock.advance(secs(1));
        let grant = take(&table, "a", &ann, expiry.clone());
        let mut waiter = waiting(table.acquire("a", &bob, secs(1)));
        assert_eq!((table.remaining(&grant), seen(&table, "a").unwrap().2), (None, None), "{expiry:?}");
        assert_eq!(busy(table.try_acquire_now("a", &bob, secs(1))), (ann.clone(), None));
        clock.advance(HOUR * 24 * 365 * 1000);
        table.tick();
        assert_eq!(holder(&table, "a"), Some(ann), "{expiry:?}");
        pending(&mut waiter);
        table.release_now(&grant).unwrap();
        ready(&mut waiter).unwrap();
    }
}

#[test]
fn a_lease_may_end_at_the_last_moment_of_the_clock() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, Duration::MAX);
    assert_eq!((left(&table, "a"), table.remaining(&grant)), (Duration::MAX, Some(Duration::MAX)));
    let mut waiter = waiting(table.acquire("a", &bob, secs(1)));
    let mut steps = 0;
    while let Some(next) = table.tick() {
        clock.advance(next);
        steps += 1;
        assert!(steps < 1000);
    }
    assert_eq!(clock.now(), Duration::MAX);
    let grant = ready(&mut waiter).unwrap();
    assert_eq!(table.remaining(&grant), None); // one more second does not fit a `Duration`
    table.release_now(&grant).unwrap();
    assert_eq!((table.len(), table.tick()), (0, None));
}

#[test]
fn a_cap_that_does_not_fit_a_duration_is_no_limit() {
    let (table, clock) = table();
    let [ann] = owners();
    clock.advance(secs(1));
    let grant = take(&table, "a", &ann, Expiry::SlidingUpTo { idle: secs(10), total: Duration::MAX });
    assert_eq!(left(&table, "a"), secs(10));
    clock.advance(secs(9));
    table.renew_now(&grant).unwrap();
    assert_eq!(left(&table, "a"), secs(10));
    take(&table, "b", &ann, Expiry::SlidingUpTo { idle: Duration::MAX, total: secs(10) });
    assert_eq!(left(&table, "b"), secs(10));
}

#[test]
fn a_zero_duration_panics_in_every_call_and_changes_nothing() {
    let zeros = || {
        [
            Expiry::Sliding(Duration::ZERO),
            Expiry::Fixed(Duration::ZERO),
            Expiry::SlidingUpTo { idle: Duration::ZERO, total: secs(1) },
            Expiry::SlidingUpTo { idle: secs(1), total: Duration::ZERO },
        ]
    };
    let (table, _clock) = table();
    let [ann, bob] = owners();
    take(&table, "mine", &ann, secs(10));
    take(&table, "another's", &bob, secs(10));
    for resource in ["free", "mine", "another's"] {
        let before = seen(&table, resource);
        let panics = |what: &str, call: &dyn Fn()| {
            assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "{what} of a resource that is {resource}");
            assert_eq!((seen(&table, resource), waiters(&table, resource)), (before.clone(), 0), "{what}");
            assert_eq!(table.len(), 2);
        };
        for zero in zeros() {
            panics("acquire", &|| drop(common::poll(&mut Box::pin(table.acquire(resource, &ann, zero.clone())))));
            panics("acquire_blocking", &|| drop(table.acquire_blocking(resource, &ann, zero.clone())));
            panics("acquire_for", &|| drop(table.acquire_for(resource, &ann, zero.clone(), TICK)));
            panics("try_acquire", &|| drop(ready(table.try_acquire(resource, &ann, zero.clone()))));
            panics("fresh_token", &|| drop(ready(table.try_acquire(resource, &ann, zero.clone()).fresh_token())));
            panics("try_acquire_now", &|| drop(table.try_acquire_now(resource, &ann, zero.clone())));
            panics("try_acquire_blocking", &|| drop(table.try_acquire_blocking(resource, &ann, zero.clone())));
        }
        panics("hold", &|| drop(common::poll(&mut Box::pin(table.hold(resource, &ann, Duration::ZERO)))));
        panics("from", &|| drop(table.try_acquire_now(resource, &ann, Duration::ZERO)));
    }
}

#[test]
fn an_expiry_can_be_cloned_and_debug_printed() {
    for expiry in [Expiry::Fixed(secs(1)), Expiry::Sliding(secs(1)), Expiry::Never, by(|_| None)] {
        assert_eq!(format!("{expiry:?}"), format!("{:?}", expiry.clone()));
    }
    assert!(matches!(Expiry::from(secs(3)), Expiry::Sliding(ttl) if ttl == secs(3)));
}

// ---- custom policies ------------------------------------------------------------------------------------------------

#[test]
fn a_policy_is_asked_at_acquire_with_zero_and_at_each_renewal_with_the_time_held() {
    let (table, clock) = table();
    let [ann] = owners();
    let policy = Scripted::new(Some(secs(10)));
    clock.advance(secs(100));
    let grant = take(&table, "a", &ann, policy.expiry());
    assert_eq!((policy.asked(), left(&table, "a")), (vec![secs(0)], secs(10)));
    clock.advance(secs(3));
    policy.answers(Some(secs(20)));
    let grant = table.renew_now(&grant).unwrap();
    assert_eq!((policy.asked(), left(&table, "a")), (vec![secs(3)], secs(20)));
    assert_eq!(table.remaining(&grant), Some(secs(20)));
    clock.advance(secs(19));
    table.renew_now(&grant).unwrap();
    assert_eq!((policy.asked(), left(&table, "a")), (vec![secs(22)], secs(20)));
    clock.advance(secs(20));
    table.tick();
    table.status_now("a").unwrap();
    assert_eq!(lost(table.renew_now(&grant)), Lost::Expired);
    table.try_acquire_now("a", &ann, secs(1)).unwrap();
    assert_eq!(policy.asked(), []); // these calls do not concern the policy
}

#[test]
fn a_policy_that_refuses_an_acquire_leaves_the_resource_free() {
    for no in [None, Some(Duration::ZERO)] {
        let (table, _clock) = table();
        let [ann, bob] = owners();
        let policy = Scripted::new(no);
        assert_eq!(refused(table.try_acquire_now("a", &ann, policy.expiry())), Resource::from("a"));
        assert_eq!(refused(ready(table.acquire("a", &ann, policy.expiry()))), Resource::from("a"));
        assert_eq!(refused(table.acquire_blocking("a", &ann, policy.expiry())), Resource::from("a"));
        assert!(ready(table.acquire("a", &ann, policy.expiry()).until(never::<()>())).is_err());
        assert_eq!((table.len(), holder(&table, "a")), (0, None));
        take(&table, "a", &bob, secs(1));
    }
}

#[test]
fn a_policy_that_refuses_a_renewal_lets_the_lease_run_to_its_end() {
    for no in [None, Some(Duration::ZERO)] {
        let (table, clock) = table();
        let [ann] = owners();
        let policy = Scripted::new(Some(secs(10)));
        let grant = take(&table, "a", &ann, policy.expiry());
        policy.answers(no);
        clock.advance(secs(4));
        assert_eq!(not_renewable(table.renew_now(&grant)), Resource::from("a"));
        assert_eq!(left(&table, "a"), secs(6));
        policy.answers(Some(secs(10))); // it may agree later
        clock.advance(secs(4));
        table.renew_now(&grant).unwrap();
        assert_eq!(left(&table, "a"), secs(10));
    }
}

#[test]
fn a_policy_cannot_shorten_a_lease() {
    let (table, clock) = table();
    let [ann] = owners();
    let policy = Scripted::new(Some(secs(10)));
    let grant = take(&table, "a", &ann, policy.expiry());
    clock.advance(secs(2));
    policy.answers(Some(secs(1)));
    let grant = table.renew_now(&grant).unwrap();
    assert_eq!((left(&table, "a"), table.remaining(&grant)), (secs(8), Some(secs(8))));
}

#[test]
fn a_waiters_policy_is_asked_at_the_hand_off_and_its_time_starts_there() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let policy = Scripted::new(Some(secs(7)));
    let mut waiter = waiting(table.acquire("a", &bob, policy.expiry()));
    clock.advance(secs(5));
    assert_eq!(policy.asked(), []);
    table.release_now(&grant).unwrap();
    assert_eq!(policy.asked(), [secs(0)]);
    assert_eq!((holder(&table, "a"), left(&table, "a")), (Some(bob), secs(7)));
    clock.advance(secs(3));
    let grant = ready(&mut waiter).unwrap();
    assert_eq!((policy.asked(), left(&table, "a"), table.remaining(&grant)), (vec![], secs(4), Some(secs(4))));
    table.renew_now(&grant).unwrap();
    assert_eq!(policy.asked(), [secs(3)]);
}

#[test]
fn a_waiter_whose_policy_refuses_at_the_hand_off_fails_and_the_next_waiter_is_served() {
    for no in [None, Some(Duration::ZERO)] {
        let (table, _clock) = table();
        let [ann, bob, cid] = owners();
        let grant = take(&table, "a", &ann, secs(10));
        let mut of_bob = waiting(table.acquire("a", &bob, Scripted::new(no).expiry()));
        let mut of_cid = waiting(table.acquire("a", &cid, secs(10)));
        table.release_now(&grant).unwrap();
        assert_eq!(holder(&table, "a"), Some(cid));
        assert_eq!(refused(ready(&mut of_bob)), Resource::from("a"));
        assert_eq!(ready(&mut of_cid).unwrap().token(), seen(&table, "a").unwrap().1);
    }
}

#[test]
fn a_resource_is_free_after_all_waiters_are_refused() {
    let (table, clock) = table();
    let [ann, bob, cid] = owners();
    take(&table, "a", &ann, secs(10));
    let no = Scripted::new(None);
    let mut rest = [&bob, &cid, &bob].map(|owner| waiting(table.acquire("a", owner, no.expiry())));
    clock.advance(secs(10));
    table.tick();
    assert_eq!((holder(&table, "a"), table.len()), (None, 0));
    for waiter in &mut rest {
        refused(ready(waiter));
    }
}

#[test]
fn a_resumed_acquire_whose_policy_refuses_keeps_the_end() {
    for no in [None, Some(Duration::ZERO)] {
        let (table, clock) = table();
        let [ann] = owners();
        let first = take(&table, "a", &ann, secs(10));
        clock.advance(secs(4));
        let policy = Scripted::new(no);
        let again = take(&table, "a", &ann, policy.expiry());
        assert_eq!(policy.asked(), [secs(4)]);
        assert_eq!((again.token(), again.is_resumed(), left(&table, "a")), (first.token(), true, secs(6)));
    }
}

/// Has a policy asked on every occasion: at an acquire, a renewal, a resumed acquire, a hand-off by a release and one
/// by an expiry, and a request for a fresh token. Each time the policy uses the leases.
fn asks_a_policy_that_uses_the_table(uses: impl Fn(&Table, usize) + Send + Sync + 'static) {
    let (table, clock) = table();
    let table = Arc::new(table);
    let [ann, bob] = owners();
    let calls = Arc::new(AtomicUsize::new(0));
    let policy = {
        let (table, calls, depth) = (Arc::downgrade(&table), calls.clone(), AtomicUsize::new(0));
        by(move |_| {
            assert!(depth.fetch_add(1, SeqCst) < 20, "the policy is asked recursively without end");
            uses(&table.upgrade().unwrap(), calls.fetch_add(1, SeqCst));
            depth.fetch_sub(1, SeqCst);
            Some(secs(10))
        })
    };
    let mut before = 0;
    let mut has_been_asked = |when: &str| {
        assert!(calls.load(SeqCst) > before, "{when}");
        before = calls.load(SeqCst);
    };
    let grant = take(&table, "a", &ann, policy.clone());
    has_been_asked("at acquire");
    clock.advance(secs(1));
    table.renew_now(&grant).unwrap();
    has_been_asked("at a renewal");
    assert!(take(&table, "a", &ann, policy.clone()).is_resumed());
    has_been_asked("at a resumed acquire");
    let mut waiter = waiting(table.acquire("a", &bob, policy.clone()));
    table.release_now(&grant).unwrap();
    has_been_asked("at a hand-off");
    assert_eq!(ready(&mut waiter).unwrap().owner(), &bob);
    let mut waiter = waiting(table.acquire("a", &ann, policy.clone()));
    clock.advance(secs(10));
    table.tick();
    has_been_asked("at a hand-off at the end");
    assert_eq!(ready(&mut waiter).unwrap().owner(), &ann);
    ready(table.acquire("a", &ann, policy).fresh_token()).unwrap();
    has_been_asked("for a fresh token");
    assert_eq!((holder(&table, "a"), table.len()), (Some(ann), 1));
}

#[test]
fn a_policy_runs_outside_every_lock_and_may_use_the_table() {
    asks_a_policy_that_uses_the_table(|table, n| {
        let [_, bob] = owners();
        let (other, third) = (format!("other {n}"), Owner::named(format!("third {n}")));
        let grant = take(table, &other, &third, secs(10));
        table.renew_now(&grant).unwrap();
        drop(waiting(table.acquire(&other, &bob, secs(10))));
        table.status_now(&other).unwrap();
        table.release_now(&grant).unwrap();
        table.release_all_now(&third).unwrap();
        table.owned_by_now(&bob).unwrap();
        assert!(table.len() < 10);
    });
}

#[test]
fn a_policy_may_look_up_its_own_resource() {
    asks_a_policy_that_uses_the_table(|table, _| drop(table.status_now("a").unwrap()));
}

#[test]
fn a_policy_may_request_its_own_resource() {
    asks_a_policy_that_uses_the_table(|table, _| {
        let zoe = Owner::named("zoe");
        let _any = table.try_acquire_now("a", &zoe, secs(1));
        let _any = table.release_as_now("a", &zoe);
    });
}

#[test]
fn a_policy_may_call_tick_and_sweep() {
    asks_a_policy_that_uses_the_table(|table, _| {
        table.tick();
        table.release_expired_now().unwrap();
    });
}

#[test]
fn a_policy_that_gives_its_resource_to_another_owner_does_not_make_two_holders() {
    let (table, clock) = table();
    let table = Arc::new(table);
    let [ann, bob] = owners();
    let snatches = {
        let (table, bob) = (Arc::downgrade(&table), bob.clone());
        by(move |_| {
            let _any = table.upgrade().unwrap().try_acquire_now("a", &bob, secs(5));
            Some(secs(10))
        })
    };
    // At an acquire: only one of the two has the lease, and its call succeeds.
    let acquired = table.try_acquire_now("a", &ann, snatches.clone());
    match seen(&table, "a").unwrap() {
        (owner, token, _) if owner == ann => assert_eq!(acquired.unwrap().token(), token),
        (owner, ..) => assert_eq!((owner, busy(acquired).0), (bob.clone(), bob.clone())),
    }
    table.release_all_now(&ann).unwrap();
    table.release_all_now(&bob).unwrap();
    // At a renewal: the policy releases ann's lease and gives the resource to bob.
    let gives = {
        let (table, ann, bob) = (Arc::downgrade(&table), ann.clone(), bob.clone());
        by(move |held_for| {
            if !held_for.is_zero() {
                let table = table.upgrade().unwrap();
                table.release_as_now("a", &ann).unwrap();
                table.try_acquire_now("a", &bob, secs(5)).unwrap();
            }
            Some(secs(10))
        })
    };
    let grant = take(&table, "a", &ann, gives);
    clock.advance(secs(1));
    assert_eq!(lost(table.renew_now(&grant)), Lost::TakenOver);
    assert_eq!((holder(&table, "a"), left(&table, "a")), (Some(bob), secs(5)));
}

#[test]
fn a_waiter_whose_policy_panics_at_the_hand_off_fails_and_the_next_waiter_is_served() {
    type End = fn(&Table, &ManualClock, &Grant);
    let ends: [(&str, End); 3] = [
        ("release", |table, _, grant| table.release_now(grant).unwrap()),
        ("release_all", |table, _, grant| drop(table.release_all_now(grant.owner()))),
        ("tick", |table, clock, _| {
            clock.advance(secs(10));
            table.tick();
        }),
    ];
    for (name, end) in ends {
        let (table, clock) = table();
        let [ann, bob, cid] = owners();
        let grant = take(&table, "a", &ann, secs(10));
        let mut of_bob = waiting(table.acquire("a", &bob, by(|_| panic_quietly())));
        let (bell, waker) = common::Bell::new();
        let mut of_cid = common::waiting_with(table.acquire("a", &cid, Expiry::Never), &waker);
        drop(catch_unwind(AssertUnwindSafe(|| end(&table, &clock, &grant)))); // the panic may reach this call or not
        table.tick(); // another call
        assert_eq!(bell.take(), 1, "{name}: the resource is free, but the next waiter is not woken");
        assert_eq!(ready(&mut of_cid).unwrap().owner(), &cid, "{name}");
        refused(ready(&mut of_bob));
    }
}

/// A policy that uses the leases when it is dropped.
struct Leaves(std::sync::Weak<Table>);

impl keylatch_lease::ExpiryPolicy for Leaves {
    fn remaining(&self, _: Duration) -> Option<Duration> {
        Some(secs(10))
    }
}

impl Drop for Leaves {
    fn drop(&mut self) {
        let Some(table) = self.0.upgrade() else { return };
        let zoe = Owner::named("zoe");
        table.status_now("other").unwrap();
        take(&table, "zoe's", &zoe, secs(1));
        assert_eq!(table.release_all_now(&zoe).unwrap(), 1);
        table.tick();
    }
}

#[test]
fn a_policy_is_dropped_outside_every_lock_and_may_use_the_table() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        type End = fn(&Table, &ManualClock);
        let ends: [(&str, End); 11] = [
            ("release", |table, _| table.release_as_now("a", &owners::<1>()[0]).unwrap()),
            ("release_all", |table, _| assert_eq!(table.release_all_now(&owners::<1>()[0]).unwrap(), 1)),
            ("resumed", |table, _| drop(take(table, "a", &owners::<1>()[0], secs(1)))),
            ("fresh", |table, _| drop(ready(table.acquire("a", &owners::<1>()[0], secs(1)).fresh_token()).unwrap())),
            ("tick", |table, clock| {
                clock.advance(secs(10));
                table.tick();
            }),
            ("sweep", |table, clock| {
                clock.advance(secs(10));
                table.release_expired_now().unwrap();
            }),
            ("status", |table, clock| {
                clock.advance(secs(10));
                table.status_now("a").unwrap();
            }),
            ("acquire", |table, clock| {
                clock.advance(secs(10));
                let _busy_perhaps = table.try_acquire_now("a", &Owner::named("hal"), secs(1));
            }),
            ("in passing", |table, clock| {
                clock.advance(secs(10));
                table.status_now("another").unwrap();
            }),
            ("owned_by", |table, clock| {
                clock.advance(secs(10));
                table.owned_by_now(&owners::<1>()[0]).unwrap();
            }),
            ("len", |table, clock| {
                clock.advance(secs(10));
                assert!(table.len() <= 3);
            }),
        ];
        for waits in [false, true] {
            for (name, end) in ends {
                done.send(Some(format!("{name}, with a waiter: {waits}"))).unwrap();
                let (table, clock) = table();
                let table = Arc::new(table);
                let [ann, bob, cid] = owners();
                take(&table, "other", &cid, Expiry::Never);
                let elsewhere = waits.then(|| waiting(table.acquire("other", &bob, secs(10))));
                drop(take(&table, "a", &ann, Expiry::Custom(Arc::new(Leaves(Arc::downgrade(&table))))));
                let leaves = || Expiry::Custom(Arc::new(Leaves(Arc::downgrade(&table))));
                let waiter = waits.then(|| waiting(table.acquire("a", &bob, leaves())));
                end(&table, &clock);
                drop(waiter);
                drop(elsewhere);
                table.release_all_now(&ann).unwrap();
            }
        }
        done.send(None).unwrap();
    });
    let mut last = String::new();
    loop {
        match is_done.recv_timeout(secs(20)) {
            Ok(Some(name)) => last = name,
            Ok(None) => break,
            Err(error) => panic!("{last}: {error}"),
        }
    }
}

#[test]
fn a_policy_that_panics_leaves_the_leases_consistent() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let bomb = by(|_| panic_quietly());
    let panics = |call: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    panics(&|| drop(table.try_acquire_now("a", &ann, bomb.clone())));
    assert_eq!((table.len(), holder(&table, "a")), (0, None));
    let late = by(|held_for| if held_for.is_zero() { Some(secs(10)) } else { panic_quietly() });
    let grant = take(&table, "a", &ann, late);
    clock.advance(secs(1));
    panics(&|| drop(table.renew_now(&grant)));
    assert_eq!(left(&table, "a"), secs(9));
    table.release_now(&grant).unwrap();
    take(&table, "a", &bob, secs(1));
}

// ---- acquire --------------------------------------------------------------------------------------------------------

#[test]
fn every_form_of_acquire_gets_a_free_resource_at_once() {
    let (table, _clock) = table();
    let table = Arc::new(table);
    let [ann] = owners();
    macro_rules! gets {
        ($($how:expr),+ $(,)?) => {$(
            let grant = $how.unwrap();
            assert_eq!((grant.resource(), grant.owner(), grant.is_resumed()), (&Resource::from("a"), &ann, false));
            assert_eq!(seen(&table, "a"), Some((ann.clone(), grant.token(), Some(secs(10)))), stringify!($how));
            table.release_now(&grant).unwrap();
            assert_eq!(table.len(), 0);
        )+};
    }
    gets!(
        ready(table.acquire("a", &ann, secs(10))),
        ready(table.acquire("a", &ann, secs(10)).fresh_token()),
        ready(table.acquire("a", &ann, secs(10)).until(never::<()>())),
        ready(table.acquire("a", &ann, secs(10)).until(at_once(()))),
        ready(table.acquire("a", &ann, secs(10)).fresh_token().until(never::<()>())),
        table.acquire("a", &ann, secs(10)).wait(),
        table.acquire("a", &ann, secs(10)).wait_for(HOUR),
        table.acquire("a", &ann, secs(10)).wait_for(Duration::ZERO),
        table.acquire("a", &ann, secs(10)).fresh_token().wait(),
        table.acquire("a", &ann, secs(10)).fresh_token().wait_for(HOUR),
        table.acquire_blocking("a", &ann, secs(10)),
        table.acquire_for("a", &ann, secs(10), HOUR),
        table.acquire_for("a", &ann, secs(10), Duration::ZERO),
        ready(table.try_acquire("a", &ann, secs(10))),
        ready(table.try_acquire("a", &ann, secs(10)).fresh_token()),
        table.try_acquire("a", &ann, secs(10)).wait(),
        table.try_acquire("a", &ann, secs(10)).now(),
        table.try_acquire("a", &ann, secs(10)).fresh_token().now(),
        table.try_acquire_now("a", &ann, secs(10)),
        table.try_acquire_blocking("a", &ann, secs(10)),
        futures_lite::future::block_on(table.acquire("a", &ann, secs(10))),
        futures_lite::future::block_on(table.try_acquire("a", &ann, secs(10))),
        futures_lite::future::block_on(table.hold("a", &ann, secs(10))).map(|held| held.into_grant()),
        table.hold("a", &ann, secs(10)).wait().map(|held| held.into_grant()),
        table.hold_blocking("a", &ann, secs(10)).map(|held| held.into_grant()),
        table.hold_arc("a", &ann, secs(10)).wait().map(|held| held.into_grant()),
    );
}

#[test]
fn a_limit_that_is_ready_first_ends_the_wait_and_leaves_nothing() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    take(&table, ("e", "k"), &ann, secs(10));
    let limit = |acquired: Acquired| match acquired {
        Err(AcquireError::Limit { resource, .. }) => assert_eq!(resource, Resource::new("e", "k")),
        other => panic!("{other:?}"),
    };
    limit(ready(table.acquire(("e", "k"), &bob, secs(10)).until(at_once("its output is dropped"))));
    limit(ready(table.acquire(("e", "k"), &bob, secs(10)).fresh_token().until(at_once(()))));
    limit(table.acquire(("e", "k"), &bob, secs(10)).wait_for(Duration::from_millis(1)));
    limit(table.acquire_for(("e", "k"), &bob, secs(10), Duration::from_millis(1)));
    limit(table.acquire_for(("e", "k"), &bob, secs(10), Duration::ZERO));
    let mut stop = false;
    let until =
        std::future::poll_fn(|_| if std::mem::replace(&mut stop, true) { 1.into() } else { std::task::Poll::Pending });
    let mut waiter = waiting(table.acquire(("e", "k"), &bob, secs(10)).until(until));
    assert_eq!(waiters(&table, ("e", "k")), 1);
    limit(ready(&mut waiter));
    assert_eq!(waiters(&table, ("e", "k")), 0);
    match ready(table.hold(("e", "k"), &bob, secs(10)).until(at_once(()))) {
        Err(AcquireError::Limit { resource, .. }) => assert_eq!(resource, Resource::new("e", "k")),
        other => panic!("{:?}", other.map(|held| held.token())),
    }
    assert_eq!(waiters(&table, ("e", "k")), 0);
}

#[test]
fn a_served_waiter_gets_the_lease_even_if_the_limit_is_ready_too() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let stop = std::cell::Cell::new(false);
    let until =
        std::future::poll_fn(|_| if stop.get() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending });
    let mut waiter = waiting(table.acquire("a", &bob, secs(10)).until(until));
    table.release_now(&grant).unwrap();
    stop.set(true);
    assert_eq!(ready(&mut waiter).unwrap().owner(), &bob);
    drop(waiter);
    assert_eq!(holder(&table, "a"), Some(bob));
}

#[test]
fn fresh_token_ends_the_owners_earlier_tenure() {
    let (table, clock) = table();
    let [ann] = owners();
    let acquires: [fn(&Table, &Owner) -> Acquired; 4] = [
        |table, ann| ready(table.acquire("a", ann, secs(5)).fresh_token()),
        |table, ann| ready(table.try_acquire("a", ann, secs(5)).fresh_token()),
        |table, ann| table.try_acquire("a", ann, secs(5)).fresh_token().now(),
        |table, ann| table.acquire("a", ann, secs(5)).fresh_token().wait(),
    ];
    for acquire in acquires {
        let old = take(&table, "a", &ann, secs(10));
        clock.advance(secs(1));
        let new = acquire(&table, &ann).unwrap();
        assert!(new.token() > old.token());
        assert!(!new.is_resumed());
        assert_eq!(seen(&table, "a"), Some((ann.clone(), new.token(), Some(secs(5))))); // with the new policy's end
        assert_eq!(table.len(), 1);
        assert_eq!(lost(table.renew_now(&old)), Lost::TakenOver);
        assert_eq!(not_owner(table.release_now(&old)), ann);
        table.release_now(&new).unwrap();
    }
}

#[test]
fn fresh_token_restarts_the_policy() {
    let (table, clock) = table();
    let [ann] = owners();
    let policy = Scripted::new(Some(secs(10)));
    take(&table, "a", &ann, policy.expiry());
    clock.advance(secs(3));
    ready(table.acquire("a", &ann, policy.expiry()).fresh_token()).unwrap();
    assert_eq!(policy.asked(), [secs(0), secs(0)]);
    let fixed = take(&table, "b", &ann, Expiry::Fixed(secs(10)));
    clock.advance(secs(3));
    let fresh = ready(table.try_acquire("b", &ann, Expiry::Fixed(secs(10))).fresh_token()).unwrap();
    assert_eq!((left(&table, "b"), fresh.token() > fixed.token()), (secs(10), true));
}

#[test]
fn fresh_token_does_not_admit_a_waiter() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    take(&table, "a", &ann, secs(10));
    let mut waiter = waiting(table.acquire("a", &bob, secs(10)));
    let fresh = ready(table.acquire("a", &ann, secs(10)).fresh_token()).unwrap();
    pending(&mut waiter);
    assert_eq!((holder(&table, "a"), waiters(&table, "a")), (Some(ann), 1));
    table.release_now(&fresh).unwrap();
    ready(&mut waiter).unwrap();
}

#[test]
fn a_refused_fresh_token_keeps_the_old_tenure() {
    for no in [None, Some(Duration::ZERO)] {
        let (table, clock) = table();
        let [ann] = owners();
        let old = take(&table, "a", &ann, secs(10));
        clock.advance(secs(1));
        let before = seen(&table, "a");
        let policy = Scripted::new(no);
        refused(ready(table.acquire("a", &ann, policy.expiry()).fresh_token()));
        refused(table.try_acquire("a", &ann, policy.expiry()).fresh_token().now());
        assert_eq!(policy.asked(), [secs(0), secs(0)]);
        assert_eq!(seen(&table, "a"), before);
        table.renew_now(&old).unwrap();
        assert_eq!(left(&table, "a"), secs(10));
    }
}

#[test]
fn a_resumed_acquire_replaces_the_policy_and_keeps_the_later_end() {
    // The lease of ten seconds is acquired again after four. Each row has the policy, the end, and the end after a
    // renewal at eight seconds.
    let cases = [
        (Expiry::Sliding(secs(10)), 14, Some(18)),
        (Expiry::Sliding(secs(3)), 10, Some(11)),
        (Expiry::Fixed(secs(10)), 10, None),
        (Expiry::Fixed(secs(12)), 12, None),
        (Expiry::Fixed(secs(5)), 10, None),
        (Expiry::SlidingUpTo { idle: secs(10), total: secs(12) }, 12, Some(12)),
        (Expiry::SlidingUpTo { idle: secs(8), total: secs(15) }, 12, Some(15)),
        (by(|held_for| Some(held_for * 2)), 12, Some(24)),
    ];
    for old in [Expiry::Sliding(secs(10)), Expiry::Fixed(secs(10)), by(|_| Some(secs(10)))] {
        for (new, end, renewed_end) in cases.clone() {
            let why = format!("{old:?}, {new:?}");
            let (table, clock) = table();
            let [ann] = owners();
            take(&table, "a", &ann, old.clone());
            clock.advance(secs(4));
            let grant = take(&table, "a", &ann, new);
            assert!(grant.is_resumed());
            assert_eq!((left(&table, "a"), table.remaining(&grant)), (secs(end - 4), Some(secs(end - 4))), "{why}");
            clock.advance(secs(4));
            match renewed_end {
                Some(end) => {
                    table.renew_now(&grant).unwrap();
                    assert_eq!(left(&table, "a"), secs(end - 8), "{why}");
                }
                None => {
                    not_renewable(table.renew_now(&grant));
                    assert_eq!(left(&table, "a"), secs(end - 8), "{why}");
                }
            }
        }
        let (table, _clock) = table();
        let [ann] = owners();
        take(&table, "a", &ann, old);
        take(&table, "a", &ann, Expiry::Never);
        assert_eq!(seen(&table, "a").unwrap().2, None);
    }
}

// ---- renew ----------------------------------------------------------------------------------------------------------

#[test]
fn every_form_of_renew_returns_a_grant_of_the_same_tenure_with_the_later_end() {
    let (table, clock) = table();
    let [ann] = owners();
    let mut grant = take(&table, "a", &ann, secs(10));
    let renews: [Renew; 5] = [
        |table, grant| ready(table.renew(grant)),
        |table, grant| table.renew(grant).wait(),
        |table, grant| table.renew(grant).now(),
        |table, grant| table.renew_now(grant),
        |table, grant| table.renew_blocking(grant),
    ];
    for renew in renews {
        clock.advance(secs(6));
        let renewed = renew(&table, &grant).unwrap();
        assert_eq!((renewed.token(), renewed.owner(), renewed.resource()), (grant.token(), &ann, grant.resource()));
        assert_eq!((table.remaining(&grant), table.remaining(&renewed)), (Some(secs(4)), Some(secs(10))));
        assert_eq!(left(&table, "a"), secs(10));
        grant = renewed;
    }
}

#[test]
fn renewing_a_stale_grant_reports_expired_then_taken_over_then_released() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    clock.advance(secs(1));
    table.release_as_now("a", &ann).unwrap();
    assert_eq!(lost(table.renew_now(&grant)), Lost::Released);
    let of_bob = take(&table, "a", &bob, secs(3));
    assert_eq!(lost(table.renew_now(&grant)), Lost::TakenOver);
    clock.advance(secs(3)); // bob's end
    assert_eq!(lost(table.renew_now(&grant)), Lost::Released);
    take(&table, "a", &ann, secs(100));
    assert_eq!(lost(table.renew_now(&grant)), Lost::TakenOver);
    clock.advance(secs(6)); // the end in `grant`
    assert_eq!(lost(table.renew_now(&grant)), Lost::Expired);
    assert_eq!(lost(table.renew_now(&of_bob)), Lost::Expired);
    let never = take(&table, "b", &ann, Expiry::Never);
    table.release_now(&never).unwrap();
    clock.advance(HOUR);
    assert_eq!(lost(table.renew_now(&never)), Lost::Released);
}

// ---- release --------------------------------------------------------------------------------------------------------

#[test]
fn every_form_of_release_frees_the_resource() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let releases: [Release; 10] = [
        |table, grant| ready(table.release(grant)),
        |table, grant| table.release(grant).wait(),
        |table, grant| table.release(grant).now(),
        |table, grant| table.release_now(grant),
        |table, grant| table.release_blocking(grant),
        |table, grant| ready(table.release_as(grant.resource(), grant.owner())),
        |table, grant| table.release_as(grant.resource(), grant.owner()).wait(),
        |table, grant| table.release_as(grant.resource(), grant.owner()).now(),
        |table, grant| table.release_as_now(grant.resource(), grant.owner()),
        |table, grant| table.release_as_blocking(grant.resource(), grant.owner()),
    ];
    for release in releases {
        let grant = take(&table, ("e", "k"), &ann, secs(10));
        assert!(release(&table, &grant).is_ok());
        assert_eq!(table.len(), 0);
        assert_eq!(not_held(release(&table, &grant)), Resource::new("e", "k"));
        take(&table, ("e", "k"), &bob, secs(10));
        match release(&table, &grant) {
            Err(ReleaseError::NotOwner { resource, owner, .. }) => {
                assert_eq!((resource, owner), (Resource::new("e", "k"), bob.clone()));
            }
            other => panic!("{other:?}"),
        }
        table.release_all_now(&bob).unwrap();
    }
}

#[test]
fn an_expired_lease_is_not_held() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    clock.advance(secs(10));
    assert_eq!(not_held(table.release_now(&grant)), Resource::from("a"));
    take(&table, "a", &ann, secs(10));
    clock.advance(secs(10));
    assert_eq!(not_held(table.release_as_now("a", &ann)), Resource::from("a"));
    let grant = take(&table, "a", &ann, secs(10));
    let mut waiter = waiting(table.acquire("a", &bob, secs(10)));
    clock.advance(secs(10));
    assert_eq!(not_owner(table.release_now(&grant)), bob); // bob was served before the release looked
    ready(&mut waiter).unwrap();
}

#[test]
fn release_as_releases_any_tenure_of_the_owner() {
    let (table, _clock) = table();
    let [ann] = owners();
    let old = take(&table, "a", &ann, secs(10));
    let new = table.try_acquire("a", &ann, secs(10)).fresh_token().now().unwrap();
    table.release_as_now("a", &ann).unwrap();
    not_held(table.release_now(&old));
    not_held(table.release_now(&new));
}

#[test]
fn every_form_of_release_all_releases() {
    let (table, _clock) = table();
    let [ann] = owners();
    let releases: [ReleaseAll; 5] = [
        |table, owner| ready(table.release_all(owner)),
        |table, owner| table.release_all(owner).wait(),
        |table, owner| table.release_all(owner).now(),
        |table, owner| table.release_all_now(owner),
        |table, owner| table.release_all_blocking(owner),
    ];
    for release in releases {
        for n in 0..3 {
            take(&table, n.to_string(), &ann, secs(10));
        }
        assert_eq!(release(&table, &ann).unwrap(), 3);
        assert_eq!((release(&table, &ann).unwrap(), table.len()), (0, 0));
    }
}

#[test]
fn release_expired_removes_expired_leases_and_returns_their_number() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let sweeps: [Sweep; 5] = [
        |table| ready(table.release_expired()),
        |table| table.release_expired().wait(),
        |table| table.release_expired().now(),
        |table| table.release_expired_now(),
        |table| table.release_expired_blocking(),
    ];
    for sweep in sweeps {
        for n in 0..100 {
            take(&table, n.to_string(), &ann, secs(1 + n % 2));
        }
        assert_eq!(sweep(&table).unwrap(), 0);
        let mut waiter = waiting(table.acquire("0", &bob, Expiry::Never));
        clock.advance(secs(1));
        assert_eq!(sweep(&table).unwrap(), 50);
        assert_eq!((sweep(&table).unwrap(), table.len()), (0, 51));
        assert_eq!(ready(&mut waiter).unwrap().owner(), &bob);
        clock.advance(secs(1));
        assert_eq!(sweep(&table).unwrap(), 50);
        assert_eq!((sweep(&table).unwrap(), table.len()), (0, 1));
        table.release_all_now(&bob).unwrap();
    }
}

// ---- looking --------------------------------------------------------------------------------------------------------

#[test]
fn status_reports_owner_token_time_left_and_waiters() {
    let (table, clock) = table();
    let [ann, bob, cid] = owners();
    assert!(table.status_now("a").unwrap().is_none());
    let grant = take(&table, "a", &ann, secs(10));
    clock.advance(secs(3));
    let rest = [&bob, &cid, &bob].map(|owner| waiting(table.acquire("a", owner, secs(10))));
    let held = waiting(table.hold("a", &cid, secs(10)));
    for status in [
        ready(table.status("a")).unwrap().unwrap(),
        table.status("a").wait().unwrap().unwrap(),
        table.status("a").now().unwrap().unwrap(),
        table.status_now("a").unwrap().unwrap(),
        table.status_blocking("a").unwrap().unwrap(),
    ] {
        assert_eq!((status.owner(), status.token()), (&ann, grant.token()));
        assert_eq!((status.remaining(), status.waiters()), (Some(secs(7)), 4));
    }
    drop(rest);
    drop(held);
    assert_eq!(waiters(&table, "a"), 0);
    clock.advance(secs(7));
    assert!(table.status_now("a").unwrap().is_none());
}

#[test]
fn owned_by_returns_grants_that_renew_and_release() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let a = take(&table, "a", &ann, secs(10));
    take(&table, "b", &bob, secs(10));
    let c = take(&table, "c", &ann, Expiry::Never);
    take(&table, "d", &ann, secs(1));
    clock.advance(secs(4));
    for grants in [
        ready(table.owned_by(&ann)).unwrap(),
        table.owned_by(&ann).wait().unwrap(),
        table.owned_by(&ann).now().unwrap(),
        table.owned_by_now(&ann).unwrap(),
        table.owned_by_blocking(&ann).unwrap(),
    ] {
        let of = |key| grants.iter().find(|grant| grant.resource().key() == key).unwrap();
        assert_eq!((of("a"), of("c"), grants.len()), (&a, &c, 2));
        assert_eq!((table.remaining(of("a")), table.remaining(of("c"))), (Some(secs(6)), None));
    }
    let grants = table.owned_by_now(&ann).unwrap();
    for grant in &grants {
        let renewed = table.renew_now(grant).unwrap();
        assert_eq!(renewed.token(), grant.token());
        table.release_now(&renewed).unwrap();
    }
    assert_eq!(table.owned_by_now(&ann).unwrap(), []);
    assert_eq!(owned(&table, &bob), ["b"]);
}

#[test]
fn owned_by_returns_grants_with_the_latest_policy() {
    let (table, clock) = table();
    let [ann] = owners();
    let only = || table.owned_by_now(&ann).unwrap().pop().unwrap();
    take(&table, "a", &ann, Expiry::Fixed(secs(10)));
    not_renewable(table.renew_now(&only()));
    take(&table, "a", &ann, secs(10));
    clock.advance(secs(4));
    table.renew_now(&only()).unwrap();
    assert_eq!(left(&table, "a"), secs(10));
    let policy = Scripted::new(Some(secs(20)));
    take(&table, "a", &ann, policy.expiry());
    clock.advance(secs(4));
    table.renew_now(&only()).unwrap();
    assert_eq!((policy.asked(), left(&table, "a")), (vec![secs(4), secs(8)], secs(20)));
    take(&table, "a", &ann, Expiry::Fixed(secs(10)));
    not_renewable(table.renew_now(&only()));
    ready(table.acquire("a", &ann, secs(30)).fresh_token()).unwrap();
    table.renew_now(&only()).unwrap();
    assert_eq!(left(&table, "a"), secs(30));
}

#[test]
fn expired_leases_are_not_counted_whichever_call_comes_first() {
    let (table, clock) = table();
    let [ann] = owners();
    let looks: [fn(&Table, &Owner) -> usize; 3] = [
        |table, _| table.len(),
        |table, ann| table.owned_by_now(ann).unwrap().len(),
        |table, ann| table.release_all_now(ann).unwrap(),
    ];
    for look in looks {
        take(&table, "a", &ann, secs(1));
        take(&table, "b", &ann, secs(2));
        assert_eq!(table.len(), 2);
        clock.advance(secs(1));
        assert_eq!(look(&table, &ann), 1);
        clock.advance(secs(1));
        assert_eq!(look(&table, &ann), 0);
    }
}

#[test]
fn remaining_depends_on_the_grant_alone() {
    let (table, clock) = table();
    let [ann] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    table.release_now(&grant).unwrap();
    clock.advance(secs(4));
    assert_eq!(table.remaining(&grant), Some(secs(6)));
    clock.advance(secs(6));
    assert_eq!(table.remaining(&grant), Some(Duration::ZERO));
    clock.advance(secs(6));
    assert_eq!(table.remaining(&grant), Some(Duration::ZERO));
    assert_eq!(table.remaining(&take(&table, "a", &ann, Expiry::Never)), None);
}

// ---- tick -----------------------------------------------------------------------------------------------------------

#[test]
fn tick_returns_none_if_nothing_will_be_due() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    assert_eq!(table.tick(), None);
    let grant = take(&table, "a", &ann, Expiry::Never);
    let waiter = waiting(table.acquire("a", &bob, secs(10)));
    assert_eq!(table.tick(), None);
    drop(waiter);
    table.release_now(&grant).unwrap();
    assert_eq!(table.tick(), None);
}

#[test]
fn tick_returns_the_time_to_the_next_call_and_never_too_late() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    for n in 0..100_u64 {
        take(&table, n.to_string(), &ann, Duration::from_millis(1 + n * n * 37));
    }
    let mut rest: Vec<_> = (0..100).map(|n| waiting(table.acquire(n.to_string(), &bob, Expiry::Never))).collect();
    let start = clock.now();
    while let Some(next) = table.tick() {
        assert!(!next.is_zero());
        let due = (0..100_u64).map(|n| Duration::from_millis(1 + n * n * 37)).find(|&end| start + end > clock.now());
        assert!(clock.now() + next <= start + due.expect("a lease is still to end"));
        clock.advance(next);
    }
    assert_eq!(clock.now(), start + Duration::from_millis(1 + 99 * 99 * 37));
    for waiter in &mut rest {
        ready(waiter).unwrap();
    }
    assert_eq!(owned(&table, &bob).len(), 100);
}

#[test]
fn tick_may_be_called_early_late_or_twice() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    take(&table, "a", &ann, secs(10));
    let mut waiter = waiting(table.acquire("a", &bob, secs(10)));
    for _ in 0..100 {
        table.tick();
        clock.advance(Duration::from_millis(99));
        table.tick();
    }
    pending(&mut waiter);
    clock.advance(HOUR);
    table.tick();
    table.tick();
    ready(&mut waiter).unwrap();
    assert_eq!(left(&table, "a"), secs(10)); // counted from the hand-off
}

// ---- errors ---------------------------------------------------------------------------------------------------------

#[test]
fn every_call_rejects_an_invalid_argument() {
    let (table, _clock) = table();
    let ann = Owner::named("ann");
    take(&table, "a", &ann, secs(10));
    let long = "x".repeat(1025);
    let half = "x".repeat(700);
    macro_rules! invalid {
        ($argument:literal, $error:ident: $($how:expr),+ $(,)?) => {$(
            match $how {
                Err($error::Invalid { argument, .. }) => assert_eq!(argument, $argument, stringify!($how)),
                Err(other) => panic!("{}: {other:?}", stringify!($how)),
                Ok(_) => panic!("{}: Ok", stringify!($how)),
            }
        )+};
    }
    for owner in [Owner::named(""), Owner::named(&*long)] {
        for resource in ["a", "free"] {
            invalid!("owner", AcquireError:
                ready(table.acquire(resource, &owner, secs(1))),
                ready(table.acquire(resource, &owner, secs(1)).fresh_token()),
                ready(table.acquire(resource, &owner, secs(1)).until(never::<()>())),
                table.acquire(resource, &owner, secs(1)).wait_for(secs(1)),
                table.acquire_blocking(resource, &owner, secs(1)),
                table.acquire_for(resource, &owner, secs(1), secs(1)),
                ready(table.try_acquire(resource, &owner, secs(1))),
                table.try_acquire(resource, &owner, secs(1)).fresh_token().now(),
                table.try_acquire_now(resource, &owner, secs(1)),
                table.try_acquire_blocking(resource, &owner, secs(1)),
                ready(table.hold(resource, &owner, secs(1))),
                table.hold_blocking(resource, &owner, secs(1)),
            );
            invalid!("owner", ReleaseError:
                ready(table.release_as(resource, &owner)),
                table.release_as_now(resource, &owner),
                table.release_as_blocking(resource, &owner),
            );
        }
        invalid!("owner", LookError:
            ready(table.release_all(&owner)),
            table.release_all_now(&owner),
            ready(table.owned_by(&owner)),
            table.owned_by_now(&owner),
        );
    }
    for resource in [("", &*long), (&*long, ""), (&*long, &*long), (&*half, &*half)] {
        invalid!("resource", AcquireError:
            ready(table.acquire(resource, &ann, secs(1))),
            table.acquire_blocking(resource, &ann, secs(1)),
            table.acquire_for(resource, &ann, secs(1), secs(1)),
            table.try_acquire_now(resource, &ann, secs(1)),
            ready(table.hold(resource, &ann, secs(1))),
        );
        invalid!("resource", ReleaseError: ready(table.release_as(resource, &ann)), table.release_as_now(resource, &ann));
        invalid!("resource", LookError: ready(table.status(resource)), table.status_now(resource));
    }
    assert_eq!((table.len(), waiters(&table, "a")), (1, 0));
}

#[test]
fn names_of_the_greatest_length_and_any_characters_are_valid() {
    let (table, _clock) = table();
    let full = "x".repeat(1024);
    let owner = Owner::named("x".repeat(1000));
    for resource in [("", &*full), (&*full, ""), ("", ""), ("\0", "\0"), ("ä€😀", " \n")] {
        let grant = take(&table, resource, &owner, secs(1));
        assert_eq!((grant.resource().entity(), grant.resource().key()), resource);
        assert_eq!(holder(&table, resource).as_ref(), Some(&owner));
        table.release_now(&grant).unwrap();
    }
}

#[test]
fn errors_name_the_resource_and_the_owner() {
    fn error(error: impl Error + Send + Sync + 'static, says: &[&str]) {
        let text = error.to_string();
        assert!(!text.is_empty());
        for says in says {
            assert!(text.contains(says), "{text:?} does not say {says:?}");
        }
        assert!(error.source().is_none());
    }
    let (table, clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, ("invoice", "4711"), &ann, Expiry::Fixed(secs(10)));
    match table.try_acquire_now(("invoice", "4711"), &bob, secs(1)) {
        Err(AcquireError::Busy { ref resource, ref owner, remaining, .. }) => {
            assert_eq!((resource, owner, remaining), (grant.resource(), &ann, Some(secs(10))));
        }
        other => panic!("{other:?}"),
    }
    error(table.try_acquire_now(("invoice", "4711"), &bob, secs(1)).unwrap_err(), &["invoice", "4711", "ann"]);
    error(table.acquire_for(("invoice", "4711"), &bob, secs(1), TICK).unwrap_err(), &["invoice", "4711"]);
    error(table.try_acquire_now(("invoice", "4712"), &bob, by(|_| None)).unwrap_err(), &["invoice", "4712"]);
    error(table.try_acquire_now("a", &Owner::named(""), secs(1)).unwrap_err(), &["owner"]);
    error(table.renew_now(&grant).unwrap_err(), &["invoice", "4711"]);
    error(table.release_as_now(("invoice", "4711"), &bob).unwrap_err(), &["invoice", "4711", "ann"]);
    error(table.release_as_now(("invoice", "4712"), &bob).unwrap_err(), &["invoice", "4712"]);
    error(table.release_all_now(&Owner::named("")).unwrap_err(), &["owner"]);
    clock.advance(secs(10));
    assert!(matches!(table.renew_now(&grant), Err(RenewError::Lost(Lost::Expired))));
    let expired = table.renew_now(&grant).unwrap_err();
    assert!(!expired.to_string().is_empty());
    let all = [Lost::Expired, Lost::TakenOver, Lost::Released, Lost::EngineForgot, Lost::TooShort];
    assert_eq!(all.iter().map(|lost| lost.to_string()).collect::<HashSet<_>>().len(), all.len());
}

// ---- hand-off -------------------------------------------------------------------------------------------------------

#[test]
fn a_served_waiter_has_the_lease_before_it_is_polled() {
    let (table, clock) = table();
    let [ann, bob, cid] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let mut waiter = waiting(table.acquire("a", &bob, Expiry::Fixed(secs(5))));
    clock.advance(secs(2));
    table.release_now(&grant).unwrap();
    let (owner, token, remaining) = seen(&table, "a").unwrap();
    assert_eq!((owner, remaining), (bob.clone(), Some(secs(5))));
    assert_eq!(busy(table.try_acquire_now("a", &cid, secs(1))), (bob.clone(), Some(secs(5))));
    assert_eq!(table.owned_by_now(&bob).unwrap()[0].token(), token);
    assert_eq!((table.len(), waiters(&table, "a")), (1, 0));
    clock.advance(secs(4));
    let grant = ready(&mut waiter).unwrap();
    assert_eq!((grant.token(), table.remaining(&grant), grant.is_resumed()), (token, Some(secs(1)), false));
}

#[test]
fn a_served_future_that_is_dropped_passes_the_lease_on() {
    let (table, _clock) = table();
    let [ann, bob, cid] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let of_bob = waiting(table.acquire("a", &bob, secs(10)));
    let mut of_cid = waiting(table.acquire("a", &cid, secs(10)));
    table.release_now(&grant).unwrap();
    let of_bob_token = seen(&table, "a").unwrap().1;
    drop(of_bob);
    assert_eq!(holder(&table, "a"), Some(cid));
    assert!(ready(&mut of_cid).unwrap().token() > of_bob_token);
}

#[test]
fn two_waiting_requests_of_one_owner_enter_together() {
    let (table, _clock) = table();
    let [ann, bob, cid] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let mut first = waiting(table.acquire("a", &bob, secs(10)));
    let mut of_cid = waiting(table.acquire("a", &cid, secs(10)));
    let mut second = waiting(table.acquire("a", &bob, secs(20)));
    table.release_now(&grant).unwrap();
    let first = ready(&mut first).unwrap();
    let second = ready(&mut second).unwrap();
    assert_eq!((first.token(), first.is_resumed()), (second.token(), false));
    assert!(second.is_resumed());
    assert_eq!(left(&table, "a"), secs(20)); // the later of both ends
    pending(&mut of_cid);
    table.release_now(&first).unwrap();
    not_owner_or_held(table.release_now(&second));
    ready(&mut of_cid).unwrap();
}

fn not_owner_or_held(released: Result<(), ReleaseError<Infallible>>) {
    assert!(matches!(released, Err(ReleaseError::NotOwner { .. } | ReleaseError::NotHeld { .. })));
}

#[test]
fn two_waiting_holds_of_one_owner_enter_one_after_the_other() {
    let (table, _clock) = table();
    let [ann, bob, cid] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let mut first = waiting(table.hold("a", &bob, secs(10)));
    let mut of_cid = waiting(table.acquire("a", &cid, secs(10)));
    let mut second = waiting(table.hold("a", &bob, secs(10)));
    table.release_now(&grant).unwrap();
    let held = ready(&mut first).unwrap();
    pending(&mut second);
    pending(&mut of_cid);
    assert_eq!(held.check(), Ok(held.token()));
    let first_token = held.token();
    drop(held);
    pending(&mut second);
    let grant = ready(&mut of_cid).unwrap();
    table.release_now(&grant).unwrap();
    let held = ready(&mut second).unwrap();
    assert!(held.token() > grant.token() && grant.token() > first_token);
}

#[test]
fn a_request_behind_a_hold_of_its_owner_enters_with_it() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let mut fresh = waiting(table.acquire("a", &bob, secs(10)).fresh_token());
    let mut plain = waiting(table.acquire("a", &bob, secs(10)));
    table.release_now(&grant).unwrap();
    let fresh = ready(&mut fresh).unwrap();
    let plain = ready(&mut plain).unwrap();
    assert_eq!((fresh.token(), fresh.is_resumed(), plain.is_resumed()), (plain.token(), false, true));
}

#[test]
fn a_served_lease_is_passed_on_if_no_call_of_its_owner_has_seen_it() {
    #[derive(Clone, Copy, Debug)]
    enum Other {
        Nobody,
        Fetched,
        Dropped,
        AskedAgain,
    }
    for other in [Other::Nobody, Other::Fetched, Other::Dropped, Other::AskedAgain] {
        let (table, _clock) = table();
        let [ann, bob, cid] = owners();
        let grant = take(&table, "a", &ann, secs(10));
        let first = waiting(table.acquire("a", &bob, secs(10)));
        let mut second = (!matches!(other, Other::Nobody)).then(|| waiting(table.acquire("a", &bob, secs(10))));
        let mut of_cid = waiting(table.acquire("a", &cid, secs(10)));
        table.release_now(&grant).unwrap();
        let token = seen(&table, "a").unwrap().1;
        match other {
            Other::Fetched => assert_eq!(ready(second.as_mut().unwrap()).unwrap().token(), token),
            Other::Dropped => {
                drop(second.take());
                assert_eq!(seen(&table, "a").map(|(_, token, _)| token), Some(token)); // the first is not polled yet
            }
            Other::AskedAgain => assert_eq!(take(&table, "a", &bob, secs(10)).token(), token),
            Other::Nobody => {}
        }
        drop(first);
        drop(second);
        match other {
            Other::Fetched | Other::AskedAgain => {
                assert_eq!(seen(&table, "a").map(|(owner, token, _)| (owner, token)), Some((bob, token)), "{other:?}");
                pending(&mut of_cid);
            }
            Other::Nobody | Other::Dropped => {
                assert_eq!(ready(&mut of_cid).unwrap().owner(), &cid, "{other:?}");
            }
        }
    }
}

#[test]
fn a_served_request_polled_after_its_end_asks_again_at_the_front() {
    let (table, clock) = table();
    let [ann, bob, cid, dan] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let mut of_bob = waiting(table.acquire("a", &bob, secs(5)));
    let mut of_cid = waiting(table.acquire("a", &cid, Expiry::Never));
    let mut of_dan = waiting(table.acquire("a", &dan, secs(5)));
    table.release_now(&grant).unwrap();
    clock.advance(secs(5));
    table.tick(); // bob was not polled, so cid has the lease
    assert_eq!(holder(&table, "a"), Some(cid));
    pending(&mut of_bob);
    assert_eq!(waiters(&table, "a"), 2);
    table.release_now(&ready(&mut of_cid).unwrap()).unwrap();
    let grant = ready(&mut of_bob).unwrap();
    assert_eq!(seen(&table, "a"), Some((bob, grant.token(), Some(secs(5)))));
    pending(&mut of_dan);
    table.release_now(&grant).unwrap();
    ready(&mut of_dan).unwrap();
}

#[test]
fn a_served_request_polled_after_its_end_acquires_a_free_resource_again() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let mut waiter = waiting(table.acquire("a", &bob, secs(5)));
    table.release_now(&grant).unwrap();
    let first = seen(&table, "a").unwrap().1;
    clock.advance(secs(6));
    let grant = ready(&mut waiter).unwrap();
    assert!(grant.token() > first);
    assert!(!grant.is_resumed());
    assert_eq!(seen(&table, "a"), Some((bob, grant.token(), Some(secs(5)))));
}

#[test]
fn a_served_request_does_not_return_a_tenure_released_by_name() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let mut waiter = waiting(table.acquire("a", &bob, secs(5)));
    table.release_now(&grant).unwrap();
    table.release_as_now("a", &bob).unwrap();
    assert_eq!(holder(&table, "a"), None);
    let grant = ready(&mut waiter).unwrap();
    assert_eq!(seen(&table, "a"), Some((bob, grant.token(), Some(secs(5)))));
}

#[test]
fn a_waiter_is_served_with_its_own_policy() {
    let (table, clock) = table();
    let [ann, bob, cid] = owners();
    take(&table, "a", &ann, secs(10));
    let mut of_bob = waiting(table.acquire("a", &bob, Expiry::SlidingUpTo { idle: secs(3), total: secs(4) }));
    let mut of_cid = waiting(table.acquire("a", &cid, Expiry::Never));
    clock.advance(secs(10));
    table.tick();
    let grant = ready(&mut of_bob).unwrap();
    clock.advance(secs(2));
    table.renew_now(&grant).unwrap();
    assert_eq!(left(&table, "a"), secs(2));
    clock.advance(secs(2));
    table.tick();
    let grant = ready(&mut of_cid).unwrap();
    assert_eq!(table.remaining(&grant), None);
}

#[test]
fn a_newcomer_does_not_overtake_waiters() {
    let (table, clock) = table();
    let [ann, bob, cid] = owners();
    take(&table, "a", &ann, secs(10));
    let mut of_bob = waiting(table.acquire("a", &bob, secs(10)));
    clock.advance(secs(10));
    assert_eq!(busy(table.try_acquire_now("a", &cid, secs(10))), (bob.clone(), Some(secs(10))));
    let mut of_cid = waiting(table.acquire("a", &cid, secs(10)));
    let mut of_ann = waiting(table.acquire("a", &ann, secs(10))); // ann's own lease has expired
    let grant = ready(&mut of_bob).unwrap();
    table.release_now(&grant).unwrap();
    pending(&mut of_ann);
    let grant = ready(&mut of_cid).unwrap();
    table.release_now(&grant).unwrap();
    ready(&mut of_ann).unwrap();
}

// ---- futures --------------------------------------------------------------------------------------------------------

/// Each future borrows the leases, and none of its arguments.
mod borrow_only_the_table {
    use super::*;

    fn arguments() -> (String, Owner, Grant) {
        let [ann] = owners();
        let grant = take(&table().0, "a", &ann, secs(10));
        (String::from("a"), ann, grant)
    }

    macro_rules! future {
        ($($name:ident: |$table:ident, $r:ident, $o:ident, $g:ident| $call:expr;)+) => {$(
            pub(super) fn $name($table: &Table) -> impl Future + Send + use<'_> {
                #[allow(unused_variables)]
                let ($r, $o, $g) = arguments();
                $call
            }
        )+};
    }

    future! {
        acquire: |table, r, o, g| table.acquire(&r, &o, secs(1));
        acquire_of_parts: |table, r, o, g| table.acquire((r.as_str(), r.as_str()), &o, secs(1));
        acquire_fresh: |table, r, o, g| table.acquire(&r, &o, secs(1)).fresh_token();
        acquire_until: |table, r, o, g| table.acquire(r.as_str(), &o, secs(1)).until(never::<()>());
        try_acquire: |table, r, o, g| table.try_acquire(&r, &o, secs(1));
        renew: |table, r, o, g| table.renew(&g);
        release: |table, r, o, g| table.release(&g);
        release_as: |table, r, o, g| table.release_as(&r, &o);
        release_all: |table, r, o, g| table.release_all(&o);
        release_expired: |table, r, o, g| table.release_expired();
        status: |table, r, o, g| table.status(&r);
        owned_by: |table, r, o, g| table.owned_by(&o);
        hold: |table, r, o, g| table.hold(&r, &o, secs(1));
        hold_until: |table, r, o, g| table.hold(&r, &o, secs(1)).until(never::<()>());
    }

    pub(super) fn hold_arc(table: &Arc<Table>) -> impl Future + Send + use<'_> {
        let (r, o, _) = arguments();
        table.hold_arc(&r, &o, secs(1))
    }
}

#[test]
fn every_future_is_send_and_borrows_only_the_leases() {
    use borrow_only_the_table::*;
    let table = Arc::new(table().0);
    macro_rules! all {
        ($($name:ident),+ $(,)?) => {$(
            drop(ready(assert_send($name(&table))));
            table.release_all_now(&owners::<1>()[0]).unwrap();
        )+};
    }
    all!(
        acquire,
        acquire_of_parts,
        acquire_fresh,
        acquire_until,
        try_acquire,
        renew,
        release,
        release_as,
        release_all,
        release_expired,
        status,
        owned_by,
        hold,
        hold_until,
        hold_arc,
    );
}

#[test]
fn a_blocking_acquire_waits_for_a_release_by_another_thread() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let blocked: [fn(&Table, &Owner) -> Acquired; 5] = [
        |table, owner| table.acquire_blocking("a", owner, secs(10)),
        |table, owner| table.acquire_for("a", owner, secs(10), HOUR),
        |table, owner| table.acquire("a", owner, secs(10)).wait(),
        |table, owner| table.acquire("a", owner, secs(10)).wait_for(HOUR),
        |table, owner| table.acquire("a", owner, secs(10)).fresh_token().wait(),
    ];
    for acquire in blocked {
        let grant = take(&table, "a", &ann, secs(10));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| acquire(&table, &bob).unwrap());
            common::until(|| waiters(&table, "a") == 1);
            table.release_now(&grant).unwrap();
            assert_eq!(waiter.join().unwrap().owner(), &bob);
        });
        table.release_all_now(&bob).unwrap();
    }
}

// ---- fences ---------------------------------------------------------------------------------------------------------

#[test]
fn a_fence_refuses_tokens_that_are_smaller_than_the_greatest_it_has_seen() {
    let fence = Fence::new();
    let token = |n| Token::new(n).unwrap();
    let (a, b) = (Resource::from("a"), Resource::from("b"));
    assert!(fence.admit(&a, token(5)).is_ok());
    assert!(fence.admit(&a, token(5)).is_ok());
    assert!(fence.admit(&a, token(7)).is_ok());
    assert!(fence.admit(&a, token(6)).is_err());
    assert!(fence.admit(&a, token(5)).is_err());
    assert!(fence.admit(&b, token(5)).is_ok()); // each resource has its own greatest token
    assert!(fence.admit(&a, token(7)).is_ok());
    let stale = fence.admit(&a, token(1)).unwrap_err();
    assert!(!(&stale as &dyn Error).to_string().is_empty());
    fence.forget(&a);
    assert!(fence.admit(&a, token(1)).is_ok());
    assert!(fence.admit(&b, token(4)).is_err());
}

#[test]
fn a_fence_admits_the_successor_and_then_refuses_the_late_holder() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let fence = Fence::new();
    let late = take(&table, "a", &ann, secs(10));
    fence.admit(late.resource(), late.token()).unwrap();
    clock.advance(secs(10));
    let next = take(&table, "a", &bob, secs(10));
    fence.admit(late.resource(), late.token()).unwrap(); // bob has not passed the fence yet
    fence.admit(next.resource(), next.token()).unwrap();
    assert!(fence.admit(late.resource(), late.token()).is_err());
}

// ---- serde ----------------------------------------------------------------------------------------------------------

#[cfg(feature = "serde")]
mod serialised {
    use super::*;

    #[test]
    fn a_grant_may_be_kept_as_text_and_used_by_another() {
        let (table, clock) = table();
        let [ann] = owners();
        for expiry in
            [Expiry::Sliding(secs(10)), Expiry::Never, Expiry::SlidingUpTo { idle: secs(10), total: secs(90) }]
        {
            let grant = take(&table, ("invoice", "1"), &ann, expiry);
            let text = serde_json::to_string(&grant).unwrap();
            let copy: Grant = serde_json::from_str(&text).unwrap();
            assert_eq!(copy, grant);
            clock.advance(secs(4));
            assert_eq!(table.remaining(&copy), table.remaining(&grant));
            let renewed = table.renew_now(&copy).unwrap();
            assert_eq!(renewed, table.renew_now(&grant).unwrap());
            table.release_now(&copy).unwrap();
        }
        let fixed = take(&table, "a", &ann, Expiry::Fixed(secs(10)));
        let copy: Grant = serde_json::from_str(&serde_json::to_string(&fixed).unwrap()).unwrap();
        not_renewable(table.renew_now(&copy));
    }

    #[test]
    fn a_policy_of_ones_own_is_not_serialised_and_comes_back_with_an_acquire() {
        let (table, clock) = table();
        let [ann] = owners();
        let grant = take(&table, "a", &ann, by(|_| Some(secs(10))));
        let copy: Grant = serde_json::from_str(&serde_json::to_string(&grant).unwrap()).unwrap();
        clock.advance(secs(4));
        not_renewable(table.renew_now(&copy));
        assert_eq!(left(&table, "a"), secs(6));
        let again = take(&table, "a", &ann, by(|_| Some(secs(10))));
        assert_eq!(again.token(), copy.token());
        table.renew_now(&again).unwrap();
        table.release_now(&copy).unwrap();
    }

    #[test]
    fn tokens_resources_and_owners_come_back_as_they_were() {
        let token = Token::new(42).unwrap();
        assert_eq!(serde_json::from_str::<Token>(&serde_json::to_string(&token).unwrap()).unwrap(), token);
        assert!(serde_json::from_str::<Token>("0").is_err());
        let resource = Resource::new("a/b", "c\0");
        assert_eq!(serde_json::from_str::<Resource>(&serde_json::to_string(&resource).unwrap()).unwrap(), resource);
        for owner in [Owner::named("x"), Owner::incarnation("x")] {
            assert_eq!(serde_json::from_str::<Owner>(&serde_json::to_string(&owner).unwrap()).unwrap(), owner);
        }
    }
}
