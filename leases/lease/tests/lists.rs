//! Lists and watches, in memory with a clock that the test moves.

use std::{
    collections::BTreeSet,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use futures_lite::future::{block_on, poll_once};
use keylatch_lease::{LeaseStatus, Leases, LookError, ManualClock, Memory, Owner};

const MINUTE: Duration = Duration::from_secs(60);

fn table() -> (Leases<Memory<ManualClock>>, ManualClock) {
    let clock = ManualClock::new();
    (Leases::in_memory_with(clock.clone()), clock)
}

fn owners() -> [Owner; 2] {
    ["jane", "joe"].map(Owner::named)
}

/// A request to the table looks at no more than a thousand leases.
#[test]
fn a_list_of_thousands_is_complete_whatever_the_size_of_its_pages() {
    const COUNT: usize = 3500;
    let (leases, _) = table();
    let [jane, joe] = owners();
    for n in 0..COUNT {
        let (entity, owner) = if n % 7 == 0 { ("rare", &joe) } else { ("page", &jane) };
        leases.try_acquire_now((entity, &*n.to_string()), owner, MINUTE).unwrap();
    }
    for size in [1, 999, 1000, 1001, 10_000] {
        let mut list = leases.list().page_size(size);
        let mut all = Vec::new();
        while let Some(page) = block_on(list.next_page()).unwrap() {
            let is_last = all.len() + page.len() == COUNT;
            assert!(page.len() == size || is_last, "a page of {size} has {}", page.len());
            all.extend(page.iter().map(|lease| lease.resource().clone()));
        }
        assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (COUNT, COUNT));
        assert!(block_on(list.next_page()).unwrap().is_none(), "the end stays the end");
    }
    let rare = COUNT.div_ceil(7);
    assert_eq!(block_on(leases.list().entity_prefix("r").all()).unwrap().len(), rare);
    assert_eq!(block_on(leases.list().owner(&joe).page_size(1).all()).unwrap().len(), rare);
    assert_eq!(block_on(leases.list().owner(&jane).entity_prefix("r").all()).unwrap().len(), 0);
}

#[test]
fn a_dropped_request_for_a_page_leaves_the_list_where_it_was() {
    let (leases, _) = table();
    let [jane, _] = owners();
    for n in 0..3 {
        leases.try_acquire_now(n.to_string(), &jane, MINUTE).unwrap();
    }
    let mut list = leases.list().page_size(2);
    assert_eq!(list.cursor(), None);
    drop(list.next_page());
    assert_eq!(block_on(list.next_page()).unwrap().unwrap().len(), 2);
    let cursor = list.cursor().unwrap().to_owned();
    drop(list.next_page());
    assert_eq!(list.cursor(), Some(&*cursor));
    assert_eq!(block_on(leases.list().after(cursor).next_page()).unwrap().unwrap().len(), 1);
}

#[test]
fn wrong_arguments_of_a_list_are_reported() {
    let (leases, _) = table();
    let wrong = block_on(leases.list().after("nonsense").all());
    assert_eq!(wrong, Err(LookError::Invalid { argument: "cursor" }));
    let wrong = block_on(leases.list().owner(&Owner::named("")).all());
    assert_eq!(wrong, Err(LookError::Invalid { argument: "owner" }));
    let wrong = block_on(leases.watch("x".repeat(2000)).changed());
    assert_eq!(wrong, Err(LookError::Invalid { argument: "resource" }));
    let zero = std::panic::catch_unwind(|| drop(table().0.list().page_size(0)));
    assert!(zero.is_err_and(|panic| panic.downcast_ref::<&str>().is_some_and(|text| text.contains("page size"))));
}

