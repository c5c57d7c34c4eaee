//! Elections: one of several owners leads and hands over only when its work has ended, and anybody can see who leads.

use alloc::sync::Arc;
use core::{
    fmt,
    future::{Future, poll_fn},
    ops::Deref,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::{
    AcquireError, Held, Leases, Lost, ReleaseError, Resource, Token, Watch,
    calls::{Hold, Manner, Until},
    engine::Engine,
    held::{Table, Waiting},
    owner::Owner,
    sync::Mutex,
};

macro_rules! leader {
    ($($default:tt)*) => {
        /// Elections of a leader: at most one owner at a time [leads](Self::campaign) under a name, and everybody can
        /// [observe](Self::observe) who does.
        ///
        /// It is a thin layer on [`Leases::hold`] and [`Leases::watch`]. It adds one rule: a leader that
        /// [resigns](Leadership::resign) hands over only when its work has ended, including the work that it has given
        /// to other tasks or threads.
        ///
        /// # Examples
        /// ```
        /// use std::time::Duration;
        ///
        /// use keylatch_lease::{Leader, Leases, Owner};
        ///
        /// # smol::block_on(async {
        /// let leases = Leases::in_memory();
        /// let scheduler = Leader::new(&leases);
        ///
        /// let me = Owner::incarnation("worker-3");
        /// let mut leadership = scheduler.campaign("scheduler", &me, Duration::from_secs(15)).await.unwrap();
        /// let work = leadership.work(); // for a thread that works for the leader
        /// let thread = std::thread::spawn(move || { /* schedule */ drop(work) });
        /// leadership.run(async { /* schedule */ }).await.unwrap();
        ///
        /// leadership.resign().await.unwrap(); // when the thread has ended
        /// assert!(scheduler.observe("scheduler").changed().await.unwrap().is_none());
        /// # thread.join().unwrap();
        /// # });
        /// ```
        pub struct Leader<'a, E: Engine $($default)*> {
            table: Table<'a, E>,
        }

        /// The time during which an owner leads: see [`Leader::campaign`].
        ///
        /// It derefs to [`Held`], which has the [token](Held::token) and [`check`](Held::check)s, and reports when the
        /// leadership is [lost](Held::lost). It must be renewed: by [`run`](Self::run), by a spawned
        /// [`renewal`](Held::renewal), or by [`resign`](Self::resign) while it waits.
        ///
        /// If it is dropped while there is [work](Self::work), nothing is handed over: the lease stays until it
        /// expires. Otherwise it is released.
        ///
        /// # Examples
        /// See [`Leader`].
        #[must_use = "the leadership ends when it is dropped"]
        pub struct Leadership<'a, E: Engine $($default)*> {
            /// `None` once the leadership has ended.
            held: Option<Held<'a, E>>,
            works: Arc<Works>,
        }
    };
}

#[cfg(feature = "std")]
leader!(= crate::Memory<crate::StdClock>);
#[cfg(not(feature = "std"))]
leader!();

impl<E: Engine> Clone for Leader<'_, E> {
    fn clone(&self) -> Self {
        Leader { table: self.table.clone() }
    }
}

impl<E: Engine> fmt::Debug for Leader<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leader").finish_non_exhaustive()
    }
}

impl<'a, E: Engine> Leader<'a, E> {
    /// Creates elections that use these leases.
    ///
    /// # Examples
    /// See [`Leader`].
    #[must_use]
    pub fn new(leases: &'a Leases<E>) -> Self {
        Leader { table: Table::Borrowed(leases) }
    }

    /// Waits until this owner leads, and returns the leadership. Each call is a separate candidate: if the owner
    /// already leads, its earlier leadership is [lost](Lost::TakenOver) when this one begins.
    ///
    /// Every leadership has a greater token than all before it. The leader sends its token with each write, so that the
    /// store can refuse a leader that does not yet know that it no longer leads: see [`Fence`](crate::Fence).
    ///
    /// # Errors
    /// Fails like [`Leases::hold`].
    ///
    /// # Panics
    /// If `ttl` is zero.
    ///
    /// # Cancel safety
    /// See [`Hold`].
    ///
    /// # Examples
    /// See [`Leader`].
    #[track_caller]
    pub fn campaign(&self, name: impl Into<Resource>, owner: &Owner, ttl: Duration) -> Campaign<'a, E> {
        Campaign { hold: Hold::new(self.table.clone(), name.into(), owner.clone(), ttl, Manner::Wait) }
    }

    /// Watches the leader: reports it and its token now, and again whenever they change, as [`Leases::watch`] does.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leader, Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let scheduler = Leader::new(&leases);
    /// let leadership =
    ///     scheduler.campaign("scheduler", &Owner::named("jane"), Duration::from_secs(15)).wait().unwrap();
    /// let leads = scheduler.observe("scheduler").changed().wait().unwrap().unwrap();
    /// assert_eq!((leads.owner().name(), leads.token()), ("jane", leadership.token()));
    /// ```
    pub fn observe(&self, name: impl Into<Resource>) -> Watch<'_, E> {
        self.table.watch(name)
    }
}

