//! The guarantees of the crate's page. The name of each test begins with the number of its guarantee. The tests run in
//! memory, on a clock that they move to the nanosecond. `real_time.rs` tests guarantee 8 in real time, `wakers.rs` and
//! `held.rs` have more tests of 11, `memory.rs` has more of 12, and `stress.rs` tries to break 1, 2, 3 and 9 with
//! threads.

mod common;

use std::collections::HashMap;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use common::{
    Acquired, HOUR, Random, TICK, Table, busy, by, holder, left, lost, not_held, not_owner, owned, owners, pending,
    poll, ready, secs, seen, table, take, waiters, waiting,
};
use futures_lite::Future;
use keylatch_lease::{AcquireError, Expiry, Grant, Lost, Owner, Resource, Token};

// ---- 1: exclusion ---------------------------------------------------------------------------------------------------

#[test]
fn guarantee_1_while_one_owner_has_a_lease_no_call_gives_it_to_another() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    assert_eq!(busy(table.try_acquire_now("a", &bob, secs(1))), (ann.clone(), Some(secs(10))));
    assert_eq!(busy(table.try_acquire("a", &bob, secs(1)).now()), (ann.clone(), Some(secs(10))));
    assert_eq!(busy(ready(table.try_acquire("a", &bob, secs(1)))), (ann.clone(), Some(secs(10))));
    assert_eq!(busy(ready(table.try_acquire("a", &bob, secs(1)).fresh_token())), (ann.clone(), Some(secs(10))));
    drop(waiting(table.acquire("a", &bob, secs(1))));
    drop(waiting(table.acquire("a", &bob, secs(1)).fresh_token()));
    drop(waiting(table.hold("a", &bob, secs(1))));
    let limited = ready(table.acquire("a", &bob, secs(1)).until(std::future::ready(())));
    assert!(matches!(limited, Err(AcquireError::Limit { .. })));
    #[cfg(feature = "std")]
    {
        assert_eq!(busy(table.try_acquire_blocking("a", &bob, secs(1))), (ann.clone(), Some(secs(10))));
        assert!(matches!(table.acquire_for("a", &bob, secs(1), TICK), Err(AcquireError::Limit { .. })));
    }
    assert_eq!(seen(&table, "a"), Some((ann, grant.token(), Some(secs(10)))));
    assert_eq!(owned(&table, &bob), [""; 0]);
}

#[test]
fn guarantee_1_a_lease_ends_exactly_at_its_end() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    for expiry in [
        Expiry::Fixed(secs(10)),
        Expiry::Sliding(secs(10)),
        Expiry::SlidingUpTo { idle: secs(10), total: secs(20) },
        Expiry::SlidingUpTo { idle: secs(20), total: secs(10) },
        by(|_| Some(secs(10))),
    ] {
        let of_ann = take(&table, "a", &ann, expiry.clone());
        clock.advance(secs(10) - TICK);
        assert_eq!(busy(table.try_acquire_now("a", &bob, secs(1))), (ann.clone(), Some(TICK)), "{expiry:?}");
        clock.advance(TICK);
        let of_bob = take(&table, "a", &bob, secs(1));
        assert!(of_bob.token() > of_ann.token());
        assert!(!of_bob.is_resumed());
        assert_eq!(owned(&table, &ann), [""; 0], "{expiry:?}");
        table.release_now(&of_bob).unwrap();
    }
}

#[test]
fn guarantee_1_a_served_waiter_has_the_lease_before_it_is_polled() {
    let (table, clock) = table();
    let [ann, bob, cid] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let mut waiter = waiting(table.acquire("a", &bob, secs(5)));
    clock.advance(secs(1));
    table.release_now(&grant).unwrap();
    assert_eq!(busy(table.try_acquire_now("a", &ann, secs(1))), (bob.clone(), Some(secs(5))));
    assert_eq!(busy(table.try_acquire_now("a", &cid, secs(1))), (bob.clone(), Some(secs(5))));
    assert_eq!(owned(&table, &bob), ["a"]);
    clock.advance(secs(2));
    let grant = ready(&mut waiter).unwrap();
    assert_eq!(seen(&table, "a"), Some((bob, grant.token(), Some(secs(3)))));
}

#[test]
fn guarantee_1_different_resources_are_leased_independently() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let resources =
        [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), ("a", "\0bc"), ("a\0", "bc"), ("a/b", "c"), ("a", "b/c")];
    for resource in resources {
        take(&table, resource, &ann, secs(10));
    }
    assert_eq!(table.len(), resources.len());
    for resource in resources {
        busy(table.try_acquire_now(resource, &bob, secs(1)));
        table.release_as_now(resource, &ann).unwrap();
        take(&table, resource, &bob, secs(10));
    }
}

