//! The scenarios that the candidates run, and keylatch's goals in them.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use key_lock::KeyLock;
use keylatch::KeyedMutex;
use lockable::LockPool;
use lockmap::LockMap;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::Zipf;

use crate::candidates::{
    BareTable, HOT, HOT_STR, Key, KeyedLocks, Locks, Need, OneHandle, StdMap, Stripes, TokioDashMap, recycling,
};
use crate::conditions::Condition;
use crate::load::{Hold, Runtime, Section, Table, Visit, Walk, quantile, timed, together};

/// The candidate with which the others are compared.
pub const SUBJECT: &str = "keylatch";

const RECYCLING: &str = "keylatch recycle_keys";

/// Keyed locks of other crates, and two written by hand. The best of them in a scenario is the one to beat.
pub const PEERS: [&str; 6] = ["lockmap", "keyed-lock", "lockable", "key-lock", "dashmap + tokio", "std map"];

/// All candidates, in the order of the tables: keylatch in its forms, the peers, and the references.
pub const CANDIDATES: [&str; 12] = [
    SUBJECT,
    "keylatch handle",
    RECYCLING,
    PEERS[0],
    PEERS[1],
    PEERS[2],
    PEERS[3],
    PEERS[4],
    PEERS[5],
    "256 stripes",
    "lone parking_lot",
    "bare table",
];

/// The candidates that take part under a [`Condition`].
const UNDER_CONDITIONS: [&str; 5] = [SUBJECT, "keylatch handle", "lockmap", "keyed-lock", "lone parking_lot"];

/// The reason why the other candidates do not take part under a [`Condition`].
pub const LEFT_OUT: &str = "The conditions leave out candidates whose threads wait in locks for tasks (of tokio or \
    async-lock), because those are far slower with short sections; and 256 stripes, because with a single key they are \
    a lone parking_lot.";

/// One kind of load, and the candidates that run it.
pub struct Scenario {
    pub name: String,
    pub group: Group,
    /// The figures of a run, in this order.
    pub measures: Vec<Measure>,
    pub cases: Vec<Case>,
    /// The candidate to which the goals apply.
    pub subject: &'static str,
    /// The scenario runs in only one of this many rounds, because it takes long.
    pub every: usize,
}

/// Scenarios that are shown together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Uncontended,
    Contended,
    /// Like `Contended`, under adverse conditions.
    Conditions,
    Memory,
    Tasks,
}

impl Group {
    pub const ALL: [Self; 5] = [Group::Uncontended, Group::Contended, Group::Conditions, Group::Memory, Group::Tasks];

    pub fn name(self) -> &'static str {
        match self {
            Group::Uncontended => "uncontended",
            Group::Contended => "contended",
            Group::Conditions => "conditions",
            Group::Memory => "memory",
            Group::Tasks => "tasks",
        }
    }
}

/// One figure of a run.
#[derive(Clone)]
pub struct Measure {
    pub name: &'static str,
    pub unit: &'static str,
    pub less_is_better: bool,
    /// The comparisons; at least one.
    pub comparisons: Vec<Comparison>,
}

/// A comparison of the subject with another candidate, and its goal.
#[derive(Clone, Copy)]
pub struct Comparison {
    pub with: With,
    pub goal: Option<Goal>,
}

/// The candidate with which the subject is compared.
#[derive(Clone, Copy)]
pub enum With {
    /// The best peer in this measure.
    Best,
    /// The best peer in the first measure of the scenario. A slow candidate can easily be good in the other measures.
    BestInFirst,
    Candidate(&'static str),
}

/// The goal of the subject.
#[derive(Clone, Copy)]
pub struct Goal {
    pub of: Of,
    pub goal: f64,
    pub stretch: Option<f64>,
}

/// The quantity to which a goal refers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// The ratio to the other candidate: the median of the ratios of all rounds.
    Ratio,
    /// The same ratio of the best rounds, for cases where the medians depend on other users of the memory.
    BestRounds,
    /// The figure itself.
    Figure,
}

