//! The cost of leases in memory.
//!
//! `cargo bench --bench leases` takes two minutes; `-- storm` runs the cases whose names contain `storm`. The times
//! that are compared, except in storms and hand-offs, are those that a thread has spent on a core; a ratio is the
//! median of the ratios of all rounds.
//! With `-- --check` the bench fails if a goal is missed by more than a tolerance. `cargo test` runs every case once,
//! quickly, and checks no goal.

use std::collections::hash_map::RandomState as Sip;
use std::env;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::pin::pin;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use foldhash::fast::RandomState as Fold;
use hdrhistogram::Histogram;
use keylatch::KeyedMutex;
use keylatch_benches::candidates::poll;
use keylatch_benches::load::{Hold, Table as _};
use keylatch_lease::{Clock, Grant, Leases, ManualClock, Memory, Owner, Resource, StdClock};
use keylatch_lease_benches::hand_over::{LeaseOf, LockOf};
use keylatch_lease_benches::heap::{Counted, Growth, allocations};
use keylatch_lease_benches::map_and_queue::MapAndQueue;
use keylatch_lease_benches::storm::{Storm, Weather, describe, micros};
use keylatch_lease_benches::table::{Goal, Table, rounds};
use keylatch_lease_benches::time::{Stopwatch, timed};

#[global_allocator]
static HEAP: Counted = Counted;

/// An expiry that is much longer than a measurement.
const TTL: Duration = Duration::from_secs(300);

/// The sizes of all cases.
struct Scale {
    rounds: usize,
    span: Duration,
    /// The number of leases in the cases with very many.
    many: u64,
    storms: usize,
    /// The time over which the leases of a storm expire.
    storm: Duration,
}

const FULL: Scale =
    Scale { rounds: 13, span: Duration::from_millis(20), many: 1_000_000, storms: 3, storm: Duration::from_secs(1) };
const SMOKE: Scale =
    Scale { rounds: 1, span: Duration::from_millis(1), many: 2_000, storms: 1, storm: Duration::from_millis(50) };

struct Run {
    scale: Scale,
    words: Vec<String>,
    misses: Vec<String>,
}

impl Run {
    fn is_asked_for(&self, name: &str) -> bool {
        self.words.iter().all(|word| name.contains(word.as_str()))
    }

    /// Begins the table for the cases of this name, if they are requested.
    fn begin(&self, name: &str, unit: &'static str) -> Option<Table> {
        self.is_asked_for(name).then(|| Table::begin(unit))
    }

    fn end(&mut self, table: Table) {
        self.misses.extend(table.misses());
    }
}

/// Creates resources in an order that is not that of their names.
fn resources(count: usize) -> Vec<Resource> {
    (0..count).map(|i| Resource::new("order", format!("{:08}", i * 7_919 % count))).collect()
}

/// Returns a function that makes a given number of calls, each for the next resource in turn.
fn walk<'a>(resources: &'a [Resource], mut each: impl FnMut(&Resource) + 'a) -> Box<dyn FnMut(u64) + 'a> {
    let mut turn = resources.iter().cycle();
    Box::new(move |n| turn.by_ref().take(n as usize).for_each(|resource| each(black_box(resource))))
}

fn acquire(leases: &Leases<Memory<impl Clock>>, resource: &Resource, owner: &Owner) -> Grant {
    leases.try_acquire_now(resource.clone(), owner, TTL).expect("nobody else has it")
}

/// Acquires with a future that is polled once.
fn acquire_polled(leases: &Leases<Memory<impl Clock>>, resource: &Resource, owner: &Owner) -> Grant {
    match poll(pin!(leases.acquire(resource.clone(), owner, TTL))) {
        Poll::Ready(grant) => grant.expect("the arguments are valid"),
        Poll::Pending => unreachable!("nobody else has it"),
    }
}

