//! A connection that is ready for use, and the requests that it sends.

use std::{
    convert::Infallible,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::try_join_all;
use keylatch_lease::{Clock, Lost, Owner, Resource, StdClock, Token, engine::Part};
use keylatch_lease_remote::{Failure, Tenure, Turn, Watchers};
use tokio::sync::Notify;

use crate::{
    client::{
        Answers, Client, Compare, CompareOp, KeyValue, Keys, OpAnswer, Txn, TxnAnswer, TxnOp,
        messages::{
            Event, LeaseGrantRequest, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, WatchCreateRequest,
            WatchResponse,
        },
    },
    error::{self, Error, Trouble},
    leftovers::Granted,
    lock::{self, Changed, Lock, Value, revision, slack},
    mark::{Mark, Seen},
    names::{escape, resource_of},
    place::Place,
    restarts::{Restarting, Restarts},
    revoker::Revoker,
    spare::Spare,
    together::{self, Together},
};

/// The number of operations that etcd accepts in one transaction.
pub(crate) const MOST: usize = 128;

/// The time to live of the stopwatch, in seconds: 31 years.
const STOPWATCH: i64 = 1_000_000_000;

/// The remaining time, in seconds, that a new leader reports for every etcd lease until it has begun to count: the
/// greatest number of nanoseconds.
const UNCOUNTED: i64 = i64::MAX / 1_000_000_000;

/// The greatest age at which a reading of the stopwatch is good enough to estimate the next one.
const FRESH: Duration = Duration::from_secs(5);

/// Returns the tenure that a resource's keys contain. Fails if one of the keys was not written by this engine.
fn lock_of(prefix: &str, kvs: &[KeyValue]) -> Result<Option<Lock>, Trouble> {
    let mut found = None;
    for kv in kvs {
        found = Some(Lock::new(prefix, kv).ok_or(Trouble::Refused(Error::Unreadable))?);
    }
    Ok(found)
}

/// A tenure to be written.
pub(crate) struct Draft<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) slot: u8,
    /// The etcd lease that its keys are attached to; 0 if there is none.
    pub(crate) lease: i64,
    pub(crate) value: Value,
}

pub(crate) struct Session {
    pub(crate) place: Arc<Place>,
    pub(crate) client: Client,
    /// The mark as this connection read it. `None`: there was no space to write one.
    pub(crate) mark: Mutex<Option<Mark>>,
    pub(crate) seen: Arc<Seen>,
    ended: Arc<Ended>,
    /// The shortest etcd lease that the cluster grants, in seconds.
    pub(crate) shortest: i64,
    /// The last reading of the stopwatch, and when it was read.
    shown: Mutex<(i64, Duration)>,
    /// The transactions that wait for the connection.
    together: Arc<Together>,
    /// The etcd leases that can be used again.
    pub(crate) spare: Arc<Spare>,
    pub(crate) restarts: Restarts,
}

/// Whether the connection has become unusable.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    is_broken: AtomicBool,
    told: Notify,
}

/// The watch on the namespace's keys.
pub(crate) struct Ear {
    watch: Answers<WatchResponse>,
}

/// The parts of a new connection.
pub(crate) struct Opened {
    pub(crate) session: Session,
    pub(crate) ear: Ear,
    pub(crate) restarting: Restarting,
}

impl Session {
    /// Checks the mark, and starts the watch; also starts the stopwatch if it is not running. If etcd has no space to
    /// grant a lease, `shortest` keeps the value that the last connection found.
    pub(crate) async fn open(client: Client, place: Arc<Place>, shortest: &AtomicI64) -> Result<Opened, Trouble> {
        let shown = Mutex::new((0, StdClock::new().now()));
        let (restarts, restarting) = Restarts::new();
        let mut session = Session {
            restarts,
            spare: Arc::new(Spare::new(Arc::clone(&place))),
            together: Arc::new(Together::new(together::MOST)),
            place,
            client,
            mark: Mutex::default(),
            seen: Arc::default(),
            ended: Arc::default(),
            shortest: 1,
            shown,
        };
        // If the requested time is too short, etcd grants the shortest lease that it allows.
        match session.grant(0, 1).await {
            Ok((id, seconds)) => {
                session.place.leftovers.add(id);
                shortest.store(seconds, SeqCst);
            }
            // Without space, existing leases can still be renewed and released.
            Err(Trouble::Full(_)) => {}
            Err(trouble) => return Err(trouble),
        }
        session.shortest = shortest.load(SeqCst);
        session.clock().await?;
        match session.recall().await {
            Ok(()) | Err(Trouble::Full(_)) => {}
            Err(trouble) => return Err(trouble),
        }
        // The watch is last: the requests before it report a missing permission more clearly than a refused watch.
        let Keys { start: key, end: range_end } = Keys::prefix(session.place.locks());
        let filters = vec![WatchCreateRequest::NO_PUT];
        let watch = session.client.watch(WatchCreateRequest { key, range_end, filters }).await?;
        Ok(Opened { session, ear: Ear { watch }, restarting })
    }