impl Measure {
    fn less(name: &'static str, unit: &'static str) -> Self {
        Measure { name, unit, less_is_better: true, comparisons: vec![Comparison { with: With::Best, goal: None }] }
    }

    fn more(name: &'static str, unit: &'static str) -> Self {
        Measure { less_is_better: false, ..Measure::less(name, unit) }
    }

    fn with(mut self, with: With) -> Self {
        self.comparison().with = with;
        self
    }

    fn goal(mut self, of: Of, goal: f64) -> Self {
        self.comparison().goal = Some(Goal { of, goal, stretch: None });
        self
    }

    fn stretch(mut self, stretch: f64) -> Self {
        let goal = self.comparison().goal.as_mut().expect("a stretch goal needs a goal");
        goal.stretch = Some(stretch);
        self
    }

    /// Adds a comparison, to which the following calls apply.
    fn also(mut self, with: With) -> Self {
        self.comparisons.push(Comparison { with, goal: None });
        self
    }

    fn comparison(&mut self) -> &mut Comparison {
        self.comparisons.last_mut().expect("a measure has a comparison")
    }

    /// Returns the name of this figure with its unit.
    pub fn label(&self) -> String {
        format!("{}, {}", self.name, self.unit)
    }
}

/// A candidate in a scenario.
pub struct Case {
    pub name: &'static str,
    /// The function that measures for a given time, on a new table each time: the distribution of keys over the shards
    /// is random, and should even out over several runs. Or the reason why the candidate cannot take part.
    pub run: Result<Run, &'static str>,
}

pub type Run = Box<dyn Fn(Duration) -> Vec<f64>>;

/// The source of the tables that a scenario measures.
struct Candidate<Q: ?Sized + Key> {
    name: &'static str,
    lacks: &'static [(Need, &'static str)],
    table: Box<dyn Fn() -> Arc<dyn Table<Q>>>,
}

impl<Q: ?Sized + Key> Candidate<Q> {
    fn new<L: Locks<Q>>(name: &'static str, make: fn() -> L) -> Self {
        Candidate { name, lacks: L::LACKS, table: Box::new(move || Arc::new(make())) }
    }
}

/// A type of key, and the candidates that support it.
trait Candidates: Key {
    /// Returns the candidates that do not support every type of key.
    fn special() -> Vec<Candidate<Self>>;

    fn candidates() -> Vec<Candidate<Self>> {
        let mut all = vec![
            Candidate::new::<KeyedMutex<Self::Owned>>(SUBJECT, KeyedMutex::new),
            Candidate::new::<KeyedLocks<Self::Owned>>("keyed-lock", KeyedLocks::default),
            Candidate::new::<LockPool<Self::Owned>>("lockable", LockPool::new),
            Candidate::new::<KeyLock<Self::Owned>>("key-lock", KeyLock::new),
            Candidate::new::<TokioDashMap<Self::Owned>>("dashmap + tokio", TokioDashMap::default),
            Candidate::new::<StdMap<Self::Owned>>("std map", StdMap::default),
            Candidate::new::<Stripes>("256 stripes", Stripes::default),
            Candidate::new::<BareTable<Self::Owned>>("bare table", BareTable::default),
        ];
        all.extend(Self::special());
        all.sort_by_key(|candidate| CANDIDATES.iter().position(|name| *name == candidate.name));
        all
    }
}

impl Candidates for u64 {
    fn special() -> Vec<Candidate<u64>> {
        vec![
            Candidate::new::<LockMap<u64, ()>>("lockmap", LockMap::new),
            Candidate::new::<OneHandle>("keylatch handle", OneHandle::default),
            Candidate::new::<parking_lot::Mutex<()>>("lone parking_lot", parking_lot::Mutex::default),
        ]
    }
}

impl Candidates for str {
    fn special() -> Vec<Candidate<str>> {
        vec![
            Candidate::new::<LockMap<String, ()>>("lockmap", LockMap::new),
            Candidate::new::<KeyedMutex<String>>(RECYCLING, recycling),
        ]
    }
}

