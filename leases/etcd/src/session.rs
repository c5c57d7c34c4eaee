//! A connection that is ready for use, and what is asked over it.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
    },
    time::Duration,
};

use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, Event, GetOptions, KeyValue, KvClient, LeaseClient, LeaseGrantOptions,
    LeaseTimeToLiveResponse, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse, WatchFilterType, WatchOptions,
    WatchStream, Watcher,
};
use futures_util::future::{Either, join, select, try_join_all};
use keylatch_lease::{Clock, Lost, Owner, Resource, StdClock, Token};
use keylatch_lease_remote::{Tenure, Watchers, sleep};
use tokio::sync::Notify;

use crate::{
    error::{self, Error, Trouble},
    leftovers::{Granted, Leftovers, Revoker},
    lock::{Changed, Lock, Value, revision},
    mark::{Mark, Seen},
    place::Place,
};

/// The number of operations that etcd accepts in one transaction.
pub(crate) const MOST: usize = 128;

/// The start of the stopwatch: 31 years.
const STOPWATCH: i64 = 1_000_000_000;

/// The time left of every etcd lease, in seconds, by a leader that has not counted yet: as many as there are nanoseconds of.
const UNCOUNTED: i64 = i64::MAX / 1_000_000_000;

/// For so long what the stopwatch has shown tells what it shows.
const FRESH: Duration = Duration::from_secs(5);

/// So much earlier a request is asked that another one needs.
const AHEAD: Duration = Duration::from_millis(10);

/// The largest answer: what an owner of very many leases has.
const LARGEST: usize = 256 << 20;

/// The keys of a resource: the first that is a lease, and whether there are others.
fn lock_of(prefix: &str, kvs: &[KeyValue]) -> Result<Option<Lock>, Trouble> {
    let mut found = None;
    for kv in kvs {
        found = Some(Lock::new(prefix, kv).ok_or(Trouble::Refused(Error::Unreadable))?);
    }
    Ok(found)
}

fn prefixed() -> Option<GetOptions> {
    Some(GetOptions::new().with_prefix())
}

/// The record of a tenure to be written.
pub(crate) struct Draft<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) slot: u8,
    /// On which etcd lease it hangs. 0: none.
    pub(crate) lease: i64,
    pub(crate) value: Value,
}

pub(crate) struct Session {
    pub(crate) place: Arc<Place>,
    pub(crate) leftovers: Arc<Leftovers>,
    pub(crate) kv: KvClient,
    lease: LeaseClient,
    /// As it was read when the connection was made. `None`: it could not be written.
    pub(crate) mark: Mutex<Option<Mark>>,
    pub(crate) seen: Arc<Seen>,
    ended: Arc<Ended>,
    /// The shortest etcd lease that there is, in seconds.
    pub(crate) shortest: i64,
    /// The last reading of the stopwatch, and its time.
    shown: Mutex<(i64, Duration)>,
}

/// Whether the connection is of use.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    is_broken: AtomicBool,
    told: Notify,
}

/// What is heard.
pub(crate) struct Ear {
    stream: WatchStream,
    /// With it the watch would end.
    _watcher: Watcher,
}

impl Session {
    /// Starts to watch, and the stopwatch if nobody has. The shortest etcd lease is what it was before, if nobody can be asked.
    pub(crate) async fn open(
        client: &Client,
        place: Arc<Place>,
        leftovers: Arc<Leftovers>,
        shortest: &AtomicI64,
    ) -> Result<(Self, Ear), Trouble> {
        let options = WatchOptions::new().with_prefix().with_prev_key().with_filters([WatchFilterType::NoPut]);
        let (watcher, stream) =
            client.watch_client().max_decoding_message_size(LARGEST).watch(place.locks(), Some(options)).await?;
        let (kv, lease) = (client.kv_client().max_decoding_message_size(LARGEST), client.lease_client());
        let shown = Mutex::new((0, StdClock::new().now()));
        let mut session = Session {
            place,
            leftovers,
            kv,
            lease,
            mark: Mutex::default(),
            seen: Arc::default(),
            ended: Arc::default(),
            shortest: 1,
            shown,
        };
        // One that is too short is made as long as the shortest.
        match session.grant(0, 1).await {
            Ok((id, seconds)) => {
                session.leftovers.add(id);
                shortest.store(seconds, SeqCst);
            }
            // Existing leases can be renewed and released all the same.
            Err(Trouble::Full(_)) => {}
            Err(trouble) => return Err(trouble),
        }
        session.shortest = shortest.load(SeqCst);
        session.clock().await?;
        match session.recall(client).await {
            Ok(()) | Err(Trouble::Full(_)) => {}
            Err(trouble) => return Err(trouble),
        }
        Ok((session, Ear { stream, _watcher: watcher }))
    }

