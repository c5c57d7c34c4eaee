//! Watching the owner of a resource.

use core::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use crate::{
    LeaseStatus, Leases, LookError, Owner, Resource, Token, engine::Engine, held::Waiting, local_watch::LocalWatch,
    timer::Timer,
};

/// The owner name under which a server is asked to report the end of a tenure. This owner never has a lease.
const WATCHER: &str = "keylatch: watch";

/// The first pause before the engine is asked whether an owner has acquired a free resource. (Engines send no message
/// when one does.) Each further pause is twice as long, up to the engine's [fallback](Engine::fallback).
const SHORTEST: Duration = Duration::from_millis(50);

/// The longest pause if the engine has no fallback.
const LONGEST: Duration = Duration::from_secs(5);

/// A watch, which reports the owner of a resource whenever it changes: see [`Leases::watch`].
#[must_use = "nothing is watched until `changed` is called"]
pub struct Watch<'a, E: Engine> {
    leases: &'a Leases<E>,
    resource: Resource,
    /// The tenure that was reported last: `None` before the first report, and `Some(None)` if the resource was free.
    reported: Option<Option<Token>>,
}

impl<E: Engine> fmt::Debug for Watch<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("resource", &self.resource).finish_non_exhaustive()
    }
}

impl<E: Engine> Leases<E> {
    /// Watches a resource: reports its present owner, and then each change, such as a new leader.
    ///
    /// Tenures that are shorter than the time between two calls may be missed; the current state never is. A renewal is
    /// not a change.
    ///
    /// # How late
    /// With leases in memory, every change is reported at once; with a server, so is a change that another call of
    /// these `Leases` makes. The end of a tenure in another process is reported when a waiter would learn of it: when
    /// the server's message arrives. Engines send no message when somebody acquires a free resource. So while the
    /// resource is free, the watch asks the engine after 50 ms, and then after longer and longer pauses, up to the
    /// engine's fallback (5 s if it has none). While somebody has it, the watch asks when the lease should have ended,
    /// and whenever that fallback has passed.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let mut watch = leases.watch("scheduler");
    /// assert!(watch.changed().wait().unwrap().is_none()); // nobody has it now
    ///
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| leases.try_acquire_now("scheduler", &Owner::named("jane"), Duration::from_secs(60)).unwrap());
    ///     let status = watch.changed().wait().unwrap().unwrap();
    ///     assert_eq!(status.owner(), &Owner::named("jane"));
    /// });
    /// ```
    pub fn watch(&self, resource: impl Into<Resource>) -> Watch<'_, E> {
        Watch { leases: self, resource: resource.into(), reported: None }
    }
}

impl<E: Engine> Watch<'_, E> {
    /// Waits until the resource has a tenure other than the one reported last, or has none; the first call returns the
    /// current state at once.
    ///
    /// The future's output is `Result<Option<LeaseStatus>, LookError<E::Error>>`, as for [`status`](Leases::status).
    /// After an error the watch can still be used.
    ///
    /// # Errors
    /// [`LookError::Invalid`] if the resource is too long; [`LookError::Engine`] if the engine fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the next call reports the change.
    ///
    /// # Examples
    /// See [`Leases::watch`].
    pub fn changed(
        &mut self,
    ) -> Waiting<impl Future<Output = Result<Option<LeaseStatus>, LookError<E::Error>>> + Send + '_> {
        Waiting::new(self.next())
    }

    async fn next(&mut self) -> Result<Option<LeaseStatus>, LookError<E::Error>> {
        let Watch { leases, resource, reported } = self;
        let longest = leases.engine().fallback().unwrap_or(LONGEST);
        let mut pause = SHORTEST.min(longest);
        loop {
            // Both watches begin before the engine is asked, so that no change is missed.
            let mut local = LocalWatch::new(leases, resource);
            poll_fn(|cx| {
                local.wake_by(None, cx);
                Poll::Ready(())
            })
            .await;
            let mut far = pin!((!E::LOCAL).then(|| leases.engine().watch(resource)));
            // The clock is read before the request, because a time that is counted from a later moment could lie after
            // the end of the lease.
            let at = leases.engine().now();
            let status = leases.looked(resource.clone()).await?;
            let tenure = status.as_ref().map(LeaseStatus::token);
            if *reported != Some(tenure) {
                *reported = Some(tenure);
                return Ok(status);
            }
            let due = match &status {
                _ if E::LOCAL => status.and_then(|status| status.remaining()),
                Some(status) => {
                    let watcher = Owner::named(WATCHER);
                    leases.mark_as_wanted(resource, &watcher).await.map_err(LookError::Engine)?;
                    Some(status.remaining().unwrap_or(longest).min(longest))
                }
                None => {
                    let due = pause;
                    pause = (2 * pause).min(longest);
                    Some(due)
                }
            };
            let due = due.and_then(|due| at.checked_add(due));
            let mut timer = Timer::new();
            poll_fn(|cx| {
                if local.wake_by(due, cx) {
                    return Poll::Ready(());
                }
                if let Some(far) = far.as_mut().as_pin_mut() {
                    if far.poll(cx).is_ready() {
                        return Poll::Ready(());
                    }
                }
                let now = leases.engine().now();
                if due.is_some_and(|due| due <= now) {
                    return Poll::Ready(());
                }
                if leases.is_real_time { timer.poll(due, now, cx) } else { Poll::Pending }
            })
            .await;
        }
    }
}
