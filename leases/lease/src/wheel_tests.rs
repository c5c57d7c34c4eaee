use super::*;
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec,
    vec::Vec,
};
use proptest::{prelude::*, sample::Index};

/// A budget that no test here uses up, unless the wheel loops.
const ALL: u32 = 1 << 22;

/// Nodes by number, and the number of times that the wheel has asked for their due times.
#[derive(Default)]
struct Timers {
    links: Vec<Links>,
    dues: Vec<Option<Duration>>,
    asked: core::cell::Cell<u64>,
}

impl Timers {
    fn add(&mut self, due: Option<Duration>) -> u32 {
        self.links.push(Links::new());
        self.dues.push(due);
        self.dues.len() as u32 - 1
    }
}

impl Nodes for Timers {
    fn links(&mut self, id: u32) -> &mut Links {
        &mut self.links[id as usize]
    }

    fn due(&self, id: u32) -> Option<Duration> {
        self.asked.set(self.asked.get() + 1);
        self.dues[id as usize]
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Creates a wheel with a node for each due time, numbered from 0.
fn wheel(dues: impl IntoIterator<Item = Duration>) -> (Wheel, Timers) {
    let (mut wheel, mut nodes) = (Wheel::new(), Timers::default());
    for due in dues {
        let id = nodes.add(Some(due));
        wheel.insert(&mut nodes, id);
    }
    (wheel, nodes)
}

fn pop_all(wheel: &mut Wheel, nodes: &mut Timers, now: Duration, thorough: bool) -> Vec<u32> {
    let mut budget = ALL;
    let mut popped = Vec::new();
    while let Some(id) = wheel.pop_due(nodes, now, thorough, &mut budget) {
        popped.push(id);
    }
    assert_ne!(budget, 0);
    popped.sort_unstable();
    popped
}

/// Checks the invariants that hold between two calls.
fn check(wheel: &Wheel, nodes: &Timers) {
    let mut seen = 0;
    let mut cascading = 0;
    for (slot, &head) in wheel.heads.iter().enumerate() {
        let level = slot / SLOTS;
        if slot < PRESENT {
            assert_eq!(wheel.used[level] >> (slot % SLOTS) & 1 == 1, head != NONE, "bitmap of slot {slot}");
        } else if head == NONE {
            assert_eq!(wheel.bounds[slot - PRESENT], Duration::MAX);
        }
        if head == NONE {
            continue;
        }
        if slot < PRESENT {
            let shift = level as u32 * BITS;
            let current = (wheel.elapsed >> shift) as usize % SLOTS;
            assert!(slot % SLOTS >= current, "slot {slot} has nodes, but has passed at {}", wheel.elapsed);
            if slot % SLOTS == current {
                assert_eq!(
                    wheel.elapsed >> shift << shift,
                    wheel.elapsed,
                    "slot {slot} is not empty, but time has moved past its start"
                );
                cascading += 1;
            }
        }
        let mut id = head;
        loop {
            seen += 1;
            let links = nodes.links[id as usize];
            assert_eq!(usize::from(links.slot), slot);
            assert_eq!(nodes.links[links.next as usize].prev, id);
            if slot >= PRESENT {
                assert!(nodes.dues[id as usize].is_none_or(|due| due >= wheel.bounds[slot - PRESENT]));
            }
            id = links.next;
            if id == head {
                break;
            }
        }
    }
    assert!(cascading <= 1);
    assert_eq!(seen, nodes.links.iter().filter(|links| links.is_linked()).count());
    assert_eq!(wheel.is_empty(), seen == 0);
}

#[derive(Clone, Debug)]
enum When {
    /// This long after now.
    In(Duration),
    /// This long before now.
    Ago(Duration),
    At(Duration),
    /// Some nanoseconds before or after the start of the next slot of this level.
    Border(u32, i8),
    /// Some nanoseconds before or after the due time of an existing node.
    Like(Index, i8),
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        4 => (0..3_000_000_u64).prop_map(|nanos| When::In(Duration::from_nanos(nanos))),
        4 => (0..200_u64).prop_map(|millis| When::In(ms(millis))),
        4 => (0..54_u32, any::<u64>()).prop_map(|(shift, nanos)| When::In(Duration::from_nanos(nanos >> shift))),
        2 => (0..64_u32, any::<u64>()).prop_map(|(shift, millis)| When::In(ms(millis >> shift))),
        1 => (0..5_000_000_u64).prop_map(|nanos| When::Ago(Duration::from_nanos(nanos))),
        4 => (0..LEVELS as u32, -1..=1_i8).prop_map(|(level, nanos)| When::Border(level, nanos)),
        4 => (any::<Index>(), -1..=1_i8).prop_map(|(index, nanos)| When::Like(index, nanos)),
    ]
}

fn ever() -> impl Strategy<Value = When> {
    prop_oneof![
        30 => when(),
        1 => (0..3_000_000_u64).prop_map(|nanos| When::At(Duration::MAX - Duration::from_nanos(nanos))),
        1 => (-1..=1_i8).prop_map(|nanos| When::At(shifted(ms(u64::MAX), nanos))),
    ]
}

fn shifted(time: Duration, nanos: i8) -> Duration {
    let by = Duration::from_nanos(u64::from(nanos.unsigned_abs()));
    if nanos < 0 { time.saturating_sub(by) } else { time.saturating_add(by) }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(When),
    /// Inserts many nodes, each due a little after the previous one: the first due time, the number, and the
    /// nanoseconds in between.
    Flock(When, u32, u32),
    Remove(Index),
    /// Postpones a node without notifying the wheel.
    Renew(Index, When),
    RenewAll(When),
    /// Makes a node never due, without notifying the wheel.
    Forget(Index),
    /// Removes a node, and inserts it with another due time.
    Change(Index, When),
    Advance(When),
    /// Pops with a clock that is behind the wheel's time.
    Back(Duration, u32),
    Pop(u32, bool),
    PopAll(bool),
    NextDue,
}

fn op() -> impl Strategy<Value = Op> {
    let budget = || prop_oneof![0..4_u32, 0..100_u32, Just(ALL)];
    prop_oneof![
        12 => ever().prop_map(Op::Insert),
        2 => (ever(), 1..100_u32, prop_oneof![Just(0), 1..100_u32, Just(1_000_000), Just(64_000_000)])
            .prop_map(|(when, count, nanos)| Op::Flock(when, count, nanos)),
        4 => any::<Index>().prop_map(Op::Remove),
        6 => (any::<Index>(), ever()).prop_map(|(index, when)| Op::Renew(index, when)),
        1 => when().prop_map(Op::RenewAll),
        2 => any::<Index>().prop_map(Op::Forget),
        2 => (any::<Index>(), ever()).prop_map(|(index, when)| Op::Change(index, when)),
        8 => when().prop_map(Op::Advance),
        1 => (0..10_000_000_u64, budget()).prop_map(|(nanos, budget)| Op::Back(Duration::from_nanos(nanos), budget)),
        8 => (budget(), any::<bool>()).prop_map(|(budget, thorough)| Op::Pop(budget, thorough)),
        6 => any::<bool>().prop_map(Op::PopAll),
        6 => Just(Op::NextDue),
    ]
}

/// A wheel, and a sorted map with which it must agree.
struct Both {
    wheel: Wheel,
    nodes: Timers,
    now: Duration,
    dues: BTreeMap<u32, Duration>,
    order: BTreeSet<(Duration, u32)>,
}

impl Both {
    fn new(now: Duration) -> Self {
        let (mut wheel, mut nodes) = wheel([]);
        assert_eq!(wheel.pop_due(&mut nodes, now, true, &mut 0), None);
        Self { wheel, nodes, now, dues: BTreeMap::new(), order: BTreeSet::new() }
    }

