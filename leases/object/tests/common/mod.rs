//! A store that misbehaves, and fixtures for the suite.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::{
    future::BoxFuture,
    stream::{self, BoxStream},
};
use keylatch_lease_conformance::{Caps, Excuse, Failure, Fixture, Proxy};
use keylatch_lease_object::{
    Bucket, Options,
    object_store::{
        self, CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
        PutMultipartOptions, PutOptions, PutPayload, PutResult, memory::InMemory, path::Path,
    },
};
use tokio::runtime::Runtime;

/// The number of requests, out of a thousand, that suffer each fault.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// The store refuses the request: there are too many.
    pub(crate) throttled: u64,
    /// The request is lost.
    pub(crate) lost: u64,
    /// The request is carried out, and its answer is lost.
    pub(crate) unanswered: u64,
    /// The request gets no answer, and is carried out later.
    pub(crate) late: u64,
    /// The request is carried out, and once more later.
    pub(crate) doubled: u64,
    /// The request takes a while.
    pub(crate) slow: u64,
    /// The condition of a write is ignored.
    pub(crate) careless: u64,
    /// The time that each request takes, in milliseconds.
    pub(crate) millis: u64,
}

/// A fault of a certain write.
pub(crate) enum Planned {
    /// There is no fault.
    IsUnchanged,
    /// The write is lost, or refused, with this error.
    Fails(object_store::Error),
    /// The write is carried out, then this future runs, and then the answer is lost.
    IsUnanswered(BoxFuture<'static, ()>),
    /// The write is carried out, and the store's client, which misses the answer, sends it again.
    IsRepeated,
    /// The write gets no answer. It is carried out just before the next write, and then this future runs.
    IsLate(BoxFuture<'static, ()>),
}

impl fmt::Debug for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fault")
    }
}

/// A write that is late, and what happens after it.
struct Late(Path, PutPayload, PutOptions, BoxFuture<'static, ()>);

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a late write")
    }
}

/// The longest delay of a request that is slow, late or duplicated.
const LATE: Duration = Duration::from_millis(400);

/// A store in front of another one. It misbehaves at random, and counts the requests.
#[derive(Debug)]
pub(crate) struct Shim {
    store: Arc<dyn ObjectStore>,
    faults: Faults,
    random: AtomicU64,
    planned: Mutex<VecDeque<Planned>>,
    late: Mutex<Option<Late>>,
    /// The number of list requests that fail from now on.
    pub(crate) failing_lists: AtomicU64,
    pub(crate) gets: AtomicU64,
    pub(crate) puts: AtomicU64,
    pub(crate) lists: AtomicU64,
}

impl fmt::Display for Shim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a shim of {}", self.store)
    }
}

pub(crate) fn generic(text: &str) -> object_store::Error {
    object_store::Error::Generic { store: "shim", source: text.into() }
}

