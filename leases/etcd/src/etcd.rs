use std::{
    collections::HashSet,
    fmt,
    future::Future,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::{join_all, try_join, try_join_all};
use keylatch_lease::{
    Owner, Resource, Term, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Listing, Owned, Part, Record, Renewal, Want},
};
use keylatch_lease_remote::{Core, Limit, Live, Policy, sleep};

use crate::{
    error::{Error, Trouble},
    leftovers::Granted,
    lock::{Changed, Lock, Value, seconds, slack, token, whole},
    place::Place,
    recall::Standing,
    session::{Draft, MOST, Session},
};

/// The pause before a key that is about to be removed, or that another client has changed, is read again.
const PAUSE: Duration = Duration::from_millis(20);

/// The inaccuracy of the stopwatch, which counts whole seconds.
const INEXACT: Duration = Duration::from_secs(1);

/// The outcome of an operation.
type Done<T> = Result<T, Fail<Error>>;

/// The engine that keeps leases in etcd: see the [crate's page](crate).
///
/// Clones share the connection. When the last clone is dropped, the driver releases the abandoned leases, and ends.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use keylatch_lease::{Leases, Owner};
/// use keylatch_lease_etcd::Etcd;
///
/// let etcd = Etcd::in_namespace("shop").connect(["http://etcd.example:2379"], None);
/// let leases = Leases::with_engine(etcd);
/// let jane = Owner::named("session-42");
/// let grant = leases.try_acquire(("invoice", "2024-17"), &jane, Duration::from_secs(600)).await?;
/// leases.release(&grant).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Etcd {
    pub(crate) core: Core<Session>,
    pub(crate) place: Arc<Place>,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("namespace", &self.namespace()).finish_non_exhaustive()
    }
}

/// The outcome of an attempt to begin a tenure.
enum Begun {
    Done(Answer),
    /// No tenure has begun. This is the tenure that the resource has, if any.
    Not(Option<Lock>),
}

/// The outcome of an attempt to extend a tenure.
enum Extended {
    /// The tenure goes on: the time left (`None`: it never expires), and the time that it has lasted.
    To { left: Option<Duration>, held_for: Duration },
    /// The tenure has ended or changed since it was read.
    Changed,
}