#[test]
fn a_lease_is_listed_and_shown_since_its_beginning() {
    let (leases, clock) = table();
    let [jane, _] = owners();
    clock.advance(MINUTE);
    let grant = leases.try_acquire_now("report", &jane, 2 * MINUTE).unwrap();
    clock.advance(MINUTE);
    leases.renew_now(&grant).unwrap();
    clock.advance(MINUTE / 2);
    let listed = &block_on(leases.list().all()).unwrap()[0];
    let status = leases.status_now("report").unwrap().unwrap();
    let times = (MINUTE, MINUTE * 3 / 2, Some(MINUTE * 3 / 2));
    assert_eq!((listed.since(), listed.held_for(), listed.remaining()), times);
    assert_eq!((status.since(), status.held_for(), status.remaining()), times);
    // Once it has ended, the lease is not listed any more.
    clock.advance(MINUTE * 3 / 2);
    assert!(block_on(leases.list().all()).unwrap().is_empty());
}

/// The changes come at different moments: before the watch looks at the lease, while it looks, and before it sleeps.
#[test]
#[cfg(feature = "std")]
fn a_watch_misses_no_change_of_another_thread() {
    let leases = &Leases::in_memory();
    let [jane, _] = owners();
    let (sender, reports) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut watch = leases.watch("report");
            // Ends when nobody reads the reports any more.
            while sender.send(block_on(watch.changed()).unwrap().map(|status| status.token())).is_ok() {}
        });
        let next = || reports.recv_timeout(MINUTE / 2).expect("the watch has missed a change");
        assert_eq!(next(), None);
        for _ in 0..20_000 {
            let grant = leases.try_acquire_now("report", &jane, 10 * MINUTE).unwrap();
            assert_eq!(next(), Some(grant.token()));
            leases.release_now(&grant).unwrap();
            assert_eq!(next(), None);
        }
        drop(reports);
        leases.try_acquire_now("report", &jane, MINUTE).unwrap();
    });
}

/// A waker that counts its wakes.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Counter {
    fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

#[test]
fn a_watch_is_woken_by_each_tenure_and_by_no_renewal() {
    let (leases, clock) = table();
    let [jane, joe] = owners();
    let mut watch = leases.watch("report");
    assert_eq!(block_on(watch.changed()), Ok(None));
    let counter = Arc::new(Counter::default());
    let waker = Waker::from(Arc::clone(&counter));
    let mut cx = Context::from_waker(&waker);

    let owner = |status: Poll<Result<Option<LeaseStatus>, _>>| match status {
        Poll::Ready(Ok::<_, LookError>(status)) => Some(status.map(|status| status.owner().clone())),
        _ => None,
    };
    let grant = {
        let mut changed = pin!(watch.changed());
        assert_eq!(owner(changed.as_mut().poll(&mut cx)), None);
        let grant = leases.try_acquire_now("report", &jane, MINUTE).unwrap();
        assert!(counter.count() > 0, "nobody told the watch of the tenure");
        assert_eq!(owner(changed.poll(&mut cx)), Some(Some(jane.clone())));
        grant
    };
    {
        let mut changed = pin!(watch.changed());
        assert_eq!(owner(changed.as_mut().poll(&mut cx)), None);
        leases.renew_now(&grant).unwrap();
        assert_eq!(owner(changed.as_mut().poll(&mut cx)), None);
        // The future is dropped here. The next one must miss no change.
    }
    leases.release_now(&grant).unwrap();
    leases.try_acquire_now("report", &joe, MINUTE).unwrap();
    assert_eq!(block_on(watch.changed()).unwrap().unwrap().owner(), &joe);
    {
        let mut changed = pin!(watch.changed());
        assert_eq!(owner(changed.as_mut().poll(&mut cx)), None);
        clock.advance(MINUTE);
        let before = counter.count();
        leases.tick();
        assert!(counter.count() > before, "the tick has not woken the watch at the end of the lease");
        assert_eq!(owner(changed.poll(&mut cx)), Some(None));
    }
    let mut changed = pin!(watch.changed());
    assert!(block_on(poll_once(changed.as_mut())).is_none());
}
