//! Histories of calls on a map, and the specification against which they are checked.
//!
//! Each call consists of a few steps, on one key or on both, that take effect at one instant. A step tells what the
//! call saw of a key, and what it changed. If no call returned the version of a change, the checker learns the version
//! when a later call sees it. Until then it only knows that the version is later than those before.
//!
//! If the number of values is bounded, a value may be evicted at any time. So a call may see no value where there
//! could be one; but from then on the value is gone.
#![allow(dead_code, unreachable_pub)] // shared by several test programs

use std::fmt::Write as _;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::Poll;

use keylatch::{AddOrUpdate, Fairness, LockMap, Version};
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

use crate::walk::Hasher;

pub const KEYS: u64 = 2;

pub type Map = LockMap<u64, u64, Hasher>;

/// Creates the map with all entries in one allocation: several keys are locked in the order of their entries in memory,
/// and a schedule must not depend on an allocator, or it could not be replayed. With `rests` the map has a value for
/// another key, which is the first entry, and no memory is reserved, so that all values of the callers may rest.
pub fn map(fairness: Fairness, most: Option<usize>, rests: bool) -> Arc<Map> {
    let capacity = if rests { 0 } else { KEYS as usize };
    let builder = LockMap::builder().shards(1).capacity(capacity).pool_capacity(KEYS as usize + 1);
    let builder = builder.fairness(fairness).hasher(Hasher::default());
    let mut map = if let Some(most) = most { builder.max_values(most).build() } else { builder.build() };
    map.extend(rests.then_some((KEYS, 0)));
    Arc::new(map)
}

/// The state of a key as a call saw it before it changed the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saw {
    Nothing,
    Whether(bool),
    Value(Option<u64>),
    /// The value with its version.
    All(Option<(u64, u64)>),
    /// A value with this version.
    Is(u64),
    /// Not a value with the first version, but one with the second, or none.
    IsNot(u64, Option<u64>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    Nothing,
    /// The value, with its version if the call returned it.
    Store(u64, Option<u64>),
    Remove,
}

pub type Step = (u64, Saw, Did);

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// The first operation of every history.
    Make { bounded: bool },
    /// At most one step for each key.
    Steps(Vec<Step>),
}

/// The known state of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Key {
    value: Option<u64>,
    /// The version if it is known, else a lower bound.
    version: u64,
    known: bool,
}

impl Key {
    fn is_there(&mut self, there: bool, bounded: bool) -> bool {
        if bounded && !there {
            self.forget();
        }
        self.value.is_some() == there
    }

    fn forget(&mut self) {
        (self.value, self.known) = (None, false);
    }

    fn has_version(&mut self, version: u64) -> bool {
        let fits = if self.known { version == self.version } else { version > self.version };
        if fits {
            (self.version, self.known) = (version, true);
        }
        fits
    }

