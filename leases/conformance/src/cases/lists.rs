//! Cases that list leases, and watch a resource.

use std::{collections::BTreeSet, future::Future};

use async_executor::LocalExecutor;
use futures_lite::future::poll_once;
use keylatch_lease::{Expiry, LeaseStatus, ListedLease, LookError, Owner, Resource, Watch, engine::Engine};

use crate::{
    Failure, Fixture,
    observed::Observed,
    trial::{Client, Trial, ensure, owners},
};

/// The number of leases on a page, which does not divide the number of leases.
const PAGE: usize = 7;

/// Returns all leases of a list, read in pages; `None` if the engine cannot list leases.
async fn listed<F: Fixture>(
    trial: &Trial<'_, F>,
    client: &Client<F>,
    owner: Option<&Owner>,
    prefix: &str,
) -> Result<Option<Vec<ListedLease>>, Failure> {
    let mut list = client.list().entity_prefix(prefix).page_size(PAGE);
    if let Some(owner) = owner {
        list = list.owner(owner);
    }
    let mut all = Vec::new();
    loop {
        match list.next_page().await {
            Ok(Some(page)) => {
                let length = page.len();
                ensure!(trial, 1, (1..=PAGE).contains(&length), "a page of at most {PAGE} leases has {length}");
                all.extend(page);
            }
            Ok(None) => return Ok(Some(all)),
            Err(LookError::Unsupported) => {
                trial.weaken("the engine cannot list leases");
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn names<'a>(listed: impl IntoIterator<Item = &'a ListedLease>) -> Vec<String> {
    let mut names: Vec<_> = listed.into_iter().map(|lease| lease.resource().to_string()).collect();
    names.sort();
    names
}

fn expected(names: impl IntoIterator<Item = Resource>) -> Vec<String> {
    let mut names: Vec<_> = names.into_iter().map(|name| name.to_string()).collect();
    names.sort();
    names
}

pub(super) async fn a_list_has_each_lease_once<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    if listed(trial, &here, None, "").await?.is_some_and(|all| !all.is_empty()) {
        return trial.wrong(1, "a namespace without leases has some in its list".into());
    }
    let of = |entity: &str, count: u32| (0..count).map(|n| Resource::new(entity, n.to_string())).collect::<Vec<_>>();
    let odd = [("", "alone"), ("page", ""), ("pa", "ge0"), ("page\u{10ffff}", "%_*"), ("Page", "0"), ("p/a", "ä\n")];
    let odd: Vec<_> = odd.iter().map(|(entity, key)| Resource::new(*entity, *key)).collect();
    let (pages, others) = (of("page", 3 * PAGE as u32), of("order", 4));
    for resource in pages.iter().chain(&odd) {
        here.try_acquire(resource, &ann, trial.long()).await?;
    }
    for resource in &others {
        here.try_acquire(resource, &bob, trial.long()).await?;
    }
    let all = || pages.iter().chain(&odd).chain(&others).cloned();
    let begins = |prefix: &str| {
        let prefix = prefix.to_owned();
        move |of: &Resource| of.entity().starts_with(&*prefix)
    };
    let of_ann = |prefix: &str| expected(pages.iter().chain(&odd).filter(|of| begins(prefix)(of)).cloned());
    for prefix in ["", "p", "page", "page\u{10ffff}", "pages", "or", "%"] {
        let Some(found) = listed(trial, &there, None, prefix).await? else { return Ok(()) };
        let right = expected(all().filter(begins(prefix)));
        ensure!(trial, 1, names(&found) == right, "entities with {prefix:?}: {:?}, not {right:?}", names(&found));
        let Some(found) = listed(trial, &there, Some(&ann), prefix).await? else { return Ok(()) };
        let right = of_ann(prefix);
        ensure!(trial, 1, names(&found) == right, "{ann}, {prefix:?}: {:?}, not {right:?}", names(&found));
    }
    let Some(found) = listed(trial, &there, Some(&bob), "").await? else { return Ok(()) };
    for lease in &found {
        let Some(status) = there.status(lease.resource()).await? else {
            return trial.wrong(1, format!("{} is listed, and free", lease.resource()));
        };
        let is_right = *lease.owner() == bob && lease.token() == status.token();
        ensure!(trial, 1, is_right, "{lease:?} is listed, but the status is {status:?}");
        let times = |held_for, remaining: Option<_>| held_for <= trial.long() && remaining <= Some(trial.long());
        ensure!(trial, 1, times(lease.held_for(), lease.remaining()), "{lease:?} has wrong times");
        ensure!(trial, 1, times(status.held_for(), status.remaining()), "{status:?} has wrong times");
        ensure!(trial, 1, status.since() <= there.engine().now(), "{status:?} began in the future");
    }
    let after = there.list().after("nonsense, which is no cursor").next_page().await;
    let is_right = matches!(after, Err(LookError::Invalid { argument: "cursor" }));
    ensure!(trial, 1, is_right, "a list behind nonsense gives {after:?}");
    Ok(())
}

pub(super) async fn a_list_keeps_its_place_while_leases_change<F: Fixture>(
    trial: &Trial<'_, F>,
) -> Result<(), Failure> {
    const KEPT: u32 = 30;
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    let kept: Vec<_> = (0..KEPT).map(|n| Resource::new("page", (2 * n).to_string())).collect();
    let gone = |n: u32| Resource::new("page", (2 * n + 1).to_string());
    let mut tokens = Vec::new();
    for (n, resource) in (0..).zip(&kept) {
        tokens.push(here.try_acquire(resource, &ann, trial.long()).await?);
        here.try_acquire(gone(n), &bob, trial.long()).await?;
    }
    // An expired lease is not listed.
    let over = here.try_acquire(("page", "over"), &bob, trial.ttl()).await?;
    trial.outlive(trial.ttl()).await?;
    let mut list = there.list().page_size(3);
    let (mut seen, mut changed) = (Vec::new(), 0..KEPT);
    loop {
        match list.next_page().await {
            Ok(Some(page)) => seen.extend(page),
            Ok(None) => break,
            Err(LookError::Unsupported) => {
                trial.weaken("the engine cannot list leases");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        // Between two pages some leases end, others begin, and others are renewed.
        for n in changed.by_ref().take(4) {
            here.release_as(gone(n), &bob).await?;
            here.try_acquire(("new", n.to_string()), &bob, trial.long()).await?;
            here.renew(&tokens[n as usize]).await?;
        }
    }
    ensure!(trial, 1, !names(&seen).contains(&over.resource().to_string()), "an expired lease is listed");
    let all = names(&seen);
    let distinct: BTreeSet<_> = all.iter().collect();
    ensure!(trial, 1, distinct.len() == all.len(), "a lease is listed twice: {all:?}");
    for resource in &kept {
        let is_there = distinct.contains(&resource.to_string());
        ensure!(trial, 1, is_there, "{resource}, which has been leased throughout, is missing in {all:?}");
    }
    Ok(())
}

type Watching<'a, F> = Watch<'a, Observed<<F as Fixture>::Engine>>;

/// Returns the next report of a watch. Fails if it does not come in time.
async fn next<F: Fixture>(
    trial: &Trial<'_, F>,
    watch: &mut Watching<'_, F>,
    what: &str,
) -> Result<Option<LeaseStatus>, Failure> {
    // A watch of a free resource asks again after the fallback at the latest.
    trial
        .within(trial.patience() + trial.long().min(std::time::Duration::from_secs(10)), what, watch.changed())
        .await?
        .map_err(Failure::from)
}

fn owner(status: Option<&LeaseStatus>) -> Option<&Owner> {
    status.map(LeaseStatus::owner)
}

pub(super) async fn a_watch_reports_each_tenure<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    let form = Resource::from("form");
    let mut watch = there.watch(&form);
    let first = next(trial, &mut watch, "the first report").await?;
    ensure!(trial, 9, first.is_none(), "a free resource is reported as {first:?}");
    let mut last = None;
    for round in 0..3 {
        let grant = here.try_acquire(&form, &ann, trial.long()).await?;
        let status = next(trial, &mut watch, "the report of a tenure").await?;
        ensure!(trial, 9, owner(status.as_ref()) == Some(&ann), "{ann} has it, but {status:?} is reported");
        let token = status.as_ref().map(LeaseStatus::token);
        ensure!(trial, 3, token == Some(grant.token()) && token > last, "{token:?} is reported after {last:?}");
        last = token;
        here.renew(&grant).await?;
        {
            let mut changed = std::pin::pin!(watch.changed());
            ensure!(trial, 9, is_pending(changed.as_mut()).await, "a renewal is reported as a change");
        }
        if round == 0 {
            // The next tenure begins without a gap that a watch could see.
            let new = here.try_acquire(&form, &ann, trial.long()).fresh_token().await?;
            let status = next(trial, &mut watch, "the report of a fresh tenure").await?;
            let token = status.as_ref().map(LeaseStatus::token);
            ensure!(trial, 9, token == Some(new.token()), "{new:?} has begun, but {status:?} is reported");
            last = token;
        }
        here.release_as(&form, &ann).await?;
        let status = next(trial, &mut watch, "the report of a release").await?;
        ensure!(trial, 9, status.is_none(), "the resource is free, but {status:?} is reported");
    }
    // With a waiter for the resource, the watch reports each new holder, unless its tenure is too short to be seen.
    let grant = here.try_acquire(&form, &ann, trial.long()).await?;
    let executor = LocalExecutor::new();
    executor
        .run(async {
            let waiting = executor.spawn({
                let (here, bob, form) = (std::sync::Arc::clone(&here), bob.clone(), form.clone());
                let long = trial.long();
                async move { here.acquire(&form, &bob, long).await }
            });
            trial.until_waiting(&here, &form, 1).await?;
            next(trial, &mut watch, "the report of the first leader").await?;
            there.release_token(&form, grant.token()).await?;
            let mut status = next(trial, &mut watch, "the report of another leader").await?;
            if status.is_none() {
                status = next(trial, &mut watch, "the report of another leader").await?;
            }
            let got = trial.soon("a waiter", waiting).await??;
            let token = status.as_ref().map(LeaseStatus::token);
            ensure!(trial, 9, token == Some(got.token()), "{bob} has it, but {status:?} is reported");
            Ok(())
        })
        .await
}

async fn is_pending<T>(future: impl Future<Output = T> + Unpin) -> bool {
    poll_once(future).await.is_none()
}

pub(super) async fn a_watch_reports_an_expiry<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann] = owners();
    let form = Resource::from("form");
    let grant = here.try_acquire(&form, &ann, Expiry::Sliding(trial.ttl())).await?;
    let mut watch = there.watch(&form);
    let first = next(trial, &mut watch, "the first report").await?;
    ensure!(trial, 9, owner(first.as_ref()) == Some(&ann), "{ann} has it, but {first:?} is reported");
    let executor = LocalExecutor::new();
    executor
        .run(async {
            let time = executor.spawn(async { trial.fixture_outlive(trial.ttl()).await });
            let second = next(trial, &mut watch, "the report of an expiry").await?;
            ensure!(trial, 9, second.is_none(), "the lease has expired, but {second:?} is reported");
            ensure!(trial, 1, there.renew(&grant).await.is_err(), "an expiry is reported, but the lease was renewed");
            time.await
        })
        .await
}