    /// Marks the connection as unusable.
    pub(crate) fn give_up(&self) {
        self.ended.is_broken.store(true, SeqCst);
        self.ended.told.notify_one();
    }

    pub(crate) fn ended(&self) -> Arc<Ended> {
        Arc::clone(&self.ended)
    }

    pub(crate) fn revoker(&self) -> Revoker {
        Revoker::new(Arc::clone(&self.place), self.client.clone(), Arc::clone(&self.spare))
    }

    /// Returns the future that sends the waiting transactions. The connection's driver polls it.
    pub(crate) fn carried(&self) -> impl Future<Output = Infallible> + use<> {
        together::carry(self.client.clone(), Arc::clone(&self.together))
    }

    /// Reads the stopwatch, in seconds, and starts it if it is not running.
    pub(crate) async fn clock(&self) -> Result<i64, Trouble> {
        let id = self.place.stopwatch;
        let left = self.time_to_live(id).await?;
        let mut shows = 0;
        if left.ttl >= 0 {
            shows = left.granted_ttl - left.ttl;
        } else {
            match self.client.call(LeaseGrantRequest { ttl: STOPWATCH, id }).await.map_err(Trouble::from) {
                // Another program has started it, or there is no space.
                Ok(_) | Err(Trouble::Refused(_) | Trouble::Full(_)) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        *self.shown() = (shows, StdClock::new().now());
        Ok(shows)
    }

    fn shown(&self) -> MutexGuard<'_, (i64, Duration)> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Estimates the reading of the stopwatch; `None` if it was last read too long ago, because a new leader may have
    /// restarted it.
    pub(crate) fn about(&self) -> Option<i64> {
        let (shown, at) = *self.shown();
        let age = StdClock::new().now().saturating_sub(at);
        if age <= FRESH { Some(shown.saturating_add(i64::try_from(age.as_secs()).ok()?)) } else { None }
    }

    /// Requests an etcd lease of this length, and returns its ID and its real length. Both lengths are in seconds,
    /// without the [slack]. If `id` is 0, etcd chooses an ID.
    pub(crate) async fn grant(&self, id: i64, seconds: i64) -> Result<(i64, i64), Trouble> {
        let slack = slack(seconds);
        let granted = self.client.call(LeaseGrantRequest { ttl: seconds + slack, id }).await?;
        Ok((granted.id, granted.ttl - slack))
    }

    /// Returns the whole seconds that an etcd lease has left, with its [slack], rounded down. `None` means that it is
    /// gone, or about to be removed; 0 may mean the latter, too.
    pub(crate) async fn left(&self, lease: i64) -> Result<Option<i64>, Trouble> {
        let left = self.time_to_live(lease).await?.ttl;
        Ok((left >= 0).then_some(left))
    }

    async fn time_to_live(&self, lease: i64) -> Result<LeaseTimeToLiveResponse, Trouble> {
        let left = self.client.call(LeaseTimeToLiveRequest { id: lease }).await?;
        if left.ttl >= UNCOUNTED {
            return Err(Trouble::NoLease); // the caller soon asks again
        }
        Ok(left)
    }

    /// Restarts the time of an etcd lease, and returns whether it still existed. An expired one is not revived: etcd
    /// answers when it has been removed.
    pub(crate) async fn keep_alive(&self, lease: i64) -> Result<bool, Trouble> {
        match self.client.keep_alive(lease).await.map_err(Trouble::from) {
            Ok(is_there) => Ok(is_there),
            Err(Trouble::NoLease) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// Returns the tenure of a resource.
    pub(crate) async fn find(&self, resource: &Resource) -> Result<Option<Lock>, Trouble> {
        let got = self.client.range(Keys::prefix(self.place.lock(resource))).await?;
        self.seen.sees(got.revision());
        lock_of(&self.place.locks(), &got.kvs)
    }

    /// Returns a page of the tenures: of all, or of one owner. The second result is the last key looked at, if there
    /// may be more.
    pub(crate) async fn listed(&self, prefix: &str, part: &Part<'_>) -> Result<(Vec<Lock>, Option<String>), Trouble> {
        let mut keys = Keys::prefix(format!("{prefix}{}", escape(part.entity_prefix)));
        if let Some(after) = part.after {
            keys = keys.behind(after);
        }
        // The caller makes a request about each of these keys, all side by side.
        let limit = part.limit.min(MOST);
        let got = self.client.range_of(keys, i64::try_from(limit).unwrap_or(i64::MAX)).await?;
        let last = got.kvs.last().filter(|_| got.kvs.len() == limit);
        let last = last.map(|kv| String::from_utf8_lossy(kv.key()).into_owned());
        let locks = got.kvs.iter().filter_map(|kv| Lock::new(prefix, kv));
        Ok((locks.filter(|lock| part.owner.is_none_or(|owner| lock.value.owner == *owner)).collect(), last))
    }

    /// Returns the leases of an owner, and the revision at which they were listed.
    pub(crate) async fn owned(&self, owner: &Owner) -> Result<(Vec<Lock>, i64), Trouble> {
        let prefix = self.place.owned(owner);
        let got = self.client.range(Keys::prefix(prefix.as_str())).await?;
        let at = got.revision();
        let listed: Vec<_> = got.kvs.iter().filter_map(|kv| Lock::new(&prefix, kv)).collect();
        // A tenure that was ended by hand may have one of its keys left; one that has ended since may have been
        // replaced by another.
        let parts = listed.chunks(MOST).map(|part| async move {
            let gets = part.iter().map(|lock| TxnOp::get_keys(self.key(lock)));
            let answer = self.client.txn(Txn::new().and_then(gets)).await?;
            let found = answer.answers().iter().map(|got| match got {
                OpAnswer::Got(kvs) => kvs.first().map_or(0, KeyValue::create_revision),
                _ => 0,
            });
            Ok::<_, Trouble>(found.collect::<Vec<_>>())
        });
        let found = try_join_all(parts).await?.into_iter().flatten();
        let locks = listed.into_iter().zip(found).map(|(lock, found)| async move {
            if found == lock.created {
                return Ok(Some(lock));
            }
            match self.find(&lock.resource).await {
                Ok(found) => Ok(found.filter(|found| found.value.owner == *owner)),
                Err(Trouble::Refused(Error::Unreadable)) => Ok(None),
                Err(trouble) => Err(trouble),
            }
        });
        let mut locks: Vec<_> = try_join_all(locks).await?.into_iter().flatten().collect();
        // Both slots are listed if one of them contains half a tenure.
        locks.dedup_by(|one, other| one.resource == other.resource);
        Ok((locks, at))
    }

    fn key(&self, lock: &Lock) -> String {
        format!("{}{}", self.place.lock(&lock.resource), lock.slot)
    }

    pub(crate) fn keys(&self, resource: &Resource, owner: &Owner, slot: u8) -> [String; 2] {
        [self.place.lock(resource), self.place.owned_lock(owner, resource)].map(|prefix| format!("{prefix}{slot}"))
    }

    pub(crate) fn puts(&self, Draft { resource, slot, lease, value }: &Draft<'_>) -> [TxnOp; 2] {
        self.keys(resource, &value.owner, *slot).map(|key| TxnOp::put_with_lease(key, value.to_text(), *lease))
    }

    async fn change(&self, of: &Resource, when: Vec<Compare>, then: Vec<TxnOp>) -> Result<Changed, Trouble> {
        self.changed(self.ask(of, self.changing(of, when, then)).await?)
    }

    fn changing(&self, of: &Resource, when: Vec<Compare>, then: Vec<TxnOp>) -> Txn {
        Txn::new().when(when).and_then(then).or_else([TxnOp::get(Keys::prefix(self.place.lock(of)))])
    }

    /// Runs a transaction about a resource: at once if no other is under way, and otherwise together with those that
    /// wait for the connection at the same moment.
    pub(crate) async fn ask(&self, resource: &Resource, txn: Txn) -> Result<TxnAnswer, Trouble> {
        if let Some(_permit) = self.together.at_once() {
            return Ok(self.client.txn(txn).await?);
        }
        let txn = Arc::new(txn);
        match self.together.ask(resource, Arc::clone(&txn)).await {
            Turn::Answered(answer) => answer,
            Turn::Alone => Ok(self.client.txn(Arc::unwrap_or_clone(txn)).await?),
            Turn::NotSent | Turn::Lost => Err(Trouble::Broken(Error::unconnected(None))),
        }
    }

    /// Returns whether one of the branches that write was taken; otherwise the branch that reads tells which tenure the
    /// resource has.
    pub(crate) fn changed(&self, mut answer: TxnAnswer) -> Result<Changed, Trouble> {
        let at = answer.revision();
        self.seen.sees(at);
        loop {
            let has_succeeded = answer.succeeded();
            match answer.into_answers().into_iter().next() {
                Some(OpAnswer::Deleted { previous, .. }) if has_succeeded => {
                    previous.iter().for_each(|kv| self.spare.has_ended(kv.lease()));
                    return Ok(Changed::Yes(at));
                }
                _ if has_succeeded => return Ok(Changed::Yes(at)),
                Some(OpAnswer::Txn(nested)) => answer = nested,
                Some(OpAnswer::Got(kvs)) => return Ok(Changed::No(lock_of(&self.place.locks(), &kvs)?)),
                _ => return Ok(Changed::No(None)),
            }
        }
    }

    /// Attaches a tenure to another etcd lease, if one was granted, and sets its policy, unless the tenure has changed
    /// since it was read.
    pub(crate) async fn alter(
        &self,
        new: &Draft<'_>,
        old: &Lock,
        mut granted: Option<Granted<'_>>,
    ) -> Result<Changed, Trouble> {
        if let Some(granted) = &mut granted {
            granted.asked(&old.resource, Some(old));
        }
        let when = vec![Compare::mod_revision(self.key(old), CompareOp::Equal, old.modified), self.is_wanted(new)];
        let changed = self.change(new.resource, when, self.puts(new).into()).await;
        if let Some(granted) = granted {
            granted.settle(&changed);
        }
        changed
    }

    /// Returns whether a tenure is unchanged since it was read, and keeps it unchanged by writing it again. Another
    /// request may be about to move it to a shorter etcd lease, unaware of a keep-alive, which changes no key. After
    /// this write, that move fails; if the move was made before, this write fails.
    pub(crate) async fn confirm(&self, lock: &Lock) -> Result<bool, Trouble> {
        let Lock { resource, slot, lease, value, .. } = lock.clone();
        let key = self.key(lock);
        // The modification revision is not compared: several requests of the tenure's owner may write the same value at
        // the same time.
        let when = vec![
            Compare::create_revision(key.clone(), CompareOp::Equal, lock.created),
            Compare::lease(key.clone(), CompareOp::Equal, lease),
            Compare::value(key, CompareOp::Equal, value.to_text()),
        ];
        let same = Draft { resource: &resource, slot, lease, value };
        match self.change(&resource, when, self.puts(&same).into()).await {
            Ok(changed) => Ok(matches!(changed, Changed::Yes(_))),
            // If there is no space for this write, there is none for such a move either.
            Err(Trouble::Full(_)) => {
                let found = self.find(&resource).await?;
                Ok(found.is_some_and(|found| (found.token, found.lease) == (lock.token, lock.lease)))
            }
            // The etcd lease is gone.
            Err(Trouble::NoLease) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// Ends a tenure.
    pub(crate) async fn end(&self, resource: &Resource, owner: &Owner, token: Token) -> Result<Changed, Trouble> {
        let created = revision(token, self.base());
        match self.end_of(resource, owner, created).await? {
            // The tenure began before the cluster forgot something: its token was made with an earlier base.
            Changed::No(Some(lock)) if (&lock.value.owner, lock.token) == (owner, token) && lock.created != created => {
                self.end_of(resource, owner, lock.created).await
            }
            ended => Ok(ended),
        }
    }

    /// Ends the tenure that began at this revision.
    async fn end_of(&self, resource: &Resource, owner: &Owner, created: i64) -> Result<Changed, Trouble> {
        let keys = [self.place.lock(resource), self.place.owned_lock(owner, resource)].map(Keys::prefix);
        let when = keys.clone().map(|keys| Compare::create_revision(keys, CompareOp::Equal, created));
        let [lock, owned] = keys;
        let then = [TxnOp::take(lock), TxnOp::delete(owned)]; // both had the same etcd lease
        let ended = match self.change(resource, when.to_vec(), then.to_vec()).await {
            // Another transaction that was sent with this one needs space; this one needs none.
            Err(Trouble::Full(error)) => {
                let alone = self.client.txn(self.changing(resource, when.to_vec(), then.to_vec())).await?;
                match self.changed(alone)? {
                    ended @ Changed::Yes(_) => ended,
                    Changed::No(_) => return Err(Trouble::Full(error)), // the first may have been carried out
                }
            }
            ended => ended?,
        };
        match &ended {
            // The owner's key was deleted by hand; the resource's key names the owner.
            Changed::No(Some(half)) if (&half.value.owner, half.created) == (owner, created) => {
                let [when, _] = when;
                self.change(resource, vec![when], then.into()).await
            }
            _ => Ok(ended),
        }
    }

    /// Ends all of these tenures, or none. With `at`, they must be all tenures that the owner has up to this revision;
    /// without it, the owner may have more.
    pub(crate) async fn end_all(&self, owner: &Owner, locks: &[Lock], at: Option<i64>) -> Result<bool, Trouble> {
        // The deleted keys name the etcd leases to revoke: a tenure may have moved since it was read.
        let is_it = |lock: &Lock| Compare::create_revision(self.key(lock), CompareOp::Equal, lock.created);
        let mut when: Vec<_> = locks.iter().map(is_it).collect();
        let then: Vec<_> = match at {
            Some(at) => {
                let owned = Keys::prefix(self.place.owned(owner));
                when.push(Compare::create_revision(owned.clone(), CompareOp::Less, at + 1));
                locks.iter().map(|lock| TxnOp::take(self.key(lock))).chain([TxnOp::delete(owned)]).collect()
            }
            None => {
                let keys = locks.iter().map(|lock| self.keys(&lock.resource, &lock.value.owner, lock.slot));
                keys.flat_map(|[lock, owned]| [TxnOp::take(lock), TxnOp::delete(owned)]).collect()
            }
        };
        let answer = self.client.txn(Txn::new().when(when).and_then(then)).await?;
        for answer in answer.answers() {
            if let OpAnswer::Deleted { previous, .. } = answer {
                previous.iter().for_each(|kv| self.spare.has_ended(kv.lease()));
            }
        }
        Ok(answer.succeeded())
    }
}

impl keylatch_lease_remote::Session for Session {
    type Error = error::Error;

    fn is_closed(&self) -> bool {
        self.ended.is_broken.load(SeqCst)
    }

    async fn give_back(&self, Tenure { resource, owner, token }: &Tenure) -> bool {
        match self.end(resource, owner, *token).await {
            Ok(_) | Err(Trouble::NoLease) => true,
            Err(Trouble::Refused(_) | Trouble::Full(_)) => false,
            Err(Trouble::Broken(_)) => {
                self.give_up();
                false
            }
        }
    }
}

/// Notifies the watchers of the end of the tenure whose key was deleted, whoever deleted it.
///
/// A resource has one tenure at a time, so each of its tenures that began before the deletion has ended. The watch does
/// not ask for the deleted value, which would name the tenure: for each one, etcd would read the store once more.
fn tell_end(watchers: &Watchers, prefix: &str, base: i64, deleted: &Event) {
    let Some(kv) = &deleted.kv else { return };
    let Some((resource, _)) = resource_of(prefix, kv.key()) else { return };
    match lock::token(base.saturating_add(kv.mod_revision() - 1)) {
        Some(last) if base > 0 => watchers.tell_end(&resource, last, Lost::Released),
        // No mark has been read yet, and the tokens are not known.
        _ => watchers.tell(&resource),
    }
}

impl Ear {
    /// Notifies the watchers of ended tenures, until the connection ends.
    pub(crate) async fn listen(mut self, place: &Place, watchers: &Watchers) -> Error {
        let prefix = place.locks();
        loop {
            match self.watch.next().await {
                Ok(Some(heard)) if heard.canceled => return Error::Unconnected { source: None },
                Ok(Some(heard)) => {
                    let base = place.base();
                    heard.events.iter().for_each(|deleted| tell_end(watchers, &prefix, base, deleted));
                }
                Ok(None) => return Error::Unconnected { source: None },
                Err(error) => return error::unusable(error.into()),
            }
        }
    }
}

impl Ended {
    pub(crate) async fn wait(&self) -> Error {
        while !self.is_broken.load(SeqCst) {
            self.told.notified().await;
        }
        Error::Unconnected { source: None }
    }
}
