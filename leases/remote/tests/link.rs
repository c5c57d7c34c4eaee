//! A link and its driver, on connections that are made, lost, silent and slow at will.

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

/// Nothing here takes so long, unless it is never done.
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

/// The server, of which every connection is a clone.
#[derive(Clone, Default)]
struct Server(Arc<State>);

#[derive(Default)]
struct State {
    /// How many connections have been made.
    dialled: AtomicUsize,
    /// Why there is no connection to be had.
    refuses: Mutex<Option<Failed>>,
    /// The connection that there is breaks.
    breaks: AtomicBool,
    /// It takes the question, and says nothing.
    is_silent: AtomicBool,
    /// How many tenures it will not take back.
    will_not: AtomicUsize,
    /// How often it was asked to take one back.
    asked: AtomicUsize,
    /// It takes none back before it has been asked so often.
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

    /// The first five times there is more.
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

/// Ready when this may be asked.
async fn settled(link: &Link<Server>, Tenure { resource, owner, .. }: &Tenure, want: Want) -> Result<(), Failed> {
    let ask = Ask { resource, owner, want, term: None, expiry: &Expiry::Never, waiting: false, at: Duration::ZERO };
    link.settled(&mut Limit::after(link.timeout()), &ask).await
}

#[test]
fn a_connection_that_is_lost_is_made_again_and_all_who_watch_look() {
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

#[test]
fn who_asks_waits_for_a_connection_as_long_as_an_operation_may_take() {
    let server = Server::default();
    *server.0.refuses.lock().unwrap() = Some(Failed::Unconnected(Some("refused".into())));
    let link = server.start(SHORT);
    until(|| server.0.dialled.load(SeqCst) > 0);
    until(|| block_on(connected(&link)) == Err(Failed::Unconnected(Some("refused".into()))));
    *server.0.refuses.lock().unwrap() = None;
    until(|| block_on(connected(&link)) == Ok(()));
}

#[test]
fn a_way_to_connect_that_takes_too_long_is_given_up() {
    let (link, driving) = Link::<Server>::new(SHORT, None);
    thread::spawn(|| block_on(drive(driving, |_| pending::<Result<(Server, std::future::Pending<Failed>), _>>())));
    until(|| matches!(block_on(connected(&link)), Err(Failed::Unconnected(Some(cause))) if cause.contains("too long")));
}

#[test]
fn what_lasts_is_said_at_once() {
    let server = Server::default();
    *server.0.refuses.lock().unwrap() = Some(Failed::ForEver);
    let link = server.start(LONG);
    assert_eq!(block_on(connected(&link)), Err(Failed::ForEver)); // not after a minute
    *server.0.refuses.lock().unwrap() = None;
    until(|| block_on(connected(&link)) == Ok(()));
}

#[test]
fn without_a_driver_nothing_is_waited_for() {
    let (link, driving) = Link::<Server>::new(LONG, None);
    let watch = link.watchers().watch(&Resource::from("r"));
    let asks = connected(&link);
    let (asked, ()) = block_on(zip(asks, async { drop(driving) }));
    assert_eq!(asked, Err(Failed::Stopped));
    block_on(watch);
    link.abandon(tenure("r")); // to nobody
}

#[test]
fn who_does_not_wait_any_more_leaves_no_waker() {
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
    until(|| Arc::strong_count(&counted) == 2); // the timer's goes a moment later
}

#[test]
fn a_server_that_says_nothing_to_anybody_is_given_up() {
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
fn a_server_that_answers_others_is_not() {
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
fn a_question_at_the_last_moment_says_nothing_of_the_server() {
    let server = Server::default();
    let link = server.start(LONG);
    let session = block_on(link.session(&mut Limit::after(LONG))).unwrap();
    let mut limit = Limit::after(SHORT); // so much is left of it, in an operation of many questions
    assert_eq!(block_on(link.answer(&session, &mut limit, pending::<()>())), None);
    let same = block_on(link.session(&mut Limit::after(LONG))).unwrap();
    assert!(Arc::ptr_eq(&session, &same));
}

/// Else it would be taken away from him later.
#[test]
fn who_asks_for_what_is_to_be_given_back_waits_for_that() {
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
fn who_waits_for_that_in_vain_is_told_why_and_it_is_given_back_all_the_same() {
    let server = Server::default();
    *server.0.refuses.lock().unwrap() = Some(Failed::Unconnected(Some("refused".into())));
    let link = server.start(SHORT);
    let a = tenure("a");
    link.abandon(a.clone());
    until(|| server.0.dialled.load(SeqCst) > 1); // so that the reason is known
    assert_eq!(block_on(settled(&link, &a, Want::Any)), Err(Failed::Unconnected(Some("refused".into()))));
    *server.0.refuses.lock().unwrap() = None;
    until(|| block_on(settled(&link, &a, Want::Any)) == Ok(()));
    assert_eq!(*server.0.given_back.lock().unwrap(), ["a"]);
}

#[test]
fn without_a_driver_nobody_waits_for_that() {
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
fn many_are_given_back_at_the_same_time() {
    let server = Server::default();
    server.0.at_least.store(50, SeqCst);
    let link = server.start(LONG);
    for n in 0..50 {
        link.abandon(tenure(&n.to_string()));
    }
    until(|| server.0.given_back.lock().unwrap().len() == 50);
}

#[test]
fn what_cannot_be_given_back_does_not_keep_it_from_sweeping() {
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
fn what_was_abandoned_is_given_back_however_often_it_takes() {
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
fn a_connection_that_breaks_or_is_silent_in_the_midst_of_it_takes_nothing_along() {
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
fn the_driver_ends_when_everything_is_given_back() {
    let server = Server::default();
    let (link, driving) = Link::new(LONG, None);
    server.0.will_not.store(2, SeqCst);
    link.abandon(tenure("a"));
    drop(link);
    block_on(server.drive(driving));
    assert_eq!(*server.0.given_back.lock().unwrap(), ["a"]);
}

#[test]
fn the_driver_ends_where_it_cannot_be_given_back() {
    let server = Server::default();
    *server.0.refuses.lock().unwrap() = Some(Failed::ForEver);
    let (link, driving) = Link::new(LONG, None);
    link.abandon(tenure("a"));
    drop(link);
    block_on(server.drive(driving));
    assert_eq!(server.0.dialled.load(SeqCst), 1);
}

#[test]
fn the_driver_of_what_nobody_uses_does_not_connect() {
    let server = Server::default();
    let (link, driving) = Link::new(LONG, None);
    drop(link);
    block_on(server.drive(driving));
    assert_eq!(server.0.dialled.load(SeqCst), 0);
}

#[test]
fn it_sweeps_until_there_is_no_more_and_again_later() {
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

/// Many at once, on a connection that breaks all the time: each is answered, or told that there was no answer.
#[test]
fn a_crowd_on_a_connection_that_breaks() {
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
