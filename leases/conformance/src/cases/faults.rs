//! Cases in which a server or a network misbehaves.

use std::{cell::Cell, future::Future, sync::Arc, time::Duration};

use async_executor::LocalExecutor;
use async_io::Timer;
use futures_lite::StreamExt;
use keylatch_lease::{AcquireError, Grant, Held, Owner, RenewError, Resource, engine::Engine};

use crate::{
    Failure, Fixture,
    observed::Observed,
    trial::{Client, Trial, ensure, owners},
};

type Hold<'a, F> = Held<'a, Observed<<F as Fixture>::Engine>>;

/// The pause before an engine that could not answer is asked again, and between some steps with a broken connection.
const PAUSE: Duration = Duration::from_millis(20);

/// Acquires a lease, and tries again while the engine fails or is in quarantine. Returns the time of the answer, too.
async fn insist<F: Fixture>(
    client: &Client<F>,
    resource: &Resource,
    owner: &Owner,
    ttl: Duration,
) -> Result<(Grant, Duration), Failure> {
    loop {
        match client.acquire(resource, owner, ttl).await {
            Ok(grant) => return Ok((grant, client.engine().now())),
            Err(AcquireError::Engine(_) | AcquireError::Quarantined { .. }) => {
                Timer::after(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns whether a grant could be renewed, once the engine answers.
async fn renewed<F: Fixture>(trial: &Trial<'_, F>, client: &Client<F>, grant: &Grant) -> Result<bool, Failure> {
    let renewed = Cell::new(false);
    let asked = trial.until("the engine answers a renewal", || async {
        Ok(match client.renew(grant).await {
            Ok(_) => {
                renewed.set(true);
                true
            }
            Err(RenewError::Engine(_)) => {
                Timer::after(PAUSE).await;
                false
            }
            Err(RenewError::Lost(_)) => true,
            Err(error) => return Err(error.into()),
        })
    });
    asked.await?;
    Ok(renewed.get())
}

/// Returns the holder, once the engine answers.
async fn holder<F: Fixture>(
    trial: &Trial<'_, F>,
    client: &Client<F>,
    resource: &Resource,
) -> Result<Option<Owner>, Failure> {
    let holder = Cell::new(None);
    let asked = trial.until("the engine answers with the holder", || async {
        let status = client.status(resource).await;
        let is_known = status.is_ok();
        if let Ok(status) = status {
            holder.set(status.map(|status| status.owner().clone()));
        }
        Ok(is_known)
    });
    asked.await?;
    Ok(holder.take())
}

pub(super) async fn leases_survive_a_killed_server_or_are_reported_lost<F: Fixture>(
    trial: &Trial<'_, F>,
) -> Result<(), Failure> {
    let server = trial.server()?;
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob, cid] = owners();
    let form = &Resource::from("form");
    let executor = LocalExecutor::new();
    executor
        .run(async {
            let mut last = None;
            for round in 0..3 {
                let old = insist::<F>(&here, form, &ann, trial.long()).await?.0;
                ensure!(trial, 3, last < Some(old.token()), "token {} was granted after {last:?}", old.token());
                let waiting = {
                    let (there, bob) = (Arc::clone(&there), bob.clone());
                    executor.spawn(async move { insist::<F>(&there, form, &bob, trial.long()).await })
                };
                if round > 0 {
                    trial.until_waiting(&there, form, 1).await?;
                }
                server.kill()?;
                server.restart()?;
                if renewed(trial, &here, &old).await? {
                    let refused = there.try_acquire(form, &cid, trial.long()).await;
                    let is_right = matches!(&refused, Err(AcquireError::Busy { .. }));
                    ensure!(trial, 1, is_right, "after a restart {ann} holds the resource, but {cid} got {refused:?}");
                    here.release(&old).await?;
                }
                let new = match trial.soon("a waiter, after a restart", waiting).await {
                    Ok(got) => got?.0,
                    Err(failure) => return trial.wrong(9, failure.to_string()),
                };
                ensure!(trial, 3, new.token() > old.token(), "token {} was granted after {}", new.token(), old.token());
                last = Some(new.token());
                there.release(&new).await?;
            }
            Ok(())
        })
        .await
}

/// The way in which a server forgets leases.
#[derive(Clone, Copy, Debug)]
enum Forgets {
    Restarted,
    Emptied,
    PutBack,
}

pub(super) async fn a_server_that_forgot_leases_waits_before_granting<F: Fixture>(
    trial: &Trial<'_, F>,
) -> Result<(), Failure> {
    let clients = (trial.client().await?, trial.client().await?);
    let mut not = None;
    let mut applies = false;
    for how in [Forgets::Restarted, Forgets::Emptied, Forgets::PutBack] {
        match forgets(trial, &clients, how).await {
            Err(failure) if !failure.applies => not = Some(failure),
            result => {
                result?;
                applies = true;
            }
        }
    }
    if applies { Ok(()) } else { not.map_or(Ok(()), Err) }
}

async fn forgets<F: Fixture>(
    trial: &Trial<'_, F>,
    (here, there): &(Arc<Client<F>>, Arc<Client<F>>),
    how: Forgets,
) -> Result<(), Failure> {
    let server = trial.server()?;
    let [ann, bob] = owners();
    let form = &Resource::new("form", format!("{how:?}"));
    if let Forgets::PutBack = how {
        // The copy contains a part of the namespace's history, but not all of it.
        let grant = insist::<F>(there, form, &bob, trial.long()).await?.0;
        there.release(&grant).await?;
        server.back_up()?;
    }
    let mut greatest = None;
    for at in 0..10 {
        let grant = insist::<F>(here, &Resource::new("other", at.to_string()), &ann, trial.ttl()).await?.0;
        greatest = greatest.max(Some(grant.token()));
    }
    // The lease must last longer than the server takes to come back.
    let long =
        if trial.caps.is_ttl_fixed { trial.ttl() } else { trial.caps.quarantine.min(4 * trial.ttl()).max(trial.ttl()) };
    let held = here.hold(form, &ann, long).await?;
    greatest = greatest.max(Some(held.token()));
    // This client must have seen the grant that the copy lacks: a client that was disconnected in between may know
    // nothing of it.
    let known = holder(trial, there, form).await?;
    ensure!(trial, 1, known.as_ref() == Some(&ann), "{ann} holds the resource, but {known:?} is reported");
    match how {
        Forgets::Restarted => server.forget()?,
        Forgets::Emptied => server.empty()?,
        Forgets::PutBack => server.put_back()?,
    }
    // The lease is not renewed, and its holder may rely on it to its end.
    let sure = Cell::new(here.engine().now());
    let got = async { insist::<F>(there, form, &bob, trial.ttl()).await };
    let watch = watch::<F, _>(here, &held, &sure);
    let limit = trial.caps.quarantine + trial.ttl() + trial.patience();
    let got = trial.within(limit, "a lease from an engine that forgot", futures_lite::future::or(got, watch)).await;
    let (grant, at) = got??;
    let now = here.engine().now();
    let is_sure = held.check().is_ok();
    ensure!(trial, 1, !is_sure || now < at, "{how:?}: {bob} has the resource while {ann} may rely on its lease");
    ensure!(trial, 1, sure.get() <= at, "{how:?}: {bob} got the resource while {ann} could rely on its lease");
    ensure!(
        trial,
        3,
        Some(grant.token()) > greatest,
        "{how:?}: token {} was granted after {greatest:?}",
        grant.token()
    );
    // The tokens of all other resources must grow too.
    for at in 0..10 {
        let new = insist::<F>(there, &Resource::new("other", at.to_string()), &bob, trial.ttl()).await?.0;
        ensure!(
            trial,
            3,
            Some(new.token()) > greatest,
            "{how:?}: token {} was granted after {greatest:?}",
            new.token()
        );
        there.release(&new).await?;
    }
    there.release(&grant).await?;
    Ok(())
}

/// Keeps recording the last time at which the holder could rely on its lease. The future is never ready.
async fn watch<F: Fixture, T>(client: &Client<F>, held: &Hold<'_, F>, sure: &Cell<Duration>) -> T {
    let mut pulse = Timer::interval(Duration::from_millis(2));
    while pulse.next().await.is_some() {
        let now = client.engine().now();
        if held.check().is_ok() {
            sure.set(now);
        }
    }
    std::future::pending().await
}

/// Cuts a holder off from its server. The holder must learn of the loss by itself, before another owner has the
/// resource.
async fn loses_it<F: Fixture>(
    trial: &Trial<'_, F>,
    here: &Arc<Client<F>>,
    there: &Arc<Client<F>>,
    harm: impl FnOnce() -> Result<(), Failure>,
    heal: impl FnOnce() -> Result<(), Failure>,
    heals_first: bool,
) -> Result<(), Failure> {
    let [ann, bob] = owners();
    let form = &Resource::from("form");
    let ttl = if trial.caps.is_ttl_fixed { trial.ttl() } else { 2 * trial.ttl() };
    let executor = LocalExecutor::new();
    let mut heal = Some(heal);
    executor
        .run(async {
            let held = here.hold_arc(form, &ann, ttl).await?;
            let token = held.token();
            let renewal = executor.spawn(held.renewal());
            let waiting = {
                let (there, bob) = (Arc::clone(there), bob.clone());
                executor.spawn(async move { insist::<F>(&there, form, &bob, trial.long()).await })
            };
            trial.until_waiting(there, form, 1).await?;
            harm()?;
            let harmed = here.engine().now();
            let sure = Cell::new(harmed);
            let watch = watch::<F, _>(here, &held, &sure);
            let lost = futures_lite::future::or(held.lost(), watch);
            let lost = trial.within(ttl + trial.patience(), "the loss, without a message", lost).await;
            let at = here.engine().now();
            drop(renewal); // a holder that knows of the loss does not renew any more
            if let Err(failure) = lost {
                return trial.wrong(10, failure.to_string());
            }
            let is_right = at - harmed <= ttl + trial.caps.noise;
            ensure!(trial, 10, is_right, "the holder learned of the loss {:?} after it was cut off", at - harmed);
            ensure!(trial, 10, held.check().is_err(), "a lost lease was confirmed");
            if heals_first {
                if let Some(heal) = heal.take() {
                    heal()?;
                }
            }
            let got = trial.within(ttl + trial.patience(), "the successor of a holder that was cut off", waiting).await;
            let (grant, at) = match got {
                Ok(got) => got?,
                Err(failure) => return trial.wrong(8, failure.to_string()),
            };
            ensure!(
                trial,
                2,
                sure.get() <= at,
                "{ann} relied on its lease at {:?}, but {bob} had the resource by {at:?}",
                sure.get()
            );
            ensure!(trial, 3, grant.token() > token, "token {} was granted after {token}", grant.token());
            if let Some(heal) = heal.take() {
                heal()?;
            }
            ensure!(trial, 10, held.check().is_err(), "a lost lease was confirmed later");
            let old = held.into_grant();
            let is_renewed = renewed(trial, here, &old).await?;
            ensure!(
                trial,
                6,
                !is_renewed,
                "once it reached the engine again, the former holder renewed the lost lease"
            );
            let holder = holder(trial, there, form).await?;
            ensure!(trial, 5, holder == Some(bob), "the successor's lease is held by {holder:?}");
            Ok(())
        })
        .await
}

pub(super) async fn a_holder_that_is_cut_off_notices_the_loss_by_itself<F: Fixture>(
    trial: &Trial<'_, F>,
) -> Result<(), Failure> {
    let proxy = trial.proxy()?;
    let (here, there) = (trial.client_through(&proxy).await?, trial.client().await?);
    let harm = || {
        proxy.blackhole();
        Ok(())
    };
    let heal = || {
        proxy.pass();
        Ok(())
    };
    loses_it(trial, &here, &there, harm, heal, false).await
}

pub(super) async fn a_paused_server_never_has_two_holders<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let server = trial.server()?;
    let (here, there) = (trial.client().await?, trial.client().await?);
    let lost = loses_it(trial, &here, &there, || server.pause(), || server.resume(), true).await;
    if lost.is_err() {
        let _ = server.resume(); // so that the following cases can run
    }
    lost
}

/// Runs a request whose first answer is swallowed. `is_done` returns whether the engine has carried it out. After that,
/// `meanwhile` runs, before answers are forwarded again.
async fn with_its_answer_lost<F: Fixture, T, W>(
    trial: &Trial<'_, F>,
    proxy: &crate::Proxy,
    question: impl Future<Output = T>,
    is_done: impl FnMut() -> W,
    meanwhile: impl Future<Output = Result<(), Failure>>,
) -> Result<T, Failure>
where
    W: Future<Output = Result<bool, Failure>>,
{
    proxy.swallow_answers();
    let lose = async {
        trial.until("the engine has carried out the request", is_done).await?;
        meanwhile.await?;
        proxy.pass();
        Ok::<_, Failure>(())
    };
    let (answer, lost) = futures_lite::future::zip(
        trial.within(3 * trial.patience(), "an answer, after the first one was lost", question),
        lose,
    )
    .await;
    lost?;
    answer
}

pub(super) async fn an_acquire_recovers_from_a_lost_answer<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let proxy = trial.proxy()?;
    let (here, there) = (trial.client_through(&proxy).await?, trial.client().await?);
    let [ann, bob] = owners();
    here.status("form").await?; // now the client is connected
    let token = Cell::new(None);
    let is_done = || async {
        let status = there.status("form").await?;
        token.set(status.map(|status| status.token()));
        Ok(token.get().is_some())
    };
    let asked = here.acquire("form", &ann, trial.long());
    let grant = with_its_answer_lost(trial, &proxy, asked, is_done, async { Ok(()) }).await?;
    let grant = match grant {
        Ok(grant) => grant,
        Err(error) => {
            return trial
                .wrong(4, format!("the acquire was not sent again, or was refused the second time: {error:?}"));
        }
    };
    let is_right = Some(grant.token()) == token.get();
    ensure!(trial, 4, is_right, "token {:?} was granted first, and {} the second time", token.get(), grant.token());
    ensure!(trial, 4, here.owned_by(&ann).await?.len() == 1, "the lease was granted twice");

    // A fresh tenure must also survive the loss of its answer, and must not be mistaken for the old tenure.
    let is_done = || async {
        let status = there.status("form").await?;
        Ok(status.is_some_and(|status| status.token() > grant.token()))
    };
    let asked = here.acquire("form", &ann, trial.long()).fresh_token();
    let fresh = with_its_answer_lost(trial, &proxy, asked, is_done, async { Ok(()) }).await?;
    let fresh = match fresh {
        Ok(fresh) => fresh,
        Err(error) => return trial.wrong(4, format!("an acquire of a fresh tenure was not sent again: {error:?}")),
    };
    ensure!(
        trial,
        3,
        fresh.token() > grant.token(),
        "a fresh token {} was granted after {}",
        fresh.token(),
        grant.token()
    );
    let status = there.status("form").await?;
    let is_right = status.is_some_and(|status| status.token() == fresh.token());
    ensure!(trial, 4, is_right, "the engine has another tenure than the one that it has granted");
    here.release(&fresh).await?;
    there.try_acquire("form", &bob, trial.long()).await?;
    Ok(())
}

pub(super) async fn a_release_recovers_from_a_lost_answer<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let proxy = trial.proxy()?;
    let (here, there) = (trial.client_through(&proxy).await?, trial.client().await?);
    let [ann, bob] = owners();
    for has_successor in [false, true] {
        let grant = here.try_acquire("form", &ann, trial.long()).await?;
        let is_done = || async { Ok(there.status("form").await?.is_none()) };
        let successor = async {
            if has_successor {
                there.try_acquire("form", &bob, trial.long()).await?;
            }
            Ok(())
        };
        let released = with_its_answer_lost(trial, &proxy, here.release(&grant), is_done, successor).await?;
        ensure!(trial, 5, released.is_ok(), "a release whose answer was lost gave {released:?}");
        let holder = holder(trial, &there, &"form".into()).await?;
        ensure!(trial, 5, holder.is_some() == has_successor, "after that the holder is {holder:?}");
    }
    Ok(())
}

pub(super) async fn late_requests_change_nothing<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let proxy = trial.proxy()?;
    let (here, there) = (trial.client_through(&proxy).await?, trial.client().await?);
    let [ann, bob] = owners();
    let renewed = here.try_acquire("renewed", &ann, trial.ttl()).await?;
    let released = here.try_acquire("released", &ann, trial.ttl()).await?;
    proxy.hold();
    let late = async {
        let two = futures_lite::future::zip(here.renew(&renewed), here.release(&released));
        let one = here.try_acquire("asked for", &ann, trial.ttl());
        futures_lite::future::zip(two, one).await
    };
    let meanwhile = async {
        trial.outlive(trial.ttl()).await?;
        let mut grants = Vec::new();
        for resource in ["renewed", "released", "asked for"] {
            grants.push(there.try_acquire(resource, &bob, trial.long()).await?);
        }
        proxy.pass();
        Ok::<_, Failure>(grants)
    };
    let limit = 2 * trial.ttl() + 3 * trial.patience();
    let late = trial.within(limit, "answers to late requests", late);
    let (late, grants) = futures_lite::future::zip(late, meanwhile).await;
    let ((renewal, _), asked) = late?;
    ensure!(trial, 6, renewal.is_err(), "a renewal that arrived after the end gave {renewal:?}");
    ensure!(trial, 1, asked.is_err(), "an acquire that arrived late gave {asked:?}");
    for grant in grants? {
        let status = there.status(grant.resource()).await?;
        let is_right = status.as_ref().is_some_and(|status| status.token() == grant.token());
        ensure!(trial, 5, is_right, "a late request changed {} to {status:?}", grant.resource());
    }
    Ok(())
}