impl Scenario {
    fn new<Q: ?Sized + Candidates, const N: usize>(
        group: Group,
        name: impl Into<String>,
        measures: [Measure; N],
        needs: &[Need],
        run: impl Fn(Arc<dyn Table<Q>>, Duration) -> [f64; N] + Clone + 'static,
    ) -> Self {
        let case = |Candidate { name, lacks, table }: Candidate<Q>| {
            let run = match lacks.iter().find(|(need, _)| needs.contains(need)) {
                Some((_, reason)) => Err(*reason),
                None => {
                    let run = run.clone();
                    Ok(Box::new(move |span| run(table(), span).to_vec()) as Run)
                }
            };
            Case { name, run }
        };
        let cases = Q::candidates().into_iter().map(case).collect();
        Scenario { name: name.into(), group, measures: measures.to_vec(), cases, subject: SUBJECT, every: 1 }
    }

    fn subject(self, subject: &'static str) -> Self {
        Scenario { subject, ..self }
    }

    fn only(mut self, candidates: &[&str]) -> Self {
        self.cases.retain(|case| candidates.contains(&case.name));
        self
    }

    fn every(self, every: usize) -> Self {
        Scenario { every, ..self }
    }
}

/// Returns all scenarios.
pub fn scenarios() -> Vec<Scenario> {
    use Group::{Contended, Memory, Tasks, Uncontended};
    use Need::{Async, Block, Contention, Keys, ManyHeld, Try};
    use Of::{BestRounds, Figure, Ratio};
    use With::Candidate;
    let nanos = || Measure::less("time", "ns");
    let rate = || Measure::more("rate", "M/s");

    let mut all = vec![
        Scenario::new(
            Uncontended,
            "one u64 key, blocking",
            [nanos().goal(Ratio, 0.40).stretch(0.28)],
            &[Block],
            |table, span| walking(&*table, Walk::<u64>::one(&HOT), span),
        ),
        Scenario::new(
            Uncontended,
            "one u64 key, async poll",
            [nanos().goal(Ratio, 0.31).stretch(0.22)],
            &[Async],
            |table, span| [timed(span, |n| table.polls(&HOT, n))],
        ),
        Scenario::new(
            Uncontended,
            "one u64 key, try",
            [nanos().goal(Ratio, 0.40).stretch(0.28)],
            &[Try],
            |table, span| [timed(span, |n| table.tries(&HOT, n))],
        ),
        Scenario::new(
            Uncontended,
            "one u64 key, try while it is held",
            [nanos().goal(Ratio, 0.40).stretch(0.3)],
            &[Try],
            |table, span| [table.busy_tries(&HOT, span)],
        ),
        Scenario::new(
            Uncontended,
            "1,000,000 u64 keys in random order",
            [nanos().goal(Ratio, 0.40).stretch(0.28)],
            &[Block, Keys],
            |table, span| walking(&*table, Walk::<u64>::new(MILLION.clone()), span),
        ),
        Scenario::new(
            Uncontended,
            "one 40-byte str key",
            [nanos().goal(BestRounds, 0.50).stretch(0.40)],
            &[Block],
            |table, span| walking(&*table, Walk::<str>::one(HOT_STR), span),
        )
        .subject(RECYCLING),
        Scenario::new(
            Uncontended,
            "1,024 40-byte str keys",
            [nanos().goal(BestRounds, 0.50).stretch(0.40)],
            &[Block, Keys],
            |table, span| walking(&*table, Walk::<str>::new(STRINGS.clone()), span),
        )
        .subject(RECYCLING),
        Scenario::new::<u64, _>(
            Memory,
            "1,000,000 keys held at once",
            [
                Measure::less("heap per held key", "B").goal(Ratio, 1.2).stretch(0.85),
                Measure::less("heap per key after the release", "B"),
                // A remainder of less than a byte per key is the table's own, so the memory counts as given back.
                Measure::less("the same after as many further operations", "B").goal(Figure, 1.0),
                Measure::less("acquire", "ns").goal(Ratio, 0.8).stretch(0.65),
                Measure::less("release", "ns").goal(Ratio, 1.2),
            ],
            &[Block, Keys, ManyHeld],
            |table, span| {
                // A smoke test uses fewer keys, so that this takes as long as other scenarios.
                let keys = MILLION.len().min(span.as_micros() as usize * 50);
                let hoard = table.hold_all(&MILLION[..keys]);
                [hoard.bytes_held, hoard.bytes_kept, hoard.bytes_kept_later, hoard.acquire_nanos, hoard.release_nanos]
            },
        )
        .every(5),
        Scenario::new::<u64, _>(
            Memory,
            "1,000 waiters cancelled late",
            [Measure::less("left", "entries").goal(Figure, 0.0), Measure::less("heap left per key", "B")],
            &[Async, Keys, Contention],
            |table, _| table.late_cancels(&(0..1_000).collect::<Vec<_>>()),
        )
        .every(5),
    ];

    for threads in [1, 2, 8] {
        let measure = if threads == 1 { rate() } else { rate().goal(Ratio, 4.0).stretch(5.0) };
        all.push(disjoint(threads, 1, measure));
    }
    for threads in [2, 8] {
        all.push(disjoint(threads, 64, rate()));
    }
    for condition in Condition::ALL.into_iter().filter(|condition| condition.is_possible()) {
        for (threads, microseconds) in [(2, 0), (8, 0), (2, 1), (8, 1), (2, 10), (8, 10), (8, 100)] {
            all.push(hot(threads, microseconds, condition));
        }
    }
    all.extend([
        Scenario::new::<u64, _>(
            Contended,
            "zipf over 10,000 keys, 8 threads",
            [rate().goal(Ratio, 3.0)],
            &[Block, Keys, Contention],
            |table, span| {
                let work = |thread| {
                    let (table, mut walk) = (&table, Walk::new_nth(ZIPF.clone(), thread, 8));
                    move |n, _: &mut ()| table.blocking(&mut walk, Section::EMPTY, n)
                };
                [1e3 / together(8, span, work).nanos]
            },
        ),
        Scenario::new::<u64, _>(
            Contended,
            "hand-off to a spinning thread",
            [nanos().with(Candidate("lockmap")).goal(Ratio, 1.0)],
            &[Block, Contention],
            |table, span| [table.hand_offs(&HOT, Hold::Spinning, span)],
        ),
        Scenario::new::<u64, _>(
            Contended,
            "hand-off to a parked thread",
            [nanos().goal(Ratio, 1.0)],
            &[Block, Contention],
            |table, span| [table.hand_offs(&HOT, Hold::Parked, span)],
        ),
        Scenario::new::<u64, _>(
            Tasks,
            "hand-off between tasks of one thread",
            [nanos().goal(Ratio, 0.85)],
            &[Async, Contention],
            |table, span| [table.task_hand_offs(&HOT, span)],
        ),
        Scenario::new::<u64, _>(
            Tasks,
            "a waiter registers and is cancelled",
            [nanos().goal(Ratio, 1.2).stretch(0.42)],
            &[Async, Contention],
            |table, span| [table.cancels(&HOT, span)],
        ),
        visits("zipf over 10,000 keys, 1,000 smol tasks", Runtime::Smol, rate().goal(Ratio, 1.2), 1_000, &ZIPF),
        visits("zipf over 10,000 keys, 1,000 tokio tasks", Runtime::Tokio, rate().goal(Ratio, 1.4), 1_000, &ZIPF),
        crowd("200 keys, 100 visits each, tokio tasks", 200, 100),
        crowd("200 keys, 10,000 visits each, tokio tasks", 200, 10_000),
        crowd("10,000 keys, 100 visits each, tokio tasks", 10_000, 100),
    ]);
    // Ordered by group, and within a group as above.
    all.sort_by_key(|scenario| Group::ALL.iter().position(|group| *group == scenario.group));
    all
}

