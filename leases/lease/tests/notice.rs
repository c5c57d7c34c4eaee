//! Notices of a server about tenures that end early: they reach the holder, and cost a limited number of requests.

#![cfg(feature = "std")]

use std::{
    collections::HashMap,
    error::Error,
    fmt,
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use futures_lite::future::{block_on, poll_once, yield_now};
use keylatch_lease::{
    Clock, Leases, Lost, ManualClock, Memory, Owner, ReleaseError, Resource, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Notice, Owned, Record, Renewal},
};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Down;

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server is down")
    }
}

impl Error for Down {}

/// A simulated server: an engine in memory that executes a request on its second poll, and answers on the third. The
/// test decides which notices it sends.
#[derive(Clone)]
struct Server {
    memory: Arc<Memory<ManualClock>>,
    notices: Arc<Mutex<HashMap<Resource, Vec<Arc<Notice>>>>>,
    requests: Arc<AtomicUsize>,
    is_down: Arc<AtomicBool>,
    /// Whether the server ends the next tenure before it reports the grant.
    takes_it_away: Arc<AtomicBool>,
}

impl Server {
    fn tell(&self, resource: &Resource, tell: impl Fn(&Notice)) {
        let notices = self.notices.lock().unwrap().get(resource).cloned().unwrap_or_default();
        notices.iter().for_each(|notice| tell(notice));
    }

    fn tell_all(&self) {
        let notices: Vec<_> = self.notices.lock().unwrap().values().flatten().cloned().collect();
        Notice::doubt_all(notices.iter().map(|notice| &**notice));
    }

    /// Releases a tenure without a notice.
    fn take_away(&self, resource: &Resource) -> Token {
        let now = self.now();
        let record = block_on(self.memory.look(resource, now)).unwrap().unwrap();
        let gone = block_on(self.memory.release(resource, &record.owner, None, now));
        assert_eq!(gone, Ok(Gone::Released));
        record.token
    }

    fn subscribed(&self) -> usize {
        self.notices.lock().unwrap().values().map(Vec::len).sum()
    }

    /// Returns the number of requests since the last call.
    fn requests(&self) -> usize {
        self.requests.swap(0, SeqCst)
    }

    async fn answer<T>(&self, done: impl Future<Output = Result<T, Fail<std::convert::Infallible>>>) -> Far<T> {
        self.requests.fetch_add(1, SeqCst);
        yield_now().await;
        let answer = done.await.unwrap_or_else(|never| match never.into_cause() {});
        yield_now().await;
        if self.is_down.load(SeqCst) { Err(Fail::NotDone(Down)) } else { Ok(answer) }
    }
}

type Far<T> = Result<T, Fail<Down>>;

impl Engine for Server {
    type Error = Down;

    fn now(&self) -> Duration {
        self.memory.clock().now()
    }

    fn is_real_time(&self) -> bool {
        false
    }

    async fn acquire(&self, ask: Ask<'_>) -> Far<Answer> {
        let answer = self.answer(self.memory.acquire(ask)).await;
        if self.takes_it_away.swap(false, SeqCst) {
            let token = self.take_away(ask.resource);
            self.tell(ask.resource, |notice| notice.ended(token, Lost::Released));
        }
        answer
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], at: Duration) -> Far<()> {
        self.answer(self.memory.renew(batch, at)).await
    }

    async fn release(&self, resource: &Resource, owner: &Owner, token: Option<Token>, at: Duration) -> Far<Gone> {
        self.answer(self.memory.release(resource, owner, token, at)).await
    }

    async fn release_all(&self, owner: &Owner, at: Duration) -> Far<Vec<Resource>> {
        self.answer(self.memory.release_all(owner, at)).await
    }

    async fn look(&self, resource: &Resource, at: Duration) -> Far<Option<Record>> {
        self.answer(self.memory.look(resource, at)).await
    }

    async fn owned_by(&self, owner: &Owner, at: Duration) -> Far<Vec<Owned>> {
        self.answer(self.memory.owned_by(owner, at)).await
    }

    async fn sweep(&self, limit: usize, at: Duration) -> Far<usize> {
        self.answer(Engine::sweep(&*self.memory, limit, at)).await
    }

    fn subscribe(&self, resource: &Resource, notice: &Arc<Notice>) -> bool {
        self.notices.lock().unwrap().entry(resource.clone()).or_default().push(Arc::clone(notice));
        true
    }

    fn unsubscribe(&self, resource: &Resource, notice: &Arc<Notice>) {
        let mut all = self.notices.lock().unwrap();
        all.get_mut(resource).unwrap().retain(|other| !Arc::ptr_eq(other, notice));
    }
}