impl Etcd {
    /// Opens the namespace at once, without a quarantine. Do this when it is new, or when you know that nobody relies
    /// on a lease in it. It changes no lease.
    ///
    /// Call it once for each deployment, as you would create a table in a database; or by hand. A program that calls it
    /// at each start has no quarantine any more: see [the crate's page](crate#when-the-cluster-forgets).
    ///
    /// # Errors
    /// The errors of any operation.
    ///
    /// # Cancel safety
    /// If the future is dropped, the namespace may or may not have been opened.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(etcd: keylatch_lease_etcd::Etcd) -> Result<(), keylatch_lease_etcd::Error> {
    /// etcd.init().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn init(&self) -> Result<(), Error> {
        let question = |session: Arc<Live<Session>>| async move { session.end_quarantine().await };
        self.read(&mut self.core.limit(), question).await.map_err(Fail::into_cause)
    }

    /// Waits until there is a connection to a node with a leader. Operations wait by themselves; this call is for
    /// programs that want to check this when they start.
    ///
    /// # Errors
    /// The errors of any operation: [`Error::Unconnected`] after the [timeout](crate::Options::timeout),
    /// [`Error::Refused`], [`Error::Stopped`].
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(etcd: keylatch_lease_etcd::Etcd) -> Result<(), keylatch_lease_etcd::Error> {
    /// etcd.ready().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ready(&self) -> Result<(), Error> {
        self.core.ready().await
    }

    /// Returns the namespace.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(etcd: keylatch_lease_etcd::Etcd) {
    /// assert_eq!(etcd.namespace(), "shop");
    /// # }
    /// ```
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.core.namespace()
    }

    /// Sends one request, once there is a connection. If the connection turns out to be broken, gives it up.
    async fn ask<T, F>(
        &self,
        limit: &mut Limit,
        question: impl FnOnce(Arc<Live<Session>>) -> F,
    ) -> Done<Result<T, Trouble>>
    where
        F: Future<Output = Result<T, Trouble>>,
    {
        let question = |session: Arc<Live<Session>>| {
            // Boxed, or the future of each operation would be large.
            let answer = Box::pin(question(Arc::clone(&session)));
            async move {
                let answer = answer.await;
                if let Err(Trouble::Broken(_)) = answer {
                    session.give_up();
                }
                answer
            }
        };
        self.core.ask(limit, question).await
    }

    /// Sends a request whose side effects do not matter, and sends it again, within the limit, if the connection breaks
    /// or the etcd lease that it is about is not known.
    async fn read<T, F>(&self, limit: &mut Limit, question: impl Fn(Arc<Live<Session>>) -> F) -> Done<T>
    where
        F: Future<Output = Result<T, Trouble>>,
    {
        loop {
            match self.ask(limit, &question).await.map_err(|fail| Fail::NotDone(fail.into_cause()))? {
                Ok(answer) => return Ok(answer),
                Err(Trouble::Refused(error) | Trouble::Full(error)) => return Err(Fail::NotDone(error)),
                Err(Trouble::Broken(_)) => {}
                Err(Trouble::NoLease) => self.pause(limit).await?,
            }
        }
    }

    /// Sends a request once. Returns `None` if the etcd lease that it needs is gone; in that case nothing was changed.
    async fn write<T, F>(&self, limit: &mut Limit, question: impl FnOnce(Arc<Live<Session>>) -> F) -> Done<Option<T>>
    where
        F: Future<Output = Result<T, Trouble>>,
    {
        match self.ask(limit, question).await? {
            Ok(answer) => Ok(Some(answer)),
            Err(Trouble::NoLease) => Ok(None),
            Err(Trouble::Refused(error)) => Err(Fail::NotDone(error)),
            Err(Trouble::Broken(error) | Trouble::Full(error)) => Err(Fail::Unknown(error)),
        }
    }

    async fn find(&self, limit: &mut Limit, resource: &Resource) -> Done<Option<Lock>> {
        self.read(limit, |session| async move { session.find(resource).await }).await
    }

    /// Returns the remaining and the elapsed time of a tenure; `None` if its etcd lease has expired.
    async fn look_at(&self, limit: &mut Limit, lock: &Lock) -> Done<Option<(Option<Duration>, Duration)>> {
        let (left, now) = self
            .read(limit, |session| async move {
                let left = async {
                    match lock.lease {
                        0 => Ok(Some(None)),
                        lease => Ok(session.left(lease).await?.map(Some)),
                    }
                };
                try_join(left, session.clock()).await
            })
            .await?;
        // A new leader may report more time than the tenure had.
        let all = lock.value.seconds;
        let left = left.map(|left| left.map(|left| seconds((left - slack(all)).clamp(0, all))));
        Ok(left.map(|left| (left, lock.held_for(now))))
    }

    /// Returns the remaining time of a tenure for the answer to another owner: at least the time for which the holder
    /// may still rely on the tenure.
    async fn busy(&self, limit: &mut Limit, lock: &Lock) -> Done<Option<Duration>> {
        if lock.lease == 0 {
            return Ok(None);
        }
        let left = self.read(limit, |session| async move { session.left(lock.lease).await }).await?;
        let left = left.map_or(PAUSE, |left| seconds(left) + Duration::from_secs(1));
        Ok(Some(left.min(seconds(lock.value.seconds))))
    }

    /// Requests an etcd lease of this length, and returns it with its length in seconds. If the lease never expires, no
    /// etcd lease is needed, and the ID is 0.
    async fn grant(&self, limit: &mut Limit, time: Option<Duration>) -> Done<(Granted<'_>, i64)> {
        let granted = |id| Granted::new(&self.place.leftovers, id);
        let Some(whole) = time.and_then(whole) else { return Ok((granted(0), 0)) };
        // If the answer does not arrive, dropping `granted` makes it a leftover.
        let grant = |session: Arc<Live<Session>>| async move {
            let mut granted = granted(id());
            let (_, seconds) = session.grant(granted.lease(), whole).await?;
            granted.heard();
            Ok((granted, seconds))
        };
        self.read(limit, grant).await
    }

    /// Begins a tenure, unless another one is in its way.
    async fn begin(&self, limit: &mut Limit, ask: &Ask<'_>, term: Term, is_in_doubt: bool) -> Done<Begun> {
        let time = term.end(Duration::ZERO, Duration::ZERO);
        let whole = time.and_then(whole);
        let value = Value {
            base: 0,
            owner: ask.owner.clone(),
            seconds: whole.unwrap_or(0),
            since: 0,
            policy: Policy::of(ask.expiry),
        };
        let lease = whole.map_or(0, |_| id());
        let mut new = Draft { resource: ask.resource, slot: 0, lease, value };
        let question = |session: Arc<Live<Session>>| async move {
            if whole.is_some_and(|whole| whole < session.shortest) {
                return Ok(Err(seconds(session.shortest)));
            }
            // A tenure in doubt is replaced by a fresh one.
            let is_fresh = ask.want == Want::Fresh || is_in_doubt;
            let changed = session.begin(&mut new, is_fresh).await?;
            let is_kept_out = match &changed {
                Changed::Yes(_) => false,
                Changed::No(None) => true,
                Changed::No(Some(found)) => is_fresh && found.value.owner == *ask.owner,
            };
            if is_kept_out {
                if let Standing::Quarantined(remaining) = session.standing().await? {
                    return Ok(Ok(Err(remaining)));
                }
            }
            Ok(Ok(Ok(changed)))
        };
        Ok(match self.write(limit, question).await? {
            Some(Err(min)) => Begun::Done(Answer::TooShort { min }),
            Some(Ok(Err(remaining))) => Begun::Done(Answer::Quarantined { remaining }),
            Some(Ok(Ok(Changed::Yes(number)))) => {
                let token = token(number).ok_or(Fail::Unknown(Error::Unreadable))?;
                let remaining = time.filter(|_| whole.is_some());
                Begun::Done(Answer::Granted { token, resumed: false, held_for: Duration::ZERO, remaining })
            }
            Some(Ok(Ok(Changed::No(found)))) => Begun::Not(found),
            None => Begun::Not(None),
        })
    }

    /// Extends a tenure. Its end is never brought forward.
    async fn extend(&self, limit: &mut Limit, lock: &Lock, term: Option<Term>, policy: Policy) -> Done<Extended> {
        let is_kept = policy == lock.value.policy;
        if let Some(Term { idle: Some(idle), total: None }) = term {
            if is_kept && lock.lease != 0 && whole(idle) == Some(lock.value.seconds) {
                return self.keep_alive(limit, lock, idle).await;
            }
        }
        let asked = Instant::now();
        let Some((left, held_for)) = self.look_at(limit, lock).await? else { return Ok(Extended::Changed) };
        let Some(term) = term else { return Ok(Extended::To { left, held_for }) };
        // The rest of the total time is not known exactly.
        let rest = term.total.map(|total| total.saturating_sub(held_for));
        let wanted = term.idle.into_iter().chain(rest).min().filter(|&time| whole(time).is_some());
        let slack = if rest.is_some() && rest == wanted { INEXACT } else { Duration::ZERO };
        let is_enough = match (left, wanted) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(left), Some(wanted)) => wanted <= left + slack,
        };
        if is_enough && is_kept {
            return Ok(Extended::To { left, held_for });
        }
        let Value { base, owner, seconds, since, .. } = lock.value.clone();
        let (granted, seconds, left) = if is_enough {
            (None, seconds, left)
        } else {
            let (granted, seconds) = self.grant(limit, wanted).await?;
            // The tenure may have ended by now, and moving it would revive it. A keep-alive would not: etcd decides.
            if left.is_some_and(|left| left <= asked.elapsed() + Duration::from_secs(1)) {
                let keep = |session: Arc<Live<Session>>| async move { session.keep_alive(lock.lease).await };
                if !self.read(limit, keep).await? {
                    return Ok(Extended::Changed);
                }
            }
            (Some(granted), seconds, wanted)
        };
        let lease = granted.as_ref().map_or(lock.lease, Granted::lease);
        let value = Value { base, owner, seconds, since, policy };
        let new = Draft { resource: &lock.resource, slot: lock.slot, lease, value };
        let alter = |session: Arc<Live<Session>>| async move { session.alter(&new, lock, granted).await };
        match self.write(limit, alter).await? {
            Some(Changed::Yes(_)) => Ok(Extended::To { left, held_for }),
            _ => Ok(Extended::Changed),
        }
    }

    /// Restarts the time of the etcd lease. Returns [`Extended::Changed`] if the etcd lease has expired, or if the
    /// tenure has changed since it was read.
    async fn keep_alive(&self, limit: &mut Limit, lock: &Lock, time: Duration) -> Done<Extended> {
        let keep = |session: Arc<Live<Session>>| async move {
            let (is_alive, now) = try_join(session.keep_alive(lock.lease), session.clock()).await?;
            Ok((is_alive && session.confirm(lock).await?, now))
        };
        Ok(match self.read(limit, keep).await? {
            (true, now) => Extended::To { left: Some(time), held_for: lock.held_for(now) },
            (false, _) => Extended::Changed,
        })
    }

    /// Renews one tenure.
    async fn renewed(&self, renewal: &Renewal<'_>) -> Done<Left> {
        let mut limit = self.core.limit();
        loop {
            let found = self.find(&mut limit, renewal.resource).await?;
            let is_it = |lock: &Lock| (&lock.value.owner, lock.token) == (renewal.owner, renewal.token);
            let Some(lock) = found.filter(is_it) else { return Ok(Left::Nothing) };
            if let Extended::To { left, .. } = self.extend(&mut limit, &lock, renewal.term, lock.value.policy).await? {
                return Ok(left.map_or(Left::Forever, Left::For));
            }
            self.pause(&mut limit).await?;
        }
    }

    /// Releases everything that the owner has now. If that takes several transactions, the resources of each are added
    /// to `released` as they are released.
    async fn release_into(&self, released: &mut Vec<Resource>, owner: &Owner) -> Done<()> {
        let mut limit = self.core.limit();
        let mut rest: Option<HashSet<Resource>> = None;
        loop {
            let (mut locks, at) = self.read(&mut limit, |session| async move { session.owned(owner).await }).await?;
            let listed = locks.len();
            // Resources acquired after the first listing are not released, or this might never end. A resource of that
            // listing that now has a newer tenure is released: its owner may have held it without a break.
            if let Some(rest) = &rest {
                locks.retain(|lock| rest.contains(&lock.resource));
            }
            if locks.is_empty() {
                return Ok(());
            }
            let rest = rest.insert(locks.iter().map(|lock| lock.resource.clone()).collect());
            // If one transaction is enough, a lease acquired since the listing makes it fail. If several are needed,
            // each ends only the leases that it names.
            let is_whole = released.is_empty() && locks.len() == listed && listed < MOST;
            if !is_whole {
                locks.truncate(MOST / 2);
            }
            let (some, at) = (&locks, is_whole.then_some(at));
            let question = |session: Arc<Live<Session>>| async move { session.end_all(owner, some, at).await };
            match self.write(&mut limit, question).await? {
                Some(true) => {
                    for lock in locks {
                        rest.remove(&lock.resource);
                        released.push(lock.resource);
                    }
                    if is_whole {
                        return Ok(());
                    }
                }
                _ => self.pause(&mut limit).await?,
            }
        }
    }

    /// Pauses before the caller rereads a key that is about to be removed, or that another client has changed.
    async fn pause(&self, limit: &mut Limit) -> Done<()> {
        limit.of(sleep(PAUSE)).await.ok_or(Fail::NotDone(Error::Timeout))
    }
}