fn release(leases: &Leases<Memory<impl Clock>>, grant: &Grant) {
    leases.release_now(grant).expect("it has not expired");
}

/// Creates a peer with one lease that ends before all others. Without it, the peer would have to set its timer again
/// for each lease, at an additional cost.
fn peer<S: BuildHasher + Default>() -> MapAndQueue<S> {
    let peer = MapAndQueue::default();
    {
        let _context = peer.enter();
        let other = Owner::named("another");
        peer.acquire(Resource::new("another", "0"), &other, TTL / 2).expect("nobody has it");
    }
    peer
}

fn cycles(run: &mut Run) {
    let Some(mut table) = run.begin("cycle", "ns") else { return };
    let owner = Owner::named("session-42");
    for count in [1, 10_000] {
        let resources = resources(count);
        let (leases, polled) = (Leases::in_memory(), Leases::in_memory());
        let (locks, tasks) = (KeyedMutex::<Resource>::new(), KeyedMutex::<Resource>::new());
        let (sip, fold) = (peer::<Sip>(), peer::<Fold>());
        let clock = StdClock::new();
        let mut candidates = [
            walk(&resources, |resource| release(&leases, &acquire(&leases, resource, &owner))),
            walk(&resources, |resource| release(&polled, &acquire_polled(&polled, resource, &owner))),
            walk(&resources, |resource| drop(locks.lock_blocking(resource))),
            walk(&resources, |resource| assert!(poll(pin!(tasks.lock(resource))).is_ready())),
            walk(&resources, |resource| {
                let token = sip.acquire(resource.clone(), &owner, TTL).expect("nobody else has it");
                assert!(sip.release(resource, &owner, token));
            }),
            walk(&resources, |resource| {
                let token = fold.acquire(resource.clone(), &owner, TTL).expect("nobody else has it");
                assert!(fold.release(resource, &owner, token));
            }),
            walk(&resources, |_| _ = [clock.now(), clock.now()].map(black_box)),
        ];
        let _context = sip.enter();
        // Each candidate has used all resources once before it is timed.
        candidates.iter_mut().for_each(|work| work(count as u64));
        let span = run.scale.span;
        let figures = rounds(candidates.len(), run.scale.rounds, |i| [timed(span, &mut candidates[i])]);
        let [[now], [polled], [lock], [task], [sip], [fold], [clock]] = &figures[..] else { unreachable!() };
        let of = |what: &str| format!("acquire + release, {what}; of {count}");
        table.compare(&of("without a future"), now, ("KeyedMutex", lock), Goal::Ratio(3.0));
        table.compare(&of("without a future"), now, ("HashMap + DelayQueue", sip), Goal::Ratio(0.5));
        table.compare(&of("without a future"), now, ("the same with foldhash", fold), Goal::None);
        table.compare("of which the clock, read twice", clock, ("KeyedMutex", lock), Goal::None);
        table.compare(&of("polled"), polled, ("KeyedMutex", lock), Goal::Ratio(3.0));
        table.compare(&of("polled"), polled, ("KeyedMutex, polled", task), Goal::None);
        table.compare(&of("polled"), polled, ("HashMap + DelayQueue", sip), Goal::Ratio(0.5));
    }
    run.end(table);
}