pub(super) async fn a_waiter_survives_a_broken_connection<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let proxy = trial.proxy()?;
    let (here, there) = (trial.client().await?, trial.client_through(&proxy).await?);
    let [ann, bob] = owners();
    let form = &Resource::from("form");
    let executor = LocalExecutor::new();
    executor
        .run(async {
            for round in 0..5 {
                let old = here.try_acquire(form, &ann, trial.long()).await?;
                let waiting = {
                    let (there, bob) = (Arc::clone(&there), bob.clone());
                    executor.spawn(async move { insist::<F>(&there, form, &bob, trial.long()).await })
                };
                trial.until_waiting(&there, form, 1).await?;
                proxy.cut();
                if round % 2 == 0 {
                    Timer::after(PAUSE).await;
                }
                here.release(&old).await?;
                if round % 3 == 0 {
                    Timer::after(PAUSE).await;
                }
                proxy.pass();
                let got = trial.soon("a waiter whose connection broke", waiting).await;
                let new = match got {
                    Ok(got) => got?.0,
                    Err(failure) => return trial.wrong(9, failure.to_string()),
                };
                ensure!(trial, 3, new.token() > old.token(), "token {} was granted after {}", new.token(), old.token());
                here.release(&new).await?;
            }
            Ok(())
        })
        .await
}