fn desk() -> (Server, Leases<Server>, Owner, Owner) {
    let server = Server {
        memory: Arc::new(Memory::new(ManualClock::new())),
        notices: Arc::default(),
        requests: Arc::default(),
        is_down: Arc::default(),
        takes_it_away: Arc::default(),
    };
    (server.clone(), Leases::with_engine(server), Owner::named("jane"), Owner::named("joe"))
}

/// Polls a future that must be ready soon, whether it is woken or not.
#[track_caller]
fn soon<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let ready = (0..100).find_map(|_| block_on(poll_once(future.as_mut())));
    ready.expect("the future is ready soon")
}

/// A waker that counts its wakes.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_tenure_reported_as_ended_is_lost_without_a_poll() {
    let (server, leases, jane, _) = desk();
    let held = leases.hold_blocking("report", &jane, MINUTE).unwrap();
    server.requests();
    assert!(held.check().is_ok());
    let token = server.take_away(held.resource());
    server.tell(held.resource(), |notice| notice.ended(token, Lost::Released));
    assert_eq!(held.check(), Err(Lost::Released));
    assert_eq!(held.check_for(Duration::ZERO), Err(Lost::Released));
    assert_eq!(soon(held.lost()), Lost::Released);
    assert_eq!(soon(held.renewal()), Lost::Released);
    assert_eq!(server.requests(), 0);
}

#[test]
fn a_notice_wakes_all_futures_of_the_held() {
    let (server, leases, jane, _) = desk();
    let mut held = leases.hold_blocking("report", &jane, MINUTE).unwrap();
    let (token, resource) = (held.token(), held.resource().clone());
    let [for_loss, for_renewal, for_run] = [(); 3].map(|()| Arc::new(Count::default()));
    let waker = |count: &Arc<Count>| Waker::from(Arc::clone(count));
    let mut renewal = pin!(held.renewal());
    assert!(renewal.as_mut().poll(&mut Context::from_waker(&waker(&for_renewal))).is_pending());
    {
        let mut lost = pin!(held.lost());
        assert!(lost.as_mut().poll(&mut Context::from_waker(&waker(&for_loss))).is_pending());
        server.tell(&resource, |notice| notice.ended(Token::new(token.get() - 1).unwrap(), Lost::Released));
        assert!(lost.as_mut().poll(&mut Context::from_waker(&waker(&for_loss))).is_pending());
        assert_eq!(held.check(), Ok(token)); // the notice was about an earlier tenure
    }
    let before = for_loss.0.load(SeqCst);
    let work = Arc::new(());
    let working = Arc::clone(&work);
    let mut run = pin!(held.run(async move {
        let _working = working;
        std::future::pending::<()>().await;
    }));
    assert!(run.as_mut().poll(&mut Context::from_waker(&waker(&for_run))).is_pending());
    let runs_before = for_run.0.load(SeqCst);
    server.tell(&resource, |notice| notice.ended(token, Lost::TakenOver));
    assert!(for_run.0.load(SeqCst) > runs_before);
    assert!(for_renewal.0.load(SeqCst) > 0);
    assert_eq!(for_loss.0.load(SeqCst), before); // the dropped future is not woken
    assert_eq!(soon(run), Err(Lost::TakenOver));
    assert_eq!(Arc::strong_count(&work), 1); // the work has been dropped
    assert_eq!(soon(renewal), Lost::TakenOver);
}

#[test]
fn a_notice_during_the_grant_is_not_missed() {
    let (server, leases, jane, _) = desk();
    server.takes_it_away.store(true, SeqCst);
    let held = leases.hold_blocking("report", &jane, MINUTE).unwrap();
    assert_eq!(held.check(), Err(Lost::Released));
}

#[test]
fn a_doubt_costs_one_request_and_quiet_times_cost_none() {
    let (server, leases, jane, _) = desk();
    let held = leases.hold_blocking("report", &jane, MINUTE).unwrap();
    server.requests();
    block_on(async {
        let mut lost = pin!(held.lost());
        let mut renewal = pin!(held.renewal());
        for _ in 0..100 {
            assert!(poll_once(lost.as_mut()).await.is_none());
            assert!(poll_once(renewal.as_mut()).await.is_none());
        }
        assert_eq!(server.requests(), 0);
        for _ in 0..3 {
            server.tell_all();
            for _ in 0..10 {
                assert!(poll_once(lost.as_mut()).await.is_none());
                assert!(poll_once(renewal.as_mut()).await.is_none());
            }
            assert_eq!(server.requests(), 1);
            assert_eq!(held.check(), Ok(held.token()));
        }
    });
}

