//! How the time per waiter grows with the number of waiters of one key: ideally not at all. Also the cost per party
//! for a deadlock detector.
//!
//! - `cargo bench --bench growth`: nanoseconds for each waiter, and the ratio of the largest crowd to the smallest.
//! - `cargo bench --bench growth -- cancel`: the rows whose names contain `cancel`.
//! - `cargo bench --bench growth -- --check`: fails if a ratio is larger than [`LIMIT`], or cannot be determined.
//!
//! A figure is the best of some rounds, so the load of the machine matters little. After a crowd that took longer than
//! [`ENOUGH`], no larger one is tried.

#![allow(unsafe_code)]

#[path = "growth/detector.rs"]
mod detector;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::env;
use std::fmt::Display;
use std::hint::black_box;
use std::process::ExitCode;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::time::{Duration, Instant};

use keylatch::{Fairness, KeyedMutex, KeyedRwLock, KeyedSemaphore};
use keylatch_benches::candidates::poll;

const CROWDS: [usize; 3] = [1_000, 4_000, 16_000];

const POLICIES: [Fairness; 5] =
    [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(0), Fairness::Bounded(16), Fairness::Barging];

/// Cache misses alone cause less growth: in a measurement without a detector, 16,000 waits, each for its own key, cost
/// 2.2 times as much per wait as 1,000 waits.
const LIMIT: f64 = 3.0;

const ENOUGH: Duration = Duration::from_secs(5);

/// A crowd gets another round while its rounds have taken less than this in total, up to [`ROUNDS`].
const SPAN: Duration = Duration::from_millis(300);

const ROUNDS: usize = 9;

const KEY: u64 = 7;

struct Tables {
    mutex: KeyedMutex<u64>,
    rwlock: KeyedRwLock<u64>,
    semaphore: KeyedSemaphore<u64>,
}

impl Tables {
    fn new(fairness: Fairness, permits: usize) -> Self {
        Tables {
            mutex: KeyedMutex::builder().fairness(fairness).build(),
            rwlock: KeyedRwLock::builder().fairness(fairness).build(),
            semaphore: KeyedSemaphore::builder(permits).fairness(fairness).build(),
        }
    }
}

macro_rules! wants {
    ($($Want:ident: $table:ident.$ask:ident, $Future:ident, $Guard:ident;)+) => {
        #[derive(Clone, Copy, PartialEq)]
        enum Want {
            $($Want,)+
        }

        enum Request<'t> {
            $($Want(keylatch::futures::$Future<'t, u64>),)+
        }

        #[expect(dead_code, reason = "a guard is kept to be dropped")]
        enum Hold<'t> {
            $($Want(keylatch::$Guard<'t, u64>),)+
        }

        impl<'t> Request<'t> {
            fn new(tables: &'t Tables, want: Want) -> Self {
                match want {
                    $(Want::$Want => Request::$Want(tables.$table.$ask(&KEY)),)+
                }
            }

            fn poll(&mut self, waker: &Waker) -> Option<Hold<'t>> {
                let cx = &mut Context::from_waker(waker);
                match self {
                    $(Request::$Want(future) => match std::pin::Pin::new(future).poll(cx) {
                        Poll::Ready(guard) => Some(Hold::$Want(guard)),
                        Poll::Pending => None,
                    },)+
                }
            }
        }
    };
}

wants! {
    Lock: mutex.lock, Lock, MutexGuard;
    Permit: semaphore.acquire, AcquirePermit, PermitGuard;
    Read: rwlock.read, Read, ReadGuard;
    Upgradable: rwlock.upgradable_read, UpgradableRead, UpgradableGuard;
    Write: rwlock.write, Write, WriteGuard;
}

use Want::{Lock, Permit, Read, Upgradable, Write};

thread_local! {
    /// The numbers of the woken waiters, in the order of their wake-ups.
    static WOKEN: RefCell<VecDeque<usize>> = const { RefCell::new(VecDeque::new()) };
}

/// Creates a waker that appends a waiter's number to [`WOKEN`].
fn waker(number: usize) -> Waker {
    static VTABLE: RawWakerVTable = RawWakerVTable::new(|data| RawWaker::new(data, &VTABLE), wake, wake, |_| {});
    fn wake(data: *const ()) {
        WOKEN.with_borrow_mut(|woken| woken.push_back(data.addr()));
    }
    // SAFETY: the data is a number and not a reference to anything, and the functions may be called from any thread.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::without_provenance(number), &VTABLE)) }
}

/// The waiters of one key, in order of arrival.
struct Crowd<'t>(Vec<Option<Request<'t>>>);

