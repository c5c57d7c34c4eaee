//! Several tasks that make random calls, with and without time passing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use keylatch_lease::{Expiry, Grant, Lost, Owner, ReleaseError, RenewError, Resource};
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::checker::{Shared, explore};
use crate::models::{Table, close, poll, table};

/// Returns a number below `n` that is the same when the schedule is replayed.
fn random(n: usize) -> usize {
    thread_rng().gen_range(0..n)
}

async fn after(turns: usize) {
    for _ in 0..turns {
        yield_now().await;
    }
}

/// The greatest token of each resource that any task has seen.
struct Tokens([AtomicU64; 2]);

impl Tokens {
    fn greatest(&self, r: usize) -> u64 {
        self.0[r].load(SeqCst)
    }

    fn saw(&self, r: usize, token: u64) {
        self.0[r].fetch_max(token, SeqCst);
    }
}

fn resources() -> [Resource; 2] {
    [Resource::new("a", "bc"), Resource::new("ab", "c")]
}

/// Leases never expire, and no two owners hold the resource at the same time.
#[test]
fn a_crowd_and_a_resource() {
    explore(|| {
        let (table, shared) = (table(), Shared::new());
        let tasks: Vec<_> = (0..5)
            .map(|n| {
                let (table, shared) = (table.clone(), Arc::clone(&shared));
                spawn(async move {
                    // The last two tasks have the same owner, which does not exclude itself. So they do not write.
                    let owner = Owner::named(["a", "b", "c", "d", "d"][n]);
                    for _ in 0..2 {
                        after(random(3)).await;
                        let mut acquire = Box::pin(table.leases.acquire("r", &owner, Expiry::Never));
                        // Some requests give up.
                        let mut turns = random(6);
                        let grant = std::future::poll_fn(|context| match Pin::new(&mut acquire).poll(context) {
                            Poll::Ready(grant) => Poll::Ready(Some(grant.unwrap())),
                            Poll::Pending if turns == 1 => Poll::Ready(None),
                            Poll::Pending => {
                                if turns > 1 {
                                    turns -= 1;
                                    context.waker().wake_by_ref();
                                }
                                Poll::Pending
                            }
                        })
                        .await;
                        drop(acquire);
                        let Some(grant) = grant else { continue };
                        if n < 3 {
                            shared.bump();
                            table.leases.release_now(&grant).unwrap();
                        } else if let Err(error) = table.leases.release_now(&grant) {
                            // The owner's other request shared the tenure, and released it first.
                            assert!(matches!(error, ReleaseError::NotHeld { .. } | ReleaseError::NotOwner { .. }));
                        }
                    }
                })
            })
            .collect();
        block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
        close(&table);
    });
}

struct Crowd {
    table: Table,
    tokens: Tokens,
}

impl Crowd {
    fn saw(&self, r: usize, grant: &Grant, before: u64) {
        let token = grant.token().get();
        // The call's token is not smaller than any that was seen before the call.
        assert!(token >= before, "{token} after {before}");
        assert!(grant.is_resumed() || token > before, "{token} twice");
        self.tokens.saw(r, token);
    }

    async fn steps(&self, n: usize) {
        let (leases, resources) = (&self.table.leases, resources());
        let owner = Owner::named(["a", "b", "c", "c"][n]);
        let mut kept: Vec<(usize, Grant)> = vec![];
        for _ in 0..4 {
            after(random(2)).await;
            let r = random(2);
            let resource = &resources[r];
            let ttl = Duration::from_millis([2, 5, 9][random(3)]);
            let before = self.tokens.greatest(r);
            match random(9) {
                0 | 1 => {
                    let grant = leases.acquire(resource, &owner, ttl).await.unwrap();
                    self.saw(r, &grant, before);
                    kept.push((r, grant));
                }
                2 => {
                    let mut acquire = Box::pin(leases.acquire(resource, &owner, Expiry::Fixed(ttl)));
                    if let Poll::Ready(grant) = poll(acquire.as_mut()) {
                        self.saw(r, &grant.unwrap(), before);
                    }
                    after(random(3)).await;
                }
                3 => {
                    if let Ok(grant) = leases.try_acquire(resource, &owner, ttl).fresh_token().now() {
                        self.saw(r, &grant, before);
                        kept.push((r, grant));
                    }
                }
                4 => {
                    let held = leases.hold(resource, &owner, ttl).await.unwrap();
                    self.tokens.saw(r, held.token().get());
                    after(random(3)).await;
                    let before = self.tokens.greatest(r);
                    // A hold that is not lost has the greatest token.
                    if let Ok(token) = held.check() {
                        assert!(token.get() >= before, "{token} stands, and {before} has been given out");
                    }
                }
                5 | 6 if !kept.is_empty() => {
                    let (r, grant) = kept.swap_remove(random(kept.len()));
                    let before = self.tokens.greatest(r);
                    match leases.renew_now(&grant) {
                        Ok(renewed) => {
                            assert_eq!(renewed.token(), grant.token());
                            assert!(renewed.token().get() >= before, "renewed, and {before} has been given out");
                            kept.push((r, renewed));
                        }
                        Err(RenewError::Lost(Lost::Expired | Lost::TakenOver | Lost::Released)) => {}
                        // The tenure was resumed with a fixed end.
                        Err(RenewError::NotRenewable { .. }) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
                7 if !kept.is_empty() => {
                    let (r, grant) = kept.swap_remove(random(kept.len()));
                    let before = self.tokens.greatest(r);
                    if leases.release_now(&grant).is_ok() {
                        assert!(grant.token().get() >= before, "released, and {before} has been given out");
                    }
                }
                _ => {
                    leases.release_all_now(&owner).unwrap();
                }
            }
        }
        leases.release_all_now(&owner).unwrap();
    }
}

/// Time passes. No request waits for ever, and each holder has the greatest token.
#[test]
fn a_crowd_while_time_passes() {
    explore(|| {
        let crowd = Arc::new(Crowd { table: table(), tokens: Tokens(Default::default()) });
        let tasks: Vec<_> = (0..3)
            .map(|n| {
                let crowd = Arc::clone(&crowd);
                spawn(async move { crowd.steps(n).await })
            })
            .collect();
        let quitter = {
            let crowd = Arc::clone(&crowd);
            spawn(async move { crowd.steps(3).await })
        };
        let clock = {
            let crowd = Arc::clone(&crowd);
            thread::spawn(move || {
                for _ in 0..12 {
                    crowd.table.clock.advance(Duration::from_millis(random(6) as u64));
                    if random(2) == 0 {
                        crowd.table.leases.tick();
                    } else {
                        crowd.table.leases.release_expired_now().unwrap();
                    }
                    thread::yield_now();
                }
            })
        };
        block_on(async {
            after(random(5)).await;
            quitter.abort();
            drop(quitter.await);
        });
        clock.join().unwrap();
        // The remaining waiters are served as each lease ends.
        let done = Arc::new(AtomicBool::new(false));
        let rest = {
            let (crowd, done) = (Arc::clone(&crowd), Arc::clone(&done));
            thread::spawn(move || {
                while !done.load(SeqCst) {
                    crowd.table.clock.advance(Duration::from_millis(10));
                    crowd.table.leases.tick();
                    thread::yield_now();
                }
            })
        };
        block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
        done.store(true, SeqCst);
        rest.join().unwrap();
        // The task that was aborted may have left a lease that has not expired.
        crowd.table.leases.release_all_now(&Owner::named("c")).unwrap();
        close(&crowd.table);
    });
}