fn renewals(run: &mut Run) {
    let Some(mut table) = run.begin("renewal", "ns") else { return };
    let owner = Owner::named("session-42");
    for count in [100, 10_000] {
        let resources = resources(count);
        let (leases, peer) = (Leases::in_memory(), peer::<Sip>());
        let clock = ManualClock::new();
        let later = Leases::in_memory_with(clock.clone());
        let _context = peer.enter();
        let span = run.scale.span;
        let figures = rounds(3, run.scale.rounds, |i| match i {
            0 => renewing(
                span,
                &resources,
                |resource| acquire(&leases, resource, &owner),
                || (),
                |_, grant| leases.renew_now(grant).expect("it has not expired"),
                |_, grant| release(&leases, grant),
            ),
            1 => renewing(
                span,
                &resources,
                |resource| acquire(&later, resource, &owner),
                || clock.advance(TTL / 3),
                |_, grant| later.renew_now(grant).expect("it has not expired"),
                |_, grant| release(&later, grant),
            ),
            _ => renewing(
                span,
                &resources,
                |resource| peer.acquire(resource.clone(), &owner, TTL).expect("nobody else has it"),
                || (),
                |resource, token| {
                    assert!(peer.renew(resource, &owner, *token, TTL));
                    *token
                },
                |resource, token| assert!(peer.release(resource, &owner, *token)),
            ),
        });
        let [[acquired, renewed], [acquired_later, renewed_later], [_, peers]] = &figures[..] else { unreachable!() };
        let of = |what: &str| format!("renewal, {what}; {count} leases");
        table.compare(&of("at once"), renewed, ("acquire", acquired), Goal::Ratio(0.5));
        table.compare(&of("a third later"), renewed_later, ("acquire", acquired_later), Goal::Ratio(0.5));
        table.compare(&of("at once"), renewed, ("HashMap + DelayQueue", peers), Goal::None);
    }
    run.end(table);
}

/// Measures the nanoseconds of an acquire and of a renewal, with all leases held at the same time.
fn renewing<G>(
    span: Duration,
    resources: &[Resource],
    mut acquire: impl FnMut(&Resource) -> G,
    mut wait: impl FnMut(),
    mut renew: impl FnMut(&Resource, &G) -> G,
    mut release: impl FnMut(&Resource, &G),
) -> [f64; 2] {
    let begin = Stopwatch::start();
    let (mut times, mut n) = ([Duration::ZERO; 2], 0);
    let mut grants = Vec::with_capacity(resources.len());
    while n == 0 || begin.elapsed() < 2 * span {
        let start = Stopwatch::start();
        grants.extend(resources.iter().map(|resource| acquire(black_box(resource))));
        times[0] += start.elapsed();
        wait();
        let start = Stopwatch::start();
        for (resource, grant) in resources.iter().zip(&grants) {
            black_box(renew(resource, black_box(grant)));
        }
        times[1] += start.elapsed();
        resources.iter().zip(grants.drain(..)).for_each(|(resource, grant)| release(resource, &grant));
        n += resources.len();
    }
    times.map(|time| time.as_nanos() as f64 / n as f64)
}

fn allocated(run: &mut Run) {
    let Some(mut table) = run.begin("allocations", "for each") else { return };
    let owner = Owner::named("session-42");
    let mut row = |what: &str, count: usize, goal, mut work: Box<dyn FnMut(u64) + '_>| {
        let (warm, n) = (3 * count as u64 + 1_000, 100_000);
        work(warm);
        let allocations = allocations(|| work(n));
        table.single(&format!("allocations, {what}; of {count}"), allocations as f64 / n as f64, goal);
    };
    for count in [1, 10_000] {
        let resources = resources(count);
        let leases = Leases::in_memory();
        let work = |resource: &Resource| release(&leases, &acquire(&leases, resource, &owner));
        row("acquire + release", count, Goal::Exact(0.0), walk(&resources, work));

        let work = |resource: &Resource| release(&leases, &acquire_polled(&leases, resource, &owner));
        row("acquire + release, polled", count, Goal::Exact(0.0), walk(&resources, work));

        // During the count, ten times the expiry passes, so that every recurring allocation shows.
        let clock = ManualClock::new();
        let moving = Leases::in_memory_with(clock.clone());
        let work = |resource: &Resource| {
            clock.advance(TTL / 10_000);
            release(&moving, &acquire(&moving, resource, &owner));
        };
        row("acquire + release while time passes", count, Goal::Exact(0.0), walk(&resources, work));

        let renewed = acquire(&leases, &Resource::new("another", "0"), &owner);
        let work = |_: &Resource| drop(leases.renew_now(&renewed).expect("it has not expired"));
        row("renewal", count, Goal::Exact(0.0), walk(&resources, work));

        let expiring = Leases::in_memory_with(clock.clone());
        let work = |resource: &Resource| {
            // The lease has expired when it is acquired again.
            clock.advance(TTL / count as u32);
            drop(acquire(&expiring, resource, &owner));
        };
        row("acquire of what expires", count, Goal::None, walk(&resources, work));

        let work = |resource: &Resource| {
            let grant = leases.try_acquire_now((resource.entity(), resource.key()), &owner, TTL);
            release(&leases, &grant.expect("nobody else has it"));
        };
        row("acquire + release, by two strings", count, Goal::None, walk(&resources, work));
    }
    run.end(table);
}