/// The answers of `status`, `owned_by`, `len` and `acquire` agree, whatever the owners do.
#[test]
fn guarantee_1_at_each_step_of_a_random_walk_at_most_one_owner_has_the_lease() {
    let (table, clock) = table();
    let people: [Owner; 4] = owners();
    let resources = ["a", "b"];
    let mut random = Random(0x1EA5E);
    let mut grants: Vec<Grant> = vec![];
    let mut futures: Vec<Pin<Box<dyn Future<Output = Acquired> + Send + '_>>> = vec![];
    for step in 0..20_000 {
        let owner = &people[random.next(4) as usize];
        let resource = resources[random.next(2) as usize];
        let expiry = match random.next(4) {
            0 => Expiry::Fixed(secs(1 + random.next(5))),
            1 => Expiry::SlidingUpTo { idle: secs(1 + random.next(3)), total: secs(6) },
            _ => Expiry::Sliding(secs(1 + random.next(5))),
        };
        match random.next(10) {
            0 => grants.extend(table.try_acquire_now(resource, owner, expiry)),
            1 => grants.extend(table.try_acquire(resource, owner, expiry).fresh_token().now()),
            2 => futures.push(Box::pin(table.acquire(resource, owner, expiry))),
            3 | 4 if !futures.is_empty() => {
                let at = random.next(futures.len() as u64) as usize;
                if let Poll::Ready(acquired) = poll(&mut futures[at]) {
                    let grant = acquired.unwrap();
                    let now = seen(&table, grant.resource()).expect("it was acquired at this instant");
                    assert_eq!((&now.0, now.1), (grant.owner(), grant.token()), "step {step}");
                    grants.push(grant);
                    drop(futures.swap_remove(at));
                }
            }
            5 if !futures.is_empty() => drop(futures.swap_remove(random.next(futures.len() as u64) as usize)),
            6 if !grants.is_empty() => drop(table.renew_now(&grants[random.next(grants.len() as u64) as usize])),
            7 if !grants.is_empty() => {
                let _any = table.release_now(&grants.swap_remove(random.next(grants.len() as u64) as usize));
            }
            8 => {
                clock.advance(secs(random.next(3)));
                if random.next(2) == 0 {
                    table.tick();
                }
            }
            9 if random.next(10) == 0 => drop(table.release_all_now(owner)),
            _ => {}
        }
        futures.truncate(12);
        grants.truncate(40);
        let mut leased = 0;
        for resource in resources {
            let status = seen(&table, resource);
            let have: Vec<_> =
                people.iter().filter(|owner| owned(&table, owner).contains(&resource.to_string())).collect();
            assert_eq!(have, status.iter().map(|(owner, ..)| owner).collect::<Vec<_>>(), "step {step}");
            leased += have.len();
        }
        assert_eq!(table.len(), leased, "step {step}");
    }
}

// ---- 2: the holder errs on the safe side ----------------------------------------------------------------------------

#[test]
fn guarantee_2_check_succeeds_exactly_until_the_end() {
    let (table, clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    assert_eq!(held.check(), Ok(held.token()));
    clock.advance(secs(10) - TICK);
    assert_eq!(held.check(), Ok(held.token()));
    clock.advance(TICK);
    assert_eq!(held.check(), Err(Lost::Expired)); // with no other call in between
    assert_eq!(holder(&table, "a"), None);
}

#[test]
fn guarantee_2_another_owner_gets_the_lease_only_after_check_fails() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let mut random = Random(2);
    for _ in 0..200 {
        let held = ready(table.hold("a", &ann, secs(10))).unwrap();
        loop {
            clock.advance(secs(random.next(4)));
            let checked = held.check();
            let got = table.try_acquire_now("a", &bob, secs(1));
            assert_eq!(checked.is_ok(), got.is_err(), "{checked:?}, {got:?}");
            if let Ok(got) = got {
                table.release_now(&got).unwrap();
                break;
            }
        }
    }
}

#[test]
fn guarantee_2_a_grant_never_reports_more_time_than_the_engine() {
    let (table, clock) = table();
    let [ann] = owners();
    let first = take(&table, "a", &ann, secs(10));
    clock.advance(secs(4));
    assert_eq!(table.remaining(&first), Some(secs(6)));
    let second = table.renew_now(&first).unwrap();
    assert_eq!((table.remaining(&first), table.remaining(&second)), (Some(secs(6)), Some(secs(10))));
    assert_eq!(left(&table, "a"), secs(10));
    clock.advance(secs(6));
    assert_eq!((table.remaining(&first), table.remaining(&second)), (Some(secs(0)), Some(secs(4))));
    clock.advance(HOUR);
    assert_eq!((table.remaining(&first), table.remaining(&second)), (Some(secs(0)), Some(secs(0))));
}

// ---- 3: tokens grow -------------------------------------------------------------------------------------------------