impl<'t> Crowd<'t> {
    fn new(tables: &'t Tables, wants: &[Want]) -> Self {
        WOKEN.with_borrow_mut(VecDeque::clear);
        Crowd(wants.iter().map(|&want| Some(Request::new(tables, want))).collect())
    }

    /// Polls all requests for the first time. Returns the holds of those that do not have to wait.
    fn enter(&mut self) -> Vec<Hold<'t>> {
        (0..self.0.len()).filter_map(|number| self.look(number)).collect()
    }

    fn look(&mut self, number: usize) -> Option<Hold<'t>> {
        let hold = self.0[number].as_mut()?.poll(&waker(number))?;
        self.0[number] = None;
        Some(hold)
    }

    /// Polls the woken waiters. Returns their holds.
    fn poll_woken(&mut self) -> Vec<Hold<'t>> {
        let mut holds = Vec::new();
        while let Some(number) = WOKEN.with_borrow_mut(VecDeque::pop_front) {
            holds.extend(self.look(number));
        }
        holds
    }

    /// Lets all waiters acquire the key, and releases each hold at once.
    fn pass(&mut self) {
        while let Some(number) = WOKEN.with_borrow_mut(VecDeque::pop_front) {
            drop(self.look(number));
        }
        assert!(self.0.iter().all(Option::is_none), "a waiter was not woken");
    }

    /// Lets all waiters acquire the key, and releases the holds when no other waiter is admitted.
    fn pass_together(&mut self) {
        while !self.poll_woken().is_empty() {}
        assert!(self.0.iter().all(Option::is_none), "a waiter was not woken");
    }
}

fn timed(f: impl FnOnce()) -> Duration {
    let start = Instant::now();
    f();
    start.elapsed()
}

/// The action of a crowd, while the key is held.
#[derive(Clone, Copy)]
enum Act {
    /// All request the key.
    Enter,
    /// The holders leave, and all waiters acquire the key one after another.
    Release,
    /// The holders leave, and all waiters acquire the key and keep it as long as others are admitted.
    ReleaseTogether,
    CancelFromTheFront,
    CancelFromTheBack,
    /// The holder, a writer, downgrades to an upgradable reader beside the admitted readers, and upgrades again when
    /// they have left.
    Upgrade,
    /// The holder, which is a writer, leaves, and then the waiting writers, each after another reader has arrived.
    ReleaseToLateReaders,
    /// An upgradable reader requests an upgrade and gives up, once for each waiter.
    UpgradeGivenUp,
}

use Act::{
    CancelFromTheBack, CancelFromTheFront, Enter, Release, ReleaseToLateReaders, ReleaseTogether, Upgrade,
    UpgradeGivenUp,
};

