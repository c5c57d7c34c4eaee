//! A case that is being run.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use async_io::Timer;
use futures_lite::future::or;
use keylatch_lease::{Leases, Owner, Resource, engine::Engine};

use crate::{
    Caps, Failure, Fixture, Proxy, Server,
    caps::Excused,
    observed::{Observed, Recorder},
    worker::Process,
};

pub(crate) type Client<F> = Leases<Observed<<F as Fixture>::Engine>>;

/// The context of a case.
pub(crate) struct Trial<'f, F: Fixture> {
    pub(crate) fixture: &'f F,
    pub(crate) caps: Caps,
    namespace: String,
    recorder: OnceLock<Recorder>,
    clients: Mutex<Vec<Arc<Client<F>>>>,
    weakened: Mutex<Vec<String>>,
}

/// Fails the case if a condition does not hold, unless its guarantee is excused.
macro_rules! ensure {
    ($trial:expr, $guarantee:expr, $is_right:expr, $($message:tt)+) => {
        if !$is_right {
            $trial.wrong($guarantee, format!($($message)+))?;
        }
    };
}
pub(crate) use ensure;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a name that no other run has had.
fn unique(number: u32) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_micros());
    format!("case{number}_{time:x}_{:x}_{:x}", std::process::id(), NEXT.fetch_add(1, Relaxed))
}

impl<'f, F: Fixture> Trial<'f, F> {
    pub(crate) fn new(fixture: &'f F, number: u32) -> Self {
        Trial {
            fixture,
            caps: fixture.caps(),
            namespace: unique(number),
            recorder: OnceLock::new(),
            clients: Mutex::default(),
            weakened: Mutex::default(),
        }
    }

    /// Starts to record the requests of all clients that connect from now on, and returns the record.
    pub(crate) fn record(&self) -> Recorder {
        self.recorder.get_or_init(Recorder::default).clone()
    }

    /// Returns another client; if the engine is in this process, the only one.
    pub(crate) async fn client(&self) -> Result<Arc<Client<F>>, Failure> {
        let first = lock(&self.clients).first().cloned();
        match first {
            Some(first) if F::Engine::LOCAL => Ok(first),
            _ => self.connect(None).await,
        }
    }

    pub(crate) async fn client_through(&self, proxy: &Proxy) -> Result<Arc<Client<F>>, Failure> {
        self.connect(Some(proxy)).await
    }

    async fn connect(&self, through: Option<&Proxy>) -> Result<Arc<Client<F>>, Failure> {
        let connecting = self.fixture.connect(&self.namespace, through);
        let engine = self.soon("connecting", connecting).await?.map_err(|failure| failure.context("connecting"))?;
        let client = Arc::new(Leases::with_engine(Observed::new(engine, self.recorder.get().cloned())));
        lock(&self.clients).push(Arc::clone(&client));
        Ok(client)
    }

    /// Takes away all leases by hand, in the way that is called `what`.
    pub(crate) async fn take_away(&self, what: &str) -> Result<(), Failure> {
        self.fixture.take_away(&self.namespace, what).await
    }

    pub(crate) fn connections(&self) -> Option<u64> {
        self.fixture.connections(&self.namespace)
    }

    pub(crate) fn proxy(&self) -> Result<Proxy, Failure> {
        match self.fixture.address() {
            Some(address) => Ok(Proxy::new(address)?),
            None => Err(Failure::does_not_apply("the engine has no connection for a proxy")),
        }
    }

    pub(crate) fn server(&self) -> Result<&dyn Server, Failure> {
        self.fixture.server().ok_or_else(|| Failure::does_not_apply("there is no server"))
    }

    /// Starts another process. `adjust` may change its command.
    pub(crate) fn process(&self, adjust: impl FnOnce(&mut std::process::Command)) -> Result<Process, Failure> {
        let command = self.fixture.worker(&self.namespace, self.fixture.address());
        let mut command = command.ok_or_else(|| Failure::does_not_apply("there are no other processes"))?;
        adjust(&mut command);
        Process::start(command, self.patience())
    }

    /// Reports a failed check, which fails the case unless the guarantee is excused.
    pub(crate) fn wrong(&self, guarantee: u32, message: String) -> Result<(), Failure> {
        let excuse = self.caps.excuses.iter().find(|excuse| excuse.of == Excused::Guarantee(guarantee));
        match excuse {
            Some(excuse) => {
                self.weaken(format!("{} ({message})", excuse.reason));
                Ok(())
            }
            None => Err(Failure::new(format!("guarantee {guarantee}: {message}"))),
        }
    }

    /// Reports something that the case cannot show, or a failed check that is excused.
    pub(crate) fn weaken(&self, reason: impl Into<String>) {
        let reason = reason.into();
        let mut weakened = lock(&self.weakened);
        if !weakened.contains(&reason) {
            weakened.push(reason);
        }
    }

    pub(crate) fn weakened(&self) -> Vec<String> {
        lock(&self.weakened).clone()
    }

    /// Returns *T*, the length of leases that expire in the case.
    pub(crate) fn ttl(&self) -> Duration {
        self.caps.ttl
    }

