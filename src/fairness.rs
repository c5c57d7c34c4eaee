/// The policy that decides which request acquires a key that becomes free while others wait for it.
///
/// # Which policy?
/// | | for | what it costs |
/// |---|---|---|
/// | [`Adaptive`](Fairness::Adaptive), the default | nearly all programs: no waiter that is polled starves, and a future that is not polled blocks no other request | no numeric bound for a task that is polled late |
/// | [`Bounded(n)`](Fairness::Bounded) | a promise in numbers: at most `n` get in first | with a small `n` a hot key is idle while a sleeping waiter wakes up, on some machines for most of the time; a future that is not polled blocks all others after `n` uses of its key |
/// | [`Fifo`](Fairness::Fifo) | service in order of arrival | every hand-off lasts until the next waiter is awake |
/// | [`Barging`](Fairness::Barging) | the least work per request, where starvation does not matter | no guarantee |
///
/// # What happens at a release
/// A release can do one of two things for a waiter. It can *wake* it: the key is free, and the first request acquires
/// it, possibly a newcomer that has never waited. Or it can *hand over* the key: no other request can acquire it until
/// the waiter, which may be a sleeping thread or a task in a long run queue, has taken it. The first is fast and may
/// starve waiters; the second is fair, and slow on a hot key. The policies differ in when they do one or the other.
///
/// - `Fifo` always hands over, to the first waiter.
/// - `Barging` always wakes the first.
/// - `Adaptive` and `Bounded(n)` wake the first, and hand over
///   - to a thread that is spinning at that moment, because it takes the key at once. Its position in the queue does
///     not matter, unless the first waiter has a higher priority. (A thread in a blocking call spins for some
///     microseconds before it sleeps.)
///   - to a waiter that was woken four times and did not get the key. So no waiter that is polled starves. (A waiter
///     that needs more permits than are free is skipped, and the next such waiter is considered.)
///   - when the waiter at the head has been passed often enough: `n` times under `Bounded(n)`; under `Adaptive` 1,024
///     times, for a *thread* that was woken at the head. (A woken thread always runs again, so it reaches this count
///     only if it does not get a core.)
///
/// Under `Adaptive` a waiter at the head that *cannot* acquire the key, because the current holders keep it out (a
/// writer behind overlapping readers, say), is passed 16 times; then requests that would keep it out longer have to
/// queue. Once it has been woken, nothing is reserved for it. If the head is not polled, the same bound of 16 protects
/// the first writer behind it from the readers that keep that writer out, and the next request for several permits from
/// the requests that leave it too few.
///
/// If a release under these two policies finds that the first waiter was already woken and has not run since, it wakes
/// the next waiter, too. (If the first waiter is a thread, or other waiters are about to take the key anyway, it does
/// so only once for every four requests that pass the first waiter.)
///
/// No clock is involved: these are bounds on the *number* of requests that pass a waiter, not on time. Each waiter's
/// count starts when it reaches the head of the queue.
///
/// # A waiter that is woken and then never polled
/// | policy | effect on other requests |
/// |---|---|
/// | `Adaptive` | all of them pass it. The waiters behind it wait for one more release |
/// | `Bounded(n)` | the same, `n` times; then it keeps the key until its future is polled or dropped |
/// | `Fifo` | it keeps the key, until its future is polled or dropped |
/// | `Barging` | all newcomers pass it. The waiters behind it sleep until it is polled or dropped |
///
/// Even under `Adaptive` a hold is reserved for a task, until its future is polled or dropped, in these cases: the task
/// is a reader that was let in with others when a writer left, or the one upgradable reader among them;
/// [`unlock_fair`](crate::Guard::unlock_fair) handed the hold over; a request that had been handed the hold gave it up,
/// and the task had not been woken yet; or the task was woken four times without getting the key. More on such futures:
/// [idle futures](crate#idle-futures).
///
/// # What each kind of waiter gets
/// | | `Fifo` | `Adaptive`, `Bounded(n)` | `Barging` |
/// |---|---|---|---|
/// | [`lock`](crate::KeyedMutex::lock) | its turn | as above | no promise |
/// | [`write`](crate::KeyedRwLock::write) | its turn | as above; readers that waited when a writer left do not count as passing it (of upgradable readers among them, only the first is exempt) | no promise |
/// | [`read`](crate::KeyedRwLock::read) | its turn, together with the readers next to it | gets in with all readers that wait when a writer leaves, or when no writer waits before it any more | is woken then |
/// | [`read_recursive`](crate::KeyedRwLock::read_recursive) | at once, past all waiters, unless a writer holds the key; then as `read` | the same | the same |
/// | [`upgradable_read`](crate::KeyedRwLock::upgradable_read) | its turn | with the readers when a writer leaves, if no other upgradable reader holds the key (a writer that came first is passed like this only once); else as above | no promise |
/// | [`upgrade`](crate::Guard::upgrade) | before all others, when the last reader has left | before all waiters; passed by at most 16 readers, or `n`, while others read; then woken under `Adaptive`, handed over under `Bounded` | before all waiters, but not before newcomers |
/// | [`acquire`](crate::KeyedSemaphore::acquire) | its turn | as above; a request that leaves enough permits for the first waiter does not count as passing it | no promise |
/// | [`acquire_n`](crate::KeyedSemaphore::acquire_n) | its turn | as above; while it is at the head and too few permits are free, the waiters behind it wait, and newcomers pass it 16 times, or `n` | no promise |
///
/// [`unlock_fair`](crate::Guard::unlock_fair) hands over the hold, with all of its permits, under every policy. Nothing
/// else reserves a key under `Barging`.
///
/// A thread in a blocking call retries for a short while before it queues (not under `Fifo`). Until it queues it is not
/// a waiter: it has no place in the queue, and [`Status`](crate::Status) does not count it.
///
/// # Priorities
/// A request with a [priority](crate::futures::Acquire::priority) takes its place before the waiting requests with a
/// lower one. [Its documentation](crate::futures::Acquire::priority) says how each policy treats priorities, and how
/// many requests may pass a waiting one.
///
/// # Examples
/// ```
/// use keylatch::{Fairness, KeyedMutex};
///
/// assert_eq!(Fairness::default(), Fairness::Adaptive);
/// let in_order = KeyedMutex::<u64>::builder().fairness(Fairness::Fifo).build();
/// # drop(in_order);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Fairness {
    /// Hands over to a spinning thread, or to a waiter that was woken four times without getting the key. Otherwise
    /// reserves nothing for a task that is not polled, except in [a few
    /// cases](Fairness#a-waiter-that-is-woken-and-then-never-polled).
    #[default]
    Adaptive,
    /// Lets at most this many later requests pass the waiter at the head of the queue, whether it is polled or not.
    Bounded(u16),
    /// Serves waiters strictly in order of arrival, and of [priorities](crate::futures::Acquire::priority). Only
    /// upgrades and [`read_recursive`](crate::KeyedRwLock::read_recursive) pass them.
    Fifo,
    /// Gives the key to the first request that finds it free.
    Barging,
}