#[test]
fn guarantee_3_tokens_grow_whatever_ended_the_previous_tenure() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let mut last: Option<Token> = None;
    let mut grows = |token: Token, why: &str| {
        assert!(last < Some(token), "{why}: {token} after {last:?}");
        last = Some(token);
    };
    for _ in 0..50 {
        let grant = take(&table, "a", &ann, secs(10));
        grows(grant.token(), "first");
        table.release_now(&grant).unwrap();
        grows(take(&table, "a", &ann, secs(10)).token(), "after a release");
        table.release_as_now("a", &ann).unwrap();
        grows(take(&table, "a", &bob, secs(10)).token(), "after a release by name");
        assert_eq!(table.release_all_now(&bob).unwrap(), 1);
        grows(take(&table, "a", &bob, secs(10)).token(), "after a release of all");
        clock.advance(secs(10));
        grows(take(&table, "a", &ann, secs(10)).token(), "after expiry");
        clock.advance(secs(10));
        grows(take(&table, "a", &ann, secs(10)).token(), "after the same owner's expiry");
        clock.advance(secs(10));
        table.tick();
        grows(take(&table, "a", &ann, secs(10)).token(), "after expiry by tick");
        clock.advance(secs(10));
        assert_eq!(table.release_expired_now().unwrap(), 1);
        assert_eq!(table.len(), 0);
        grows(take(&table, "a", &ann, secs(10)).token(), "after a sweep");
        grows(table.try_acquire("a", &ann, secs(10)).fresh_token().now().unwrap().token(), "fresh token, tried");
        grows(ready(table.acquire("a", &ann, secs(10)).fresh_token()).unwrap().token(), "fresh token");
        let held = ready(table.hold("a", &ann, secs(10))).unwrap();
        grows(held.token(), "held over the owner's earlier tenure");
        drop(held);
        grows(take(&table, "a", &ann, secs(10)).token(), "after a dropped Held");
        let mut waiter = waiting(table.acquire("a", &bob, secs(10)));
        table.release_as_now("a", &ann).unwrap();
        grows(ready(&mut waiter).unwrap().token(), "by hand-off");
        let waiter = waiting(table.acquire("a", &ann, secs(10)));
        table.release_as_now("a", &bob).unwrap();
        let passed = seen(&table, "a").unwrap().1;
        drop(waiter);
        grows(passed, "handed over to a waiter that gives up");
        grows(take(&table, "a", &bob, secs(10)).token(), "after a waiter that gave up");
        table.release_as_now("a", &bob).unwrap();
        assert_eq!(table.len(), 0);
    }
}

#[test]
fn guarantee_3_tokens_grow_after_the_record_is_removed() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let mut greatest: HashMap<String, Token> = HashMap::new();
    for round in 0..5 {
        for n in 0..1000 {
            let key = format!("key {n}");
            let token = take(&table, &key, if n % 2 == round % 2 { &ann } else { &bob }, secs(1)).token();
            let before = greatest.insert(key, token);
            assert!(before < Some(token));
        }
        match round % 3 {
            0 => assert_eq!(table.release_all_now(&ann).unwrap() + table.release_all_now(&bob).unwrap(), 1000),
            1 => clock.advance(secs(1)),
            _ => {
                clock.advance(secs(1));
                assert_eq!(table.release_expired_now().unwrap(), 1000);
            }
        }
        assert_eq!(table.len(), 0);
    }
}

#[test]
fn guarantee_3_renewing_and_acquiring_again_keep_the_token() {
    let (table, clock) = table();
    let [ann] = owners();
    let mut grant = take(&table, "a", &ann, secs(10));
    let token = grant.token();
    for _ in 0..10 {
        clock.advance(secs(9));
        grant = table.renew_now(&grant).unwrap();
        assert_eq!(grant.token(), token);
        assert_eq!(take(&table, "a", &ann, secs(10)).token(), token);
    }
    assert_eq!(seen(&table, "a").unwrap().1, token);
}

// ---- 4: acquiring again is safe -------------------------------------------------------------------------------------

#[test]
fn guarantee_4_an_owner_that_acquires_again_gets_its_lease_at_once() {
    let (table, clock) = table();
    let [ann] = owners();
    let first = take(&table, "a", &ann, secs(10));
    assert!(!first.is_resumed());
    clock.advance(secs(4));
    let again = ready(table.acquire("a", &ann, secs(10))).unwrap();
    assert!(again.is_resumed());
    assert_eq!((again.token(), left(&table, "a"), table.len()), (first.token(), secs(10), 1));
    let again = ready(table.try_acquire("a", &ann, secs(10))).unwrap();
    assert!(again.is_resumed());
    let again = take(&table, "a", &ann, secs(10));
    assert!(again.is_resumed());
    assert_eq!(again.token(), first.token());
}

#[test]
fn guarantee_4_an_owner_that_acquires_again_overtakes_all_waiters() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let first = take(&table, "a", &ann, secs(10));
    let mut waiter = waiting(table.acquire("a", &bob, secs(10)));
    let again = ready(table.acquire("a", &ann, secs(10))).unwrap();
    assert_eq!((again.token(), again.is_resumed()), (first.token(), true));
    pending(&mut waiter);
    assert_eq!(waiters(&table, "a"), 1);
    table.release_now(&again).unwrap(); // one release is enough, however often the owner acquired
    assert_eq!(ready(&mut waiter).unwrap().owner(), &bob);
}

#[test]
fn guarantee_4_acquiring_again_never_brings_the_end_forward() {
    let (table, clock) = table();
    let [ann] = owners();
    take(&table, "a", &ann, secs(10));
    for (expiry, end) in [(Expiry::Sliding(secs(3)), 10), (Expiry::Fixed(secs(2)), 10), (Expiry::Sliding(secs(11)), 12)]
    {
        if end == 12 {
            clock.advance(secs(1));
        }
        let again = take(&table, "a", &ann, expiry);
        assert!(again.is_resumed());
        assert_eq!(table.remaining(&again), Some(left(&table, "a")));
        let now = if end == 12 { 1 } else { 0 };
        assert_eq!(left(&table, "a"), secs(end - now));
    }
}