impl<E: Engine + 'static> Leader<'static, E> {
    /// Creates elections that use these leases, and shares the leases instead of borrowing them, so that the
    /// [`Leadership`] can move into a task.
    ///
    /// # Examples
    /// ```
    /// use std::{sync::Arc, time::Duration};
    ///
    /// use keylatch_lease::{Leader, Leases, Owner};
    ///
    /// # smol::block_on(async {
    /// let scheduler = Leader::new_arc(Arc::new(Leases::in_memory()));
    /// let me = Owner::incarnation("worker-3");
    /// let leads = scheduler.campaign("scheduler", &me, Duration::from_secs(15));
    /// smol::spawn(async move { leads.await.unwrap().resign().await }).await.unwrap();
    /// # });
    /// ```
    #[must_use]
    pub fn new_arc(leases: Arc<Leases<E>>) -> Self {
        Leader { table: Table::Shared(leases) }
    }
}

/// The future of [`Leader::campaign`].
#[must_use = "futures do nothing unless they are awaited or polled"]
pub struct Campaign<'a, E: Engine> {
    hold: Hold<'a, E>,
}

impl<E: Engine> fmt::Debug for Campaign<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Campaign").field("hold", &self.hold).finish()
    }
}

impl<'a, E: Engine> Future for Campaign<'a, E> {
    type Output = Result<Leadership<'a, E>, AcquireError<E::Error>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let held = Pin::new(&mut self.hold).poll(cx);
        held.map_ok(|held| Leadership {
            held: Some(held),
            works: Arc::new(Works { state: Mutex::new(Working::default()) }),
        })
    }
}

impl<'a, E: Engine> Campaign<'a, E> {
    /// Gives up if `limit`, such as a timer or a cancellation token, is ready first. The output of `limit` is dropped.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{AcquireError, Leader, Leases, Owner};
    ///
    /// # smol::block_on(async {
    /// let leases = Leases::in_memory();
    /// let (scheduler, minute) = (Leader::new(&leases), Duration::from_secs(60));
    /// let _leads = scheduler.campaign("scheduler", &Owner::named("jane"), minute).await.unwrap();
    /// let joe = scheduler.campaign("scheduler", &Owner::named("joe"), minute);
    /// let got = joe.until(smol::Timer::after(Duration::from_millis(10))).await;
    /// assert!(matches!(got, Err(AcquireError::Limit { .. })));
    /// # });
    /// ```
    pub fn until<L: Future>(self, limit: L) -> Until<Self, L> {
        let resource = self.hold.resource().clone();
        Until::new(self, resource, limit)
    }

    /// Blocks the thread until the owner leads.
    ///
    /// # Blocking
    /// Do not call it in a task.
    ///
    /// # Errors
    /// Fails like [`Leases::hold`].
    ///
    /// # Examples
    /// See [`Leader::observe`].
    #[cfg(feature = "std")]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    pub fn wait(self) -> Result<Leadership<'a, E>, AcquireError<E::Error>> {
        async_io::block_on(self)
    }
}

