//! How long one call with much work in a big map delays other calls: the time of a read of an unrelated key during
//! that call.
//!
//! `cargo bench --bench pauses`, a minute on two free cores. In the first two rows the other thread sleeps, so these
//! rows show the delays of the machine itself. `cargo test` runs every case once, with a small map.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use keylatch::LockMap;

type Map = LockMap<u64, u64>;

/// The work of one thread while another thread reads.
struct Case {
    what: &'static str,
    is_bounded: bool,
    prepare: fn(&Map, u64),
    run: fn(&Map, u64),
}

const CASES: [Case; 5] = [
    Case {
        what: "nothing",
        is_bounded: false,
        prepare: |_, _| {},
        run: |_, _| std::thread::sleep(Duration::from_millis(100)),
    },
    Case {
        what: "an insert where all values have been used",
        is_bounded: true,
        prepare: |map, n| (0..n).for_each(|key| _ = map.get_blocking(&key)),
        run: |map, n| _ = map.insert_blocking(&n, n),
    },
    Case {
        what: "an insert where all values are locked",
        is_bounded: true,
        prepare: |_, _| {},
        run: |map, n| {
            let readers: Vec<_> = (0..n).filter_map(|key| map.try_read(&key)).collect();
            map.insert_blocking(&n, n);
            drop(readers);
        },
    },
    Case {
        what: "for_each_value",
        is_bounded: false,
        prepare: |_, _| {},
        run: |map, _| _ = map.for_each_value(|_, value, _| _ = std::hint::black_box(*value)),
    },
    Case {
        what: "growth to twice the size",
        is_bounded: false,
        prepare: |_, _| {},
        run: |map, n| (n..2 * n).for_each(|key| _ = map.insert_blocking(&key, key)),
    },
];

fn main() {
    let is_full = std::env::args().any(|word| word == "--bench");
    let (n, rounds) = if is_full { (1_000_000, 5) } else { (1_000, 1) };
    println!("A read of another key, in µs, in a map of {n} values, while another thread does this:\n");
    println!("| what | shards | reads | p99.9 | p99.99 | longest |\n| --- | ---: | ---: | ---: | ---: | ---: |");
    for case in &CASES {
        for shards in [1, 64] {
            let mut reads = Vec::new();
            for _ in 0..rounds {
                reads.extend(waits(case, shards, n));
            }
            reads.sort_unstable();
            let at = |share: f64| reads[((reads.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
            let [one, two, last] = [at(0.999), at(0.9999), at(1.0)];
            println!("| {} | {shards} | {} | {one:.1} | {two:.1} | {last:.0} |", case.what, reads.len());
        }
    }
}

/// Returns the duration of each read, in nanoseconds.
fn waits(case: &Case, shards: usize, n: u64) -> Vec<u64> {
    let builder = LockMap::builder().shards(shards);
    let map: Map = if case.is_bounded { builder.max_values(n as usize).build() } else { builder.build() };
    // The reader's own keys, spread over the shards.
    let others = 3 * n..3 * n + 64;
    for key in (0..n).chain(others.clone().take(usize::from(!case.is_bounded) * 64)) {
        map.insert_blocking(&key, key);
    }
    (case.prepare)(&map, n);
    let (is_over, mut reads) = (AtomicBool::new(false), Vec::with_capacity(1 << 22));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (case.run)(&map, n);
            is_over.store(true, Relaxed);
        });
        for key in others.cycle() {
            let start = Instant::now();
            std::hint::black_box(map.contains_key(&key));
            reads.push(start.elapsed().as_nanos() as u64);
            if is_over.load(Relaxed) || reads.len() == reads.capacity() {
                break;
            }
        }
    });
    reads
}