#[test]
fn guarantee_4_a_retry_after_a_lost_answer_does_not_wait_for_itself() {
    let (table, _clock) = table();
    let [ann, bob, cid] = owners();
    let of_bob = take(&table, "a", &bob, secs(10));
    let mut lost_answer = waiting(table.acquire("a", &ann, secs(10)));
    let mut of_cid = waiting(table.acquire("a", &cid, secs(10)));
    table.release_now(&of_bob).unwrap();
    let token = ready(&mut lost_answer).unwrap().token(); // and the grant is dropped
    drop(lost_answer);
    let grant = ready(table.acquire("a", &ann, secs(10))).unwrap();
    assert_eq!((grant.token(), grant.is_resumed()), (token, true));
    pending(&mut of_cid);
}

#[test]
fn guarantee_4_acquiring_after_the_end_begins_a_new_tenure() {
    let (table, clock) = table();
    let [ann] = owners();
    let first = take(&table, "a", &ann, secs(10));
    clock.advance(secs(10));
    let second = take(&table, "a", &ann, secs(10));
    assert!(!second.is_resumed());
    assert!(second.token() > first.token());
}

// ---- 5: only the owner ----------------------------------------------------------------------------------------------

#[test]
fn guarantee_5_a_release_by_another_owner_is_an_error_and_changes_nothing() {
    let (table, _clock) = table();
    let [ann, bob, cid] = owners();
    take(&table, "a", &ann, secs(10));
    let mut waiter = waiting(table.acquire("a", &bob, secs(10)));
    let before = seen(&table, "a");
    for other in [&bob, &cid] {
        assert_eq!(not_owner(table.release_as_now("a", other)), ann);
        assert_eq!(table.release_all_now(other).unwrap(), 0);
        assert_eq!(seen(&table, "a"), before);
        assert_eq!(waiters(&table, "a"), 1);
    }
    pending(&mut waiter);
}

#[test]
fn guarantee_5_a_stale_grant_neither_releases_nor_renews_the_successors_lease() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let stale = take(&table, "a", &ann, secs(10));
    clock.advance(secs(10));
    take(&table, "a", &bob, secs(10));
    clock.advance(secs(1));
    let before = seen(&table, "a");
    assert_eq!(not_owner(table.release_now(&stale)), bob);
    assert_eq!(lost(table.renew_now(&stale)), Lost::Expired);
    assert_eq!(not_owner(table.release_as_now("a", &ann)), bob);
    assert_eq!(seen(&table, "a"), before);
}

#[test]
fn guarantee_5_a_grant_of_the_same_owners_older_tenure_is_stale() {
    let (table, clock) = table();
    let [ann] = owners();
    let stale = take(&table, "a", &ann, secs(10));
    clock.advance(secs(1));
    let fresh = table.try_acquire("a", &ann, secs(20)).fresh_token().now().unwrap();
    let before = seen(&table, "a");
    assert_eq!(not_owner(table.release_now(&stale)), ann);
    assert_eq!(lost(table.renew_now(&stale)), Lost::TakenOver);
    assert_eq!(seen(&table, "a"), before);
    table.release_now(&fresh).unwrap();
    assert_eq!(not_held(table.release_now(&fresh)), Resource::from("a"));
    assert_eq!(lost(table.renew_now(&stale)), Lost::Released);
}

#[test]
fn guarantee_5_a_second_release_is_an_error_and_leaves_a_successor_alone() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    table.release_now(&grant).unwrap();
    not_held(table.release_now(&grant));
    take(&table, "a", &bob, secs(10));
    let before = seen(&table, "a");
    assert_eq!(not_owner(table.release_now(&grant)), bob);
    assert_eq!(seen(&table, "a"), before);
}

#[test]
fn guarantee_5_an_older_copy_of_a_renewed_grant_is_not_stale() {
    let (table, clock) = table();
    let [ann] = owners();
    let copy = take(&table, "a", &ann, secs(10));
    clock.advance(secs(5));
    table.renew_now(&copy).unwrap();
    clock.advance(secs(7)); // past the end in the older copy
    let renewed = table.renew_now(&copy).unwrap();
    assert_eq!((renewed.token(), left(&table, "a")), (copy.token(), secs(10)));
    table.release_now(&copy).unwrap();
    assert_eq!(holder(&table, "a"), None);
}

// ---- 6: no revival --------------------------------------------------------------------------------------------------

#[test]
fn guarantee_6_an_expired_lease_is_never_renewed_even_if_it_is_still_free() {
    for late in [Duration::ZERO, TICK, HOUR] {
        for expiry in [Expiry::Sliding(secs(10)), Expiry::Fixed(secs(10)), by(|_| Some(secs(10)))] {
            let (table, clock) = table();
            let [ann] = owners();
            let grant = take(&table, "a", &ann, expiry);
            clock.advance(secs(10) + late);
            assert_eq!(lost(table.renew_now(&grant)), Lost::Expired);
            assert_eq!(lost(ready(table.renew(&grant))), Lost::Expired);
            assert_eq!((seen(&table, "a"), table.len()), (None, 0));
        }
    }
}

