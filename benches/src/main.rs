use std::hint::black_box;
use std::time::Instant;
fn time(name: &str, n: u64, mut f: impl FnMut(u64)) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..7 {
        let t = Instant::now();
        for i in 0..n {
            f(i)
        }
        best = best.min(t.elapsed().as_nanos() as f64 / n as f64);
    }
    println!("{name:40} {best:8.1} ns");
    best
}
fn main() {
    use std::future::Future;
    use std::task::*;
    let n = 2_000_000;
    let k = keylatch::KeyedMutex::<u64>::new();
    let l = lockmap::LockMap::<u64, ()>::new();
    let la = lockable::LockPool::<u64>::new();
    let h = k.handle(&9);
    let r = keylatch::KeyedMutex::<String>::builder().recycle_keys(true).build();
    let key = "0123456789012345678901234567890123456789";
    let mut cx = Context::from_waker(Waker::noop());
    let ls = lockmap::LockMap::<String, ()>::new();
    for _ in 0..2 {
        time("lockmap", n, |_| {
            black_box(l.entry(black_box(7)));
        });
        time("keylatch blocking", n, |_| {
            black_box(k.lock_blocking(black_box(&7)));
        });
        time("keylatch try", n, |_| {
            black_box(k.try_lock(black_box(&7)));
        });
        time("keylatch async", n, |_| {
            let mut f = std::pin::pin!(k.lock(black_box(&7)));
            match f.as_mut().poll(&mut cx) {
                Poll::Ready(g) => drop(black_box(g)),
                _ => unreachable!(),
            }
        });
        time("keylatch handle", n, |_| {
            black_box(h.lock_blocking());
        });
        time("keylatch str", n, |_| {
            black_box(r.lock_blocking(black_box(key)));
        });
        time("lockmap str", n, |_| {
            black_box(ls.entry_by_ref(black_box(key)));
        });
        time("lockable blocking", n, |_| {
            black_box(la.blocking_lock(black_box(7)));
        });
        time("lockable async", n, |_| {
            let mut f = std::pin::pin!(la.async_lock(black_box(7)));
            match f.as_mut().poll(&mut cx) {
                Poll::Ready(g) => drop(black_box(g)),
                _ => unreachable!(),
            }
        });
        let g = k.lock_blocking(&7);
        let g2 = l.entry(7);
        time("keylatch busy try", n, |_| {
            black_box(k.try_lock(black_box(&7)));
        });
        time("lockmap busy try", n, |_| {
            black_box(l.try_entry(black_box(7)));
        });
        drop((g, g2));
    }
}