impl Act {
    fn name(self) -> &'static str {
        match self {
            Enter => "enter",
            Release => "release",
            ReleaseTogether => "release, staying",
            ReleaseToLateReaders => "release, a late reader each time",
            CancelFromTheFront => "cancel from the front",
            CancelFromTheBack => "cancel from the back",
            Upgrade => "upgrade",
            UpgradeGivenUp => "upgrades given up",
        }
    }

    fn run(self, fairness: Fairness, wants: &[Want]) -> Duration {
        let n = wants.len();
        let tables = &Tables::new(fairness, n);
        let mut crowd = Crowd::new(tables, wants);
        match self {
            Upgrade => return upgrade(tables, &mut crowd),
            UpgradeGivenUp => return upgrade_given_up(tables, &mut crowd),
            ReleaseToLateReaders => return release_to_late_readers(tables, &mut crowd),
            _ => {}
        }
        let holder = match wants[0] {
            Read | Upgradable => Write,
            want => want,
        };
        let mut holders = Crowd::new(tables, &vec![holder; if holder == Permit { n } else { 1 }]).enter();
        let mut admitted = Vec::new();
        let enter = timed(|| admitted = crowd.enter());
        assert!(admitted.is_empty(), "a request did not wait");
        match self {
            Enter => enter,
            Release => timed(|| {
                holders.clear();
                crowd.pass();
            }),
            ReleaseTogether => timed(|| {
                holders.clear();
                crowd.pass_together();
            }),
            CancelFromTheFront => timed(|| crowd.0.iter_mut().for_each(|waiter| *waiter = None)),
            CancelFromTheBack => timed(|| crowd.0.iter_mut().rev().for_each(|waiter| *waiter = None)),
            Upgrade | UpgradeGivenUp | ReleaseToLateReaders => unreachable!("handled above"),
        }
    }
}

fn release_to_late_readers<'t>(tables: &'t Tables, crowd: &mut Crowd<'t>) -> Duration {
    let mut writer: Vec<_> = tables.rwlock.try_write(&KEY).map(Hold::Write).into_iter().collect();
    crowd.enter();
    timed(|| {
        for _ in 0..crowd.0.len() {
            crowd.0.push(Some(Request::new(tables, Read)));
            crowd.look(crowd.0.len() - 1);
            writer.clear();
            while let Some(number) = WOKEN.with_borrow_mut(VecDeque::pop_front) {
                writer.extend(crowd.look(number).filter(|hold| matches!(hold, Hold::Write(_))));
            }
        }
        writer.clear();
        crowd.pass();
    })
}

fn upgrade(tables: &Tables, crowd: &mut Crowd<'_>) -> Duration {
    let guard = tables.rwlock.try_write(&KEY).expect("the key is free");
    crowd.enter();
    timed(|| {
        let mut guard = guard.downgrade_to_upgradable();
        let readers = crowd.poll_woken();
        let mut upgrade = std::pin::pin!(guard.upgrade_mut());
        let early = poll(upgrade.as_mut());
        drop(readers);
        assert!(early.is_ready() || poll(upgrade).is_ready(), "no reader is left");
    })
}

fn upgrade_given_up(tables: &Tables, crowd: &mut Crowd<'_>) -> Duration {
    let mut guard = tables.rwlock.try_upgradable_read(&KEY).expect("the key is free");
    let _reader = tables.rwlock.try_read(&KEY).expect("readers are compatible");
    let _in_already = crowd.enter();
    timed(|| {
        for _ in 0..crowd.0.len() {
            assert!(poll(std::pin::pin!(guard.upgrade_mut())).is_pending(), "a reader holds the key");
        }
    })
}

/// A function that builds a crowd of a given size.
type Wants = fn(usize) -> Vec<Want>;

/// Returns a crowd of `n` in total, whose last members are `last`.
fn and(want: Want, n: usize, last: &[Want]) -> Vec<Want> {
    let mut wants = vec![want; n - last.len()];
    wants.extend(last);
    wants
}