    /// Returns the length of leases that must not end during the case.
    pub(crate) fn long(&self) -> Duration {
        if self.caps.is_ttl_fixed { self.caps.ttl } else { self.caps.long }
    }

    /// Returns whether the engine's time is real time.
    pub(crate) async fn is_real_time(&self) -> Result<bool, Failure> {
        let first = lock(&self.clients).first().cloned();
        let client = match first {
            Some(first) => first,
            None => self.client().await?,
        };
        Ok(client.engine().is_real_time())
    }

    /// Returns how long the suite waits for an event that should happen at once. Except for the answers of other
    /// processes, it waits in [naps](NAP), so it waits longer on a machine that gives this process little time.
    pub(crate) fn patience(&self) -> Duration {
        self.caps.delta + self.caps.noise
    }

    /// Lets time pass. An engine whose clock does not advance in real time then does the work that is due.
    pub(crate) async fn pass(&self, time: Duration) -> Result<(), Failure> {
        self.fixture.pass(&self.namespace, time).await;
        let clients = lock(&self.clients).clone();
        for client in clients.into_iter().filter(|client| !client.engine().is_real_time()) {
            client.release_expired().await?;
        }
        Ok(())
    }

    /// Lets time pass, without making the engine do the work that is due.
    pub(crate) async fn fixture_pass(&self, time: Duration) {
        self.fixture.pass(&self.namespace, time).await;
    }

    /// Does the same as [`outlive`](Self::outlive), without making the engine do the work that is due.
    pub(crate) async fn fixture_outlive(&self, ttl: Duration) -> Result<(), Failure> {
        self.fixture_pass(ttl + ttl / 50).await;
        if self.is_real_time().await? {
            self.fixture_pass(self.caps.delta).await;
        }
        Ok(())
    }

    /// Lets the time of a lease pass, plus 2 % and, in real time, the longest delay of its end. Then lets the engine do
    /// the work that is due, as [`pass`](Self::pass) does.
    pub(crate) async fn outlive(&self, ttl: Duration) -> Result<(), Failure> {
        self.pass(ttl + ttl / 50).await?;
        if self.is_real_time().await? {
            self.pass(self.caps.delta).await?;
        }
        Ok(())
    }

    /// Returns how long the suite waits, in real time, for an event that must happen once this time has passed on the
    /// engine's clock.
    pub(crate) async fn patience_after(&self, time: Duration) -> Result<Duration, Failure> {
        let passes = if self.is_real_time().await? { time + time / 50 } else { Duration::ZERO };
        Ok(passes + self.patience())
    }

    /// Polls a future that must be ready soon.
    pub(crate) async fn soon<T>(&self, what: &str, future: impl Future<Output = T>) -> Result<T, Failure> {
        self.within(self.patience(), what, future).await
    }

    /// Polls a future that must be ready within this limit of real time, whatever the engine's clock is. The limit is
    /// counted in [naps](NAP).
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        what: &str,
        future: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let late = async {
            for _ in 0..naps(limit) {
                Timer::after(NAP).await;
            }
            Err(Failure::new(format!("still waiting after {limit:?}: {what}")))
        };
        or(async { Ok(future.await) }, late).await
    }

    /// Waits until a condition holds.
    pub(crate) async fn until<W>(&self, what: impl fmt::Display, mut is_so: impl FnMut() -> W) -> Result<(), Failure>
    where
        W: Future<Output = Result<bool, Failure>>,
    {
        for _ in 0..naps(self.patience()) {
            if is_so().await? {
                return Ok(());
            }
            Timer::after(NAP).await;
        }
        Err(Failure::new(format!("after {:?} this is still not so: {what}", self.patience())))
    }

    /// Waits until a client has this number of waiters for a resource.
    pub(crate) async fn until_waiting(
        &self,
        client: &Client<F>,
        resource: &Resource,
        waiters: usize,
    ) -> Result<(), Failure> {
        // The limit applies to each waiter, not to all of them: a slow machine takes a long time for a thousand.
        let (mut before, mut left) = (0, naps(self.patience()));
        loop {
            let now = client.status(resource).await?.map_or(0, |status| status.waiters());
            if now == waiters {
                return Ok(());
            }
            left -= 1;
            if now != before {
                (before, left) = (now, naps(self.patience()));
            } else if left == 0 {
                let patience = self.patience();
                return Err(Failure::new(format!("{resource} has {now} waiters for {patience:?}, not {waiters}")));
            }
            Timer::after(NAP).await;
        }
    }
}

/// The suite waits in naps, and counts them instead of looking at a clock: a pause in which other processes take the
/// machine, however long, then counts as one nap.
const NAP: Duration = Duration::from_millis(2);

/// Returns the number of naps in a time, rounded up; at least 1.
fn naps(time: Duration) -> u128 {
    time.as_nanos().div_ceil(NAP.as_nanos()).max(1)
}

/// Returns a few owners.
pub(crate) fn owners<const N: usize>() -> [Owner; N] {
    std::array::from_fn(|at| Owner::named(["ann", "bob", "cid", "dan", "eve", "fay"][at % 6]))
}

/// A generator of numbers that are random enough, and always the same for a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number below `end`.
    pub(crate) fn next(&mut self, end: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }
}
