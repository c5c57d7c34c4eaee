//! Tests of a link and its driver, with connections that can be made, broken, silenced and slowed down on demand.

use std::{
    future::{Future, pending, poll_fn},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use futures_lite::future::{block_on, or, poll_once, zip};
use keylatch_lease::{
    Expiry, Owner, Resource, Token,
    engine::{Ask, Want},
};
use keylatch_lease_remote::{BoxError, Driving, Failure, Handle, Limit, Link, Session, Tenure, drive, sleep};

/// A timeout that no test here reaches, unless it hangs.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, PartialEq)]
enum Failed {
    Unconnected(Option<String>),
    Timeout,
    Stopped,
    ForEver,
}

impl Failure for Failed {
    fn unconnected(cause: Option<BoxError>) -> Self {
        Failed::Unconnected(cause.map(|cause| cause.to_string()))
    }

    fn timeout() -> Self {
        Failed::Timeout
    }

    fn stopped() -> Self {
        Failed::Stopped
    }

    fn is_lasting(&self) -> bool {
        *self == Failed::ForEver
    }
}

/// The server. Each connection is a clone of it.
#[derive(Clone, Default)]
struct Server(Arc<State>);

#[derive(Default)]
struct State {
    /// The number of connections made.
    dialled: AtomicUsize,
    /// The error of each attempt to connect, if attempts should fail.
    refuses: Mutex<Option<Failed>>,
    /// Whether the present connection is about to break.
    breaks: AtomicBool,
    /// Whether the server accepts requests without answering.
    is_silent: AtomicBool,
    /// The number of releases that will still fail.
    will_not: AtomicUsize,
    /// The number of requested releases.
    asked: AtomicUsize,
    /// The number of releases that must have been requested before any of them is answered.
    at_least: AtomicUsize,
    given_back: Mutex<Vec<String>>,
    sweeps: AtomicUsize,
}

impl Session for Server {
    type Error = Failed;

    fn is_closed(&self) -> bool {
        false
    }

    async fn give_back(&self, tenure: &Tenure) -> bool {
        let is_silent = self.0.is_silent.load(SeqCst);
        self.0.asked.fetch_add(1, SeqCst);
        if is_silent {
            pending::<()>().await;
        }
        while self.0.asked.load(SeqCst) < self.0.at_least.load(SeqCst) {
            sleep(Duration::from_millis(1)).await;
        }
        if self.0.will_not.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok() {
            return false;
        }
        self.0.given_back.lock().unwrap().push(tenure.resource.key().to_owned());
        true
    }

    /// The first five sweeps report that there is more.
    async fn sweep(&self) -> bool {
        self.0.sweeps.fetch_add(1, SeqCst) < 5
    }
}

impl Server {
    fn drive(&self, driving: Driving<Server>) -> impl Future<Output = ()> + Send + use<> {
        let server = self.clone();
        drive(driving, move |_| {
            let server = server.clone();
            async move {
                server.0.dialled.fetch_add(1, SeqCst);
                if let Some(refused) = server.0.refuses.lock().unwrap().clone() {
                    return Err(refused);
                }
                let state = Arc::clone(&server.0);
                let broken = async move {
                    while !state.breaks.swap(false, SeqCst) {
                        sleep(Duration::from_millis(1)).await;
                    }
                    Failed::Unconnected(Some("it broke".into()))
                };
                Ok((server, broken))
            }
        })
    }

    fn start(&self, timeout: Duration) -> Handle<Server> {
        let (link, driving) = Link::new(timeout, None);
        let driver = self.drive(driving);
        thread::spawn(|| block_on(driver));
        link
    }
}

async fn connected(link: &Link<Server>) -> Result<(), Failed> {
    link.session(&mut Limit::after(link.timeout())).await.map(|_| ())
}

fn until(is_it: impl Fn() -> bool) {
    while !is_it() {
        thread::sleep(Duration::from_millis(1));
    }
}

fn tenure(key: &str) -> Tenure {
    Tenure { resource: Resource::from(key), owner: Owner::named("ann"), token: Token::new(1).unwrap() }
}

/// Waits until this tenure's owner may acquire the resource.
async fn settled(link: &Link<Server>, Tenure { resource, owner, .. }: &Tenure, want: Want) -> Result<(), Failed> {
    let ask = Ask { resource, owner, want, term: None, expiry: &Expiry::Never, waiting: false, at: Duration::ZERO };
    link.settled(&mut Limit::after(link.timeout()), &ask).await
}

#[test]
fn a_lost_connection_is_made_again_and_every_watch_is_notified() {
    let server = Server::default();
    let link = server.start(LONG);
    block_on(connected(&link)).unwrap();
    for n in 2..5 {
        let watch = link.watchers().watch(&Resource::from("r"));
        server.0.breaks.store(true, SeqCst);
        until(|| server.0.dialled.load(SeqCst) == n);
        block_on(connected(&link)).unwrap();
        block_on(watch);
    }
}

/// The driver wakes the task when the session has just become known.
#[test]
fn a_watch_that_begins_with_the_session_is_not_notified_of_it() {
    struct Watching(Handle<Server>);

    impl Wake for Watching {
        fn wake(self: Arc<Self>) {
            assert!(block_on(poll_once(self.0.session(&mut Limit::after(LONG)))).is_some());
            std::mem::forget(self.0.watchers().watch(&Resource::from("r")));
        }
    }

    let (link, driving) = Link::new(LONG, None);
    let watching = Arc::new(Watching(link));
    let waker = Waker::from(Arc::clone(&watching));
    let mut limit = Limit::after(LONG);
    let mut session = Box::pin(watching.0.session(&mut limit));
    assert!(session.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let mut driver = Box::pin(Server::default().drive(driving));
    assert!(block_on(poll_once(&mut driver)).is_none());
    assert!(watching.0.watchers().has(&Resource::from("r")), "it was notified");
}

#[test]
fn an_operation_waits_for_a_connection_up_to_its_timeout() {
    let server = Server::default();
    *server.0.refuses.lock().unwrap() = Some(Failed::Unconnected(Some("refused".into())));
    let link = server.start(SHORT);
    until(|| server.0.dialled.load(SeqCst) > 0);
    until(|| block_on(connected(&link)) == Err(Failed::Unconnected(Some("refused".into()))));
    *server.0.refuses.lock().unwrap() = None;
    until(|| block_on(connected(&link)) == Ok(()));
}

#[test]
fn an_attempt_to_connect_that_takes_too_long_is_given_up() {
    let (link, driving) = Link::<Server>::new(SHORT, None);
    thread::spawn(|| block_on(drive(driving, |_| pending::<Result<(Server, std::future::Pending<Failed>), _>>())));
    until(|| matches!(block_on(connected(&link)), Err(Failed::Unconnected(Some(cause))) if cause.contains("too long")));
}

#[test]
fn a_lasting_failure_is_returned_at_once() {
    let server = Server::default();
    *server.0.refuses.lock().unwrap() = Some(Failed::ForEver);
    let link = server.start(LONG);
    assert_eq!(block_on(connected(&link)), Err(Failed::ForEver)); // not after the timeout of a minute
    *server.0.refuses.lock().unwrap() = None;
    until(|| block_on(connected(&link)) == Ok(()));
}

#[test]
fn an_operation_without_a_driver_does_not_wait() {
    let (link, driving) = Link::<Server>::new(LONG, None);
    let watch = link.watchers().watch(&Resource::from("r"));
    let asks = connected(&link);
    let (asked, ()) = block_on(zip(asks, async { drop(driving) }));
    assert_eq!(asked, Err(Failed::Stopped));
    block_on(watch);
    link.abandon(tenure("r")); // there is no driver to release it
}

#[test]
fn a_cancelled_operation_leaves_no_waker() {
    struct Counted;
    impl Wake for Counted {
        fn wake(self: Arc<Self>) {}
    }
    let (link, _driving) = Link::<Server>::new(LONG, None);
    let counted = Arc::new(Counted);
    let waker = Waker::from(Arc::clone(&counted));
    {
        let mut asks = Box::pin(connected(&link));
        for _ in 0..3 {
            assert!(asks.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert!(Arc::strong_count(&counted) > 2);
    }
    until(|| Arc::strong_count(&counted) == 2); // the timer drops its waker a moment later
}

#[test]
fn a_server_that_answers_no_operation_is_given_up() {
    let server = Server::default();
    let link = server.start(SHORT);
    let first = block_on(link.session(&mut Limit::after(LONG))).unwrap();
    let answer = block_on(link.answer(&first, &mut Limit::after(SHORT), pending::<()>()));
    assert_eq!(answer, None);
    let second = block_on(link.session(&mut Limit::after(LONG))).unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    assert_eq!(server.0.dialled.load(SeqCst), 2);
}

#[test]
fn a_server_that_answers_other_operations_is_not_given_up() {
    let server = Server::default();
    let link = server.start(SHORT);
    let session = block_on(link.session(&mut Limit::after(LONG))).unwrap();
    let mut limit = Limit::after(SHORT);
    let mut slow = Box::pin(link.answer(&session, &mut limit, pending::<()>()));
    assert_eq!(block_on(poll_once(slow.as_mut())), None);
    let quick = block_on(link.answer(&session, &mut Limit::after(LONG), async { 1 }));
    assert_eq!((quick, block_on(slow)), (Some(1), None));
    let same = block_on(link.session(&mut Limit::after(LONG))).unwrap();
    assert!(Arc::ptr_eq(&session, &same));
}

#[test]
fn a_request_with_little_time_left_does_not_count_against_the_server() {
    let server = Server::default();
    let link = server.start(LONG);
    let session = block_on(link.session(&mut Limit::after(LONG))).unwrap();
    let mut limit = Limit::after(SHORT); // the time left to the last request of an operation
    assert_eq!(block_on(link.answer(&session, &mut limit, pending::<()>())), None);
    let same = block_on(link.session(&mut Limit::after(LONG))).unwrap();
    assert!(Arc::ptr_eq(&session, &same));
}

/// Otherwise the resumed tenure would be released while its holder relies on it.
#[test]
fn an_acquire_waits_until_its_owners_abandoned_tenure_is_released() {
    for wanted in [Want::Any, Want::Mine] {
        let server = Server::default();
        server.0.will_not.store(2, SeqCst);
        let (link, driving) = Link::new(LONG, None);
        let [a, b] = [tenure("a"), tenure("b")];
        link.abandon(a.clone());
        let bobs = Tenure { owner: Owner::named("bob"), ..a.clone() };
        block_on(async {
            assert_eq!(settled(&link, &a, Want::New).await, Ok(()));
            assert_eq!(settled(&link, &a, Want::Fresh).await, Ok(()));
            assert_eq!(settled(&link, &b, wanted).await, Ok(()));
            assert_eq!(settled(&link, &bobs, wanted).await, Ok(()));
            let mut waiting = Box::pin(settled(&link, &a, wanted));
            for _ in 0..10 {
                assert!(poll_once(&mut waiting).await.is_none());
            }
            let driver = async {
                server.drive(driving).await;
                unreachable!("the link is in use")
            };
            assert_eq!(or(waiting, driver).await, Ok(()));
        });
        assert_eq!(*server.0.given_back.lock().unwrap(), ["a"]);
        assert_eq!(server.0.asked.load(SeqCst), 3);
    }
}

#[test]
fn an_acquire_that_waits_in_vain_gets_the_reason_and_the_tenure_is_still_released() {
    let server = Server::default();
    *server.0.refuses.lock().unwrap() = Some(Failed::Unconnected(Some("refused".into())));
    let link = server.start(SHORT);
    let a = tenure("a");
    link.abandon(a.clone());
    until(|| server.0.dialled.load(SeqCst) > 1); // only then is the reason known
    assert_eq!(block_on(settled(&link, &a, Want::Any)), Err(Failed::Unconnected(Some("refused".into()))));
    *server.0.refuses.lock().unwrap() = None;
    until(|| block_on(settled(&link, &a, Want::Any)) == Ok(()));
    assert_eq!(*server.0.given_back.lock().unwrap(), ["a"]);
}

#[test]
fn an_acquire_without_a_driver_does_not_wait_for_abandoned_tenures() {
    let server = Server::default();
    let (link, driving) = Link::new(LONG, None);
    let a = tenure("a");
    link.abandon(a.clone());
    let thread = thread::spawn({
        let server = server.clone();
        move || {
            let mut driver = Box::pin(server.drive(driving));
            assert!(block_on(poll_once(&mut driver)).is_none());
        }
    });
    assert_eq!(block_on(settled(&link, &a, Want::Any)), Ok(()));
    thread.join().unwrap();
}

#[test]
fn several_tenures_are_released_at_the_same_time() {
    let server = Server::default();
    server.0.at_least.store(50, SeqCst);
    let link = server.start(LONG);
    for n in 0..50 {
        link.abandon(tenure(&n.to_string()));
    }
    until(|| server.0.given_back.lock().unwrap().len() == 50);
}

#[test]
fn a_tenure_that_cannot_be_released_does_not_stop_the_sweeps() {
    let server = Server::default();
    server.0.is_silent.store(true, SeqCst);
    let (link, driving) = Link::new(LONG, Some(SHORT));
    for n in 0..500 {
        link.abandon(tenure(&n.to_string()));
    }
    let driver = server.drive(driving);
    thread::spawn(|| block_on(driver));
    until(|| server.0.sweeps.load(SeqCst) > 2);
    assert_eq!(*server.0.given_back.lock().unwrap(), [""; 0]);
    drop(link);
}

#[test]
fn a_failed_release_is_tried_again() {
    let server = Server::default();
    server.0.will_not.store(3, SeqCst);
    let link = server.start(LONG);
    for key in ["a", "b", "c"] {
        link.abandon(tenure(key));
    }
    until(|| server.0.given_back.lock().unwrap().len() == 3);
    let mut given_back = server.0.given_back.lock().unwrap().clone();
    given_back.sort();
    assert_eq!(given_back, ["a", "b", "c"]);
}

#[test]
fn a_connection_that_breaks_or_falls_silent_during_a_release_loses_no_tenure() {
    for breaks in [true, false] {
        let server = Server::default();
        server.0.is_silent.store(true, SeqCst);
        let link = server.start(if breaks { LONG } else { SHORT });
        link.abandon(tenure("a"));
        until(|| server.0.asked.load(SeqCst) > 0);
        server.0.is_silent.store(false, SeqCst);
        server.0.breaks.store(breaks, SeqCst);
        until(|| *server.0.given_back.lock().unwrap() == ["a"]);
    }
}

#[test]
fn the_driver_ends_when_all_tenures_are_released() {
    let server = Server::default();
    let (link, driving) = Link::new(LONG, None);
    server.0.will_not.store(2, SeqCst);
    link.abandon(tenure("a"));
    drop(link);
    block_on(server.drive(driving));
    assert_eq!(*server.0.given_back.lock().unwrap(), ["a"]);
}

#[test]
fn the_driver_ends_if_no_connection_can_be_made_for_a_release() {
    let server = Server::default();
    *server.0.refuses.lock().unwrap() = Some(Failed::ForEver);
    let (link, driving) = Link::new(LONG, None);
    link.abandon(tenure("a"));
    drop(link);
    block_on(server.drive(driving));
    assert_eq!(server.0.dialled.load(SeqCst), 1);
}

#[test]
fn the_driver_of_a_dropped_engine_does_not_connect() {
    let server = Server::default();
    let (link, driving) = Link::new(LONG, None);
    drop(link);
    block_on(server.drive(driving));
    assert_eq!(server.0.dialled.load(SeqCst), 0);
}

#[test]
fn the_driver_sweeps_until_nothing_is_left_and_again_later() {
    let server = Server::default();
    let (link, driving) = Link::new(LONG, Some(SHORT));
    let driver = server.drive(driving);
    let swept = poll_fn(|cx| {
        if server.0.sweeps.load(SeqCst) > 8 {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    block_on(or(swept, driver));
    assert!(server.0.sweeps.load(SeqCst) > 8);
    drop(link);
}

/// Many operations run on a connection that keeps breaking, and each is answered.
#[test]
fn every_operation_ends_on_a_connection_that_breaks_all_the_time() {
    let server = Server::default();
    let link = Arc::new(server.start(LONG));
    let asked = Arc::new(AtomicUsize::new(0));
    let crowd: Vec<_> = (0..4)
        .map(|_| {
            let (link, asked, server) = (Arc::clone(&link), Arc::clone(&asked), server.clone());
            thread::spawn(move || {
                for n in 0..200 {
                    let session = block_on(link.session(&mut Limit::after(LONG))).unwrap();
                    let answer = block_on(link.answer(&session, &mut Limit::after(LONG), async { n }));
                    assert_eq!(answer, Some(n));
                    if n % 50 == 0 {
                        server.0.breaks.store(true, SeqCst);
                    }
                    if n % 20 == 0 {
                        link.abandon(tenure(&n.to_string()));
                    }
                    asked.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    crowd.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(asked.load(SeqCst), 800);
    until(|| server.0.given_back.lock().unwrap().len() == 40);
}

#[test]
fn a_silent_server_is_noticed_even_if_every_caller_gives_up_early() {
    let server = Server::default();
    let link = server.start(20 * SHORT);
    let early = link.timeout() / 20;
    block_on(async {
        while server.0.dialled.load(SeqCst) < 2 {
            let session = link.session(&mut Limit::after(LONG)).await.unwrap();
            let mut limit = Limit::after(link.timeout());
            let asked = async { _ = link.answer(&session, &mut limit, pending::<()>()).await };
            or(asked, sleep(early)).await;
        }
    });
}
