//! Cases in which a lease expires.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use async_executor::LocalExecutor;
use futures_lite::future::yield_now;
use keylatch_lease::{AcquireError, Expiry, Lost, RenewError, engine::Engine};

use crate::{
    Failure, Fixture,
    trial::{Client, Trial, ensure, owners},
};

/// Returns the time left of a lease, as the engine reports it.
async fn left<F: Fixture>(client: &Client<F>, resource: &str) -> Result<Option<Duration>, Failure> {
    Ok(client.status(resource).await?.and_then(|status| status.remaining()))
}

/// Returns a time, plus the possible difference of two clocks.
fn about(time: Duration) -> Duration {
    time + time / 50
}

const FIXED: &str = "all leases last equally long";

pub(super) async fn renewing_extends_and_never_shortens<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann] = owners();
    let ttl = if trial.caps.is_ttl_fixed { trial.ttl() } else { 4 * trial.ttl() };
    let grant = here.try_acquire("form", &ann, ttl).await?;
    trial.pass(ttl / 4).await?;
    let before = left::<F>(&there, "form").await?;
    let renewed = here.renew(&grant).await?;
    let after = left::<F>(&there, "form").await?;
    ensure!(trial, 6, renewed.token() == grant.token(), "a renewal changed the token");
    let is_right = before.zip(after).is_some_and(|(before, after)| after > before);
    ensure!(trial, 6, is_right, "a renewal left {after:?}, and {before:?} were left before it");
    let is_right = here.remaining(&grant) <= here.remaining(&renewed);
    ensure!(trial, 2, is_right, "the renewed grant ends before the old one");
    if trial.caps.is_ttl_fixed {
        trial.weaken(FIXED);
        return Ok(());
    }
    // The later end of the two policies applies.
    let long = there.try_acquire("form", &ann, trial.long()).await?;
    let before = left::<F>(&there, "form").await?;
    let short = here.try_acquire("form", &ann, trial.ttl()).await?;
    ensure!(trial, 4, short.token() == long.token(), "acquiring with another policy changed the token");
    here.renew(&short).await?;
    here.renew(&renewed).await?;
    let after = left::<F>(&there, "form").await?;
    let is_right = before.zip(after).is_some_and(|(before, after)| after > before / 2);
    ensure!(trial, 4, is_right, "a shorter renewal left {after:?} of {before:?}");
    Ok(())
}

pub(super) async fn an_expired_lease_is_not_renewed<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann] = owners();
    let grant = here.try_acquire("form", &ann, trial.ttl()).await?;
    trial.outlive(trial.ttl()).await?;
    for client in [&here, &there] {
        let renewed = client.renew(&grant).await;
        let is_right = matches!(renewed, Err(RenewError::Lost(Lost::Expired)));
        ensure!(trial, 6, is_right, "renewing an expired lease gave {renewed:?}");
        let status = client.status("form").await?;
        ensure!(trial, 6, status.is_none(), "an expired lease is held after an attempt to renew it: {status:?}");
    }
    ensure!(trial, 6, here.owned_by(&ann).await?.is_empty(), "the owner's list has the expired lease");
    ensure!(trial, 7, here.release_all(&ann).await? == 0, "an expired lease was counted as released");
    let next = here.try_acquire("form", &ann, trial.ttl()).await?;
    ensure!(trial, 6, !next.is_resumed(), "an expired lease was resumed");
    ensure!(trial, 3, next.token() > grant.token(), "token {} was granted after {}", next.token(), grant.token());
    Ok(())
}

pub(super) async fn a_lease_that_was_taken_over_is_not_renewed<F: Fixture>(
    trial: &Trial<'_, F>,
) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    let old = here.try_acquire("form", &ann, trial.ttl()).await?;
    trial.outlive(trial.ttl()).await?;
    let new = there.try_acquire("form", &bob, trial.long()).await?;
    ensure!(trial, 3, new.token() > old.token(), "token {} was granted after {}", new.token(), old.token());
    let before = left::<F>(&there, "form").await?;
    for client in [&here, &there] {
        let renewed = client.renew(&old).await;
        ensure!(
            trial,
            6,
            matches!(renewed, Err(RenewError::Lost(_))),
            "renewing a tenure that was taken over gave {renewed:?}"
        );
    }
    let after = there.status("form").await?;
    let is_right = after
        .as_ref()
        .is_some_and(|after| (after.owner(), after.token()) == (&bob, new.token()) && after.remaining() <= before);
    ensure!(trial, 5, is_right, "renewing a tenure that was taken over changed {before:?} to {after:?}");
    there.renew(&new).await?;
    Ok(())
}