#[test]
fn after_a_doubt_the_held_asks_and_reports_how_it_was_lost() {
    for (is_taken, how) in [(false, Lost::Released), (true, Lost::TakenOver)] {
        let (server, leases, jane, joe) = desk();
        let held = leases.hold_blocking("report", &jane, MINUTE).unwrap();
        server.take_away(held.resource());
        if is_taken {
            leases.try_acquire_blocking("report", &joe, MINUTE).unwrap();
        }
        assert!(held.check().is_ok()); // there was no notice
        server.tell_all();
        assert_eq!(soon(held.lost()), how);
        assert_eq!(held.check(), Err(how));
    }
}

/// A doubt that arrives during a look-up may be about a change that the look-up has not seen.
#[test]
fn a_second_doubt_causes_a_second_look() {
    let (server, leases, jane, _) = desk();
    let held = leases.hold_blocking("report", &jane, MINUTE).unwrap();
    block_on(async {
        let mut lost = pin!(held.lost());
        server.tell_all();
        assert!(poll_once(lost.as_mut()).await.is_none()); // the request is sent
        assert!(poll_once(lost.as_mut()).await.is_none()); // the engine has answered, but the answer has not arrived
        server.take_away(held.resource());
        server.tell_all();
        assert_eq!(soon(lost), Lost::Released);
    });
}

#[test]
fn a_failed_look_does_not_lose_the_lease() {
    let (server, leases, jane, _) = desk();
    let held = leases.hold_blocking("report", &jane, MINUTE).unwrap();
    block_on(async {
        let mut lost = pin!(held.lost());
        server.is_down.store(true, SeqCst);
        server.tell_all();
        for _ in 0..10 {
            assert!(poll_once(lost.as_mut()).await.is_none());
        }
        assert_eq!(held.check(), Ok(held.token()));
        server.is_down.store(false, SeqCst);
        server.take_away(held.resource());
        server.tell_all();
        assert_eq!(soon(lost), Lost::Released);
    });
}

#[test]
fn many_tenures_in_doubt_are_looked_at_together() {
    const MANY: usize = 1000;
    let (server, leases, jane, _) = desk();
    let held: Vec<_> =
        (0..MANY).map(|at| leases.hold_blocking(("report", at.to_string()), &jane, MINUTE).unwrap()).collect();
    block_on(async {
        let mut lost: Vec<_> = held.iter().map(|held| held.lost()).collect();
        for lost in &mut lost {
            assert!(poll_once(lost).await.is_none());
        }
        server.requests();
        for at in [3, 500] {
            server.take_away(held[at].resource());
        }
        server.tell_all();
        let mut gone = Vec::new();
        for _ in 0..5 {
            for (at, lost) in lost.iter_mut().enumerate() {
                if !gone.contains(&at) && poll_once(lost).await.is_some() {
                    gone.push(at);
                }
            }
        }
        assert_eq!(gone, [3, 500]);
        let requests = server.requests();
        assert!(requests <= MANY.div_ceil(256) + 2, "{requests} requests"); // two more find the causes of two losses
    });
}

/// When one `Held` is polled, the loss of another, which is not polled, is found too.
#[test]
fn tenures_in_doubt_that_are_not_polled_are_looked_at_too() {
    let (server, leases, jane, _) = desk();
    let [polled, silent] = ["a", "b"].map(|name| leases.hold_blocking(name, &jane, MINUTE).unwrap());
    server.take_away(silent.resource());
    server.tell_all();
    block_on(async {
        let mut lost = pin!(polled.lost());
        for _ in 0..10 {
            assert!(poll_once(lost.as_mut()).await.is_none());
        }
    });
    assert_eq!(silent.check(), Err(Lost::Released));
}