/// Measures one thread that locks one key after another.
fn walking<Q: ?Sized + Key>(table: &dyn Table<Q>, mut walk: Walk<Q>, span: Duration) -> [f64; 1] {
    [timed(span, |n| table.blocking(&mut walk, Section::EMPTY, n))]
}

/// Returns a scenario: threads that never use the same key. Each has its own `keys` keys.
fn disjoint(threads: usize, keys: usize, measure: Measure) -> Scenario {
    let plural = |n, thing| if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") };
    Scenario::new::<u64, _>(
        Group::Contended,
        format!("disjoint keys, {} with {} each", plural(threads, "thread"), plural(keys, "key")),
        [measure],
        &[Need::Block, Need::Keys],
        move |table, span| {
            let work = |thread| {
                let own: Arc<[u64]> = (thread * keys..(thread + 1) * keys).map(|key| key as u64).collect();
                let (table, mut walk) = (&table, Walk::new(own));
                move |n, _: &mut ()| table.blocking(&mut walk, Section::EMPTY, n)
            };
            [1e3 / together(threads, span, work).nanos]
        },
    )
}

/// Returns a scenario: threads that all use the same key. Their waits are measured in a second run, because reading the
/// clock takes longer than many waits.
fn hot(threads: usize, microseconds: u32, condition: Condition) -> Scenario {
    use Of::Ratio;
    use With::{BestInFirst, Candidate};
    let rate = Measure::more("rate", "M/s").goal(Ratio, 1.0);
    let (name, rate) = match microseconds {
        0 => ("empty".to_owned(), rate.stretch(2.0)),
        // This candidate waits in the best way: the keyed peers that come close do so because they wait in such a lock.
        1 => ("1 µs".to_owned(), rate.also(Candidate("lone parking_lot")).goal(Ratio, 1.0)),
        n => (format!("{n} µs"), rate),
    };
    let section = Section::microseconds(microseconds);
    let name = format!("one hot key, {threads} threads, {name} section");
    let as_it_is = condition == Condition::AsItIs;
    let (group, name) =
        if as_it_is { (Group::Contended, name) } else { (Group::Conditions, format!("{name}, {}", condition.name())) };
    let scenario = Scenario::new::<u64, _>(
        group,
        name,
        [
            rate,
            Measure::less("most to least busy thread", "ratio").with(BestInFirst),
            Measure::less("p99.9 wait", "µs").with(BestInFirst).goal(Ratio, 1.25),
            Measure::less("longest wait", "µs").with(BestInFirst).goal(Ratio, 1.0),
            Measure::less("cores busy", "cores").with(BestInFirst).goal(Ratio, 1.3),
        ],
        &[Need::Block, Need::Contention],
        move |table, span| condition.run(|| crowding(&*table, threads, section, span)),
    );
    if as_it_is { scenario } else { scenario.only(&UNDER_CONDITIONS).every(3) }
}

