//! The part of an engine that does not depend on its server.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use keylatch_lease::{
    Clock, Owner, Resource, StdClock, Token,
    engine::{Answer, Ask, Fail, Notice},
};

use crate::{
    limit::Limit,
    link::{Driving, Failure, Handle, Link, Live, Session},
    polls::Polls,
    settings::Settings,
    tenure::Tenure,
    together::{Together, Turn},
};

/// The part of an engine that does not depend on its server: a [`Link`] to the server, the settings, and a clock. All
/// clones share them.
///
/// [`core_methods!`](crate::core_methods) implements the methods of [`Engine`](keylatch_lease::engine::Engine) that
/// need nothing else.
///
/// # Examples
/// An operation, on any session:
/// ```
/// use keylatch_lease::engine::Fail;
/// use keylatch_lease_remote::{Core, Session};
///
/// async fn ping<S: Session>(core: &Core<S>) -> Result<(), Fail<S::Error>> {
///     core.ask(&mut core.limit(), |_session| async { /* a request to the server */ }).await
/// }
/// ```
pub struct Core<S: Session>(Arc<Shared<S>>);

struct Shared<S: Session> {
    link: Handle<S>,
    namespace: String,
    fallback: Duration,
    /// The polls of the waiters; `None` if the server notifies waiters and holders.
    polls: Option<Polls>,
    clock: StdClock,
}

impl<S: Session> Clone for Core<S> {
    fn clone(&self) -> Self {
        Core(Arc::clone(&self.0))
    }
}

impl<S: Session> fmt::Debug for Core<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("namespace", &self.namespace()).finish_non_exhaustive()
    }
}

impl<S: Session> Core<S> {
    /// Returns the core of an engine that is not connected yet, and the driver's end of its link for
    /// [`drive`](crate::drive()).
    ///
    /// # Examples
    /// See [`core_methods!`](crate::core_methods).
    #[must_use]
    pub fn new(settings: Settings) -> (Self, Driving<S>) {
        Self::with(settings, None)
    }

    /// Returns the core of an engine whose server sends no messages. Its waiters poll: the pauses between two polls
    /// grow from `first` to the settings' fallback, by half each time, while a waiter of this process waits for the
    /// resource. Each pause is shortened at random, by up to half. Holders are not notified.
    ///
    /// The engine calls [`noted`](Self::noted) after each acquire.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease_remote::{Core, Driving, Session, Settings};
    ///
    /// fn quiet<S: Session>(settings: Settings) -> (Core<S>, Driving<S>) {
    ///     Core::polling(settings, Duration::from_millis(100))
    /// }
    /// ```
    #[must_use]
    pub fn polling(settings: Settings, first: Duration) -> (Self, Driving<S>) {
        let polls = Polls::new(first, settings.fallback);
        Self::with(settings, Some(polls))
    }

    fn with(settings: Settings, polls: Option<Polls>) -> (Self, Driving<S>) {
        let Settings { namespace, timeout, fallback, sweeps, .. } = settings;
        let (link, driving) = Link::new(timeout, sweeps);
        (Core(Arc::new(Shared { link, namespace, fallback, polls, clock: StdClock::new() })), driving)
    }

    /// Returns whether the waiters [poll](Self::polling), because the server sends no messages.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::engine::Ask;
    /// use keylatch_lease_remote::{Core, Session};
    ///
    /// /// Returns whether the server should be told of a waiter.
    /// fn is_wanted<S: Session>(core: &Core<S>, ask: &Ask<'_>) -> bool {
    ///     ask.waiting && !core.is_polling()
    /// }
    /// ```
    #[must_use]
    pub fn is_polling(&self) -> bool {
        self.0.polls.is_some()
    }

