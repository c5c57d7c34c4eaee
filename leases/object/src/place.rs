//! The requests to the store.
//!
//! If the answer to a conditional write was lost, the object is read: it has the write's number if the write was
//! carried out. If the object is still what it was, the same write is sent again. It may then be carried out twice, or
//! late, but never after another write, because its condition names the version before it.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use keylatch_lease::{Clock, Resource, StdClock, engine::Fail};
use keylatch_lease_remote::{Limit, jittered, sleep};
use object_store::{
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion,
    path::{Path, PathPart},
};
use tokio::{runtime::Handle, task::JoinHandle};

use crate::{
    decide::{Now, Seen, Step},
    error::Error,
    names,
    record::{LEASED, Record, random},
    store_clock::StoreClock,
    table::Table,
};

pub(crate) type Done<T> = Result<T, Fail<Error>>;

/// The pause before another attempt is the first of these, doubled with each attempt, up to the second. The real pause
/// is between half of that and all of it, at random.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The number of times that a read is sent while it fails, or a write while its outcome stays unknown.
const TRIES: u32 = 4;

/// The name of the object by which the store's clock is read.
const CLOCK: &str = "clock";

/// The greatest number of objects that one operation reads or changes at the same time.
const TOGETHER: usize = 32;

async fn pause(tries: u32) {
    let longest = SHORTEST_PAUSE.saturating_mul(1 << tries.min(10)).min(LONGEST_PAUSE);
    sleep(jittered(longest)).await;
}

/// The leases of a namespace in a bucket.
#[derive(Debug)]
pub(crate) struct Place {
    store: Arc<dyn ObjectStore>,
    /// The folder of the namespace.
    folder: Path,
    runtime: Handle,
    clock: StdClock,
    store_clock: Option<StoreClock>,
    pub(crate) table: Table,
}

/// The outcome of a conditional write.
enum Put {
    Written(Seen),
    /// Somebody else has changed the object. This is its present version.
    Changed(Option<Seen>),
    /// The write was carried out, and somebody else has replaced its version by this one.
    Replaced(Seen),
}

/// The names of leases, and the name of the last object that was looked at if there may be more.
type Listed = (Vec<String>, Option<String>);

/// Returns the path of an object in a folder.
fn object(folder: &Path, name: &str) -> Path {
    folder.clone().join(PathPart::from(name))
}

/// Returns the version of an object, for the condition of a write.
fn version(meta: ObjectMeta) -> UpdateVersion {
    UpdateVersion { e_tag: meta.e_tag, version: meta.version }
}

/// A request that runs on tokio, whoever polls for its answer. The request is aborted when this is dropped.
struct Running<T>(JoinHandle<T>);