/// Returns millions of operations per second, the ratio of the busiest thread's operations to those of the least
/// busy, the p99.9 and the longest wait in microseconds, and the number of busy cores.
pub fn crowding(table: &dyn Table<u64>, threads: usize, section: Section, span: Duration) -> [f64; 5] {
    // This takes longer than other scenarios, so that differences in scheduling even out.
    let span = 2 * span;
    let run = together(threads, span, |_| {
        let mut walk = Walk::one(&HOT);
        move |n, _: &mut ()| table.blocking(&mut walk, section, n)
    });
    let timed = together(threads, span, |_| |n, waits: &mut Vec<u64>| table.waits(&HOT, section, n, waits));
    let waits = timed.notes.concat();
    let longest = waits.iter().max().map_or(f64::NAN, |wait| *wait as f64);
    [1e3 / run.nanos, run.most_to_least, quantile(waits, 0.999) / 1e3, longest / 1e3, run.cores]
}

/// Returns a scenario: tasks that visit one key after another, and yield after each.
fn visits(
    name: &'static str,
    runtime: Runtime,
    measure: Measure,
    tasks: usize,
    keys: &'static LazyLock<Arc<[u64]>>,
) -> Scenario {
    Scenario::new::<u64, _>(
        Group::Tasks,
        name,
        [measure],
        &[Need::Async, Need::Keys, Need::Contention],
        move |table, span| {
            let visit = Visit { runtime, yields_inside: false, most: u64::MAX, stop: Arc::new(AtomicBool::new(false)) };
            [visitors(table, tasks, keys, visit, span)]
        },
    )
}

