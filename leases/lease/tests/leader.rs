//! Elections: the rules that they add to a held lease.
#![cfg(feature = "std")]

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use keylatch_lease::{AcquireError, Leader, Leases, Lost, ManualClock, Memory, Owner, ReleaseError};

const TTL: Duration = Duration::from_secs(15);

#[derive(Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn poll<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn desk() -> (ManualClock, Leases<Memory<ManualClock>>) {
    let clock = ManualClock::new();
    (clock.clone(), Leases::in_memory_with(clock))
}

fn jane() -> Owner {
    Owner::named("jane")
}

fn joe() -> Owner {
    Owner::named("joe")
}

#[test]
fn a_leader_hands_over_only_when_its_work_has_ended() {
    let (_, leases) = desk();
    let leader = Leader::new(&leases);
    let leadership = leader.campaign("scheduler", &jane(), TTL).wait().unwrap();
    let (first, second) = (leadership.work(), leadership.work());
    let third = second.clone();
    let before = leadership.token();
    let mut joes = leader.campaign("scheduler", &joe(), TTL);
    let mut resigning = leadership.resign();
    for work in [first, second, third] {
        assert_eq!(work.token(), before);
        assert!(poll(&mut resigning).is_pending() && poll(&mut joes).is_pending());
        drop(work);
    }
    assert!(matches!(poll(&mut resigning), Poll::Ready(Ok(()))));
    let Poll::Ready(Ok(joes)) = poll(&mut joes) else { panic!("nobody leads") };
    assert!(joes.token() > before);
}

#[test]
fn the_end_of_the_last_work_wakes_the_leader_that_resigns() {
    let (_, leases) = desk();
    let leadership = Leader::new(&leases).campaign("scheduler", &jane(), TTL).wait().unwrap();
    let (first, second) = (leadership.work(), leadership.work());
    let woken = Arc::new(Counting::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut resigning = pin!(leadership.resign());
    assert!(resigning.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(first);
    assert_eq!(woken.0.load(SeqCst), 0);
    drop(second);
    assert_eq!(woken.0.load(SeqCst), 1);
}

#[test]
fn a_leader_that_resigns_leads_for_as_long_as_its_work_takes() {
    let (clock, leases) = desk();
    let leader = Leader::new(&leases);
    let leadership = leader.campaign("scheduler", &jane(), TTL).wait().unwrap();
    let work = leadership.work();
    let mut joes = leader.campaign("scheduler", &joe(), TTL);
    let mut resigning = leadership.resign();
    for _ in 0..20 {
        assert!(poll(&mut resigning).is_pending() && poll(&mut joes).is_pending());
        clock.advance(TTL / 2);
        leases.tick();
    }
    drop(work);
    assert!(matches!(poll(&mut resigning), Poll::Ready(Ok(()))));
    assert!(poll(&mut joes).is_ready());
}

#[test]
fn a_leadership_that_is_dropped_with_work_is_not_handed_over_before_it_expires() {
    let (clock, leases) = desk();
    let leader = Leader::new(&leases);
    for resigns in [false, true] {
        let leadership = leader.campaign("scheduler", &jane(), TTL).wait().unwrap();
        let work = leadership.work();
        let mut joes = leader.campaign("scheduler", &joe(), TTL);
        assert!(poll(&mut joes).is_pending());
        if resigns {
            let mut resigning = leadership.resign();
            assert!(poll(&mut resigning).is_pending());
            drop(resigning);
        } else {
            drop(leadership);
        }
        drop(work);
        assert!(poll(&mut joes).is_pending());
        clock.advance(TTL);
        leases.tick();
        assert!(matches!(poll(&mut joes), Poll::Ready(Ok(_))));
    }
}

#[test]
fn a_leadership_that_is_dropped_without_work_is_handed_over_at_once() {
    let (_, leases) = desk();
    let leader = Leader::new(&leases);
    let leadership = leader.campaign("scheduler", &jane(), TTL).wait().unwrap();
    drop(leadership.work());
    let mut joes = leader.campaign("scheduler", &joe(), TTL);
    assert!(poll(&mut joes).is_pending());
    drop(leadership);
    assert!(poll(&mut joes).is_ready());
}

#[test]
fn a_leader_that_loses_the_lease_while_it_resigns_is_told() {
    let (_, leases) = desk();
    let leader = Leader::new(&leases);
    let leadership = leader.campaign("scheduler", &jane(), TTL).wait().unwrap();
    let _work = leadership.work();
    let mut resigning = leadership.resign();
    assert!(poll(&mut resigning).is_pending());
    leases.release_all_now(&jane()).unwrap();
    assert!(matches!(poll(&mut resigning), Poll::Ready(Err(ReleaseError::NotHeld { .. }))));
}

#[test]
fn a_leader_runs_until_it_no_longer_leads() {
    let (_, leases) = desk();
    let mut leadership = Leader::new(&leases).campaign("scheduler", &jane(), TTL).wait().unwrap();
    assert!(matches!(leadership.run(async { 17 }).wait(), Ok(17)));
    leases.release_all_now(&jane()).unwrap();
    assert_eq!(leadership.run(async { 17 }).wait(), Err(Lost::Released));
}

#[test]
fn a_candidate_may_give_up() {
    let (_, leases) = desk();
    let leader = Leader::new(&leases);
    let leadership = leader.campaign("scheduler", &jane(), TTL).wait().unwrap();
    let gave_up = leader.campaign("scheduler", &joe(), TTL).until(std::future::ready(())).wait();
    assert!(matches!(gave_up, Err(AcquireError::Limit { resource }) if resource.key() == "scheduler"));
    drop(leadership);
    assert!(leader.campaign("scheduler", &joe(), TTL).wait().is_ok());
}

#[test]
fn everybody_observes_who_leads() {
    let (clock, leases) = desk();
    let leader = Leader::new(&leases);
    let mut observed = leader.observe("scheduler");
    assert!(observed.changed().wait().unwrap().is_none());
    let leadership = leader.campaign("scheduler", &jane(), TTL).wait().unwrap();
    let janes = observed.changed().wait().unwrap().unwrap();
    assert_eq!((janes.owner(), janes.token()), (&jane(), leadership.token()));
    clock.advance(TTL);
    assert!(observed.changed().wait().unwrap().is_none());
    let joes = leader.campaign("scheduler", &joe(), TTL).wait().unwrap();
    assert_eq!(observed.changed().wait().unwrap().unwrap().token(), joes.token());
    assert!(joes.token() > leadership.token());
}

#[test]
fn a_leadership_may_move_into_a_thread() {
    let leader = Leader::new_arc(Arc::new(Leases::in_memory()));
    let leadership = leader.clone().campaign("scheduler", &jane(), TTL).wait().unwrap();
    std::thread::spawn(move || leadership.resign().wait()).join().unwrap().unwrap();
    assert!(leader.campaign("scheduler", &joe(), TTL).wait().is_ok());
}

#[test]
#[should_panic(expected = "zero")]
fn a_time_to_live_of_zero_panics() {
    let (_, leases) = desk();
    drop(Leader::new(&leases).campaign("scheduler", &jane(), Duration::ZERO));
}