    /// It is of no use any more.
    pub(crate) fn give_up(&self) {
        self.ended.is_broken.store(true, SeqCst);
        self.ended.told.notify_one();
    }

    pub(crate) fn ended(&self) -> Arc<Ended> {
        Arc::clone(&self.ended)
    }

    pub(crate) fn revoker(&self) -> Revoker {
        Revoker::new(Arc::clone(&self.place), self.kv.clone(), self.lease.clone())
    }

    /// The reading of the stopwatch, in seconds.
    pub(crate) async fn clock(&self) -> Result<i64, Trouble> {
        let id = self.place.stopwatch;
        let left = self.time_to_live(id).await?;
        let mut shows = 0;
        if left.ttl() >= 0 {
            shows = left.granted_ttl() - left.ttl();
        } else {
            let options = LeaseGrantOptions::new().with_id(id);
            match self.lease.clone().grant(STOPWATCH, Some(options)).await.map_err(Trouble::from) {
                // Somebody else was faster, or there is no space.
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

    /// The expected reading of the stopwatch; nothing, if it has not been read for long: another leader may have begun it anew.
    fn about(&self) -> Option<i64> {
        let (shown, at) = *self.shown();
        let age = StdClock::new().now().saturating_sub(at);
        if age <= FRESH { Some(shown.saturating_add(i64::try_from(age.as_secs()).ok()?)) } else { None }
    }

    /// A new etcd lease, and how long it really lasts. With 0 etcd chooses the ID.
    pub(crate) async fn grant(&self, id: i64, seconds: i64) -> Result<(i64, i64), Trouble> {
        let options = LeaseGrantOptions::new().with_id(id);
        let granted = self.lease.clone().grant(seconds, Some(options)).await?;
        Ok((granted.id(), granted.ttl()))
    }

    /// So many whole seconds are left of an etcd lease, at least; `None`: it is gone, or about to go. 0: that may be so as well.
    pub(crate) async fn left(&self, lease: i64) -> Result<Option<i64>, Trouble> {
        let left = self.time_to_live(lease).await?.ttl();
        Ok((left >= 0).then_some(left))
    }

    async fn time_to_live(&self, lease: i64) -> Result<LeaseTimeToLiveResponse, Trouble> {
        let left = self.lease.clone().time_to_live(lease, None).await?;
        if left.ttl() >= UNCOUNTED {
            return Err(Trouble::NoLease); // it is soon asked again
        }
        Ok(left)
    }

    /// Begins the time of an etcd lease anew, unless it is gone. One whose time is over is not revived: etcd answers when it has gone.
    pub(crate) async fn keep_alive(&self, lease: i64) -> Result<bool, Trouble> {
        match self.lease.clone().keep_alive(lease).await.map_err(Trouble::from) {
            Ok(_) => Ok(true),
            Err(Trouble::NoLease) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// Its owner.
    pub(crate) async fn find(&self, resource: &Resource) -> Result<Option<Lock>, Trouble> {
        let got = self.kv.clone().get(self.place.lock(resource), prefixed()).await?;
        self.seen.sees(got.header().map_or(0, |header| header.revision()));
        lock_of(&self.place.locks(), got.kvs())
    }

    /// The leases of an owner, as of a revision.
    pub(crate) async fn owned(&self, owner: &Owner) -> Result<(Vec<Lock>, i64), Trouble> {
        let prefix = self.place.owned(owner);
        let got = self.kv.clone().get(prefix.clone(), prefixed()).await?;
        let at = got.header().map_or(0, |header| header.revision());
        let listed: Vec<_> = got.kvs().iter().filter_map(|kv| Lock::new(&prefix, kv)).collect();
        // Of a tenure that was ended by hand there may be half; of one that has ended since, another one in its place.
        let parts = listed.chunks(MOST).map(|part| async move {
            let keys = part.iter().map(|lock| self.key(lock));
            let gets: Vec<_> = keys.map(|key| TxnOp::get(key, Some(GetOptions::new().with_keys_only()))).collect();
            let answer = self.kv.clone().txn(Txn::new().and_then(gets)).await?;
            let found = answer.op_responses().into_iter().map(|got| match got {
                TxnOpResponse::Get(got) => got.kvs().first().map_or(0, KeyValue::create_revision),
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
        // Both slots are listed if half a tenure is in one of them.
        locks.dedup_by(|one, other| one.resource == other.resource);
        Ok((locks, at))
    }

    fn key(&self, lock: &Lock) -> String {
        format!("{}{}", self.place.lock(&lock.resource), lock.slot)
    }

    fn keys(&self, resource: &Resource, owner: &Owner, slot: u8) -> [String; 2] {
        [self.place.lock(resource), self.place.owned_lock(owner, resource)].map(|prefix| format!("{prefix}{slot}"))
    }

    fn puts(&self, Draft { resource, slot, lease, value }: &Draft<'_>) -> [TxnOp; 2] {
        let options = || Some(PutOptions::new().with_lease(*lease));
        self.keys(resource, &value.owner, *slot).map(|key| TxnOp::put(key, value.to_text(), options()))
    }

    async fn change(&self, of: &Resource, when: Vec<Compare>, then: Vec<TxnOp>) -> Result<Changed, Trouble> {
        let otherwise = [TxnOp::get(self.place.lock(of), prefixed())];
        self.changed(self.kv.clone().txn(Txn::new().when(when).and_then(then).or_else(otherwise)).await?)
    }

    /// Whether one of the branches that write was taken; if not there is one that reads.
    fn changed(&self, mut answer: TxnResponse) -> Result<Changed, Trouble> {
        let at = answer.header().map_or(0, |header| header.revision());
        self.seen.sees(at);
        loop {
            let first = answer.op_responses().into_iter().next();
            match first {
                Some(TxnOpResponse::Delete(deleted)) if answer.succeeded() => {
                    deleted.prev_kvs().iter().for_each(|kv| self.leftovers.add(kv.lease()));
                    return Ok(Changed::Yes(at));
                }
                _ if answer.succeeded() => return Ok(Changed::Yes(at)),
                Some(TxnOpResponse::Txn(nested)) => answer = nested,
                Some(TxnOpResponse::Get(got)) => return Ok(Changed::No(lock_of(&self.place.locks(), got.kvs())?)),
                _ => return Ok(Changed::No(None)),
            }
        }
    }

    /// A tenure begins when nobody has the resource; a fresh one also as one of the same owner ends. Its etcd lease, which begins with it, is
    /// asked for at the same time.
    pub(crate) async fn begin(&self, new: &mut Draft<'_>, is_fresh: bool) -> Result<Changed, Trouble> {
        let mut granted = Granted::new(&self.leftovers, new.lease);
        new.value.base = self.base();
        let seen = self.seen.get();
        let mut changed = self.begin_with(&mut granted, new, is_fresh).await;
        if let Ok(Changed::Yes(at)) = &mut changed {
            // An older copy of the cluster may have the same mark.
            if *at <= seen {
                changed = Err(self.is_another());
            } else {
                *at = at.saturating_add(new.value.base);
            }
        }
        granted.settle(&changed);
        changed
    }

    async fn begin_with(
        &self,
        granted: &mut Granted<'_>,
        new: &mut Draft<'_>,
        is_fresh: bool,
    ) -> Result<Changed, Trouble> {
        let (lease, seconds, options) = (new.lease, new.value.seconds, LeaseGrantOptions::new().with_id(new.lease));
        let grant = async {
            if lease != 0 {
                self.lease.clone().grant(seconds, Some(options)).await?;
            }
            Ok(())
        };
        let (mut grant, ahead) = (pin!(grant), pin!(sleep(AHEAD)));
        let mut early = None;
        new.value.since = match self.about() {
            Some(since) => since,
            None => {
                let (granted, shows) = join(grant.as_mut(), self.clock()).await;
                early = Some(granted);
                shows?
            }
        };
        let is_free = Compare::create_revision(self.place.lock(new.resource), CompareOp::Equal, 0).with_prefix();
        let get = TxnOp::get(self.place.lock(new.resource), prefixed());
        let otherwise = if is_fresh { self.instead(new, 0, self.instead(new, 1, get)) } else { get };
        let when: Vec<_> = self.is_sound().into_iter().chain([self.is_wanted(new), is_free]).collect();
        let txn = Txn::new().when(when).and_then(self.puts(new)).or_else([otherwise]);
        let ask = || async {
            let answer = self.kv.clone().txn(txn.clone()).await?;
            self.changed(answer)
        };
        // The transaction does not wait for the etcd lease's answer if that takes its time, or is lost: it need only arrive after the request.
        let first = match early {
            Some(granted) => Ok(granted),
            None if lease == 0 => Ok(Ok(())),
            None => match select(grant, ahead).await {
                Either::Left((granted, _)) => Ok(granted),
                Either::Right(((), grant)) => Err(grant),
            },
        };
        let (is_granted, changed) = match first {
            Ok(is_granted) => {
                // Otherwise the transaction is not sent.
                is_granted.map_err(|trouble| match trouble {
                    Trouble::Full(error) => Trouble::Refused(error),
                    trouble => trouble,
                })?;
                granted.heard();
                granted.asked(new.resource, 0);
                return ask().await;
            }
            Err(grant) => {
                granted.asked(new.resource, 0);
                let (is_granted, changed) = join(grant, ask()).await;
                if is_granted.is_ok() {
                    granted.heard();
                }
                (is_granted, changed)
            }
        };
        match (is_granted, changed) {
            // It overtook its etcd lease.
            (Ok(()), Err(Trouble::NoLease)) => ask().await,
            (Err(Trouble::Full(error)), Err(Trouble::NoLease)) => Err(Trouble::Refused(error)),
            (Err(trouble), Err(Trouble::NoLease)) => Err(trouble),
            (_, changed) => changed,
        }
    }

    /// Its etcd lease is not about to be revoked.
    fn is_wanted(&self, new: &Draft<'_>) -> Compare {
        Compare::create_revision(self.place.revoked(new.lease), CompareOp::Equal, 0)
    }

    /// If the owner has it in that slot: a tenure in the other one, instead.
    fn instead(&self, new: &Draft<'_>, slot: u8, otherwise: TxnOp) -> TxnOp {
        let keys = self.keys(new.resource, &new.value.owner, slot);
        let is_held = keys.clone().map(|key| Compare::create_revision(key, CompareOp::Greater, 0));
        let when: Vec<_> = is_held.into_iter().chain(self.is_sound()).chain([self.is_wanted(new)]).collect();
        let options = DeleteOptions::new().with_prev_key();
        let deletes = keys.map(|key| TxnOp::delete(key, Some(options.clone())));
        let puts = self.puts(&Draft { slot: 1 - slot, value: new.value.clone(), ..*new });
        let then: Vec<_> = deletes.into_iter().chain(puts).collect();
        TxnOp::txn(Txn::new().when(when).and_then(then).or_else([otherwise]))
    }

    /// A tenure hangs on another etcd lease, if one was granted, and has that policy from now on; unless it has changed since it was read.
    pub(crate) async fn alter(
        &self,
        new: &Draft<'_>,
        old: &Lock,
        mut granted: Option<Granted<'_>>,
    ) -> Result<Changed, Trouble> {
        if let Some(granted) = &mut granted {
            granted.asked(&old.resource, old.lease);
        }
        let when = vec![Compare::mod_revision(self.key(old), CompareOp::Equal, old.modified), self.is_wanted(new)];
        let changed = self.change(new.resource, when, self.puts(new).into()).await;
        if let Some(granted) = granted {
            granted.settle(&changed);
        }
        changed
    }

    /// A tenure is what it was when it was read, and stays so: it is written again. Somebody may be about to move it to a shorter etcd lease
    /// without knowing of a keep-alive, which changes no key; after this the move fails, or it has been made already, and this fails.
    pub(crate) async fn confirm(&self, lock: &Lock) -> Result<bool, Trouble> {
        let Lock { resource, slot, lease, value, .. } = lock.clone();
        let key = self.key(lock);
        // Not by its revision: many requests of its owner may write the same at the same time.
        let when = vec![
            Compare::create_revision(key.clone(), CompareOp::Equal, lock.created),
            Compare::lease(key.clone(), CompareOp::Equal, lease),
            Compare::value(key, CompareOp::Equal, value.to_text()),
        ];
        let same = Draft { resource: &resource, slot, lease, value };
        match self.change(&resource, when, self.puts(&same).into()).await {
            Ok(changed) => Ok(matches!(changed, Changed::Yes(_))),
            // Nor is there space for the move.
            Err(Trouble::Full(_)) => {
                let found = self.find(&resource).await?;
                Ok(found.is_some_and(|found| (found.token, found.lease) == (lock.token, lock.lease)))
            }
            // The etcd lease has gone.
            Err(Trouble::NoLease) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// A tenure ends.
    pub(crate) async fn end(&self, resource: &Resource, owner: &Owner, token: Token) -> Result<Changed, Trouble> {
        let created = revision(token, self.base());
        match self.end_of(resource, owner, created).await? {
            // It began before something was forgotten.
            Changed::No(Some(lock)) if (&lock.value.owner, lock.token) == (owner, token) && lock.created != created => {
                self.end_of(resource, owner, lock.created).await
            }
            ended => Ok(ended),
        }
    }

    /// The one that began at this revision.
    async fn end_of(&self, resource: &Resource, owner: &Owner, created: i64) -> Result<Changed, Trouble> {
        let prefixes = [self.place.lock(resource), self.place.owned_lock(owner, resource)];
        let when =
            prefixes.clone().map(|prefix| Compare::create_revision(prefix, CompareOp::Equal, created).with_prefix());
        let options = DeleteOptions::new().with_prefix().with_prev_key();
        let then = prefixes.map(|prefix| TxnOp::delete(prefix, Some(options.clone())));
        let ended = self.change(resource, when.to_vec(), then.to_vec()).await?;
        match &ended {
            // Somebody has deleted the owner's key: the other one says whose it is.
            Changed::No(Some(half)) if (&half.value.owner, half.created) == (owner, created) => {
                let [when, _] = when;
                self.change(resource, vec![when], then.into()).await
            }
            _ => Ok(ended),
        }
    }

    /// All of these tenures end, or none. They are all that the owner has up to this revision, if there is one; otherwise they are some.
    pub(crate) async fn end_all(&self, owner: &Owner, locks: &[Lock], at: Option<i64>) -> Result<bool, Trouble> {
        // Each key says on which etcd lease it hung: it may have moved since it was read.
        let delete = |key, options: DeleteOptions| TxnOp::delete(key, Some(options.with_prev_key()));
        let is_it = |lock: &Lock| Compare::create_revision(self.key(lock), CompareOp::Equal, lock.created);
        let mut when: Vec<_> = locks.iter().map(is_it).collect();
        let then: Vec<_> = match at {
            Some(at) => {
                let owned = self.place.owned(owner);
                when.push(Compare::create_revision(owned.clone(), CompareOp::Less, at + 1).with_prefix());
                let all = TxnOp::delete(owned, Some(DeleteOptions::new().with_prefix()));
                locks.iter().map(|lock| delete(self.key(lock), DeleteOptions::new())).chain([all]).collect()
            }
            None => {
                let keys = locks.iter().map(|lock| self.keys(&lock.resource, &lock.value.owner, lock.slot));
                keys.flat_map(|[lock, owned]| [delete(lock, DeleteOptions::new()), TxnOp::delete(owned, None)])
                    .collect()
            }
        };
        let answer = self.kv.clone().txn(Txn::new().when(when).and_then(then)).await?;
        let deleted = answer.op_responses().into_iter().filter_map(|response| match response {
            TxnOpResponse::Delete(deleted) => Some(deleted),
            _ => None,
        });
        deleted.for_each(|deleted| deleted.prev_kvs().iter().for_each(|kv| self.leftovers.add(kv.lease())));
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

/// A key has been deleted, by whoever did it, and the tenure that it was of is over.
fn tell_end(watchers: &Watchers, prefix: &str, deleted: &Event) {
    let Some((resource, _)) = deleted.kv().and_then(|kv| Place::resource(prefix, kv.key())) else { return };
    match deleted.prev_kv().and_then(|kv| Lock::new(prefix, kv)) {
        Some(lock) => watchers.tell_end(&resource, lock.token, Lost::Released),
        // It has been compacted away.
        None => watchers.tell(&resource),
    }
}

impl Ear {
    /// Until the connection ends: tells of what has come free.
    pub(crate) async fn listen(mut self, place: &Place, watchers: &Watchers) -> Error {
        let prefix = place.locks();
        loop {
            match self.stream.message().await {
                Ok(Some(heard)) if heard.canceled() => return Error::Unconnected { source: None },
                Ok(Some(heard)) => {
                    heard.events().iter().for_each(|deleted| tell_end(watchers, &prefix, deleted));
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