#[test]
fn guarantee_6_a_lease_is_renewed_until_its_last_nanosecond() {
    let (table, clock) = table();
    let [ann] = owners();
    let mut grant = take(&table, "a", &ann, secs(10));
    for _ in 0..100 {
        clock.advance(secs(10) - TICK);
        grant = table.renew_now(&grant).unwrap();
        assert_eq!(left(&table, "a"), secs(10));
    }
    clock.advance(secs(10));
    assert_eq!(lost(table.renew_now(&grant)), Lost::Expired);
}

#[test]
fn guarantee_6_a_renewal_whose_policy_takes_until_the_end_is_too_late() {
    let (table, clock) = table();
    let [ann] = owners();
    let slow = clock.clone();
    let expiry = by(move |held_for| {
        if !held_for.is_zero() {
            slow.advance(secs(9));
        }
        Some(secs(10))
    });
    let grant = take(&table, "a", &ann, expiry);
    clock.advance(secs(1));
    assert_eq!(lost(table.renew_now(&grant)), Lost::Expired);
    assert_eq!(seen(&table, "a"), None);
}

#[test]
fn guarantee_6_acquiring_again_does_not_revive_an_expired_tenure() {
    let (table, clock) = table();
    let [ann] = owners();
    let old = take(&table, "a", &ann, secs(10));
    clock.advance(secs(10));
    let new = take(&table, "a", &ann, secs(10));
    assert!(!new.is_resumed());
    assert_eq!(lost(table.renew_now(&old)), Lost::Expired);
    assert_eq!(not_owner(table.release_now(&old)), ann);
    assert_eq!(seen(&table, "a"), Some((ann, new.token(), Some(secs(10)))));
}

// ---- 7: release_all -------------------------------------------------------------------------------------------------

#[test]
fn guarantee_7_release_all_releases_only_that_owners_leases_among_a_thousand() {
    let (table, _clock) = table();
    let people: Vec<_> = (0..10).map(|n| Owner::named(format!("owner {n}"))).collect();
    for n in 0..1000 {
        take(&table, format!("key {n}"), &people[n % 10], secs(10));
    }
    let before: Vec<_> = (0..1000).map(|n| seen(&table, format!("key {n}"))).collect();
    assert_eq!(table.release_all_now(&people[3]).unwrap(), 100);
    assert_eq!(table.len(), 900);
    for (n, before) in before.into_iter().enumerate() {
        let now = seen(&table, format!("key {n}"));
        assert_eq!(now, if n % 10 == 3 { None } else { before });
    }
    assert_eq!(table.release_all_now(&people[3]).unwrap(), 0);
    assert_eq!(table.release_all_now(&Owner::named("nobody")).unwrap(), 0);
}

#[test]
fn guarantee_7_expired_leases_are_not_counted() {
    let (table, clock) = table();
    let [ann] = owners();
    take(&table, "a", &ann, secs(5));
    take(&table, "b", &ann, secs(10));
    take(&table, "c", &ann, Expiry::Never);
    clock.advance(secs(5));
    assert_eq!(table.release_all_now(&ann).unwrap(), 2);
    assert_eq!(table.len(), 0);
}

#[test]
fn guarantee_7_the_owners_waiters_go_on_waiting_and_waiters_for_its_leases_get_in() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    take(&table, "a", &ann, secs(10));
    take(&table, "b", &bob, secs(10));
    let mut of_bob = waiting(table.acquire("a", &bob, secs(10)));
    let mut of_ann = waiting(table.acquire("b", &ann, secs(10)));
    assert_eq!(table.release_all_now(&ann).unwrap(), 1);
    assert_eq!(ready(&mut of_bob).unwrap().owner(), &bob);
    pending(&mut of_ann);
    assert_eq!(waiters(&table, "b"), 1);
    table.release_as_now("b", &bob).unwrap();
    assert_eq!(ready(&mut of_ann).unwrap().owner(), &ann);
}

#[test]
fn guarantee_7_a_lease_handed_over_but_not_polled_is_released_too() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let mut waiter = waiting(table.acquire("a", &bob, secs(10)));
    table.release_now(&grant).unwrap();
    assert_eq!(table.release_all_now(&bob).unwrap(), 1);
    assert_eq!(holder(&table, "a"), None);
    // The waiter must not return the tenure that was released.
    if let Poll::Ready(acquired) = poll(&mut waiter) {
        assert_eq!(seen(&table, "a").map(|(_, token, _)| token), Some(acquired.unwrap().token()));
    }
}