    fn time(&self, when: &When) -> Duration {
        match when {
            When::In(time) => self.now.saturating_add(*time),
            When::Ago(time) => self.now.saturating_sub(*time),
            When::At(time) => *time,
            When::Border(level, nanos) => {
                let shift = level * BITS;
                shifted(ms((tick(self.now) >> shift).saturating_add(1).saturating_mul(1 << shift)), *nanos)
            }
            When::Like(index, nanos) => self.pick(index).map_or(self.now, |id| shifted(self.dues[&id], *nanos)),
        }
    }

    /// Picks a node, more often an early one, because the wheel examines those next.
    fn pick(&self, index: &Index) -> Option<u32> {
        let among = self.order.len().min(1 + index.index(80));
        (among > 0).then(|| self.order.iter().nth(index.index(among)).unwrap().1)
    }

    fn insert(&mut self, due: Duration) {
        let id = self.nodes.add(Some(due));
        self.wheel.insert(&mut self.nodes, id);
        self.note(id, Some(due));
    }

    fn note(&mut self, id: u32, due: Option<Duration>) {
        if let Some(due) = self.dues.remove(&id) {
            assert!(self.order.remove(&(due, id)));
        }
        if let Some(due) = due {
            self.dues.insert(id, due);
            self.order.insert((due, id));
        }
        self.nodes.dues[id as usize] = due;
    }

