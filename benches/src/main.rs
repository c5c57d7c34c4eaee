use std::hint::black_box;
use std::sync::{
    Barrier,
    atomic::{AtomicBool, Ordering},
};
use std::time::{Duration, Instant};
fn work(n: u32) {
    for _ in 0..n {
        std::hint::spin_loop();
    }
}
fn run(threads: usize, ms: u64, f: impl Fn(usize) + Sync) -> (f64, f64) {
    let stop = AtomicBool::new(false);
    let bar = Barrier::new(threads + 1);
    let mut counts = vec![];
    let mut el = 0.0;
    std::thread::scope(|s| {
        let hs: Vec<_> = (0..threads)
            .map(|t| {
                let (stop, bar, f) = (&stop, &bar, &f);
                s.spawn(move || {
                    bar.wait();
                    let mut n = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        f(t);
                        n += 1;
                    }
                    n
                })
            })
            .collect();
        bar.wait();
        let t = Instant::now();
        std::thread::sleep(Duration::from_millis(ms));
        stop.store(true, Ordering::Relaxed);
        for h in hs {
            counts.push(h.join().unwrap());
        }
        el = t.elapsed().as_secs_f64();
    });
    let sum: u64 = counts.iter().sum();
    (sum as f64 / el / 1e6, *counts.iter().max().unwrap() as f64 / (*counts.iter().min().unwrap()).max(1) as f64)
}
fn main() {
    // calibrate 1us
    let t = Instant::now();
    work(1_000_000);
    let per = t.elapsed().as_nanos() as f64 / 1e6;
    let us = (1000.0 / per) as u32;
    println!("us = {us} pauses");
    let ms = 300;
    for th in [2usize, 8] {
        for (nm, w) in [("empty", 0), ("1us", us)] {
            for round in 0..2 {
                let k = keylatch::KeyedMutex::<u64>::new();
                let l = lockmap::LockMap::<u64, ()>::new();
                let la = lockable::LockPool::<u64>::new();
                let p = parking_lot::Mutex::new(());
                let a = run(th, ms, |_| {
                    let _g = k.lock_blocking(black_box(&7));
                    work(w);
                });
                let b = run(th, ms, |_| {
                    let _g = l.entry(black_box(7));
                    work(w);
                });
                let c = run(th, ms, |_| {
                    let _g = la.blocking_lock(black_box(7));
                    work(w);
                });
                let d = run(th, ms, |_| {
                    let _g = p.lock();
                    work(w);
                });
                println!(
                    "{round} hot {th} {nm}: keylatch {:.2} ({:.1}) lockmap {:.2} ({:.1}) lockable {:.2} pl {:.2} ({:.1})",
                    a.0, a.1, b.0, b.1, c.0, d.0, d.1
                );
            }
        }
        for _ in 0..2 {
            let k = keylatch::KeyedMutex::<u64>::new();
            let l = lockmap::LockMap::<u64, ()>::new();
            let la = lockable::LockPool::<u64>::new();
            let a = run(th, ms, |t| {
                let _g = k.lock_blocking(black_box(&(t as u64)));
            });
            let b = run(th, ms, |t| {
                let _g = l.entry(black_box(t as u64));
            });
            let c = run(th, ms, |t| {
                let _g = la.blocking_lock(black_box(t as u64));
            });
            println!("disjoint {th}: keylatch {:.2} lockmap {:.2} lockable {:.2}", a.0, b.0, c.0);
        }
    }
}