#[test]
fn guarantee_7_leases_acquired_in_every_way_are_released() {
    let (table, _clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let grant = ready(table.acquire("b", &ann, Expiry::Never)).unwrap();
    take(&table, "c", &ann, Expiry::Fixed(secs(10)));
    take(&table, "c", &ann, Expiry::Fixed(secs(10))); // resumed: one lease
    assert_eq!(ready(table.release_all(&ann)).unwrap(), 3);
    assert_eq!(held.check(), Err(Lost::Released));
    assert_eq!(lost(table.renew_now(&grant)), Lost::Released);
    drop(held);
    assert_eq!(table.len(), 0);
}

// ---- 8: timely take-over --------------------------------------------------------------------------------------------

#[test]
fn guarantee_8_after_the_holders_end_a_waiter_has_it_at_the_next_tick() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    take(&table, "a", &ann, secs(10));
    let mut waiter = waiting(table.acquire("a", &bob, secs(3)));
    clock.advance(secs(10) - TICK);
    table.tick();
    assert_eq!(holder(&table, "a"), Some(ann));
    pending(&mut waiter);
    clock.advance(TICK);
    table.tick();
    let grant = ready(&mut waiter).unwrap();
    assert_eq!(seen(&table, "a"), Some((bob, grant.token(), Some(secs(3)))));
}

#[test]
fn guarantee_8_a_program_that_ticks_when_told_to_takes_over_exactly_at_the_end() {
    for ttl in [
        TICK,
        Duration::from_millis(1),
        secs(1),
        secs(61),
        HOUR,
        HOUR * 24 * 400,
        Duration::from_nanos(86_400_000_000_001),
    ] {
        let (table, clock) = table();
        let [ann, bob] = owners();
        clock.advance(Duration::from_nanos(123_456_789));
        take(&table, "a", &ann, ttl);
        let mut waiter = waiting(table.acquire("a", &bob, Expiry::Never));
        let mut passed = Duration::ZERO;
        let mut steps = 0;
        while holder(&table, "a") == Some(ann.clone()) {
            let next = table.tick().expect("there is a waiter, and the lease ends");
            assert!(next <= ttl - passed, "{next:?} is later than the end of {ttl:?}");
            assert!(!next.is_zero(), "a second tick at the same time is not necessary");
            clock.advance(next);
            passed += next;
            steps += 1;
            assert!(steps < 1000, "{ttl:?}");
        }
        assert_eq!(passed, ttl);
        assert_eq!(ready(&mut waiter).unwrap().owner(), &bob);
        assert_eq!(table.tick(), None);
    }
}

#[test]
fn guarantee_8_a_renewal_moves_the_take_over_and_a_release_brings_it_forward() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let mut waiter = waiting(table.acquire("a", &bob, secs(3)));
    clock.advance(secs(9));
    let grant = table.renew_now(&grant).unwrap();
    clock.advance(secs(9));
    table.tick();
    pending(&mut waiter);
    table.release_now(&grant).unwrap();
    assert_eq!(ready(&mut waiter).unwrap().owner(), &bob);
}

#[test]
fn guarantee_8_a_chain_of_dead_holders_takes_no_longer_than_their_leases() {
    let (table, clock) = table();
    let people: Vec<_> = (0..50).map(|n| Owner::named(format!("owner {n}"))).collect();
    take(&table, "a", &people[0], secs(2));
    let rest: Vec<_> = people[1..].iter().map(|owner| waiting(table.acquire("a", owner, secs(2)))).collect();
    for (n, owner) in people.iter().enumerate() {
        assert_eq!(holder(&table, "a").as_ref(), Some(owner), "at {n}");
        clock.advance(secs(2));
        table.tick();
    }
    assert_eq!(holder(&table, "a"), None);
    drop(rest);
    assert_eq!(table.len(), 0);
}

// ---- 9: no lost wake-up ---------------------------------------------------------------------------------------------

#[test]
fn guarantee_9_each_release_admits_one_waiter_in_order_of_arrival() {
    let (table, _clock) = table();
    let people: Vec<_> = (0..100).map(|n| Owner::named(format!("owner {n}"))).collect();
    let mut grant = take(&table, "a", &people[0], secs(10));
    let mut rest: Vec<_> = people[1..].iter().map(|owner| waiting(table.acquire("a", owner, secs(10)))).collect();
    assert_eq!(waiters(&table, "a"), 99);
    while !rest.is_empty() {
        table.release_now(&grant).unwrap();
        rest[1..].iter_mut().for_each(pending);
        let mut first = rest.remove(0);
        grant = ready(&mut first).unwrap();
        assert_eq!(grant.owner(), &people[99 - rest.len()]);
        assert_eq!(waiters(&table, "a"), rest.len());
    }
}

#[test]
fn guarantee_9_each_expiry_admits_exactly_one_waiter() {
    let (table, clock) = table();
    let [ann, bob, cid] = owners();
    take(&table, "a", &ann, secs(10));
    let mut of_bob = waiting(table.acquire("a", &bob, secs(10)));
    let mut of_cid = waiting(table.acquire("a", &cid, secs(10)));
    clock.advance(secs(10));
    table.tick();
    ready(&mut of_bob).unwrap();
    pending(&mut of_cid);
    clock.advance(secs(10));
    table.tick();
    ready(&mut of_cid).unwrap();
}