    fn renew(&mut self, id: u32, due: Duration) {
        if due > self.dues[&id] {
            self.note(id, Some(due));
        }
    }

    fn pop(&mut self, now: Duration, budget: u32, thorough: bool) {
        let (mut left, mut count) = (budget, 0);
        self.nodes.asked.set(0);
        while let Some(id) = self.wheel.pop_due(&mut self.nodes, now, thorough, &mut left) {
            let due = self.dues.get(&id).expect("a popped node is in the map");
            assert!(*due <= now, "{due:?} is not due at {now:?}");
            assert!(!self.nodes.links[id as usize].is_linked());
            self.note(id, None);
            count += 1;
            check(&self.wheel, &self.nodes);
        }
        assert_eq!(self.nodes.asked.get(), u64::from(budget - left), "each examined node costs one of the budget");
        assert!(count <= budget - left);
        assert!(left > 0 || budget < ALL);
        if left > 0 {
            let whole = Duration::new(now.as_secs(), now.subsec_millis() * 1_000_000);
            if let Some(&(first, _)) = self.order.first() {
                assert!(if thorough { first > now } else { first >= whole }, "{first:?} was missed at {now:?}");
            }
            self.nodes.asked.set(0);
            assert_eq!(self.wheel.pop_due(&mut self.nodes, now, thorough, &mut left), None);
            assert_eq!(self.nodes.asked.get(), 0, "a second pop at the same time examines no node again");
        }
    }

