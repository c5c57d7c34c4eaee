//! Cases with waiters.

use std::{
    cell::Cell,
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use async_executor::LocalExecutor;
use async_io::Timer;
use futures_lite::{
    Future, FutureExt,
    future::{poll_fn, yield_now},
};
use keylatch_lease::{Owner, Resource, engine::Engine};

use crate::{
    Failure, Fixture,
    trial::{Client, Random, Trial, ensure, owners},
};

pub(super) async fn a_release_wakes_a_waiter<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    const ROUNDS: usize = 200;
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    let form = &Resource::from("form");
    let executor = LocalExecutor::new();
    let mut random = Random(16);
    let mut times = Vec::with_capacity(ROUNDS);
    executor
        .run(async {
            for round in 0..ROUNDS {
                let old = here.try_acquire(form, &ann, trial.long()).await?;
                let waiting = {
                    let (there, bob) = (&there, bob.clone());
                    executor.spawn(async move {
                        let grant = there.acquire(form, &bob, trial.long()).await?;
                        Ok::<_, Failure>((grant, Instant::now()))
                    })
                };
                // In some rounds the waiter has registered before the release; in others it is about to.
                if round % 2 == 0 {
                    trial.until_waiting(&there, form, 1).await?;
                } else {
                    for _ in 0..random.next(20) {
                        yield_now().await;
                    }
                }
                let released = Instant::now();
                here.release(&old).await?;
                let (new, at) = match trial.soon("a waiter, after a release", waiting).await {
                    Ok(got) => got?,
                    Err(failure) => return trial.wrong(9, format!("in round {round}: {failure}")),
                };
                times.push(at.saturating_duration_since(released));
                ensure!(trial, 3, new.token() > old.token(), "token {} was granted after {}", new.token(), old.token());
                there.release(&new).await?;
            }
            Ok::<_, Failure>(())
        })
        .await?;
    // A late wake-up may be this machine's fault, but not in half of the rounds.
    times.sort();
    if let Some(median) = times.get(times.len() / 2) {
        let is_right = *median <= trial.caps.delta;
        ensure!(trial, 9, is_right, "half of the waiters had the resource only {median:?} after the release, or later");
    }
    Ok(())
}

pub(super) async fn many_waiters_in_one_process_are_served<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    const WAITERS: usize = 1000;
    /// The number of waiters that arrive one after the other.
    const IN_ORDER: usize = 10;
    /// The number of the other waiters that arrive at the same time. On a slow machine, a greater number would send
    /// more requests than the engine answers within its time limit.
    const AT_A_TIME: usize = 50;
    /// The limit of requests for each waiter: a waiter may check whether its owner has the lease already, acquire,
    /// perhaps more than once, and release.
    const REQUESTS: u64 = 10;
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann] = owners();
    let form = &Resource::from("form");
    let first = here.try_acquire(form, &ann, trial.long()).await?;
    let served = Cell::new(0_usize);
    let executor = LocalExecutor::new();
    let waiter = |at: usize| {
        let (there, served): (&Client<F>, _) = (&there, &served);
        executor.spawn(async move {
            let grant = there.acquire(form, &Owner::named(format!("owner {at}")), trial.long()).await?;
            there.release(&grant).await?;
            served.set(served.get() + 1);
            Ok::<_, Failure>(grant.token())
        })
    };
    let (tokens, requests, most) = executor
        .run(async {
            let mut crowd = Vec::with_capacity(WAITERS);
            if trial.caps.is_ttl_fixed {
                trial.weaken("the holder's lease is too short for all waiters to register before it ends");
            }
            for at in 1..=WAITERS {
                crowd.push(waiter(at));
                if (at <= IN_ORDER || at % AT_A_TIME == 0) && !trial.caps.is_ttl_fixed {
                    if let Err(failure) = trial.until_waiting(&there, form, at).await {
                        // A waiter's error says more than the number of waiters.
                        let ended = crowd.iter_mut().find(|waiter| waiter.is_finished());
                        return if let Some(ended) = ended { ended.await.and(Err(failure)) } else { Err(failure) };
                    }
                }
            }
            there.engine().most_asking(form);
            let (before, start) = (there.engine().requests(), Instant::now());
            here.release(&first).await?;
            // The limit applies to each hand-off, not to all of them: a slow machine takes a long time for a thousand.
            // Nor does it apply to a particular waiter: most of them arrive in no particular order.
            let mut tokens = Vec::with_capacity(WAITERS);
            for mut waiter in crowd {
                let token = loop {
                    let before = served.get();
                    match trial.soon("the next waiter", &mut waiter).await {
                        Err(late) if served.get() == before => return Err(late),
                        Err(_) => {}
                        Ok(token) => break token?,
                    }
                };
                tokens.push(token);
            }
            let polls = there.engine().fallback().map_or(0, |pause| {
                u64::try_from(start.elapsed().as_millis() / pause.as_millis().max(1)).unwrap_or(u64::MAX)
            });
            let requests = there.engine().requests() - before;
            Ok::<_, Failure>((tokens, requests.saturating_sub(polls), there.engine().most_asking(form)))
        })
        .await?;
    let mut sorted = tokens.clone();
    sorted.sort();
    sorted.dedup();
    ensure!(trial, 3, sorted.len() == WAITERS, "{} tokens for {WAITERS} tenures", sorted.len());
    if !trial.caps.is_ttl_fixed {
        let is_right = tokens[..IN_ORDER] == sorted[..IN_ORDER];
        ensure!(trial, 9, is_right, "the waiters were not served in order of arrival");
    }
    ensure!(trial, 9, most <= 1, "{most} requests for one resource were under way at the same time");
    let each = requests.div_ceil(WAITERS as u64);
    ensure!(trial, 9, each <= REQUESTS, "{requests} requests to the engine for {WAITERS} hand-offs");
    ensure!(trial, 9, here.status(form).await?.is_none(), "the resource is held in the end");
    Ok(())
}