fn bytes(run: &mut Run) {
    let Some(mut table) = run.begin("bytes", "B") else { return };
    let n = run.scale.many;
    for owners in [1_000, n] {
        let owners: Vec<_> = (0..owners).map(|i| Owner::named(format!("session-{i}"))).collect();
        let owner = |i: u64| &owners[i as usize % owners.len()];

        // The strings exist before the measurement and after it, so they are not counted.
        let resources = resources(n as usize);
        let growth = Growth::start();
        let leases = Leases::in_memory();
        (0..n).zip(&resources).for_each(|(i, resource)| drop(acquire(&leases, resource, owner(i))));
        let each = growth.bytes() / n as f64;
        table.single(&format!("bytes for a lease; {n} of {} owners", owners.len()), each, Goal::Exact(160.0));
        drop((leases, growth, resources));

        // Only the leases own these resources, so the overhead of a string is counted, too.
        let growth = Growth::start();
        let leases = Leases::in_memory();
        let mut letters = 0;
        for i in 0..n {
            let resource = Resource::new("order", format!("{i:08}"));
            letters += resource.entity().len() + resource.key().len();
            drop(acquire(&leases, &resource, owner(i)));
        }
        let each = (growth.bytes() - letters as f64) / n as f64;
        let what = "bytes for a lease and its resource beyond the letters";
        table.single(&format!("{what}; {n} of {} owners", owners.len()), each, Goal::None);
        drop((leases, growth));
    }
    run.end(table);
}

