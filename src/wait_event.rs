use alloc::format;
use core::fmt;
use core::num::NonZeroU32;

/// The beginning or the end of a wait, as reported to the observer that [`Builder::on_wait`](crate::Builder::on_wait)
/// sets.
///
/// # Examples
/// ```
/// use keylatch::{KeyedMutex, WaitPhase};
///
/// let locks = KeyedMutex::<String>::builder()
///     .on_wait(|event| match event.phase() {
///         WaitPhase::Started => println!("{:?}: a request waits to {}", event.key(), event.mode()),
///         phase => println!("{:?}: {phase}", event.key()),
///     })
///     .build();
/// # drop(locks);
/// ```
pub struct WaitEvent<'a, K: ?Sized> {
    key: &'a K,
    mode: WaitMode,
    phase: WaitPhase,
    id: WaitId,
}

impl<'a, K: ?Sized> WaitEvent<'a, K> {
    pub(crate) fn new(key: &'a K, mode: WaitMode, phase: WaitPhase, id: WaitId) -> Self {
        WaitEvent { key, mode, phase, id }
    }

    /// Returns the key that the request waits for.
    ///
    /// # Examples
    /// See [`WaitEvent`].
    #[must_use]
    pub fn key(&self) -> &'a K {
        self.key
    }

    /// Returns the access that the request waits for.
    ///
    /// # Examples
    /// See [`WaitEvent`].
    #[must_use]
    pub fn mode(&self) -> WaitMode {
        self.mode
    }

    /// Returns whether the wait begins, or how it has ended.
    ///
    /// # Examples
    /// See [`WaitEvent`].
    #[must_use]
    pub fn phase(&self) -> WaitPhase {
        self.phase
    }

    /// Returns the id of the wait. Both events of a wait have the same id.
    ///
    /// # Examples
    /// See [`WaitId`].
    #[must_use]
    pub fn id(&self) -> WaitId {
        self.id
    }
}

#[cfg(feature = "tracing")]
impl<K: ?Sized + fmt::Debug> WaitEvent<'_, K> {
    /// Emits an event of the `tracing` crate, in the span in which the request is polled, blocks, or is dropped.
    ///
    /// Its target is `keylatch` and its level `DEBUG`. Its message is the phase ("started", "granted", "given up"), and
    /// its fields are `table` (the argument), `key`, `mode` ("write", "acquire 3 permits") and `wait` (the number of
    /// the [`id`](Self::id)). A subscriber that reads `RUST_LOG` shows it with `RUST_LOG=keylatch=debug`.
    ///
    /// The two events of a wait have the same `table` and `wait`; the time between them is the length of the wait.
    ///
    /// # Examples
    /// ```
    /// use keylatch::KeyedMutex;
    ///
    /// let accounts = KeyedMutex::<String>::builder().on_wait(|event| event.trace("accounts")).build();
    /// # drop(accounts);
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    pub fn trace(&self, table: &str) {
        let WaitEvent { key, mode, phase, id } = self;
        tracing::debug!(target: "keylatch", table, ?key, %mode, wait = id.get(), "{phase}");
    }
}

impl<K: ?Sized> Clone for WaitEvent<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized> Copy for WaitEvent<'_, K> {}

impl<K: ?Sized + fmt::Debug> fmt::Debug for WaitEvent<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitEvent")
            .field("key", &self.key)
            .field("mode", &self.mode)
            .field("phase", &self.phase)
            .field("id", &self.id)
            .finish()
    }
}

/// The access that a request waits for. `Display` gives the verb: "write", "acquire 3 permits".
///
/// # Examples
/// ```
/// use keylatch::{KeyedSemaphore, WaitMode};
///
/// let hosts = KeyedSemaphore::<String>::builder(2)
///     .on_wait(|event| assert_eq!(event.mode(), WaitMode::Permits(1)))
///     .build();
/// # drop(hosts);
/// assert_eq!(WaitMode::Permits(3).to_string(), "acquire 3 permits");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum WaitMode {
    /// Read access.
    Read,
    /// Read access, with the right to upgrade.
    UpgradableRead,
    /// Write access, or the lock of a mutex.
    Write,
    /// The upgrade of an upgradable reader to a writer.
    Upgrade,
    /// This number of permits.
    Permits(usize),
}

impl fmt::Display for WaitMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            WaitMode::Read => "read",
            WaitMode::UpgradableRead => "upgradable read",
            WaitMode::Write => "write",
            WaitMode::Upgrade => "upgrade",
            WaitMode::Permits(1) => "acquire a permit",
            WaitMode::Permits(n) => return f.pad(&format!("acquire {n} permits")),
        })
    }
}

/// The beginning of a wait, or the way it ended. `Display` gives "started", "granted" or "given up".
///
/// # Examples
/// ```
/// use std::sync::Mutex;
///
/// use keylatch::{KeyedMutex, WaitPhase};
///
/// static PHASES: Mutex<Vec<WaitPhase>> = Mutex::new(Vec::new());
/// let locks = KeyedMutex::<u64>::builder().on_wait(|event| PHASES.lock().unwrap().push(event.phase())).build();
/// let guard = locks.try_lock(&7);
/// assert!(locks.try_lock_for(&7, std::time::Duration::from_millis(1)).is_none());
/// assert_eq!(*PHASES.lock().unwrap(), [WaitPhase::Started, WaitPhase::GivenUp]);
/// # drop(guard);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum WaitPhase {
    /// The request has joined the queue of its key.
    Started,
    /// The request has taken the hold that it waited for.
    Granted,
    /// The request has given up, for example because its future was dropped, its time limit was reached, or a detector
    /// found a deadlock. If it had been granted the key but had not taken it yet, the key has passed to the next
    /// waiter. (An upgrade that is given up may keep its upgradable hold.)
    GivenUp,
}

impl fmt::Display for WaitPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            WaitPhase::Started => "started",
            WaitPhase::Granted => "granted",
            WaitPhase::GivenUp => "given up",
        })
    }
}

/// The number of a wait. It tells the waits of one table apart. (Numbers repeat after four billion waits, and each
/// table counts its own waits.)
///
/// # Examples
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use std::time::Instant;
///
/// use keylatch::{KeyedMutex, WaitId, WaitPhase};
///
/// let begun: Mutex<HashMap<WaitId, Instant>> = Mutex::default();
/// let locks = KeyedMutex::<String>::builder()
///     .on_wait(move |event| match event.phase() {
///         WaitPhase::Started => _ = begun.lock().unwrap().insert(event.id(), Instant::now()),
///         _ => println!("{:?}: {:?}", event.key(), begun.lock().unwrap().remove(&event.id()).unwrap().elapsed()),
///     })
///     .build();
/// # drop(locks);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaitId(NonZeroU32);

impl WaitId {
    /// Makes the id of the wait with this number; `None` for 0, which is not an id.
    pub(crate) fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(WaitId)
    }

    /// Returns the number, for a log.
    ///
    /// # Examples
    /// ```
    /// use keylatch::KeyedMutex;
    ///
    /// let locks = KeyedMutex::<String>::builder().on_wait(|event| println!("wait {}", event.id().get())).build();
    /// # drop(locks);
    /// ```
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get().into()
    }
}