impl<T> Future for Running<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
        Poll::Ready(match ready!(Pin::new(&mut self.0).poll(cx)) {
            Ok(output) => Ok(output),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Error::Stopped), // the runtime has been shut down
            },
        })
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Place {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        prefix: &Path,
        namespace: &str,
        runtime: Handle,
        store_clock: Option<StoreClock>,
        table: Table,
    ) -> Self {
        let folder = prefix.clone().join(PathPart::from(names::folder(namespace)));
        Place { store, folder, runtime, clock: StdClock::new(), store_clock, table }
    }

    pub(crate) fn clock(&self) -> Duration {
        self.clock.now()
    }

    pub(crate) fn now(&self) -> Now {
        let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let clock = self.clock();
        let store = self.store_clock.as_ref().and_then(|store| store.at(clock));
        Now { clock, day: i64::try_from(day.as_micros()).unwrap_or(i64::MAX), store }
    }

    fn path(&self, name: &str) -> Path {
        object(&self.folder, name)
    }

    /// Runs a request to the store on tokio.
    fn run<T, F>(&self, request: impl FnOnce(Arc<dyn ObjectStore>) -> F) -> Running<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        Running(self.runtime.spawn(request(Arc::clone(&self.store))))
    }

    /// Reads an object; `None` if there is none.
    async fn get(&self, path: &Path) -> Result<Option<(ObjectMeta, Bytes)>, Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let path = path.clone();
            let answer = self.run(|store| async move {
                let object = store.get(&path).await?;
                Ok((object.meta.clone(), object.bytes().await?))
            });
            match Error::sort_read(answer.await?) {
                Err(error) if tries < TRIES && !error.is_certain() => pause(tries).await,
                other => return other,
            }
        }
    }

    /// Writes an object; `Ok(Ok(None))` if the condition of the write is not met.
    async fn put(
        &self,
        path: Path,
        text: String,
        mode: PutMode,
    ) -> Result<Result<Option<UpdateVersion>, Error>, Error> {
        let is_update = matches!(mode, PutMode::Update(_));
        let options = PutOptions::from(mode);
        let answer = self.run(|store| async move { store.put_opts(&path, PutPayload::from(text), options).await });
        let version = answer.await?.map(|put| UpdateVersion { e_tag: put.e_tag, version: put.version });
        Ok(Error::sort_write(version, is_update))
    }

    async fn delete(&self, path: Path) -> Result<(), Error> {
        self.run(|store| async move { store.delete(&path).await }).await?.map_err(Error::of)
    }

    /// Reads the store's clock, if it is trusted and was not read within the last minute. Returns whether the clock was
    /// read.
    ///
    /// The reading is the time at which the store wrote an object that all processes of the namespace write. This
    /// process receives that object later, whichever process wrote it.
    pub(crate) async fn read_clock(&self) -> Done<bool> {
        let Some(store_clock) = self.store_clock.as_ref().filter(|store| !store.is_fresh(self.clock())) else {
            return Ok(false);
        };
        let path = self.path(CLOCK);
        // If it fails, an older time is read, which does no harm.
        let _ = self.put(path.clone(), String::new(), PutMode::Overwrite).await.map_err(Fail::NotDone)?;
        let Some((meta, _)) = self.get(&path).await.map_err(Fail::NotDone)? else { return Ok(false) };
        store_clock.reads(self.clock(), meta.last_modified.timestamp_micros());
        Ok(true)
    }

    /// Reads the object of this name, without noting it in the table.
    async fn read_named(&self, name: &str) -> Result<Option<Seen>, Error> {
        let path = self.path(name);
        let Some((meta, bytes)) = self.get(&path).await? else { return Ok(None) };
        let record = std::str::from_utf8(&bytes).ok().and_then(Record::from_text);
        let record = record.ok_or_else(|| Error::Foreign { path: path.to_string() })?;
        let modified = Some(meta.last_modified.timestamp_micros());
        Ok(Some(Seen { version: version(meta), record, at: self.clock(), sent: None, modified }))
    }

    /// Reads the object of a resource. Returns what is known about its current version.
    pub(crate) async fn read(&self, resource: &Resource) -> Done<Option<Seen>> {
        let asked = self.clock();
        let seen = self.read_named(&names::name(resource)).await.map_err(Fail::NotDone)?;
        Ok(self.table.read(resource, asked, seen, self.now()))
    }

    /// Decides about a resource's object, and writes what was decided, as one atomic action. The decision is made again
    /// whenever somebody else has changed the object in between. An answer that needs no write is given only about the
    /// current version.
    ///
    /// A write may turn out to have been carried out, and replaced since. Then `decide` gets that write's answer, too.
    pub(crate) async fn change<T>(
        &self,
        resource: &Resource,
        decide: impl Fn(Option<&Seen>, Now, Option<&T>) -> Step<T>,
    ) -> Done<T> {
        let mut replaced: Option<T> = None;
        let mut seen = self.table.last(resource, self.clock());
        let mut is_present = false;
        let mut changes = 0;
        loop {
            if is_present || seen.is_some() {
                match decide(seen.as_ref(), self.now(), replaced.as_ref()) {
                    Step::Undone => return Err(Fail::Undone(Error::Undone)),
                    Step::Say(answer) if is_present => return Ok(answer),
                    Step::Say(_) => {}
                    Step::Write(record, answer) => {
                        let is_end = record.lease.is_none();
                        let written = self.write(resource, seen.as_ref(), record).await;
                        // If an earlier write was carried out, the outcome is unknown, whatever became of this one.
                        let written = written.map_err(|fail| match replaced {
                            Some(_) => Fail::Unknown(fail.into_cause()),
                            None => fail,
                        });
                        let now = match written? {
                            Put::Written(seen) => {
                                self.table.wrote(resource, seen, self.now());
                                return Ok(answer);
                            }
                            // This write has ended the tenure, whoever has the resource now.
                            Put::Replaced(_) if is_end => return Ok(answer),
                            Put::Replaced(now) => {
                                replaced = Some(answer);
                                Some(now)
                            }
                            Put::Changed(now) => now,
                        };
                        // Somebody else was faster, perhaps not for the first time.
                        if is_present {
                            pause(changes).await;
                            changes += 1;
                        }
                        (seen, is_present) = (now, true);
                        continue;
                    }
                }
            }
            (seen, is_present) = (self.read(resource).await?, true);
        }
    }

    /// Writes a resource's object if it is still what was seen, or if there is still none.
    async fn write(&self, resource: &Resource, before: Option<&Seen>, mut record: Record) -> Done<Put> {
        record.replaces(before.map(|before| &before.record));
        let (path, sent) = (self.path(&names::name(resource)), self.clock());
        let mut tries = 0;
        // The error of an attempt that may have been carried out, or may yet be, even after the next attempt.
        let mut doubt = None;
        loop {
            tries += 1;
            if let Some(lease) = &mut record.lease {
                lease.written = self.now().day; // this attempt may come much later than the first one
            }
            let mode = before.map_or(PutMode::Create, |before| PutMode::Update(before.version.clone()));
            let written = self.put(path.clone(), record.to_text(), mode).await.map_err(Fail::Unknown)?;
            match written {
                Ok(Some(version)) if version.e_tag.is_some() || version.version.is_some() => {
                    let (at, sent) = (self.clock(), Some(sent));
                    return Ok(Put::Written(Seen { version, record, at, sent, modified: None }));
                }
                // The store does not say which version this is.
                Ok(Some(_)) => {}
                // An earlier attempt, perhaps one by the store's client, may have been carried out.
                Ok(None) => {}
                Err(error) if error.is_certain() && doubt.is_none() => return Err(Fail::NotDone(error)),
                Err(error) => doubt = Some(error),
            }
            let now = self.read(resource).await.map_err(|fail| Fail::Unknown(fail.into_cause()))?;
            let Some(seen) = now else {
                match doubt {
                    // There is still no object.
                    Some(_) if before.is_none() && tries < TRIES => {
                        pause(tries).await;
                        continue;
                    }
                    Some(error) => return Err(Fail::Unknown(error)),
                    None => return Ok(Put::Changed(None)),
                }
            };
            if seen.record.nonce == record.nonce {
                return Ok(Put::Written(Seen { sent: Some(sent), ..seen }));
            }
            let is_unchanged = before.is_some_and(|before| before.record.nonce == seen.record.nonce);
            match (record.is_before(&seen.record), &doubt) {
                (Some(true), _) => return Ok(Put::Replaced(seen)),
                // If the object is still what it was, the same write may be sent again.
                (_, Some(_)) if is_unchanged && tries < TRIES => pause(tries).await,
                (_, Some(error)) if is_unchanged => return Err(Fail::Unknown(error.clone())),
                // The write was not carried out, and will not be, because the object has changed. (Or the store's client
                // has repeated it by itself, and so many writes followed that the object no longer names it.)
                (Some(false), _) | (None, None) => return Ok(Put::Changed(Some(seen))),
                (None, Some(error)) => return Err(Fail::Unknown(error.clone())),
            }
        }
    }

    /// Returns the names of the objects after this one that may be leases, in order.
    pub(crate) async fn names(&self, after: Option<&str>) -> Done<Vec<String>> {
        Ok(self.names_among(usize::MAX, after).await?.0)
    }

    /// Looks at up to `limit` objects after this one. Returns the names of those that may be leases, in order, and the
    /// name of the last object if there may be more.
    pub(crate) async fn names_among(&self, limit: usize, after: Option<&str>) -> Done<Listed> {
        let mut tries = 0;
        loop {
            tries += 1;
            let listed = self.list(limit, after).await.map_err(Fail::NotDone)?.map_err(Error::of);
            match listed {
                Err(error) if tries < TRIES && !error.is_certain() => pause(tries).await,
                Err(error) => return Err(Fail::NotDone(error)),
                Ok((mut names, last)) => {
                    names.sort_unstable();
                    return Ok((names, last));
                }
            }
        }
    }

    async fn list(&self, limit: usize, after: Option<&str>) -> Result<object_store::Result<Listed>, Error> {
        let (folder, after) = (self.folder.clone(), after.map(|name| self.path(name)));
        self.run(|store| async move {
            let mut all = match &after {
                Some(after) => store.list_with_offset(Some(&folder), after),
                None => store.list(Some(&folder)),
            };
            let (mut names, mut count) = (Vec::new(), 0);
            while let Some(meta) = all.try_next().await? {
                // The list also has the objects in subfolders, which are not the engine's.
                let name = meta.location.filename().filter(|name| object(&folder, name) == meta.location);
                if meta.size >= LEASED as u64 {
                    names.extend(name.filter(|name| names::is_name(name)).map(String::from));
                }
                count += 1;
                match name {
                    Some(name) if count >= limit => return Ok((names, Some(name.to_owned()))),
                    _ => {}
                }
            }
            Ok((names, None))
        })
        .await
    }

    /// Reads the objects of these names. Those that are no longer leases are left out, and so are foreign objects if
    /// `skips_foreign` is set.
    pub(crate) async fn leases(&self, names: &[String], skips_foreign: bool) -> Done<Vec<Seen>> {
        let read = |name: &String| {
            let name = name.clone();
            async move {
                let asked = self.clock();
                let seen = match self.read_named(&name).await {
                    Err(Error::Foreign { .. }) if skips_foreign => None,
                    seen => seen.map_err(Fail::NotDone)?,
                };
                let Some(lease) = seen.as_ref().and_then(|seen| seen.record.lease.as_ref()) else { return Ok(None) };
                let resource = lease.resource.clone();
                Ok(self.table.read(&resource, asked, seen, self.now()))
            }
        };
        let reading: Vec<_> = names.iter().map(read).collect();
        let all: Vec<_> = futures_util::stream::iter(reading).buffered(TOGETHER).try_collect().await?;
        Ok(all.into_iter().flatten().collect())
    }

    /// Applies an operation to each of these resources, several at a time.
    pub(crate) async fn each<I, T, F>(&self, all: Vec<I>, operation: impl Fn(I) -> F) -> Done<Vec<T>>
    where
        F: Future<Output = Done<T>>,
    {
        let running: Vec<_> = all.into_iter().map(operation).collect();
        futures_util::stream::iter(running).buffered(TOGETHER).try_collect().await
    }

    /// Finds out whether the store does conditional writes, by trying each kind on an object made for this. The object
    /// stays if there is no answer within the limit, or if it may not be deleted.
    pub(crate) async fn probe(&self, mut limit: Limit) -> Result<(), Error> {
        let path = self.path(&format!("probe-{:016x}", random()));
        let tried = limit.of(self.try_conditions(&path)).await.ok_or(Error::Timeout)?;
        let deleted = limit.of(self.delete(path)).await.ok_or(Error::Timeout)?;
        tried?;
        match deleted {
            // Credentials that may not delete are enough for everything else.
            Err(Error::Denied { .. }) => Ok(()),
            other => other,
        }
    }

    async fn try_conditions(&self, path: &Path) -> Result<(), Error> {
        let put = |text: &str, mode: PutMode| self.put(path.clone(), text.to_owned(), mode);
        // If an answer is lost, the store's client sends the write once more, and is refused.
        let has_put = async |text: &str, mode: PutMode| {
            let is_refused = put(text, mode).await??.is_none();
            Ok(!is_refused || self.get(path).await?.is_some_and(|(_, bytes)| *bytes == *text.as_bytes()))
        };
        // Without the permission to list, S3 forbids reading an object that does not exist.
        if self.get(path).await?.is_some() {
            return Err(Error::Unsupported { what: "telling that there is no object" });
        }
        if !has_put("1", PutMode::Create).await? {
            return Err(Error::Unsupported { what: "creating an object if there is none" });
        }
        if put("2", PutMode::Create).await??.is_some() {
            return Err(Error::Unsupported { what: "refusing to create an object that exists" });
        }
        let Some((first, _)) = self.get(path).await?.map(|(meta, bytes)| (version(meta), bytes)) else {
            return Err(Error::Unsupported { what: "reading an object that has just been written" });
        };
        if !has_put("3", PutMode::Update(first.clone())).await? {
            return Err(Error::Unsupported { what: "replacing an object of a certain version" });
        }
        if put("4", PutMode::Update(first)).await??.is_some() {
            return Err(Error::Unsupported { what: "refusing to replace an object of another version" });
        }
        Ok(())
    }
}