    /// Notes the answer to an acquire, which determines the next pause of a waiter. Does nothing unless the waiters
    /// [poll](Self::polling).
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::engine::{Answer, Ask, Fail};
    /// use keylatch_lease_remote::{Core, Session};
    ///
    /// async fn acquire<S: Session>(core: &Core<S>, ask: Ask<'_>) -> Result<Answer, Fail<S::Error>> {
    ///     let mut limit = core.settled(&ask).await?;
    ///     let answer = core.ask(&mut limit, |_session| async { Answer::Free /* says the server */ }).await?;
    ///     core.noted(&ask, &answer);
    ///     Ok(answer)
    /// }
    /// ```
    pub fn noted(&self, ask: &Ask<'_>, answer: &Answer) {
        match (&self.0.polls, answer) {
            (Some(polls), Answer::Busy { .. }) if ask.waiting => polls.in_vain(ask.resource, self.now()),
            (Some(polls), Answer::Granted { .. }) => polls.got(ask.resource),
            _ => {}
        }
    }

    /// Returns the namespace.
    ///
    /// # Examples
    /// See [`core_methods!`](crate::core_methods).
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// Returns the time limit of an operation that begins now.
    ///
    /// # Examples
    /// See [`Core`].
    #[must_use]
    pub fn limit(&self) -> Limit {
        Limit::after(self.0.link.timeout())
    }

    /// Waits until there is a connection.
    ///
    /// # Errors
    /// The reason that there is no connection within the timeout.
    ///
    /// # Examples
    /// See [`core_methods!`](crate::core_methods).
    pub async fn ready(&self) -> Result<(), S::Error> {
        self.0.link.session(&mut self.limit()).await.map(|_| ())
    }

    /// Sends a request to the server once there is a connection, and returns the answer.
    ///
    /// # Errors
    /// [`NotDone`](Fail::NotDone) if there is no connection within the limit, [`Unknown`](Fail::Unknown) if there is no
    /// answer within it.
    ///
    /// # Examples
    /// See [`Core`].
    pub async fn ask<F: Future>(
        &self,
        limit: &mut Limit,
        question: impl FnOnce(Arc<Live<S>>) -> F,
    ) -> Result<F::Output, Fail<S::Error>> {
        let session = self.0.link.session(limit).await.map_err(Fail::NotDone)?;
        let question = question(Arc::clone(&session));
        let answer = self.0.link.answer(&session, limit, question).await;
        answer.ok_or_else(|| Fail::Unknown(S::Error::timeout()))
    }

    /// Asks a question [together](Together) with others that wait at the same moment. Returns `None` if the caller must
    /// send the question itself.
    ///
    /// # Errors
    /// Those of [`ask`](Self::ask). If the connection ends before the question is sent, the question waits for the next
    /// connection; if it ends afterwards, the error is [`Unknown`](Fail::Unknown).
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::{Resource, engine::Fail};
    /// use keylatch_lease_remote::{Core, Limit, Session, Together};
    ///
    /// async fn double<S: Session>(
    ///     core: &Core<S>,
    ///     resource: &Resource,
    ///     of: impl Fn(&S) -> &Together<u32, u32>,
    /// ) -> Result<Option<u32>, Fail<S::Error>> {
    ///     core.ask_together(&mut core.limit(), resource, &21, of).await
    /// }
    /// ```
    pub async fn ask_together<Q: Clone, A>(
        &self,
        limit: &mut Limit,
        resource: &Resource,
        question: &Q,
        of: impl Fn(&S) -> &Together<Q, A>,
    ) -> Result<Option<A>, Fail<S::Error>> {
        loop {
            let session = self.0.link.session(limit).await.map_err(Fail::NotDone)?;
            let asked = of(&session).ask(resource, question.clone());
            let is_answer = |turn: &Turn<A>| matches!(turn, Turn::Answered(_));
            match self.0.link.answer_if(&session, limit, asked, is_answer).await {
                Some(Turn::Answered(answer)) => return Ok(Some(answer)),
                Some(Turn::Alone) => return Ok(None),
                Some(Turn::NotSent) => {}
                Some(Turn::Lost) => return Err(Fail::Unknown(S::Error::unconnected(None))),
                None => return Err(Fail::Unknown(S::Error::timeout())),
            }
        }
    }