/// A future that is woken by the first doubt finds all tenures in doubt already.
#[test]
fn all_tenures_are_in_doubt_before_any_waker_runs() {
    struct Polls(Mutex<Option<Box<dyn FnOnce() + Send>>>);

    impl Wake for Polls {
        fn wake(self: Arc<Self>) {
            let polls = self.0.lock().unwrap().take();
            polls.into_iter().for_each(|polls| polls());
        }
    }

    let (server, leases, jane, _) = desk();
    let leases = Arc::new(leases);
    let held: Vec<_> =
        (0..20).map(|at| block_on(leases.hold_arc(("report", at.to_string()), &jane, MINUTE)).unwrap()).collect();
    let mut waiting: Vec<_> = held.iter().map(|held| Box::pin(held.renewal())).collect();
    let looks = Arc::new(AtomicUsize::new(0));
    for renewal in &mut waiting {
        // The waker itself polls another future, as a second thread might do if it is fast.
        let (requests, looks) = (Arc::clone(&server.requests), Arc::clone(&looks));
        let mut again = Box::pin(held[0].renewal());
        let polls = move || {
            requests.swap(0, SeqCst);
            let _ = again.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            looks.fetch_add(requests.load(SeqCst), SeqCst);
            std::mem::forget(again); // not dropped, so that its request goes on claiming the other notices
        };
        let waker = Waker::from(Arc::new(Polls(Mutex::new(Some(Box::new(polls))))));
        assert!(renewal.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    server.tell_all();
    assert_eq!(looks.load(SeqCst), 1, "the first has looked at all of them");
}

#[test]
fn if_a_looking_future_is_dropped_the_others_look() {
    let (server, leases, jane, _) = desk();
    let [one, other] = ["a", "b"].map(|name| leases.hold_blocking(name, &jane, MINUTE).unwrap());
    block_on(async {
        let mut waiting = pin!(other.lost());
        assert!(poll_once(waiting.as_mut()).await.is_none());
        server.take_away(other.resource());
        server.tell_all();
        {
            let mut looking = pin!(one.lost());
            assert!(poll_once(looking.as_mut()).await.is_none()); // its request includes both
            assert!(poll_once(waiting.as_mut()).await.is_none());
        }
        assert_eq!(soon(waiting), Lost::Released);
    });
}

#[test]
fn dropped_helds_get_no_notices() {
    let (server, leases, jane, joe) = desk();
    let held = leases.hold_blocking("report", &jane, MINUTE).unwrap();
    assert_eq!(server.subscribed(), 1);
    assert!(leases.try_hold("report", &joe, MINUTE).wait().is_err());
    block_on(async {
        let mut waiting = leases.hold("report", &joe, MINUTE);
        assert!(poll_once(&mut waiting).await.is_none());
        assert_eq!(server.subscribed(), 2);
    });
    assert_eq!(server.subscribed(), 1);
    let grant = held.into_grant();
    assert_eq!(server.subscribed(), 0);
    leases.release_blocking(&grant).unwrap();
    drop(leases.hold_blocking("report", &jane, MINUTE).unwrap());
    leases.release_as_blocking("report", &jane).unwrap(); // this server does not release the lease of a dropped `Held`
    leases.hold_blocking("report", &jane, MINUTE).unwrap().release().wait().unwrap();
    assert_eq!(server.subscribed(), 0);
}

#[test]
fn release_token_ends_exactly_the_tenure_of_that_token() {
    let (server, leases, jane, joe) = desk();
    let old = leases.try_acquire_blocking("report", &jane, MINUTE).unwrap();
    let new = leases.try_acquire("report", &jane, MINUTE).fresh_token().wait().unwrap();
    let refused = leases.release_token_blocking("report", old.token());
    assert_eq!(refused, Err(ReleaseError::NotOwner { resource: "report".into(), owner: jane.clone() }));
    assert!(leases.renew_blocking(&new).is_ok());
    leases.release_token_blocking("report", new.token()).unwrap();
    let gone = leases.release_token_blocking("report", new.token());
    assert_eq!(gone, Err(ReleaseError::NotHeld { resource: "report".into() }));
    assert!(leases.try_acquire_blocking("report", &joe, MINUTE).is_ok());
    drop(server);
}

#[test]
fn in_memory_a_release_by_another_caller_is_seen_at_once() {
    let ends: [fn(&Leases, &Owner, Token); 4] = [
        |leases, jane, _| leases.release_as_now("report", jane).unwrap(),
        |leases, jane, _| assert_eq!(leases.release_all_now(jane), Ok(1)),
        |leases, _, token| leases.release_token_now("report", token).unwrap(),
        |leases, jane, _| leases.release_now(&leases.owned_by_now(jane).unwrap()[0]).unwrap(),
    ];
    for end in ends {
        let (leases, jane) = (Leases::in_memory(), Owner::named("jane"));
        let held = leases.hold_blocking("report", &jane, MINUTE).unwrap();
        let count = Arc::new(Count::default());
        let mut lost = pin!(held.lost());
        let waker = Waker::from(Arc::clone(&count));
        assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        end(&leases, &jane, held.token());
        assert_eq!(count.0.load(SeqCst), 1);
        assert_eq!(held.check(), Err(Lost::Released));
        assert_eq!(soon(lost), Lost::Released);
    }
}