/// Polls a future up to this number of times, and for no longer than `sleep` in all.
async fn polled<T>(future: impl Future<Output = T>, polls: usize, sleep: Duration) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    let polls = poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    let asleep = async {
        Timer::after(sleep).await;
        None
    };
    polls.or(asleep).await
}

pub(super) async fn a_dropped_acquire_leaves_no_waiter_and_no_connection<F: Fixture>(
    trial: &Trial<'_, F>,
) -> Result<(), Failure> {
    const MOST: usize = 25;
    /// A request that is not answered within this time is dropped, whatever its state.
    const SLEEP: Duration = Duration::from_millis(50);
    let (here, there) = (trial.client().await?, trial.client().await?);
    for client in [&here, &there] {
        client.status("form").await?; // now the client is connected
    }
    let before = trial.connections();
    let executor = LocalExecutor::new();
    let mut all = Vec::new();
    for polls in 1..=MOST {
        for (is_held, is_handed) in [(false, false), (true, false), (true, true)] {
            let (here, there): (&Client<F>, &Client<F>) = (&here, &there);
            all.push(executor.spawn(async move {
                let resource = Resource::new(format!("held {is_held}, handed {is_handed}"), polls.to_string());
                one_drop::<F>(trial, here, there, &resource, (is_held, is_handed), polls, SLEEP).await
            }));
        }
    }
    let all = async {
        for one in all {
            one.await?;
        }
        Ok::<_, Failure>(())
    };
    executor.run(all).await?;
    if let Some((before, after)) = before.zip(trial.connections()) {
        let is_right = after <= before + 2;
        ensure!(trial, 11, is_right, "there are {after} connections, and there were {before} before");
    }
    Ok(())
}

/// Drops a request for a resource that is free, or held, or perhaps being handed over at that moment. The next waiter
/// must be served.
async fn one_drop<F: Fixture>(
    trial: &Trial<'_, F>,
    here: &Client<F>,
    there: &Client<F>,
    resource: &Resource,
    (is_held, is_handed): (bool, bool),
    polls: usize,
    sleep: Duration,
) -> Result<(), Failure> {
    let [ann, bob, cid] = owners();
    let ttl = trial.ttl();
    let holder = match is_held {
        true => Some(here.try_acquire(resource, &ann, trial.long()).await?),
        false => None,
    };
    let got = {
        let mut first = pin!(there.acquire(resource, &bob, ttl));
        let early = if is_handed { polls / 2 } else { polls };
        let mut got = polled(first.as_mut(), early, sleep).await;
        if let (true, None, Some(holder)) = (is_handed, &got, &holder) {
            here.release(holder).await?;
            got = polled(first.as_mut(), polls - early, sleep).await;
        }
        got
    };
    if let Some(got) = got {
        let grant = got?;
        ensure!(trial, 5, *grant.owner() == bob, "{} was granted the lease that {bob} requested", grant.owner());
        match there.release(&grant).await {
            // If the request was polled late, its lease may have expired.
            Ok(()) | Err(keylatch_lease::ReleaseError::NotHeld { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let status = there.status(resource).await?;
    let waiters = status.map_or(0, |status| status.waiters());
    ensure!(trial, 11, waiters == 0, "after {polls} polls and a drop there are {waiters} waiters");
    if let Some(holder) = &holder {
        if !is_handed {
            here.release(holder).await?;
        }
    }
    // At worst, the lease was granted without the caller's knowledge, and has to expire.
    let mut next = pin!(there.acquire(resource, &cid, trial.long()));
    let asleep = async {
        Timer::after(sleep).await;
        None
    };
    let at_once = async { Some(next.as_mut().await) }.or(asleep).await;
    let grant = match at_once {
        Some(got) => got?,
        None => {
            if !there.engine().is_real_time() {
                trial.pass(ttl).await?;
            }
            let what = format!("{resource}, behind a request that was dropped after {polls} polls");
            match trial.within(trial.patience_after(ttl).await?, &what, next).await {
                Ok(got) => got?,
                Err(failure) => return trial.wrong(11, failure.to_string()),
            }
        }
    };
    there.release(&grant).await?;
    Ok(())
}