#[test]
fn guarantee_9_a_waiter_that_gives_up_passes_the_lease_on_at_every_place_and_stage() {
    // `gone` has a bit for each waiter that gives up. `served` says whether they give up after the release.
    for gone in 0..1_u32 << 5 {
        for served in [false, true] {
            let (table, _clock) = table();
            let people: [Owner; 6] = owners();
            let grant = take(&table, "a", &people[0], secs(10));
            let mut rest: Vec<_> =
                people[1..].iter().map(|owner| Some(waiting(table.acquire("a", owner, secs(10))))).collect();
            if served {
                table.release_now(&grant).unwrap();
            }
            for (n, waiter) in rest.iter_mut().enumerate() {
                if gone & 1 << n != 0 {
                    drop(waiter.take());
                }
            }
            if !served {
                table.release_now(&grant).unwrap();
            }
            for (n, waiter) in rest.iter_mut().enumerate() {
                let Some(waiter) = waiter else { continue };
                let grant = ready(waiter).unwrap();
                assert_eq!(grant.owner(), &people[n + 1], "gone {gone:b}");
                table.release_now(&grant).unwrap();
            }
            assert_eq!((holder(&table, "a"), table.len()), (None, 0), "gone {gone:b}");
        }
    }
}

#[test]
fn guarantee_9_a_call_that_finds_an_expired_lease_serves_its_waiters_first() {
    type Call = fn(&Table, &Grant, &Owner);
    let calls: [(&str, Call); 10] = [
        ("try_acquire", |table, _, newcomer| drop(table.try_acquire_now("a", newcomer, secs(1)))),
        ("acquire", |table, _, newcomer| drop(poll(&mut Box::pin(table.acquire("a", newcomer, secs(1)))))),
        ("acquire by the old holder", |table, grant, _| drop(table.try_acquire_now("a", grant.owner(), secs(1)))),
        ("renew", |table, grant, _| drop(table.renew_now(grant))),
        ("release", |table, grant, _| drop(table.release_now(grant))),
        ("release_as", |table, grant, _| drop(table.release_as_now("a", grant.owner()))),
        ("status", |table, _, _| drop(table.status_now("a"))),
        ("release_expired", |table, _, _| drop(table.release_expired_now())),
        ("tick", |table, _, _| assert_eq!(table.tick(), Some(secs(10)))),
        ("hold", |table, _, newcomer| drop(poll(&mut Box::pin(table.hold("a", newcomer, secs(1)))))),
    ];
    for (name, call) in calls {
        let (table, clock) = table();
        let [ann, bob, cid] = owners();
        let grant = take(&table, "a", &ann, secs(10));
        let mut waiter = waiting(table.acquire("a", &bob, secs(10)));
        clock.advance(secs(11));
        call(&table, &grant, &cid);
        assert_eq!(
            seen(&table, "a").map(|(owner, _, left)| (owner, left)),
            Some((bob.clone(), Some(secs(10)))),
            "{name}"
        );
        assert_eq!(ready(&mut waiter).unwrap().owner(), &bob, "{name}");
    }
}

#[test]
fn guarantee_9_on_a_random_walk_no_waiter_is_left_with_a_free_resource() {
    let (table, clock) = table();
    let people: [Owner; 8] = owners();
    let mut random = Random(9);
    let mut futures: Vec<Pin<Box<dyn Future<Output = Acquired> + '_>>> = vec![];
    for step in 0..20_000 {
        let owner = &people[random.next(8) as usize];
        match random.next(8) {
            0..=2 if futures.len() < 10 => {
                let mut future: Pin<Box<dyn Future<Output = Acquired> + '_>> = if random.next(3) == 0 {
                    Box::pin(table.acquire("a", owner, secs(1 + random.next(9))).fresh_token())
                } else {
                    Box::pin(table.acquire("a", owner, secs(1 + random.next(9))))
                };
                if poll(&mut future).is_pending() {
                    futures.push(future);
                }
            }
            3 if !futures.is_empty() => drop(futures.remove(random.next(futures.len() as u64) as usize)),
            4 => drop(table.release_as_now("a", owner)),
            5 => {
                if let Some(owner) = holder(&table, "a") {
                    table.release_as_now("a", &owner).unwrap();
                }
            }
            6 => {
                clock.advance(secs(random.next(12)));
                table.tick();
            }
            _ if !futures.is_empty() => {
                let at = random.next(futures.len() as u64) as usize;
                if poll(&mut futures[at]).is_ready() {
                    drop(futures.remove(at));
                }
            }
            _ => {}
        }
        if holder(&table, "a").is_none() {
            // The resource is free, so a pending future would wait without a reason.
            assert!(
                futures.iter_mut().all(|future| poll(future).is_ready()) || holder(&table, "a").is_some(),
                "step {step}"
            );
            futures.clear();
        }
    }
}

// ---- 10: the holder learns of a loss --------------------------------------------------------------------------------