    /// Asks a question at once if no other question waits or is under way, and otherwise
    /// [together](Self::ask_together) with those that wait at the same moment. `alone` sends the question by itself.
    ///
    /// # Errors
    /// Those of [`ask_together`](Self::ask_together).
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::{Resource, engine::Fail};
    /// use keylatch_lease_remote::{Core, Limit, Session, Together};
    ///
    /// async fn double<S: Session>(
    ///     core: &Core<S>,
    ///     resource: &Resource,
    ///     of: impl Fn(&S) -> &Together<u32, u32>,
    /// ) -> Result<u32, Fail<S::Error>> {
    ///     let alone = |_session, number| async move { 2 * number /* says the server */ };
    ///     core.ask_at_once_or_together(&mut core.limit(), resource, &21, of, alone).await
    /// }
    /// ```
    pub async fn ask_at_once_or_together<Q: Clone, A, F: Future<Output = A>>(
        &self,
        limit: &mut Limit,
        resource: &Resource,
        question: &Q,
        of: impl Fn(&S) -> &Together<Q, A>,
        alone: impl Fn(Arc<Live<S>>, Q) -> F,
    ) -> Result<A, Fail<S::Error>> {
        loop {
            let session = self.0.link.session(limit).await.map_err(Fail::NotDone)?;
            let asked = async {
                let together = of(&session);
                if let Some(_permit) = together.at_once() {
                    return Turn::Answered(alone(Arc::clone(&session), question.clone()).await);
                }
                match together.ask(resource, question.clone()).await {
                    Turn::Alone => Turn::Answered(alone(Arc::clone(&session), question.clone()).await),
                    turn => turn,
                }
            };
            let is_answer = |turn: &Turn<A>| matches!(turn, Turn::Answered(_));
            match self.0.link.answer_if(&session, limit, asked, is_answer).await {
                Some(Turn::Answered(answer)) => return Ok(answer),
                Some(Turn::NotSent) => {}
                Some(Turn::Alone | Turn::Lost) => return Err(Fail::Unknown(S::Error::unconnected(None))),
                None => return Err(Fail::Unknown(S::Error::timeout())),
            }
        }
    }

    /// Waits until an acquire may be sent, as [`Link::settled`] does, and returns the acquire's time limit.
    ///
    /// # Errors
    /// The reason that the owner's earlier tenure could not be released.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::engine::{Answer, Ask, Fail};
    /// use keylatch_lease_remote::{Core, Session};
    ///
    /// async fn acquire<S: Session>(core: &Core<S>, ask: Ask<'_>) -> Result<Answer, Fail<S::Error>> {
    ///     let mut limit = core.settled(&ask).await?;
    ///     core.ask(&mut limit, |_session| async { Answer::Free /* says the server */ }).await
    /// }
    /// ```
    pub async fn settled(&self, ask: &Ask<'_>) -> Result<Limit, Fail<S::Error>> {
        let mut limit = self.limit();
        self.0.link.settled(&mut limit, ask).await.map_err(Fail::NotDone)?;
        Ok(limit)
    }

    /// Implements [`Engine::now`](keylatch_lease::engine::Engine::now).
    ///
    /// # Examples
    /// See [`core_methods!`](crate::core_methods).
    #[must_use]
    pub fn now(&self) -> Duration {
        self.0.clock.now()
    }

