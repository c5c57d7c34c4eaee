/// Who gets a key when it becomes free while others wait for it.
///
/// | policy | who gets in before a waiter at the head of the queue | a waiter that is woken and then never polled |
/// |---|---|---|
/// | [`Fifo`](Fairness::Fifo) | nobody | keeps the key, until its future is dropped |
/// | [`Bounded(n)`](Fairness::Bounded) | at most `n` later requests | others pass it `n` times, then it keeps the key, until its future is dropped |
/// | [`Barging`](Fairness::Barging) | whoever asks while the key is free | others pass it for ever |
///
/// A release under `Fifo` hands the key over: nobody can take it until the waiter, which may be a thread asleep or a
/// task in a long run queue, has come for it. That is fair, and slow on a hot key. A release under `Barging` frees the
/// key and wakes the waiter, which then competes with everybody else: fast, and a waiter may starve. `Bounded(n)` does
/// the second until a waiter at the head has been passed `n` times, and then the first. It is a bound on *how many* get
/// in before a waiter, not on time: no clock is involved. Each waiter's count starts when it comes to the head.
///
/// # What each kind of waiter gets
/// | | `Fifo` | `Bounded(n)` | `Barging` |
/// |---|---|---|---|
/// | [`lock`](crate::KeyedMutex::lock) | its turn | is passed at most `n` times | no promise |
/// | [`write`](crate::KeyedRwLock::write) | its turn | is passed at most `n` times by readers and writers, and by the readers who waited when a writer left, who do not count (of upgradable readers among them, one in all) | no promise |
/// | [`read`](crate::KeyedRwLock::read) | its turn, together with the readers next to it | gets in with all readers who wait when a writer leaves, or when no writer waits before it any more | is woken then |
/// | [`upgradable_read`](crate::KeyedRwLock::upgradable_read) | its turn | with the readers when a writer leaves, if its place is free (before a writer that came first only once); else is woken, and passed at most `n` times by its like and by writers | no promise |
/// | [`upgrade`](crate::Guard::upgrade) | before everybody else, when the last reader has left | the same; is passed by at most `n` readers | before everybody who waits, but not before newcomers |
/// | [`acquire`](crate::KeyedSemaphore::acquire) | its turn | is passed at most `n` times by those who take the last permit | no promise |
///
/// [`unlock_fair`](crate::Guard::unlock_fair) hands over, once, under every policy. It is the one reservation that
/// `Barging` makes.
///
/// # Which one?
/// - The default, [`Bounded(16)`](Fairness::default), has nearly the throughput of barging and starves nobody.
/// - `Fifo` where the order of arrival must be the order of service.
/// - `Barging` where a task may hold several lock futures and stop polling one of them without dropping it (a
///   *futurelock*: `select!` over borrowed futures, a stream of futures that is not polled further). Under the other
///   two such a future may be handed the key and sit on it. A wake-up goes to one waiter, though: if that one is never
///   polled, those behind it are not woken in its place. They get in when they ask, that is, when something else polls
///   them.
///
/// A thread in a blocking call tries again for a short while before it queues (not under `Fifo`). Until it queues
/// it is not a waiter: it has no place and is not counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Fairness {
    /// Strict order of arrival.
    Fifo,
    /// At most so many later requests get in before a waiter at the head of its queue.
    Bounded(u8),
    /// Whoever asks first while the key is free.
    Barging,
}

impl Default for Fairness {
    /// `Bounded(16)`.
    fn default() -> Self {
        Fairness::Bounded(16)
    }
}