#[test]
fn guarantee_10_lost_is_ready_and_check_fails_at_the_deadline() {
    let (table, clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let mut lost = waiting(held.lost());
    clock.advance(secs(10) - TICK);
    table.tick();
    pending(&mut lost);
    assert_eq!(held.check(), Ok(held.token()));
    clock.advance(TICK);
    assert_eq!(held.check(), Err(Lost::Expired));
    assert_eq!(ready(&mut lost), Lost::Expired);
}

#[test]
fn guarantee_10_a_process_that_slept_for_an_hour_sees_the_loss_at_the_first_check() {
    let (table, clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let mut before = waiting(held.lost());
    clock.advance(HOUR);
    assert_eq!(held.check(), Err(Lost::Expired));
    assert_eq!(ready(&mut before), Lost::Expired);
    assert_eq!(ready(held.lost()), Lost::Expired);
}

#[test]
fn guarantee_10_the_loss_is_seen_whatever_happens_to_the_resource_afterwards() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    clock.advance(secs(10));
    let of_bob = take(&table, "a", &bob, secs(10));
    assert_eq!(held.check(), Err(Lost::Expired));
    table.release_now(&of_bob).unwrap();
    assert_eq!(held.check(), Err(Lost::Expired));
    assert_eq!(ready(held.lost()), Lost::Expired);
}

// ---- 11: cancel safety ----------------------------------------------------------------------------------------------

#[test]
fn guarantee_11_a_future_that_was_never_polled_has_done_nothing() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    drop(table.acquire("a", &ann, secs(10)));
    drop(table.acquire("a", &ann, secs(10)).fresh_token());
    drop(table.acquire("a", &ann, secs(10)).until(std::future::ready(())));
    drop(table.try_acquire("a", &ann, secs(10)));
    drop(table.hold("a", &ann, secs(10)));
    assert_eq!((table.len(), holder(&table, "a")), (0, None));
    let grant = take(&table, "a", &ann, secs(10));
    let before = seen(&table, "a");
    drop(table.acquire("a", &ann, secs(20)).fresh_token());
    drop(table.acquire("a", &bob, secs(10)));
    drop(table.renew(&grant));
    drop(table.release(&grant));
    drop(table.release_as("a", &ann));
    drop(table.release_all(&ann));
    drop(table.release_expired());
    drop(table.status("a"));
    drop(table.owned_by(&ann));
    assert_eq!((seen(&table, "a"), waiters(&table, "a")), (before, 0));
}

#[test]
fn guarantee_11_a_waiter_that_is_dropped_leaves_nothing() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let mut rest: Vec<_> = (0..1000).map(|_| waiting(table.acquire("a", &bob, secs(10)))).collect();
    assert_eq!(waiters(&table, "a"), 1000);
    while let Some(waiter) = (!rest.is_empty()).then(|| rest.swap_remove(rest.len() / 2)) {
        drop(waiter);
        assert_eq!(waiters(&table, "a"), rest.len());
    }
    table.release_now(&grant).unwrap();
    assert_eq!((table.len(), holder(&table, "a")), (0, None));
}

#[test]
fn guarantee_11_a_served_waiter_that_is_dropped_leaves_the_resource_free() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let waiter = waiting(table.acquire("a", &bob, secs(10)));
    let other = waiting(table.hold("a", &bob, secs(10)));
    table.release_now(&grant).unwrap();
    assert_eq!(holder(&table, "a"), Some(bob));
    drop(waiter);
    drop(other);
    assert_eq!((table.len(), holder(&table, "a")), (0, None));
}

#[test]
fn guarantee_11_a_served_waiter_that_is_dropped_after_its_end_harms_nobody() {
    let (table, clock) = table();
    let [ann, bob, cid] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let waiter = waiting(table.acquire("a", &bob, secs(10)));
    table.release_now(&grant).unwrap();
    clock.advance(secs(10));
    let of_cid = take(&table, "a", &cid, secs(10));
    drop(waiter);
    assert_eq!(seen(&table, "a"), Some((cid, of_cid.token(), Some(secs(10)))));
}

#[test]
fn guarantee_11_an_acquired_lease_outlives_its_future() {
    let (table, _clock) = table();
    let [ann] = owners();
    let mut future = Box::pin(table.acquire("a", &ann, secs(10)));
    let grant = ready(&mut future).unwrap();
    drop(future);
    drop(grant); // plain data: the drop releases nothing
    assert_eq!(holder(&table, "a"), Some(ann));
}

// ---- 12: memory follows use -----------------------------------------------------------------------------------------

#[test]
fn guarantee_12_a_resource_is_kept_only_while_it_is_leased() {
    let (table, clock) = table();
    let [ann] = owners();
    assert_eq!(table.tick(), None);
    for n in 0..1000 {
        take(&table, format!("key {n}"), &ann, secs(1 + n % 10));
    }
    for second in 1..=10 {
        assert_eq!(table.len(), 1100 - 100 * second as usize);
        clock.advance(secs(1));
    }
    assert_eq!(table.len(), 0);
    assert_eq!(table.owned_by_now(&ann).unwrap(), []);
    table.tick();
    assert_eq!(table.tick(), None); // and nothing is left to be due
}

#[test]
fn guarantee_12_a_hundred_thousand_leases_that_expire_together_are_gone_for_every_call() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let many = 100_000;
    for n in 0..many {
        take(&table, n.to_string(), &ann, Duration::from_nanos(1_000_000_000 + n));
    }
    clock.advance(secs(1) + Duration::from_nanos(many));
    assert_eq!(table.len(), 0);
    for n in 0..many {
        let grant = take(&table, n.to_string(), &bob, secs(1));
        table.release_now(&grant).unwrap();
    }
    assert_eq!(table.release_all_now(&ann).unwrap(), 0);
    assert_eq!(table.len(), 0);
    table.tick();
    assert_eq!(table.tick(), None);
}