pub(super) async fn a_lease_expires_by_itself_and_not_early<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    let ttl = trial.ttl();
    let asked = here.engine().now();
    let old = here.try_acquire("form", &ann, ttl).await?;
    let granted = here.engine().now();
    let latest = granted + about(ttl) + trial.patience();
    let new = loop {
        let before = there.engine().now();
        match there.try_acquire("form", &bob, ttl).await {
            Ok(grant) => break grant,
            Err(AcquireError::Busy { .. }) if before < latest => trial.fixture_pass(ttl / 16).await,
            Err(AcquireError::Busy { owner, remaining, .. }) => {
                let message =
                    format!("{owner} holds the lease {:?} after it began, for another {remaining:?}", before - granted);
                return trial.wrong(8, message);
            }
            Err(error) => return Err(error.into()),
        }
    };
    let after = there.engine().now() - asked;
    let is_right = after >= ttl - ttl / 50;
    ensure!(trial, 1, is_right, "another owner had a lease of {ttl:?} after {after:?}");
    ensure!(trial, 3, new.token() > old.token(), "token {} was granted after {}", new.token(), old.token());
    Ok(())
}

pub(super) async fn expiry_policies_are_followed<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann] = owners();
    let ttl = trial.ttl();
    if trial.caps.is_ttl_fixed {
        trial.weaken(FIXED);
        let grant = here.try_acquire("sliding", &ann, ttl).await?;
        here.renew(&grant).await?;
        trial.outlive(ttl).await?;
        let status = there.status("sliding").await?;
        ensure!(trial, 8, status.is_none(), "the lease has not ended: {status:?}");
        return Ok(());
    }
    let is_asked = AtomicBool::new(false);
    let once = Expiry::custom(move |_| (!is_asked.swap(true, SeqCst)).then_some(2 * ttl));
    let fixed = here.try_acquire("fixed", &ann, Expiry::Fixed(2 * ttl)).await?;
    let custom = here.try_acquire("custom", &ann, once).await?;
    let never = here.try_acquire("never", &ann, Expiry::Never).await?;
    let capped = here.try_acquire("capped", &ann, Expiry::SlidingUpTo { idle: 2 * ttl, total: 3 * ttl }).await?;
    ensure!(trial, 8, left::<F>(&there, "never").await?.is_none(), "a lease that never expires has an end");
    ensure!(trial, 8, here.remaining(&never).is_none(), "the grant of a lease that never expires has an end");

    trial.pass(ttl).await?;
    for (grant, what) in [(&fixed, "a fixed lease"), (&custom, "a lease whose policy says no")] {
        let renewed = here.renew(grant).await;
        let is_right = matches!(renewed, Err(RenewError::NotRenewable { .. }));
        ensure!(trial, 6, is_right, "renewing {what} gave {renewed:?}");
    }
    let again = there.try_acquire("fixed", &ann, Expiry::Fixed(2 * ttl)).await?;
    ensure!(trial, 4, again.token() == fixed.token(), "acquiring a fixed lease again changed its token");
    let is_right = left::<F>(&there, "fixed").await?.is_some_and(|left| left <= about(ttl));
    ensure!(trial, 8, is_right, "acquiring a fixed lease again extended it");
    here.renew(&never).await?;
    let capped = here.renew(&capped).await?;
    let is_right = left::<F>(&there, "capped").await?.is_some_and(|left| left <= about(2 * ttl));
    ensure!(trial, 8, is_right, "a renewal extended a lease past its limit");

    trial.pass(ttl).await?;
    let capped = here.renew(&capped).await?;
    let is_right = left::<F>(&there, "capped").await?.is_some_and(|left| left <= about(ttl));
    ensure!(trial, 8, is_right, "a second renewal extended a lease past its limit");
    trial.outlive(ttl).await?;
    let renewed = here.renew(&capped).await;
    ensure!(trial, 8, matches!(renewed, Err(RenewError::Lost(_))), "a lease past its limit was renewed: {renewed:?}");
    for resource in ["fixed", "custom", "capped"] {
        let status = there.status(resource).await?;
        ensure!(trial, 8, status.is_none(), "the {resource} lease has not ended: {status:?}");
    }
    let status = there.status("never").await?;
    let is_right = status.is_some_and(|status| status.token() == never.token());
    ensure!(trial, 8, is_right, "a lease that never expires has ended");
    here.release(&never).await?;
    Ok(())
}

