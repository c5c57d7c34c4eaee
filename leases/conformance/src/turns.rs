use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use futures_lite::future::block_on;
use keylatch_lease::{Grant, Leases, Owner, Token, engine::Engine};

/// The number of turns that must follow the fault.
const AFTER: usize = 8;

/// Lets two owners of each client take turns at one resource while `trouble` runs, and until eight more turns have been
/// taken after it. Each owner has a thread. A failed attempt is repeated. Returns the number of turns during the
/// trouble.
///
/// `trouble` is anything that an engine's own tests do to its server: kill connections, delete keys, lock tables. The
/// clients must be connected to one namespace, as separate processes would be.
///
/// # Panics
/// If two owners have the resource while both of their grants are still valid by this process's clock, or if a token is
/// not greater than the previous one, unless an owner resumes its own tenure.
///
/// # Blocking
/// Blocks until the turns after the trouble have been taken: for ever, if the engine does not recover.
///
/// # Examples
/// ```
/// use std::{thread::sleep, time::Duration};
///
/// use keylatch_lease::Leases;
///
/// let leases = Leases::in_memory();
/// let trouble = || sleep(Duration::from_millis(50)); // this engine gets no fault
/// assert!(keylatch_lease_conformance::turns(&[&leases], Duration::from_secs(1), trouble) > 0);
/// ```
pub fn turns<E: Engine>(clients: &[&Leases<E>], ttl: Duration, trouble: impl FnOnce()) -> usize {
    let (is_over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let inside = Mutex::new(Inside { until: None, last: None });
    thread::scope(|scope| {
        let stop = Stop(&is_over); // stops the owners even if the trouble panics
        for (number, leases) in clients.iter().chain(clients).enumerate() {
            let (is_over, count, inside) = (&is_over, &count, &inside);
            scope.spawn(move || {
                let _stop = Stop(is_over); // if this owner panics, the test does not wait for more turns
                let owner = Owner::named(format!("worker {number}"));
                while !is_over.load(SeqCst) {
                    let until = Instant::now() + ttl;
                    let Ok(grant) = block_on(leases.try_acquire("turn", &owner, ttl)) else {
                        thread::sleep(Duration::from_millis(5));
                        continue;
                    };
                    if Inside::enter(inside, &grant, until) {
                        count.fetch_add(1, SeqCst);
                        thread::yield_now();
                        lock(inside).until = None;
                    }
                    // If the release fails, the lease expires, or the owner's next attempt resumes it.
                    let _ = block_on(leases.release(&grant));
                }
            });
        }
        trouble();
        let meanwhile = count.load(SeqCst);
        while count.load(SeqCst) < meanwhile + AFTER && !is_over.load(SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        drop(stop);
        meanwhile
    })
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// The tenure of the owner whose turn it is, and the latest token.
struct Inside {
    until: Option<Instant>,
    last: Option<Token>,
}

impl Inside {
    /// Records the beginning of a turn. Returns `false` if the grant has already expired.
    fn enter(inside: &Mutex<Inside>, grant: &Grant, until: Instant) -> bool {
        let token = grant.token();
        let mut inside = lock(inside);
        let now = Instant::now();
        if now >= until {
            return false;
        }
        assert!(inside.until.is_none_or(|until| now >= until), "two owners hold the resource at the same time");
        // A tenure whose release failed goes on.
        let grows = |last| last < token || grant.is_resumed() && last == token;
        assert!(inside.last.is_none_or(grows), "{token:?} is not greater than the token of the turn before");
        *inside = Inside { until: Some(until), last: Some(token) };
        true
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
