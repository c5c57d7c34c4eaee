//! Every scenario with criterion: one group for each, and in it one benchmark for each candidate.

use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput};
use keylatch_benches::scenarios::{Unit, scenarios};

/// How long a sample takes.
const SPAN: Duration = Duration::from_millis(50);

fn main() {
    // So many spans are 1.3 seconds for each benchmark.
    let mut criterion =
        Criterion::default().warm_up_time(6 * SPAN).measurement_time(20 * SPAN).sample_size(20).configure_from_args();
    for scenario in scenarios() {
        let mut group = criterion.benchmark_group(&scenario.name);
        group.sampling_mode(SamplingMode::Flat);
        if scenario.unit == Unit::Millions {
            group.throughput(Throughput::Elements(1));
        }
        for case in &scenario.cases {
            // A sample is a time: see `Case::nanos`. Criterion asks for a number of operations, and is told what they
            // would take.
            group.bench_function(case.name, |bencher| {
                bencher.iter_custom(|n| Duration::from_secs_f64(case.nanos(SPAN) * n as f64 / 1e9))
            });
        }
    }
    criterion.final_summary();
}