pub(super) async fn a_waiter_is_served_when_the_lease_expires<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    let ttl = trial.ttl();
    let executor = LocalExecutor::new();
    let asked = here.engine().now();
    let old = here.try_acquire("form", &ann, ttl).await?;
    let granted = here.engine().now();
    let waiting = {
        let (there, bob) = (&there, bob.clone());
        executor.spawn(async move {
            let grant = there.acquire("form", &bob, trial.long()).await?;
            Ok::<_, Failure>((grant, there.engine().now()))
        })
    };
    let got = executor.run(async {
        if !trial.is_real_time().await? {
            trial.until_waiting(&there, &"form".into(), 1).await?;
            trial.pass(ttl).await?;
        }
        trial.within(trial.patience_after(ttl).await?, "a waiter behind a holder that no longer renews", waiting).await
    });
    let (new, at) = match got.await {
        Ok(got) => got?,
        Err(failure) => return trial.wrong(8, failure.to_string()),
    };
    let is_right = at - asked >= ttl - ttl / 50;
    ensure!(trial, 1, is_right, "another owner had a lease of {ttl:?} after {:?}", at - asked);
    let is_right = at - granted <= about(ttl) + trial.patience();
    ensure!(trial, 8, is_right, "the waiter had the resource {:?} after a lease of {ttl:?} began", at - granted);
    ensure!(trial, 3, new.token() > old.token(), "token {} was granted after {}", new.token(), old.token());
    Ok(())
}

pub(super) async fn a_sweep_removes_only_expired_leases<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    const EACH: usize = 50;
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    let mut old = Vec::new();
    for at in 0..EACH {
        old.push(here.try_acquire(("short", at.to_string()), &ann, trial.ttl()).await?);
    }
    trial.fixture_outlive(trial.ttl()).await?;
    let mut kept = Vec::new();
    for at in 0..EACH {
        kept.push(there.try_acquire(("long", at.to_string()), &bob, trial.long()).await?);
    }
    let swept = here.release_expired().await?;
    ensure!(trial, 12, swept <= EACH, "{swept} leases were removed, but only {EACH} had expired");
    let again = there.release_expired().await?;
    ensure!(trial, 12, again == 0, "a second sweep removed {again} leases");
    let owned = there.owned_by(&bob).await?.len();
    ensure!(trial, 7, owned == EACH, "{owned} of {EACH} leases are left after a sweep");
    for grant in &old {
        let next = there.try_acquire(grant.resource(), &bob, trial.ttl()).await?;
        let is_right = next.token() > grant.token();
        ensure!(trial, 3, is_right, "after a sweep token {} was granted after {}", next.token(), grant.token());
    }
    for grant in &kept {
        there.release(grant).await?;
    }
    Ok(())
}

pub(super) async fn a_held_lease_renews_itself<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    let ttl = if trial.caps.is_ttl_fixed { trial.ttl() } else { 2 * trial.ttl() };
    let mut held = here.hold("form", &ann, ttl).await?;
    let token = held.token();
    let work = async {
        for _ in 0..20 {
            trial.pass(ttl / 10).await?;
            for _ in 0..10 {
                yield_now().await; // the renewals get their turn
            }
            let refused = there.try_acquire("form", &bob, ttl).await;
            let is_right = matches!(refused, Err(AcquireError::Busy { .. }));
            ensure!(trial, 1, is_right, "while the lease was held and renewed, another owner got {refused:?}");
        }
        Ok::<_, Failure>(())
    };
    match held.run(work).await {
        Ok(done) => done?,
        Err(lost) => return trial.wrong(10, format!("{lost}, although the lease was renewed")),
    }
    ensure!(trial, 2, held.check() == Ok(token), "a check of the renewed lease gives {:?}", held.check());
    let status = there.status("form").await?;
    let is_right = status.is_some_and(|status| status.token() == token);
    ensure!(trial, 2, is_right, "the engine does not know the renewed lease");
    held.release().await?;
    ensure!(trial, 5, there.status("form").await?.is_none(), "a released resource is leased");
    Ok(())
}

/// The holder begins another tenure with an earlier end, while a waiter sleeps until the end of the old one.
pub(super) async fn a_waiter_is_notified_of_an_earlier_end<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    let ttl = trial.ttl();
    if trial.caps.is_ttl_fixed {
        trial.weaken(FIXED);
    }
    let executor = LocalExecutor::new();
    executor
        .run(async {
            let old = here.try_acquire("form", &ann, trial.long()).await?;
            let waiting = {
                let (there, bob) = (&there, bob.clone());
                executor.spawn(async move { there.acquire("form", &bob, trial.long()).await })
            };
            trial.until_waiting(&there, &"form".into(), 1).await?;
            let fresh = here.try_acquire("form", &ann, ttl).fresh_token().await?;
            ensure!(trial, 3, fresh.token() > old.token(), "token {} was granted after {}", fresh.token(), old.token());
            if !trial.is_real_time().await? {
                trial.pass(ttl).await?;
            }
            let limit = trial.patience_after(ttl).await?;
            let new = match trial.within(limit, "a waiter, after an earlier end", waiting).await {
                Ok(got) => got?,
                Err(failure) => return trial.wrong(8, failure.to_string()),
            };
            ensure!(trial, 3, new.token() > fresh.token(), "token {} was granted after {}", new.token(), fresh.token());
            Ok(())
        })
        .await
}