    /// Implements [`Engine::watch`](keylatch_lease::engine::Engine::watch).
    ///
    /// # Examples
    /// See [`core_methods!`](crate::core_methods).
    #[must_use = "a watch ends when it is dropped"]
    pub fn watch<'a>(&'a self, resource: &Resource) -> impl Future<Output = ()> + Send + use<'a, S> {
        let told = self.0.link.watchers().watch(resource);
        let pause = self.0.polls.as_ref().map(|polls| polls.pause(resource));
        async move {
            let Some(pause) = pause else { return told.await };
            // The server sends no messages, but a new connection wakes all waiters.
            Limit::after(pause.length(self.now())).of(told).await;
            pause.end();
        }
    }

    /// Implements [`Engine::subscribe`](keylatch_lease::engine::Engine::subscribe).
    ///
    /// # Examples
    /// See [`core_methods!`](crate::core_methods).
    pub fn subscribe(&self, resource: &Resource, notice: &Arc<Notice>) -> bool {
        let is_told = !self.is_polling();
        if is_told {
            self.0.link.watchers().subscribe(resource, notice);
        }
        is_told
    }

    /// Implements [`Engine::unsubscribe`](keylatch_lease::engine::Engine::unsubscribe).
    ///
    /// # Examples
    /// See [`core_methods!`](crate::core_methods).
    pub fn unsubscribe(&self, resource: &Resource, notice: &Arc<Notice>) {
        self.0.link.watchers().unsubscribe(resource, notice);
    }

    /// Returns the longest time that a waiter sleeps before it asks again without being notified.
    ///
    /// # Examples
    /// See [`core_methods!`](crate::core_methods).
    #[must_use]
    pub fn fallback(&self) -> Duration {
        self.0.fallback
    }

    /// Implements [`Engine::abandon`](keylatch_lease::engine::Engine::abandon): the driver releases the tenure when it
    /// can.
    ///
    /// # Examples
    /// See [`core_methods!`](crate::core_methods).
    pub fn abandon(&self, resource: &Resource, owner: &Owner, token: Token) {
        self.0.link.abandon(Tenure { resource: resource.clone(), owner: owner.clone(), token });
    }
}

/// Implements the methods of [`Engine`](keylatch_lease::engine::Engine) that need only the engine's
/// [`Core`](crate::Core): `now`, `is_real_time`, `watch`, `subscribe`, `unsubscribe`, `fallback` and `abandon`. The
/// argument names the field that contains the core.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// # use keylatch_lease::{Owner, Resource, Token, engine::*};
/// # use keylatch_lease_remote::{BoxError, Failure, Session, Settings, Tenure};
/// use keylatch_lease_remote::{Core, core_methods};
///
/// # #[derive(Clone, Debug)]
/// # struct Failed;
/// # impl std::fmt::Display for Failed {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("failed") }
/// # }
/// # impl std::error::Error for Failed {}
/// # impl Failure for Failed {
/// #     fn unconnected(_: Option<BoxError>) -> Self { Failed }
/// #     fn timeout() -> Self { Failed }
/// #     fn stopped() -> Self { Failed }
/// # }
/// # struct Connection;
/// # impl Session for Connection {
/// #     type Error = Failed;
/// #     fn is_closed(&self) -> bool { false }
/// #     async fn give_back(&self, _: &Tenure) -> bool { true }
/// # }
/// struct OnMyServer {
///     core: Core<Connection>,
/// }
///
/// impl Engine for OnMyServer {
///     type Error = Failed;
///
///     core_methods!(core);
///
///     async fn acquire(&self, ask: Ask<'_>) -> Result<Answer, Fail<Failed>> {
///         let mut limit = self.core.settled(&ask).await?;
///         self.core.ask(&mut limit, |_session| async { Answer::Free /* says the server */ }).await
///     }
///     // The other operations.
/// #     async fn renew(&self, _: &mut [Renewal<'_>], _: Duration) -> Result<(), Fail<Failed>> { Ok(()) }
/// #     async fn release(&self, _: &Resource, _: &Owner, _: Option<Token>, _: Duration) -> Result<Gone, Fail<Failed>> { Ok(Gone::NotHeld) }
/// #     async fn release_all(&self, _: &Owner, _: Duration) -> Result<Vec<Resource>, Fail<Failed>> { Ok(vec![]) }
/// #     async fn look(&self, _: &Resource, _: Duration) -> Result<Option<Record>, Fail<Failed>> { Ok(None) }
/// #     async fn owned_by(&self, _: &Owner, _: Duration) -> Result<Vec<Owned>, Fail<Failed>> { Ok(vec![]) }
/// #     async fn sweep(&self, _: usize, _: Duration) -> Result<usize, Fail<Failed>> { Ok(0) }
/// }
///
/// let (core, driving) = Core::new(Settings::new("shop", None));
/// let engine = OnMyServer { core };
/// assert_eq!(engine.core.namespace(), "shop");
/// assert_eq!(engine.fallback(), Some(Duration::from_secs(5)));
/// drop(driving); // without a driver there is no connection
/// assert!(futures_lite::future::block_on(engine.core.ready()).is_err());
/// ```
#[macro_export]
macro_rules! core_methods {
    ($core:ident) => {
        fn now(&self) -> ::std::time::Duration {
            self.$core.now()
        }

        fn is_real_time(&self) -> bool {
            true
        }

        fn watch(&self, resource: &$crate::__lease::Resource) -> impl ::std::future::Future<Output = ()> + Send {
            self.$core.watch(resource)
        }

        fn subscribe(
            &self,
            resource: &$crate::__lease::Resource,
            notice: &::std::sync::Arc<$crate::__lease::engine::Notice>,
        ) -> bool {
            self.$core.subscribe(resource, notice)
        }

        fn unsubscribe(
            &self,
            resource: &$crate::__lease::Resource,
            notice: &::std::sync::Arc<$crate::__lease::engine::Notice>,
        ) {
            self.$core.unsubscribe(resource, notice);
        }

        fn fallback(&self) -> ::core::option::Option<::std::time::Duration> {
            ::core::option::Option::Some(self.$core.fallback())
        }

        fn abandon(
            &self,
            resource: &$crate::__lease::Resource,
            owner: &$crate::__lease::Owner,
            token: $crate::__lease::Token,
        ) {
            self.$core.abandon(resource, owner, token);
        }
    };
}