impl Engine for Etcd {
    type Error = Error;

    keylatch_lease_remote::core_methods!(core);

    async fn acquire(&self, ask: Ask<'_>) -> Done<Answer> {
        let mut limit = self.core.settled(&ask).await?;
        // A waiter knows that the resource is held, so it reads first, like a call that begins no tenure. Other callers
        // assume that it is free.
        let mut found = match (ask.waiting, ask.want, ask.term) {
            (false, Want::Any | Want::Fresh | Want::New, Some(_)) => None,
            _ => self.find(&mut limit, ask.resource).await?,
        };
        loop {
            // The cluster may have forgotten that this owner released the resource, and another owner's greater token.
            let base = self.place.base();
            let is_in_doubt =
                found.as_ref().is_some_and(|lock| lock.value.owner == *ask.owner && lock.value.base != base);
            found = match (found, ask.want, ask.term) {
                (None, Want::Mine, _) | (None, _, None) => return Ok(Answer::Free),
                (Some(lock), want, _) if lock.value.owner != *ask.owner || want == Want::New => {
                    let remaining = self.busy(&mut limit, &lock).await?;
                    return Ok(Answer::Busy { owner: lock.value.owner, remaining });
                }
                (Some(_), Want::Mine, _) if is_in_doubt => return Ok(Answer::Free),
                (Some(lock), want, term) if want != Want::Fresh && !is_in_doubt => {
                    let policy = term.map_or(lock.value.policy, |_| Policy::of(ask.expiry));
                    if let Extended::To { left, held_for } = self.extend(&mut limit, &lock, term, policy).await? {
                        return Ok(Answer::Granted { token: lock.token, resumed: true, held_for, remaining: left });
                    }
                    self.pause(&mut limit).await?;
                    self.find(&mut limit, ask.resource).await?
                }
                (_, _, None) => return Ok(Answer::Free),
                (mine, _, Some(term)) => match self.begin(&mut limit, &ask, term, is_in_doubt).await? {
                    Begun::Done(answer) => return Ok(answer),
                    Begun::Not(found) => {
                        // Another owner had the resource in between, or half of a tenure was deleted by hand.
                        if mine.is_some() || found.is_none() {
                            self.pause(&mut limit).await?;
                        }
                        found
                    }
                },
            };
        }
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], _: Duration) -> Done<()> {
        batch.iter_mut().for_each(|renewal| renewal.left = Left::Nothing);
        // All renewals run side by side, on the one connection.
        let left = try_join_all(batch.iter().map(|renewal| self.renewed(renewal))).await?;
        batch.iter_mut().zip(left).for_each(|(renewal, left)| renewal.left = left);
        Ok(())
    }

    async fn release(&self, resource: &Resource, owner: &Owner, token: Option<Token>, _: Duration) -> Done<Gone> {
        let mut limit = self.core.limit();
        loop {
            let this = match token {
                Some(token) => token,
                // A late request must end the tenure for which it was sent, and no later one.
                None => match self.find(&mut limit, resource).await? {
                    None => return Ok(Gone::NotHeld),
                    Some(lock) if lock.value.owner != *owner => return Ok(Gone::NotOwner(lock.value.owner)),
                    Some(lock) => lock.token,
                },
            };
            let question = |session: Arc<Live<Session>>| async move { session.end(resource, owner, this).await };
            match self.write(&mut limit, question).await? {
                Some(Changed::Yes(_)) => return Ok(Gone::Released),
                Some(Changed::No(None)) => return Ok(Gone::NotHeld),
                Some(Changed::No(Some(lock))) if lock.value.owner != *owner || lock.token != this => {
                    if token.is_some() || lock.value.owner != *owner {
                        return Ok(Gone::NotOwner(lock.value.owner));
                    }
                    self.pause(&mut limit).await?; // a fresh tenure has begun since
                }
                // Half of the tenure is gone: a key was deleted by hand.
                _ => return Err(Fail::NotDone(Error::Unreadable)),
            }
        }
    }

    async fn release_all(&self, owner: &Owner, _: Duration) -> Done<Vec<Resource>> {
        let mut released = Vec::new();
        self.release_into(&mut released, owner).await.map_err(|fail| match fail {
            Fail::NotDone(error) if !released.is_empty() => Fail::Unknown(error), // some are released
            fail => fail,
        })?;
        Ok(released)
    }

    async fn look(&self, resource: &Resource, _: Duration) -> Done<Option<Record>> {
        let mut limit = self.core.limit();
        loop {
            let Some(lock) = self.find(&mut limit, resource).await? else { return Ok(None) };
            if let Some(looked) = self.look_at(&mut limit, &lock).await? {
                return Ok(Some(record(lock, looked)));
            }
            self.pause(&mut limit).await?;
        }
    }

    async fn owned_by(&self, owner: &Owner, _: Duration) -> Done<Vec<Owned>> {
        let mut limit = self.core.limit();
        let (locks, _) = self.read(&mut limit, |session| async move { session.owned(owner).await }).await?;
        let looks = locks.into_iter().map(|lock| async move {
            let (mut limit, mut found) = (self.core.limit(), Some(lock));
            // A tenure that has ended is left out; one that has moved to another etcd lease is not.
            while let Some(lock) = found.filter(|lock| lock.value.owner == *owner) {
                if let Some(looked) = self.look_at(&mut limit, &lock).await? {
                    let (resource, expiry) = (lock.resource.clone(), lock.value.policy.expiry());
                    return Ok(Some(Owned { resource, record: record(lock, looked), expiry }));
                }
                self.pause(&mut limit).await?;
                found = self.find(&mut limit, &lock.resource).await?;
            }
            Ok(None)
        });
        let owned: Vec<Result<_, Fail<Error>>> = join_all(looks).await;
        owned.into_iter().filter_map(Result::transpose).collect()
    }

    async fn list(&self, part: Part<'_>) -> Done<Listing> {
        let question = |session: Arc<Live<Session>>| async move {
            let prefix = part.owner.map_or_else(|| session.place.locks(), |owner| session.place.owned(owner));
            // A cursor is the last key that was looked at.
            if part.after.is_some_and(|after| !after.starts_with(&prefix)) {
                return Ok(None);
            }
            session.listed(&prefix, &part).await.map(Some)
        };
        let Some((locks, next)) = self.read(&mut self.core.limit(), question).await? else {
            return Ok(Listing::UnknownCursor);
        };
        // A tenure that was ended by hand may have left its key in the owner's list, and a tenure may have moved to
        // another etcd lease since the keys were read.
        let looks = locks.into_iter().map(|lock| async move {
            let record = self.look(&lock.resource, Duration::ZERO).await?;
            // A tenure that has begun since is left out, because it may be on another page, too.
            let record = record.filter(|record| record.token == lock.token);
            Ok(record.map(|record| (lock.resource, record)))
        });
        let leases: Vec<Result<_, Fail<Error>>> = join_all(looks).await;
        let leases = leases.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
        Ok(Listing::Page { leases, next })
    }

    async fn sweep(&self, _: usize, _: Duration) -> Done<usize> {
        Ok(0) // etcd removes expired leases itself
    }
}

/// Returns a random ID for an etcd lease. It is most unlikely that another program uses the same one.
fn id() -> i64 {
    i64::try_from(RandomState::new().hash_one(()) >> 1).unwrap_or(1).max(1)
}

fn record(lock: Lock, (remaining, held_for): (Option<Duration>, Duration)) -> Record {
    Record { owner: lock.value.owner, token: lock.token, held_for, remaining }
}