    fn apply(&mut self, saw: Saw, did: Did, bounded: bool) -> bool {
        let fits = match saw {
            Saw::Nothing => true,
            Saw::Whether(there) => self.is_there(there, bounded),
            Saw::Value(value) => self.is_there(value.is_some(), bounded) && self.value == value,
            Saw::All(None) | Saw::IsNot(_, None) => self.is_there(false, bounded),
            Saw::All(Some((value, version))) => self.value == Some(value) && self.has_version(version),
            Saw::Is(version) => self.value.is_some() && self.has_version(version),
            Saw::IsNot(not, Some(version)) => self.value.is_some() && version != not && self.has_version(version),
        };
        match did {
            Did::Nothing => fits,
            Did::Remove => {
                self.forget();
                fits
            }
            Did::Store(value, version) => {
                (self.value, self.known) = (Some(value), false);
                fits && version.is_none_or(|version| self.has_version(version))
            }
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    keys: [Key; KEYS as usize],
    bounded: bool,
}

impl Specification for State {
    type State = State;
    type Operation = Op;

    fn init() -> State {
        State { keys: Default::default(), bounded: false }
    }

    fn apply(op: &Op, state: &State) -> (bool, State) {
        let mut state = state.clone();
        let fits = match op {
            Op::Make { bounded } => {
                state.bounded = *bounded;
                true
            }
            Op::Steps(steps) => {
                steps.iter().all(|&(key, saw, did)| state.keys[key as usize].apply(saw, did, state.bounded))
            }
        };
        (fits, state)
    }
}

/// A call, with the times of its invocation and return.
#[derive(Clone, Debug)]
pub struct Record {
    pub invoked: u64,
    pub returned: u64,
    pub by: usize,
    pub op: Op,
}

/// Returns whether some order of the calls explains their outcomes.
pub fn is_linearizable(bounded: bool, records: &[Record]) -> bool {
    let events = records.iter().zip(1..).flat_map(|(record, process)| {
        let op = || record.op.clone();
        [(record.invoked, process, Action::Call(op())), (record.returned, process, Action::Response(op()))]
    });
    let mut events: Vec<_> = events.collect();
    events.sort_by_key(|&(time, ..)| time);
    let made = Op::Make { bounded };
    let made = [Action::Call(made.clone()), Action::Response(made)].map(|action| (0, action));
    let actions = made.into_iter().chain(events.into_iter().map(|(_, process, action)| (process, action)));
    WGLChecker::<State>::is_linearizable(History::from_actions(actions.collect()))
}

/// Panics and shows the history if no order of the calls explains it.
pub fn check(bounded: bool, mut records: Vec<Record>) {
    if !is_linearizable(bounded, &records) {
        records.sort_by_key(|record| record.invoked);
        let mut shown = String::new();
        for Record { invoked, returned, by, op } in &records {
            writeln!(shown, "{invoked:>5} ..{returned:>5}  caller {by}  {op:?}").unwrap();
        }
        panic!("no order of these calls explains their outcomes (bounded: {bounded}):\n{shown}");
    }
}

/// A caller that records its calls.
pub struct Caller {
    map: Arc<Map>,
    clock: Arc<AtomicU64>,
    by: usize,
    last_value: u64,
    /// For each key, the version that this caller saw last.
    seen: [Option<Version>; KEYS as usize],
    last_seen: u64,
    /// Whether the caller makes blocking calls now and then.
    blocks: bool,
    pub records: Vec<Record>,
}

/// Polls a future again whenever it is woken, at most `polls` times; then drops it. With `polls == 0` there is no
/// limit.
async fn patient<F: Future>(polls: u64, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (Box::pin(future), polls);
    poll_fn(move |cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 1 => Poll::Ready(None),
        Poll::Pending => {
            left = left.saturating_sub(1);
            Poll::Pending
        }
    })
    .await
}

/// Makes the call in its async or in its blocking form.
macro_rules! either {
    ($caller:ident, $random:ident, $map:ident, $call:ident, $blocking:ident ($($argument:expr),*)) => {
        if $caller.blocks && $random(2) == 0 {
            Some($map.$blocking($($argument),*))
        } else {
            patient($random(6), $map.$call($($argument),*)).await
        }
    };
}

fn number_of(version: Option<Version>) -> Option<u64> {
    version.map(Version::get)
}

impl Caller {
    pub fn new(map: &Arc<Map>, clock: &Arc<AtomicU64>, by: usize, blocks: bool) -> Self {
        let (map, clock) = (Arc::clone(map), Arc::clone(clock));
        let last_value = 1000 * by as u64;
        Caller { map, clock, by, last_value, seen: [None; KEYS as usize], last_seen: 0, blocks, records: vec![] }
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    fn saw(&mut self, key: u64, version: Option<Version>) {
        self.seen[key as usize] = version.or(self.seen[key as usize]);
    }

    /// Makes one random call, and records it.
    pub async fn step(&mut self, random: &mut impl FnMut(u64) -> u64) {
        let map = Arc::clone(&self.map);
        let key = random(KEYS);
        self.last_value += 1;
        let n = self.last_value;
        let version = self.seen[key as usize];
        let invoked = self.tick();
        let steps = match random(18) {
            0 | 1 => either!(self, random, map, get, get_blocking(&key)).map(|got| {
                self.last_seen = got.unwrap_or(self.last_seen);
                vec![(key, Saw::Value(got), Did::Nothing)]
            }),
            2 => either!(self, random, map, insert, insert_blocking(&key, n))
                .map(|old| vec![(key, Saw::Value(old), Did::Store(n, None))]),
            3 => either!(self, random, map, remove, remove_blocking(&key))
                .map(|old| vec![(key, Saw::Value(old), Did::Remove)]),
            4 => {
                let n = if random(2) == 0 { self.last_seen } else { n };
                either!(self, random, map, add_or_update, add_or_update_blocking(&key, n)).map(|outcome| {
                    vec![match outcome {
                        AddOrUpdate::Added => (key, Saw::Value(None), Did::Store(n, None)),
                        AddOrUpdate::Updated(old) => (key, Saw::Value(Some(old)), Did::Store(n, None)),
                        AddOrUpdate::Unchanged => (key, Saw::Value(Some(n)), Did::Nothing),
                    }]
                })
            }
            5 => self.get_or_insert(&map, key, n, random).await,
            6 | 7 if version.is_some() => {
                let version = version.unwrap();
                either!(self, random, map, update_if, update_if_blocking(&key, version, n)).map(|result| {
                    let found = result.as_ref().map_or_else(|conflict| conflict.found(), |&new| Some(new));
                    self.saw(key, found);
                    vec![match result {
                        Ok(new) => (key, Saw::Is(version.get()), Did::Store(n, Some(new.get()))),
                        Err(_) => (key, Saw::IsNot(version.get(), number_of(found)), Did::Nothing),
                    }]
                })
            }
            8 if version.is_some() => {
                let version = version.unwrap();
                either!(self, random, map, remove_if, remove_if_blocking(&key, version)).map(|result| match result {
                    Ok(old) => vec![(key, Saw::All(Some((old, version.get()))), Did::Remove)],
                    Err(conflict) => {
                        self.saw(key, conflict.found());
                        vec![(key, Saw::IsNot(version.get(), number_of(conflict.found())), Did::Nothing)]
                    }
                })
            }
            9 => self.batch(&map, n, random).await,
            10 => self.look(&map, key, random).await,
            11 => self.visit(&map, invoked, random),
            14 => either!(self, random, map, get_versioned, get_versioned_blocking(&key)).map(|got| {
                self.saw(key, got.map(|(_, version)| version));
                vec![(key, Saw::All(got.map(|(value, version)| (value, version.get()))), Did::Nothing)]
            }),
            15 => either!(self, random, map, insert_if_absent, insert_if_absent_blocking(&key, n)).map(|result| {
                self.saw(key, result.ok());
                vec![match result {
                    Ok(version) => (key, Saw::Value(None), Did::Store(n, Some(version.get()))),
                    Err(_) => (key, Saw::Whether(true), Did::Nothing),
                }]
            }),
            16 => either!(self, random, map, update, update_blocking(&key, |value| std::mem::replace(value, n)))
                .map(|old| vec![(key, Saw::Value(old), old.map_or(Did::Nothing, |_| Did::Store(n, None)))]),
            17 => self.compute(&map, key, n, random).await,
            _ => self.write(&map, key, n, random).await,
        };
        let returned = self.tick();
        let by = self.by;
        self.records.extend(steps.map(|steps| Record { invoked, returned, by, op: Op::Steps(steps) }));
    }

    async fn get_or_insert(
        &mut self,
        map: &Map,
        key: u64,
        n: u64,
        random: &mut impl FnMut(u64) -> u64,
    ) -> Option<Vec<Step>> {
        let made = &AtomicU64::new(0);
        let init = || {
            made.store(1, SeqCst);
            n
        };
        let guard = if self.blocks && random(2) == 0 {
            map.get_or_insert_with_blocking(&key, init)
        } else {
            patient(random(6), map.get_or_insert_with(&key, async || init())).await?
        };
        let (value, version) = (*guard.value().unwrap(), guard.version().unwrap());
        self.saw(key, Some(version));
        Some(vec![if made.load(SeqCst) == 1 {
            assert_eq!(value, n);
            (key, Saw::Value(None), Did::Store(n, Some(version.get())))
        } else {
            (key, Saw::All(Some((value, version.get()))), Did::Nothing)
        }])
    }

    async fn compute(&mut self, map: &Map, key: u64, n: u64, random: &mut impl FnMut(u64) -> u64) -> Option<Vec<Step>> {
        let (old, removes) = (&AtomicU64::new(u64::MAX), random(2) == 0);
        let change = |value: Option<u64>| {
            old.store(value.unwrap_or(u64::MAX), SeqCst);
            (!removes).then_some(n)
        };
        let version = if self.blocks && random(2) == 0 {
            map.compute_blocking(&key, change)
        } else {
            patient(random(6), map.compute(&key, async |value| change(value))).await?
        };
        assert_eq!(version.is_none(), removes);
        self.saw(key, version);
        let old = Some(old.load(SeqCst)).filter(|&old| old != u64::MAX);
        Some(vec![(key, Saw::Value(old), if removes { Did::Remove } else { Did::Store(n, number_of(version)) })])
    }

    /// Reads one key, or both.
    async fn look(&mut self, map: &Map, key: u64, random: &mut impl FnMut(u64) -> u64) -> Option<Vec<Step>> {
        if random(2) == 0 {
            return Some(vec![match map.try_read(&key) {
                Some(guard) => {
                    self.saw(key, guard.version());
                    (key, Saw::All(guard.value().copied().zip(number_of(guard.version()))), Did::Nothing)
                }
                None => (key, Saw::Nothing, Did::Nothing),
            }]);
        }
        let guards = patient(random(6), map.read_many(&[key, 1 - key])).await?;
        let mut steps = vec![];
        for guard in &guards {
            self.saw(*guard.key(), guard.version());
            steps.push((*guard.key(), Saw::All(guard.value().copied().zip(number_of(guard.version()))), Did::Nothing));
        }
        Some(steps)
    }

    /// Visits all values, one after another. Each visit is recorded as a separate call.
    fn visit(&mut self, map: &Map, invoked: u64, random: &mut impl FnMut(u64) -> u64) -> Option<Vec<Step>> {
        let mut steps = vec![];
        if random(2) == 0 {
            map.for_each_value(|key, value, version| {
                if *key < KEYS {
                    steps.push((*key, Saw::All(Some((*value, version.get()))), Did::Nothing));
                    self.saw(*key, Some(version));
                }
            });
        } else {
            let odd = random(2);
            map.retain(|key, value| {
                if *key == KEYS {
                    return true;
                }
                let keeps = value % 2 == odd;
                let did = if keeps { Did::Nothing } else { Did::Remove };
                steps.push((*key, Saw::Value(Some(*value)), did));
                keeps
            });
        }
        let (returned, by) = (self.tick(), self.by);
        let record = |step| Record { invoked, returned, by, op: Op::Steps(vec![step]) };
        self.records.extend(steps.into_iter().map(record));
        None
    }

    /// Changes a value under a writer, or under an upgradable reader that is upgraded.
    async fn write(&mut self, map: &Map, key: u64, n: u64, random: &mut impl FnMut(u64) -> u64) -> Option<Vec<Step>> {
        let mut guard = if random(2) == 0 {
            patient(random(6), map.write(&key)).await?
        } else {
            let guard = patient(random(6), map.upgradable_read(&key)).await?;
            let before = (guard.value().copied(), guard.version());
            let guard = patient(random(6), guard.upgrade()).await?;
            assert_eq!(
                (guard.value().copied(), guard.version()),
                before,
                "the value changed between a reader and its upgrade"
            );
            guard
        };
        let before = guard.value().copied().zip(number_of(guard.version()));
        let did = match (random(4), guard.value_mut()) {
            (0, Some(_)) => {
                assert_eq!(guard.remove(), before.map(|(value, _)| value));
                Did::Remove
            }
            // The value is replaced here, and changed in place in the next arm.
            (1, Some(_)) => {
                guard.insert(n);
                Did::Store(n, number_of(guard.version()))
            }
            (_, Some(value)) => {
                *value = n;
                Did::Store(n, number_of(guard.version()))
            }
            (_, None) => {
                *guard.get_or_insert_with(|| 0) = n;
                Did::Store(n, number_of(guard.version()))
            }
        };
        self.saw(key, guard.version());
        Some(vec![(key, Saw::All(before), did)])
    }

    async fn batch(&mut self, map: &Map, n: u64, random: &mut impl FnMut(u64) -> u64) -> Option<Vec<Step>> {
        let (first, mut batch) = (random(KEYS), map.batch());
        // The steps as they are if all conditions hold, including the versions that they require.
        let mut steps = vec![];
        for key in [first, 1 - first] {
            let step = match (random(6), self.seen[key as usize]) {
                (0, _) => {
                    batch.push_check_absent(&key);
                    (key, Saw::Value(None), Did::Nothing)
                }
                (1, _) => {
                    batch.push_remove(&key);
                    (key, Saw::Nothing, Did::Remove)
                }
                (2, Some(version)) => {
                    batch.push_check(&key, version);
                    (key, Saw::Is(version.get()), Did::Nothing)
                }
                (3, Some(version)) => {
                    batch.push_remove_if(&key, version);
                    (key, Saw::Is(version.get()), Did::Remove)
                }
                (4, Some(version)) => {
                    batch.push_update_if(&key, version, n);
                    (key, Saw::Is(version.get()), Did::Store(n, None))
                }
                _ => {
                    batch.push_insert(&key, n);
                    (key, Saw::Nothing, Did::Store(n, None))
                }
            };
            steps.push(step);
        }
        let result = if self.blocks && random(2) == 0 {
            batch.commit_blocking()
        } else {
            patient(random(6), batch.commit()).await?
        };
        match result {
            Ok(versions) => {
                for ((key, _, did), version) in steps.iter_mut().zip(versions) {
                    if let Did::Store(_, store) = did {
                        *store = number_of(version);
                        assert!(store.is_some());
                    }
                    self.saw(*key, version);
                }
            }
            Err(conflict) => {
                // The conditions of the earlier steps held; nothing was changed.
                steps.truncate(conflict.step() + 1);
                steps.iter_mut().for_each(|(_, _, did)| *did = Did::Nothing);
                let (key, saw, _) = steps.last_mut().unwrap();
                assert_eq!(conflict.key(), key);
                self.saw(*key, conflict.found());
                *saw = match (*saw, number_of(conflict.found())) {
                    (Saw::Is(version), found) => Saw::IsNot(version, found),
                    (Saw::Value(None), Some(found)) => Saw::Is(found),
                    saw => panic!("a conflict although the condition holds: {saw:?}"),
                };
            }
        }
        Some(steps)
    }
}

/// Checks, after all callers have finished, that every entry has a value and no user, and that the bound is kept.
pub fn finish(map: &Map, most: Option<usize>) {
    assert_eq!(map.len(), map.entries(), "an entry without a value remained");
    assert!(most.is_none_or(|most| map.len() <= most), "the bound was not restored");
    for key in 0..KEYS {
        assert_eq!(map.status(&key).map_or(0, |status| status.holders() + status.waiters()), 0);
    }
}