#[cfg(test)]
mod tests {
    use super::Core;
    use crate::{BoxError, Failure, Session, Settings, Tenure};
    use futures_lite::future::{block_on, poll_once};
    use keylatch_lease::{
        Owner, Resource,
        engine::{Answer, Ask, Notice, Want},
    };
    use std::{pin::pin, sync::Arc, time::Duration};

    #[derive(Clone, Debug)]
    struct Failed;

    impl Failure for Failed {
        fn unconnected(_: Option<BoxError>) -> Self {
            Failed
        }

        fn timeout() -> Self {
            Failed
        }

        fn stopped() -> Self {
            Failed
        }
    }

    struct Connection;

    impl Session for Connection {
        type Error = Failed;

        fn is_closed(&self) -> bool {
            false
        }

        async fn give_back(&self, _: &Tenure) -> bool {
            true
        }
    }

    #[test]
    fn only_waiters_of_a_server_without_messages_poll() {
        let (milli, report) = (Duration::from_millis(1), Resource::from("report"));
        let settings = || Settings::new("shop", None).fallback(milli);
        let (told, _driving) = Core::<Connection>::new(settings());
        assert!(!told.is_polling() && told.subscribe(&report, &Arc::new(Notice::new())));
        let mut watch = pin!(told.watch(&report));
        for _ in 0..20 {
            assert!(block_on(poll_once(&mut watch)).is_none());
            std::thread::sleep(milli);
        }
        let (polling, _driving) = Core::<Connection>::polling(settings(), milli);
        assert!(polling.is_polling() && !polling.subscribe(&report, &Arc::new(Notice::new())));
        block_on(polling.watch(&report));
    }

    #[test]
    fn a_refused_waiter_pauses_longer_and_a_served_one_begins_anew() {
        let (core, _driving) = Core::<Connection>::polling(Settings::new("shop", None), Duration::from_millis(1));
        let (report, jane) = (Resource::from("report"), Owner::named("jane"));
        let polls = core.0.polls.as_ref().unwrap();
        let pause = polls.pause(&report);
        let busy = Answer::Busy { owner: jane.clone(), remaining: None };
        let note = |waiting, answer: &Answer| {
            let expiry = Duration::from_secs(1).into();
            let at = Duration::ZERO;
            core.noted(
                &Ask { resource: &report, owner: &jane, want: Want::Any, term: None, expiry: &expiry, waiting, at },
                answer,
            );
            pause.length(core.now())
        };
        let short = Duration::from_millis(10);
        (0..50).for_each(|_| assert!(note(false, &busy) < short));
        let long = (0..50).fold(short, |_, _| note(true, &busy));
        assert!(long >= Duration::from_millis(2500), "{long:?}");
        let token = keylatch_lease::Token::new(7).unwrap();
        let granted = Answer::Granted { token, resumed: false, held_for: Duration::ZERO, remaining: None };
        assert!(note(true, &granted) < short);
    }
}