impl Shim {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, faults: Faults, seed: u64) -> Arc<Self> {
        let count = || AtomicU64::new(0);
        let (random, planned, late) = (AtomicU64::new(seed), Mutex::default(), Mutex::default());
        let (gets, puts, lists, failing_lists) = (count(), count(), count(), count());
        Arc::new(Shim { store, faults, random, planned, late, failing_lists, gets, puts, lists })
    }

    /// Returns a store that ignores the conditions of writes.
    pub(crate) fn careless(store: Arc<dyn ObjectStore>) -> Arc<Self> {
        Shim::new(store, Faults { careless: 1000, ..Faults::default() }, 1)
    }

    /// Plans a fault of the next write for which none is planned.
    pub(crate) fn plan(&self, planned: Planned) {
        self.planned.lock().unwrap().push_back(planned);
    }

    /// Returns how many requests have read, written and listed since this was last called.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [&self.gets, &self.puts, &self.lists].map(|count| count.swap(0, SeqCst))
    }

    /// Returns a random number below this one.
    fn below(&self, end: u64) -> u64 {
        // SplitMix64
        let mut z = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, SeqCst);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % end
    }

    fn happens(&self, of_a_thousand: u64) -> bool {
        self.below(1000) < of_a_thousand
    }

    async fn delay(&self) {
        let millis = self.below(u64::try_from(LATE.as_millis()).unwrap());
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    async fn before(&self) -> object_store::Result<()> {
        if self.faults.millis > 0 {
            tokio::time::sleep(Duration::from_millis(self.faults.millis)).await;
        }
        if self.happens(self.faults.slow) {
            self.delay().await;
        }
        if self.happens(self.faults.throttled) {
            return Err(generic("503 Service Unavailable: <Code>SlowDown</Code>"));
        }
        if self.happens(self.faults.lost) {
            return Err(generic("the request is lost"));
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl ObjectStore for Shim {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> object_store::Result<PutResult> {
        if self.happens(self.faults.careless) {
            options.mode = PutMode::Overwrite;
        }
        self.puts.fetch_add(1, SeqCst);
        let late = self.late.lock().unwrap().take();
        if let Some(Late(location, payload, options, meanwhile)) = late {
            self.store.put_opts(&location, payload, options).await?;
            meanwhile.await;
        }
        let planned = self.planned.lock().unwrap().pop_front();
        match planned {
            Some(Planned::Fails(error)) => return Err(error),
            Some(Planned::IsRepeated) => {
                self.store.put_opts(location, payload.clone(), options.clone()).await?;
            }
            Some(Planned::IsUnanswered(meanwhile)) => {
                self.store.put_opts(location, payload, options).await?;
                meanwhile.await;
                return Err(generic("the answer is lost"));
            }
            Some(Planned::IsLate(meanwhile)) => {
                *self.late.lock().unwrap() = Some(Late(location.clone(), payload, options, meanwhile));
                return Err(generic("the request is late"));
            }
            Some(Planned::IsUnchanged) | None => self.before().await?,
        }
        let (is_late, is_doubled) = (self.happens(self.faults.late), self.happens(self.faults.doubled));
        if is_late || is_doubled {
            let later = (Arc::clone(&self.store), location.clone(), payload.clone(), options.clone());
            let millis = self.below(u64::try_from(LATE.as_millis()).unwrap());
            tokio::spawn(async move {
                let (store, location, payload, options) = later;
                tokio::time::sleep(Duration::from_millis(millis)).await;
                let _ = store.put_opts(&location, payload, options).await;
            });
        }
        if is_late {
            return Err(generic("the request is late"));
        }
        let answer = self.store.put_opts(location, payload, options).await;
        if self.happens(self.faults.unanswered) {
            return Err(generic("the answer is lost"));
        }
        answer
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.gets.fetch_add(1, SeqCst);
        self.before().await?;
        let answer = self.store.get_opts(location, options).await;
        if self.happens(self.faults.slow) {
            self.delay().await;
        }
        answer
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.lists.fetch_add(1, SeqCst);
        if self.failing_lists.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1)).is_ok() {
            return Box::pin(stream::once(async { Err(generic("the list is lost")) }));
        }
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.lists.fetch_add(1, SeqCst);
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

/// Options for tests, in which waiters ask often.
pub(crate) fn options(namespace: &str) -> Options {
    Bucket::in_namespace(namespace).polls(Duration::from_millis(50), Duration::from_millis(200))
}

/// The engine on a store in memory, for the suite.
pub(crate) struct Shared {
    store: Arc<dyn ObjectStore>,
    faults: Faults,
    runtime: Runtime,
}

impl Shared {
    pub(crate) fn new(faults: Faults) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Shared { store: Arc::new(InMemory::new()), faults, runtime }
    }

    fn is_faulty(&self) -> bool {
        self.faults.slow > 0
    }
}

impl Fixture for Shared {
    type Engine = Bucket;

    fn name(&self) -> String {
        if self.is_faulty() { "a bucket that misbehaves".into() } else { "a bucket".into() }
    }

    fn caps(&self) -> Caps {
        let mut caps = Caps::new(Duration::from_secs(if self.is_faulty() { 2 } else { 1 }));
        caps.notice = None;
        let taken = "a process that has only just looked waits for the lease's whole time before it takes over";
        let again = "acquired again by another process, a lease lasts for as long as that process thinks possible";
        caps.excuses.extend([Excuse::case(12, taken), Excuse::case(14, again)]);
        caps
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    async fn connect(&self, namespace: &str, _: Option<&Proxy>) -> Result<Bucket, Failure> {
        let shim = Shim::new(Arc::clone(&self.store), self.faults, 1);
        Ok(options(namespace).tries_out(false).timeout(Duration::from_secs(10)).open(shim).await?)
    }
}