const SCENARIOS: [(&str, Wants, &[Act]); 9] = [
    ("mutex", |n| vec![Lock; n], &[Enter, Release, CancelFromTheFront, CancelFromTheBack]),
    ("n permits", |n| vec![Permit; n], &[Enter, Release, ReleaseTogether, CancelFromTheFront, CancelFromTheBack]),
    ("readers", |n| vec![Read; n], &[Enter, Release, ReleaseTogether, CancelFromTheFront, CancelFromTheBack, Upgrade]),
    (
        "writers",
        |n| vec![Write; n],
        &[Enter, Release, ReleaseToLateReaders, CancelFromTheFront, CancelFromTheBack, UpgradeGivenUp],
    ),
    (
        "writers, then a reader",
        |n| and(Write, n, &[Read]),
        &[Enter, Release, CancelFromTheFront, CancelFromTheBack, UpgradeGivenUp],
    ),
    (
        "upgradable readers",
        |n| vec![Upgradable; n],
        &[Enter, Release, CancelFromTheFront, CancelFromTheBack, UpgradeGivenUp],
    ),
    (
        "upgradable readers, then a reader",
        |n| and(Upgradable, n, &[Read]),
        &[Enter, Release, ReleaseTogether, CancelFromTheFront, CancelFromTheBack],
    ),
    (
        "upgradable readers, then a writer and a reader",
        |n| and(Upgradable, n, &[Write, Read]),
        &[Enter, Release, ReleaseTogether, CancelFromTheFront, CancelFromTheBack, UpgradeGivenUp],
    ),
    (
        "all kinds in turn",
        |n| [Read, Upgradable, Write].into_iter().cycle().take(n).collect(),
        &[Enter, Release, ReleaseTogether, CancelFromTheFront, CancelFromTheBack, Upgrade, UpgradeGivenUp],
    ),
];

/// Returns the nanoseconds per member of a crowd, in the best round, and whether even that round took too long.
fn measure(n: usize, run: impl Fn() -> Duration) -> (f64, bool) {
    let mut best = Duration::MAX;
    let start = Instant::now();
    for _ in 0..ROUNDS {
        best = best.min(run());
        if start.elapsed() > SPAN {
            break;
        }
    }
    (best.as_nanos() as f64 / n as f64, best > ENOUGH)
}

fn main() -> ExitCode {
    // Makes glibc keep freed memory from now on, instead of requesting it again, page by page, for each crowd.
    drop(black_box(vec![1_u8; 16 << 20]));
    let mut check = false;
    let mut filter = String::new();
    for argument in env::args().skip(1) {
        match argument.as_str() {
            "--check" => check = true,
            "--bench" => {}
            _ => filter = argument,
        }
    }
    let row = |cells: [&dyn Display; 7]| println!("| {} |", cells.map(|cell| cell.to_string()).join(" | "));
    let [small, middle, large] = CROWDS.map(|crowd| format!("{crowd}, ns each"));
    row([&"who waits", &"what happens", &"policy", &small, &middle, &large, &"ratio"]);
    row([&"---", &"---", &"---", &"---:", &"---:", &"---:", &"---:"]);
    let mut too_much = 0;
    let mut grows = |who: &str, what: &str, policy: &str, run: &dyn Fn(usize) -> Duration| {
        if !format!("{who}, {what}").contains(&filter) {
            return;
        }
        let mut figures = Vec::new();
        let mut enough = false;
        for crowd in CROWDS {
            if !enough {
                let (each, slow) = measure(crowd, || run(crowd));
                figures.push(each);
                enough = slow;
            }
        }
        let cell = |i: usize| figures.get(i).map_or("skipped: too slow".into(), |each| format!("{each:.0}"));
        let ratio = figures.last().unwrap_or(&f64::NAN) / figures[0];
        let fails = figures.len() < CROWDS.len() || ratio > LIMIT;
        too_much += usize::from(fails);
        let mark = if fails { " !" } else { "" };
        row([&who, &what, &policy, &cell(0), &cell(1), &cell(2), &format!("{ratio:.1}{mark}")]);
    };
    for (who, wants, acts) in SCENARIOS {
        for act in acts {
            for fairness in POLICIES {
                grows(who, act.name(), &format!("`{fairness:?}`"), &|n| act.run(fairness, &wants(n)));
            }
        }
    }
    for (who, what, run) in detector::SCENARIOS {
        grows(who, what, &format!("`{:?}`", Fairness::default()), &run);
    }
    if too_much > 0 {
        println!("\n{too_much} ratios are larger than {LIMIT}: marked with an exclamation mark");
    }
    if check && too_much > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