impl<'a, E: Engine> Leadership<'a, E> {
    /// Runs `work`, and renews the leadership meanwhile: see [`Held::run`].
    ///
    /// # Errors
    /// The way in which the leadership was lost.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`. The owner still leads. If nothing else renews the lease, it expires.
    ///
    /// # Examples
    /// See [`Leader`].
    pub fn run<'h, F: Future>(
        &'h mut self,
        work: F,
    ) -> Waiting<impl Future<Output = Result<F::Output, Lost>> + use<'h, 'a, E, F>> {
        self.held_mut().run(work)
    }

    /// Returns a guard for work that is done elsewhere, in another task or thread. While there is one,
    /// [`resign`](Self::resign) waits.
    ///
    /// The work must end by itself when the leadership is lost, or write nothing without the [token](WorkGuard::token):
    /// a guard does not keep the lease alive.
    ///
    /// # Examples
    /// See [`Leadership::resign`].
    pub fn work(&self) -> WorkGuard {
        self.works.state.lock().count += 1;
        WorkGuard { works: Arc::clone(&self.works), token: self.token() }
    }

    /// Returns a future that waits until all [work](Self::work) has ended, renews the lease meanwhile, and then hands
    /// over: the next candidate leads, with a greater token. Before you call this, tell the work to end: this call does
    /// not tell it.
    ///
    /// # Errors
    /// Fails like [`Held::release`], also if the leadership was lost while the work was ending.
    ///
    /// # Cancel safety
    /// If the future is dropped while there is work, nothing is handed over: the lease stays until it expires.
    ///
    /// # Examples
    /// ```
    /// use std::{thread, time::Duration};
    ///
    /// use keylatch_lease::{Leader, Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let scheduler = Leader::new(&leases);
    /// let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
    /// let minute = Duration::from_secs(60);
    /// let leadership = scheduler.campaign("scheduler", &jane, minute).wait().unwrap();
    ///
    /// let work = leadership.work();
    /// let working = thread::spawn(move || {
    ///     thread::sleep(Duration::from_millis(10));
    ///     drop(work);
    /// });
    /// leadership.resign().wait().unwrap();
    /// working.join().unwrap(); // the work has ended before Joe leads
    /// assert!(scheduler.campaign("scheduler", &joe, minute).wait().is_ok());
    /// ```
    pub fn resign(self) -> Waiting<impl Future<Output = Result<(), ReleaseError<E::Error>>> + use<'a, E>> {
        let mut leadership = self;
        Waiting::new(async move {
            {
                let mut renewal = pin!(leadership.renewal());
                poll_fn(|cx| {
                    // If the leadership is lost, the work is not waited for; the release reports the loss.
                    if renewal.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { leadership.works.poll_ended(cx) }
                })
                .await;
            }
            let held = leadership.held.take().expect(PRESENT);
            held.release().await
        })
    }

    fn held_mut(&mut self) -> &mut Held<'a, E> {
        self.held.as_mut().expect(PRESENT)
    }
}

/// The panic message if there is no lease. This cannot happen: the lease is taken only when the leadership is consumed.
const PRESENT: &str = "the lease is there until the leadership ends";

impl<'a, E: Engine> Deref for Leadership<'a, E> {
    type Target = Held<'a, E>;

    fn deref(&self) -> &Held<'a, E> {
        self.held.as_ref().expect(PRESENT)
    }
}

impl<E: Engine> Drop for Leadership<'_, E> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            if self.works.state.lock().count > 0 {
                let _ = held.into_grant(); // it expires
            }
        }
    }
}

impl<E: Engine> fmt::Debug for Leadership<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership").field("held", &self.held).finish_non_exhaustive()
    }
}

/// A guard for work that is done for a leader elsewhere: see [`Leadership::work`]. Drop it when the work has ended. A
/// clone stands for more work.
///
/// # Examples
/// See [`Leadership::resign`].
#[must_use = "the leader may hand over when it is dropped"]
pub struct WorkGuard {
    works: Arc<Works>,
    token: Token,
}

impl WorkGuard {
    /// Returns the token of the leadership, which belongs in every write.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leader, Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let jane = Owner::named("jane");
    /// let leadership = Leader::new(&leases).campaign("scheduler", &jane, Duration::from_secs(15)).wait().unwrap();
    /// assert_eq!(leadership.work().token(), leadership.token());
    /// ```
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }
}

impl Clone for WorkGuard {
    fn clone(&self) -> Self {
        self.works.state.lock().count += 1;
        WorkGuard { works: Arc::clone(&self.works), token: self.token }
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.works.state.lock();
            state.count -= 1;
            if state.count == 0 { state.waiting.take() } else { None }
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

impl fmt::Debug for WorkGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkGuard").field("token", &self.token).finish_non_exhaustive()
    }
}

/// The work of a leadership.
struct Works {
    state: Mutex<Working>,
}

#[derive(Default)]
struct Working {
    count: usize,
    /// The waker of `resign`.
    waiting: Option<Waker>,
}

impl Works {
    /// Returns `Ready` if all work has ended. Otherwise stores the waker, which is called when it has.
    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let before = {
            let mut state = self.state.lock();
            if state.count == 0 {
                return Poll::Ready(());
            }
            state.waiting.replace(waker)
        };
        drop(before); // outside the lock
        Poll::Pending
    }
}