/// Returns a scenario: `visits` visits to each of `keys` keys, in random order, all due at once. There are 20,000
/// tasks, so visits beyond the first 20,000 are made by tasks that have already made one. A visit holds its key while
/// the other tasks get a turn, so that tasks queue: a key has about as many waiters as there are tasks per key.
fn crowd(name: &'static str, keys: u64, visits: u64) -> Scenario {
    const TASKS: u64 = 20_000;
    let all: LazyLock<Arc<[u64]>, _> = LazyLock::new(move || shuffled((0..keys * visits).map(|visit| visit % keys)));
    let all = Arc::new(all);
    Scenario::new::<u64, _>(
        Group::Tasks,
        name,
        [Measure::more("rate", "M/s")],
        &[Need::Async, Need::Keys, Need::Contention],
        move |table, span| {
            let visit = Visit {
                runtime: Runtime::Tokio,
                yields_inside: true,
                most: (keys * visits).div_ceil(TASKS),
                stop: Arc::new(AtomicBool::new(false)),
            };
            [visitors(table, TASKS as usize, &all, visit, 5 * span)]
        },
    )
    .every(3)
}

/// Returns millions of visits per second.
fn visitors(table: Arc<dyn Table<u64>>, tasks: usize, keys: &Arc<[u64]>, visit: Visit, span: Duration) -> f64 {
    let task = |task| Arc::clone(&table).visitor(Walk::new_nth(Arc::clone(keys), task, tasks), visit.clone());
    1e3 / visit.runtime.run((0..tasks).map(task), span, &visit.stop)
}

/// A million keys, each once.
static MILLION: LazyLock<Arc<[u64]>> = LazyLock::new(|| shuffled(0..1_000_000));

/// String keys, few enough to fit in the processor's nearest caches, so that the memory that a candidate itself uses
/// determines its speed.
static STRINGS: LazyLock<Arc<[String]>> = LazyLock::new(|| {
    (0..1_024).map(|n| format!("tenant-{:06}/customer-{:06}/invoice-{:02}", n % 7, n, n % 100)).collect()
});

/// Keys of which some are visited much more often than others.
static ZIPF: LazyLock<Arc<[u64]>> = LazyLock::new(|| {
    let zipf = Zipf::new(10_000.0, 0.99).expect("the parameters are in range");
    random().sample_iter(zipf).map(|rank| rank as u64).take(1 << 16).collect()
});

fn shuffled(keys: impl Iterator<Item = u64>) -> Arc<[u64]> {
    let mut keys: Vec<_> = keys.collect();
    keys.shuffle(&mut random());
    keys.into()
}

/// Returns a generator that produces the same numbers in each run.
fn random() -> SmallRng {
    SmallRng::seed_from_u64(42)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_runs() {
        for scenario in scenarios() {
            assert!(scenario.cases.iter().any(|case| case.name == scenario.subject && case.run.is_ok()));
            for case in &scenario.cases {
                let Ok(run) = &case.run else { continue };
                let figures = run(Duration::from_millis(1));
                assert_eq!(figures.len(), scenario.measures.len(), "{} in {}", case.name, scenario.name);
                assert!(!figures[0].is_infinite(), "{} in {}", case.name, scenario.name);
            }
        }
    }

    #[test]
    fn strings_have_40_bytes() {
        assert!(STRINGS.iter().all(|key| key.len() == 40));
    }
}