fn storms(run: &mut Run) {
    if !run.is_asked_for("storm") {
        return;
    }
    let (n, span) = (run.scale.many, run.scale.storm);
    println!(
        "\n{n} leases expire one after the other within {span:?}, while a bystander acquires and releases others."
    );
    let mut table = Table::begin("µs");
    let (pace, unpaced) = (Duration::from_micros(10), Duration::ZERO);
    let calm = Storm { leases: 0, spread: span, span, ticks: false, pace };
    let cases = [
        ("storm", Storm { leases: n, ..calm }),
        ("storm, with ticks", Storm { leases: n, ticks: true, ..calm }),
        ("storm, calls without a pause", Storm { leases: n, pace: unpaced, ..calm }),
        ("storm, calls without a pause, with ticks", Storm { leases: n, ticks: true, pace: unpaced, ..calm }),
        ("storm at one instant", Storm { leases: n, spread: Duration::ZERO, ..calm }),
        ("storm at one instant, with ticks", Storm { leases: n, spread: Duration::ZERO, ticks: true, ..calm }),
    ];
    // Several storms are run, and the one with the median p99.9 counts, because other load on the machine may distort
    // one.
    let middle = |storm: Storm| -> Weather {
        let mut weathers: Vec<_> = (0..run.scale.storms).map(|_| storm.watch()).collect();
        weathers.sort_by_key(|weather| weather.due.value_at_quantile(0.999));
        weathers.swap_remove(run.scale.storms / 2)
    };
    let calms = [calm, Storm { pace: unpaced, ..calm }].map(|calm| (calm.pace, middle(calm)));
    for (what, storm) in cases {
        let weather = middle(storm);
        let (_, calm) = calms.iter().find(|(pace, _)| *pace == storm.pace).expect("there is a calm for each pace");
        let mut row = |what: &str, of: fn(&Weather) -> &Histogram<u64>, goal| {
            let (ours, peer) = (describe(of(&weather)), format!("none expire: {}", describe(of(calm))));
            let [p999, calms] = [&weather, calm].map(|weather| micros(of(weather), 0.999));
            table.described(what, (p999, &ours), Some((calms, &peer)), goal);
        };
        const MOST: f64 = 1_000.0;
        let has_goal = !storm.spread.is_zero();
        // Even without a storm the bystander may be late, if other programs have the core.
        let is_quiet = micros(&calm.due, 0.999) <= MOST;
        let goal = match has_goal {
            true if is_quiet => Goal::Time(MOST),
            true => Goal::TimeIfQuiet(MOST),
            false => Goal::None,
        };
        if storm.pace.is_zero() {
            // A bystander that makes no pause makes fewer calls when one of them is slow, so its quantiles say little
            // about other callers.
            row(&format!("{what}: acquire + release"), |weather| &weather.calls, Goal::None);
        } else {
            row(&format!("{what}: acquire + release"), |weather| &weather.calls, goal);
            row(&format!("{what}: from when it was due"), |weather| &weather.due, goal);
            let on_core = if has_goal { Goal::Time(MOST) } else { Goal::None };
            row(&format!("{what}: on a core"), |weather| &weather.busy, on_core);
        }
        if storm.ticks {
            let cell = format!("{} of them: {}", weather.ticks.len(), describe(&weather.ticks));
            table.described(&format!("{what}: a tick"), (micros(&weather.ticks, 0.999), &cell), None, Goal::None);
        }
        let kept = 100.0 * weather.kept;
        table.described(&format!("{what}: of the bytes are kept"), (kept, &format!("{kept:.1} %")), None, Goal::None);
    }
    run.end(table);
}

fn hand_overs(run: &mut Run) {
    let Some(mut table) = run.begin("hand-off", "ns") else { return };
    let resource = Resource::new("order", "17");
    let (leases, locks) = (LeaseOf::new(resource.clone()), LockOf::new(resource));
    let span = 2 * run.scale.span;
    let mut row = |what: &str, ours: &dyn Fn() -> f64, peer: &dyn Fn() -> f64| {
        let figures = rounds(2, run.scale.rounds, |i| [if i == 0 { ours() } else { peer() }]);
        table.compare(&format!("hand-off, {what}"), &figures[0][0], ("KeyedMutex", &figures[1][0]), Goal::None);
    };
    for (what, hold) in [("to a thread that has just come", Hold::Spinning), ("to a thread that sleeps", Hold::Parked)]
    {
        row(what, &|| leases.hand_offs(&0, hold, span), &|| locks.hand_offs(&0, hold, span));
    }
    row("from task to task, on one thread", &|| leases.task_hand_offs(&0, span), &|| locks.task_hand_offs(&0, span));
    run.end(table);
}

fn main() -> ExitCode {
    // The words are parts of case names. `cargo bench` adds the option `--bench`, which distinguishes it from
    // `cargo test`.
    let (options, words): (Vec<_>, Vec<_>) = env::args().skip(1).partition(|word| word.starts_with('-'));
    let has = |name| options.iter().any(|option| option == name);
    let scale = if has("--bench") { FULL } else { SMOKE };
    let mut run = Run { scale, words, misses: Vec::new() };
    for cases in [cycles, renewals, allocated, bytes, storms, hand_overs] {
        cases(&mut run);
    }
    if run.misses.is_empty() || !has("--bench") {
        return ExitCode::SUCCESS;
    }
    println!("\nGoals missed by more than the tolerance: {}", run.misses.join("; "));
    if has("--check") { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