    fn next_due(&mut self) {
        let linked = self.nodes.links.iter().filter(|links| links.is_linked()).count();
        let truth = self.order.first().map(|first| first.0);
        let next = self.wheel.next_due(&mut self.nodes);
        if linked <= GLANCE {
            assert_eq!(next, truth);
        } else if let Some(truth) = truth {
            let next = next.expect("there are nodes");
            assert!(next <= truth, "{next:?} is later than {truth:?}");
            assert!(next == truth || next >= ms(self.wheel.elapsed) || self.wheel.bounds.contains(&next));
        }
        if next.is_none() {
            assert!(self.wheel.is_empty());
        }
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Insert(when) => self.insert(self.time(when)),
            Op::Flock(when, count, nanos) => {
                let first = self.time(when);
                for nth in 0..*count {
                    self.insert(first.saturating_add(Duration::from_nanos(u64::from(*nanos)) * nth));
                }
            }
            Op::Remove(index) => {
                if let Some(id) = self.pick(index) {
                    self.wheel.remove(&mut self.nodes, id);
                    assert!(!self.nodes.links[id as usize].is_linked());
                    self.note(id, None);
                }
            }
            Op::Renew(index, when) => {
                if let Some(id) = self.pick(index) {
                    self.renew(id, self.time(when));
                }
            }
            Op::RenewAll(when) => {
                let due = self.time(when);
                for id in self.dues.keys().copied().collect::<Vec<_>>() {
                    self.renew(id, due);
                }
            }
            Op::Forget(index) => {
                if let Some(id) = self.pick(index) {
                    self.note(id, None);
                }
            }
            Op::Change(index, when) => {
                if let Some(id) = self.pick(index) {
                    let due = self.time(when);
                    self.wheel.remove(&mut self.nodes, id);
                    self.note(id, Some(due));
                    self.wheel.insert(&mut self.nodes, id);
                }
            }
            Op::Advance(when) => self.now = self.now.max(self.time(when)),
            Op::Back(by, budget) => self.pop(self.now.saturating_sub(*by), *budget, true),
            Op::Pop(budget, thorough) => self.pop(self.now, *budget, *thorough),
            Op::PopAll(thorough) => self.pop(self.now, ALL, *thorough),
            Op::NextDue => self.next_due(),
        }
        check(&self.wheel, &self.nodes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn the_wheel_agrees_with_a_sorted_map(
        start in prop_oneof![Just(0), any::<u64>(), (0..64_u32, any::<u64>()).prop_map(|(shift, start)| start >> shift)],
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut both = Both::new(ms(start));
        for op in &ops {
            both.run(op);
        }
        both.pop(Duration::MAX, ALL, true);
        prop_assert!(both.dues.is_empty() && both.wheel.is_empty());
    }
}

#[test]
fn nodes_are_due_to_the_nanosecond() {
    let dues = [Duration::ZERO, Duration::from_nanos(1), us(5_700), ms(6), ms(63), ms(64), us(64_001), ms(4_096)];
    for due in dues.into_iter().chain([ms(1 << 60), ms(u64::MAX), Duration::MAX]) {
        let (mut wheel, mut nodes) = wheel([due]);
        assert_eq!(wheel.next_due(&mut nodes), Some(due));
        if let Some(before) = due.checked_sub(Duration::from_nanos(1)) {
            assert_eq!(pop_all(&mut wheel, &mut nodes, before, true), Vec::<u32>::new());
            assert_eq!(wheel.next_due(&mut nodes), Some(due));
        }
        assert_eq!(pop_all(&mut wheel, &mut nodes, due, true), [0]);
        assert!(wheel.is_empty());
    }
}

#[test]
fn a_pop_that_is_not_thorough_looks_at_whole_milliseconds_only() {
    let (mut wheel, mut nodes) = wheel([us(5_200), us(5_700), us(6_000)]);
    assert_eq!(pop_all(&mut wheel, &mut nodes, us(5_999), false), Vec::<u32>::new());
    assert_eq!(nodes.asked.get(), 3, "only the inserts ask for due times");
    assert_eq!(pop_all(&mut wheel, &mut nodes, us(5_300), true), [0]);
    assert_eq!(pop_all(&mut wheel, &mut nodes, us(5_999), false), Vec::<u32>::new());
    assert_eq!(pop_all(&mut wheel, &mut nodes, us(6_000), false), [1]);
    assert_eq!(pop_all(&mut wheel, &mut nodes, us(6_999), false), Vec::<u32>::new());
    assert_eq!(pop_all(&mut wheel, &mut nodes, us(7_000), false), [2]);
}

#[test]
fn a_node_inserted_after_its_due_time_is_due_at_once() {
    let (mut wheel, mut nodes) = wheel([ms(900)]);
    assert_eq!(pop_all(&mut wheel, &mut nodes, ms(800), true), Vec::<u32>::new());
    for (due, thorough) in [(ms(3), true), (ms(3), false), (ms(799), false), (ms(800), true)] {
        let id = nodes.add(Some(due));
        wheel.insert(&mut nodes, id);
        assert_eq!(wheel.next_due(&mut nodes), Some(due));
        assert_eq!(pop_all(&mut wheel, &mut nodes, ms(800), thorough), [id]);
    }
    assert_eq!(wheel.next_due(&mut nodes), Some(ms(900)));
}

#[test]
fn a_node_that_is_never_due_is_not_inserted_or_is_removed() {
    let (mut wheel, mut nodes) = wheel([ms(70), ms(70)]);
    let id = nodes.add(None);
    wheel.insert(&mut nodes, id);
    assert!(!nodes.links(id).is_linked());
    nodes.dues[0] = None;
    assert_eq!(pop_all(&mut wheel, &mut nodes, ms(70), true), [1]);
    assert!(!nodes.links(0).is_linked());
    wheel.remove(&mut nodes, 0);
    assert!(wheel.is_empty());
}

#[test]
fn the_next_due_is_exact_for_up_to_64_nodes_in_a_slot() {
    let begin = ms(64 * 64 * 5);
    let (mut wheel, mut nodes) = wheel((0..64).map(|nth| begin + us(7_300) + ms(nth)));
    assert_eq!(wheel.next_due(&mut nodes), Some(begin + us(7_300)));
    let id = nodes.add(Some(begin + ms(100)));
    wheel.insert(&mut nodes, id);
    assert_eq!(wheel.next_due(&mut nodes), Some(begin));
    wheel.remove(&mut nodes, 64);
    for id in 0..63 {
        nodes.dues[id] = Some(Duration::MAX);
    }
    assert_eq!(wheel.next_due(&mut nodes), Some(begin + us(70_300)));
}

#[test]
fn the_next_due_includes_nodes_that_it_moves_into_the_present() {
    // All nodes are in one slot, which a budget of one only begins to cascade. One node is due in the slot's first
    // millisecond.
    let (mut wheel, mut nodes) = wheel([ms(64 * 3 + 9), us(64 * 3_000 + 500), ms(64 * 3 + 5)]);
    assert_eq!(wheel.pop_due(&mut nodes, ms(64 * 3), true, &mut 1), None);
    assert_eq!(wheel.next_due(&mut nodes), Some(us(64 * 3_000 + 500)));
    check(&wheel, &nodes);
}

#[test]
fn the_next_due_does_not_examine_slots_after_the_earliest_node() {
    let (mut wheel, mut nodes) = wheel((0..60).map(|nth| ms(6) + us(nth)).chain([us(5_200), us(5_700)]));
    assert_eq!(pop_all(&mut wheel, &mut nodes, us(5_100), true), Vec::<u32>::new());
    nodes.asked.set(0);
    assert_eq!(wheel.next_due(&mut nodes), Some(us(5_200)));
    assert_eq!(nodes.asked.get(), 2);
    // Because `next_due` has found a bound, a pop before that time examines no node.
    wheel.remove(&mut nodes, 60);
    assert_eq!(wheel.next_due(&mut nodes), Some(us(5_700)));
    nodes.asked.set(0);
    assert_eq!(pop_all(&mut wheel, &mut nodes, us(5_300), true), Vec::<u32>::new());
    assert_eq!(nodes.asked.get(), 0);
}

/// Pops at each `next_due` as a driver would. Returns the number of wakes, and the time at which each node was popped.
fn drive(wheel: &mut Wheel, nodes: &mut Timers) -> (usize, Vec<Duration>) {
    let mut came = vec![Duration::ZERO; nodes.dues.len()];
    let mut wakes = 0;
    let mut last = None;
    while let Some(now) = wheel.next_due(nodes) {
        assert!(Some(now) > last, "woken twice for {now:?}");
        last = Some(now);
        wakes += 1;
        for id in pop_all(wheel, nodes, now, true) {
            came[id as usize] = now;
        }
    }
    (wakes, came)
}

#[test]
fn a_driver_that_sleeps_until_the_next_due_is_on_time_and_rarely_wakes_in_vain() {
    let dues: Vec<_> = (0..300).map(|nth| ms(1 << 40) + us(1_000_000 + nth * nth * nth)).collect();
    let (mut wheel, mut nodes) = wheel(dues.iter().copied());
    let (wakes, came) = drive(&mut wheel, &mut nodes);
    assert_eq!(came, dues);
    assert!(wakes < 300 + 100, "{wakes}");
    // If more than 64 nodes are in one millisecond, the driver does not spin until that millisecond is over.
    let dues: Vec<_> = (0..300).map(|nth| ms(5) + us(500 + nth)).collect();
    let (mut wheel, mut nodes) = self::wheel(dues.iter().copied());
    let (wakes, came) = drive(&mut wheel, &mut nodes);
    assert_eq!(came, dues);
    assert!(wakes <= 300 + 1, "{wakes}");
}

#[test]
fn a_million_nodes_in_one_slot_are_handled_a_few_at_a_time() {
    const COUNT: u64 = 1_000_000;
    // All nodes are in one slot of level 4, which is 4.7 hours wide. Every tenth node is postponed to twice `begin`.
    let begin = ms(1 << 24);
    let (mut wheel, mut nodes) = wheel((0..COUNT).map(|nth| begin + us(nth * 10_000)));
    let heads = wheel.heads.iter().filter(|&&head| head != NONE).count();
    assert_eq!(heads, 1);
    for id in (0..COUNT as usize).step_by(10) {
        nodes.dues[id] = Some(begin * 2);
    }
    let (mut came, mut touched, mut calls) = (0, 0_u64, 0_u64);
    nodes.asked.set(0);
    let mut now = begin;
    while !wheel.is_empty() {
        let mut budget = 1000;
        while let Some(id) = wheel.pop_due(&mut nodes, now, true, &mut budget) {
            assert!(nodes.dues[id as usize].is_some_and(|due| due <= now));
            came += 1;
        }
        touched += u64::from(1000 - budget);
        calls += 1;
        if budget > 0 {
            now += ms(5_000);
        }
    }
    assert_eq!(came, COUNT);
    assert_eq!(nodes.asked.get(), touched);
    assert!(touched <= 5 * COUNT, "{touched} touches");
    assert!(calls <= 5 * COUNT / 1000 + 40_000, "{calls} calls");
}

#[test]
fn a_million_nodes_that_are_due_after_a_jump_are_touched_once() {
    const COUNT: u64 = 1_000_000;
    let (mut wheel, mut nodes) = wheel((0..COUNT).map(|nth| ms(nth * 10)));
    nodes.asked.set(0);
    for _ in 0..COUNT {
        assert!(wheel.pop_due(&mut nodes, Duration::MAX, true, &mut 1).is_some());
    }
    assert_eq!(nodes.asked.get(), COUNT);
    assert!(wheel.is_empty());
}

#[test]
fn nodes_of_one_millisecond_are_examined_once_at_each_time() {
    const COUNT: u64 = 10_000;
    // Every second node is due by 5.5 ms, and each call takes one.
    let due = |nth: u64| if nth % 2 == 0 { us(5_400) } else { us(5_600) };
    let (mut wheel, mut nodes) = wheel((0..COUNT).map(due));
    nodes.asked.set(0);
    let mut came = 0;
    while wheel.pop_due(&mut nodes, us(5_500), true, &mut ALL.clone()).is_some() {
        came += 1;
    }
    assert_eq!((came, nodes.asked.get()), (COUNT / 2, COUNT));
    // New nodes that are due at once do not cause the other nodes to be examined again.
    nodes.asked.set(0);
    for _ in 0..COUNT {
        let id = nodes.add(Some(us(5_000)));
        wheel.insert(&mut nodes, id);
        assert_eq!(wheel.pop_due(&mut nodes, us(5_500), true, &mut ALL.clone()), Some(id));
        assert_eq!(wheel.pop_due(&mut nodes, us(5_500), true, &mut ALL.clone()), None);
    }
    assert!(nodes.asked.get() <= 3 * COUNT, "{}", nodes.asked.get());
}
