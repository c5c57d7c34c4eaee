/// Who gets a key when it becomes free while others wait for it.
///
/// # Which one?
/// | | for | what it costs |
/// |---|---|---|
/// | [`Adaptive`](Fairness::Adaptive), the default | nearly everybody: nobody who comes starves, and a future that is not polled stops nobody | no bound in numbers for a task that is slow to come |
/// | [`Bounded(n)`](Fairness::Bounded) | a promise in numbers: at most `n` get in first | a small `n` lets a hot key lie idle while a sleeper wakes, on some machines for most of the time; a future that is not polled stops everybody, after `n` uses of its key |
/// | [`Fifo`](Fairness::Fifo) | order of arrival is order of service | every hand-over waits until the next one is awake |
/// | [`Barging`](Fairness::Barging) | the least work for each request, where starving is no concern | promises nothing |
///
/// # What happens at a release
/// A release can do one of two things for a waiter. It can *wake* it: the key is free, and whoever asks first gets it, which
/// may be a newcomer that has never waited. Or it can *hand the key over*: nobody else can take it until the waiter, which may
/// be a thread asleep or a task in a long run queue, has come for it. The first is fast and may starve; the second is fair,
/// and slow on a hot key. The policies differ in when they do which.
///
/// - `Fifo` always hands over, to the first.
/// - `Barging` always wakes the first.
/// - `Adaptive` and `Bounded(n)` wake the first, and hand over
///   - to a thread that is awake and looking at this moment, wherever it stands in the queue, because it takes the key at
///     once. (A thread in a blocking call looks for some microseconds before it sleeps.)
///   - to whoever has come in vain four times: it was woken, asked, and did not get in. So nobody starves who comes. (Of permits,
///     who needs more than are free is left out, and the next one is asked.)
///   - when the count is full. Under `Bounded(n)` a waiter at the head has been passed `n` times. Under `Adaptive` a *thread*
///     that was woken at the head has been passed 1,024 times: a thread always comes, so this is reached only if it does not
///     get a core.
///
/// Under `Adaptive` a waiter at the head that *cannot* come, since what is held keeps it out (a writer behind readers that
/// overlap, say), is passed 16 times; then those who would keep it out longer have to queue. Once it has been woken nothing is
/// kept for it. The same goes for the first writer behind a head that does not come, and for the readers who keep it out; and for
/// the next request for several permits behind one, and for those who take so many that it never finds enough.
///
/// A release under these two that finds the first woken already, and not come, wakes the next as well. (Where threads are on
/// their way anyway it does so at every fourth time.)
///
/// No clock is involved: these are bounds on *how many* get in before a waiter, not on time. Each waiter's count starts when
/// it comes to the head.
///
/// # A waiter that is woken and then never polled
/// | policy | what it does to others |
/// |---|---|
/// | `Adaptive` | others pass it as often as they ask. Those behind it in the queue wait for one release more |
/// | `Bounded(n)` | the same, `n` times; then it keeps the key, until its future is polled or dropped |
/// | `Fifo` | it keeps the key, until its future is polled or dropped |
/// | `Barging` | others pass it as often as they ask. Those behind it in the queue sleep until it comes, or goes |
///
/// Some things are kept for a task under `Adaptive`, too, until its future is polled or dropped: the hold of a reader that was
/// let in with others when a writer left, and of the one upgradable reader that entered with them; what was handed over by
/// [`unlock_fair`](crate::Guard::unlock_fair); what was given up by a request that had been handed it, if the task has not
/// been woken yet; and what it was handed because it had come in vain four times. More on such futures: [idle futures](crate#idle-futures).
///
/// # What each kind of waiter gets
/// | | `Fifo` | `Adaptive`, `Bounded(n)` | `Barging` |
/// |---|---|---|---|
/// | [`lock`](crate::KeyedMutex::lock) | its turn | as above | no promise |
/// | [`write`](crate::KeyedRwLock::write) | its turn | as above; readers who waited when a writer left do not count (of upgradable readers among them, one in all) | no promise |
/// | [`read`](crate::KeyedRwLock::read) | its turn, together with the readers next to it | gets in with all readers who wait when a writer leaves, or when no writer waits before it any more | is woken then |
/// | [`upgradable_read`](crate::KeyedRwLock::upgradable_read) | its turn | with the readers when a writer leaves, if its place is free (before a writer that came first only once); else as above | no promise |
/// | [`upgrade`](crate::Guard::upgrade) | before everybody else, when the last reader has left | before everybody who waits; passed by at most 16 readers, or `n`, while others read; then woken under `Adaptive`, handed over under `Bounded` | before everybody who waits, but not before newcomers |
/// | [`acquire`](crate::KeyedSemaphore::acquire) | its turn | as above; who leaves enough permits for the first passes nobody | no promise |
/// | [`acquire_n`](crate::KeyedSemaphore::acquire_n) | its turn | as above; until enough permits are free for it at the head, those behind it wait, and others pass it 16 times, or `n` | no promise |
///
/// [`unlock_fair`](crate::Guard::unlock_fair) hands over, once, under every policy, and all the permits that a guard has. It is
/// the one reservation that `Barging` makes.
///
/// A thread in a blocking call tries again for a short while before it queues (not under `Fifo`). Until it queues it is not
/// a waiter: it has no place and is not counted.
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
    /// Hands over to who takes the key at once, or has come in vain four times. Keeps nothing for a task that does not come.
    #[default]
    Adaptive,
    /// At most so many later requests that keep it out get in before a waiter at the head of its queue, whether it comes or not.
    Bounded(u16),
    /// Strict order of arrival.
    Fifo,
    /// Whoever asks first while the key is free.
    Barging,
}
