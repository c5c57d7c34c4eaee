//! Cases with one call after another, and no faults.

use std::{
    cell::Cell,
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use async_executor::LocalExecutor;
use async_io::Timer;
use futures_lite::future::{or, yield_now};
use keylatch_lease::{
    AcquireError, Expiry, Lost, Owner, ReleaseError, RenewError, Resource, Term, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Renewal, Want},
};

use crate::{
    Failure, Fixture,
    trial::{Client, Trial, ensure, owners},
};

pub(super) async fn a_free_resource_is_granted<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let client = trial.client().await?;
    let [ann] = owners();
    let resource = Resource::new("form", "1");
    ensure!(trial, 1, client.status(&resource).await?.is_none(), "a resource that was never acquired is leased");
    let grant = client.try_acquire(&resource, &ann, trial.long()).await?;
    ensure!(trial, 4, !grant.is_resumed(), "a first tenure is reported as resumed");
    let status = client.status(&resource).await?;
    let Some(status) = status else { return trial.wrong(1, "a granted resource has no holder".into()) };
    ensure!(trial, 1, *status.owner() == ann, "{} holds the resource that was granted to {ann}", status.owner());
    ensure!(trial, 3, status.token() == grant.token(), "the status has another token than the grant");
    let left = status.remaining();
    ensure!(trial, 2, left.is_some_and(|left| left <= trial.long()), "{left:?} of {:?} are left", trial.long());
    ensure!(trial, 2, left.is_some_and(|left| left > trial.long() / 2), "{left:?} of {:?} are left", trial.long());
    let owned = client.owned_by(&ann).await?;
    let is_it = owned.len() == 1 && *owned[0].resource() == resource && owned[0].token() == grant.token();
    ensure!(trial, 7, is_it, "the list of {ann} is {owned:?}");
    client.release(&grant).await?;
    ensure!(trial, 1, client.status(&resource).await?.is_none(), "a released resource is leased");
    ensure!(
        trial,
        7,
        client.owned_by(&ann).await?.is_empty(),
        "an owner that released everything still owns something"
    );
    Ok(())
}

pub(super) async fn a_second_owner_is_refused_and_told_the_holder<F: Fixture>(
    trial: &Trial<'_, F>,
) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    let grant = here.try_acquire("form", &ann, trial.long()).await?;
    for _ in 0..3 {
        match there.try_acquire("form", &bob, trial.long()).await {
            Err(AcquireError::Busy { owner, remaining, .. }) => {
                ensure!(trial, 1, owner == ann, "{owner} is reported as the holder instead of {ann}");
                let is_right = remaining.is_some_and(|left| left <= trial.long());
                ensure!(trial, 2, is_right, "{remaining:?} of {:?} are reported as left", trial.long());
            }
            other => return trial.wrong(1, format!("while {ann} holds the resource, {bob} got {other:?}")),
        }
    }
    ensure!(trial, 1, there.owned_by(&bob).await?.is_empty(), "an owner that was refused owns something");
    let status = there.status("form").await?;
    ensure!(trial, 1, status.is_some_and(|status| status.token() == grant.token()), "a refusal changed the tenure");
    here.release(&grant).await?;
    let next = there.try_acquire("form", &bob, trial.long()).await?;
    ensure!(trial, 3, next.token() > grant.token(), "token {} was granted after {}", next.token(), grant.token());
    Ok(())
}

pub(super) async fn resources_and_owners_do_not_collide<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let client = trial.client().await?;
    let longest = "k".repeat(1024);
    let resources: Vec<Resource> = [
        ("a", "bc"),
        ("ab", "c"),
        ("", "abc"),
        ("abc", ""),
        ("", ""),
        ("a", "\0bc"),
        ("a\0", "bc"),
        ("a/b", "c"),
        ("a", "b/c"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("a b", "c"),
        ("A", "BC"),
        ("a", "b%"),
        ("a", "b_"),
        ("a", "b*.>"),
        ("a", "b'\"\\;--"),
        ("\u{e9}", "\u{1f512}"),
        ("e\u{301}", "\u{1f512}"),
        ("a", "bc "),
        ("a", "bc\n"),
        ("", &longest),
        (&longest[..1023], "k"),
        (&longest[..1], &longest[1..]),
    ]
    .into_iter()
    .map(Resource::from)
    .collect();
    let owner = |at: usize| match at % 6 {
        0 => Owner::named(format!("owner {at}")),
        1 => Owner::named(format!("{}{at:02}", "o".repeat(1022))),
        2 => Owner::named(format!("\0\n'\"\\ {at}")),
        3 => Owner::named(format!("\u{1f464}{at}")),
        4 => Owner::incarnation(format!("owner {at}")),
        _ => Owner::named(Owner::named(format!("owner {at}")).id()),
    };
    let owners: Vec<Owner> = (0..resources.len()).map(owner).collect();
    let mut grants = Vec::new();
    for (resource, owner) in resources.iter().zip(&owners) {
        match client.try_acquire(resource, owner, trial.long()).await {
            Ok(grant) => grants.push(grant),
            Err(error) => return trial.wrong(1, format!("{resource:?} collides with another resource: {error:?}")),
        }
    }
    for (grant, (resource, owner)) in grants.iter().zip(resources.iter().zip(&owners)) {
        let status = client.status(resource).await?;
        let is_right = status.is_some_and(|status| (status.owner(), status.token()) == (owner, grant.token()));
        ensure!(trial, 1, is_right, "{resource:?} is not held by {owner:?}");
        let owned: Vec<_> = client.owned_by(owner).await?.iter().map(|grant| grant.resource().clone()).collect();
        ensure!(trial, 7, owned == [resource.clone()], "the list of {owner:?} is {owned:?}");
    }
    // In reverse order, to notice a release that also releases another lease.
    for grant in grants.iter().rev() {
        match client.release(grant).await {
            Ok(()) => {}
            Err(error) => {
                return trial.wrong(5, format!("{:?} was released with another resource: {error:?}", grant.resource()));
            }
        }
    }
    hostile_names(trial).await
}

/// Puts strings that are special to some server or protocol at every position in a name.
async fn hostile_names<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    const PIECES: [&str; 30] = [
        "\0",
        "/",
        "//",
        ":",
        ".",
        "..",
        "*",
        ">",
        "?",
        "[",
        "]",
        "\\",
        "{",
        "}",
        "%",
        "%2F",
        "=",
        "'",
        "\"",
        ";",
        "--",
        " ",
        "\t",
        "\r\n",
        "$",
        "_",
        "\u{7f}",
        "\u{feff}",
        "\u{202e}",
        "\u{10ffff}",
    ];
    let client = trial.client().await?;
    let [ann] = owners();
    let names = PIECES.iter().flat_map(|piece| {
        let places =
            [piece.to_string(), format!("a{piece}"), format!("{piece}a"), format!("a{piece}b"), piece.repeat(3)];
        places.into_iter().flat_map(|name| [Resource::new("hostile", &*name), Resource::new(&*name, "hostile")])
    });
    let resources: BTreeSet<Resource> = names.collect();
    for resource in &resources {
        let grant = client.try_acquire(resource, &ann, trial.long()).await?;
        ensure!(trial, 1, !grant.is_resumed(), "{resource:?} collides with another resource");
        let status = client.status(resource).await?;
        let is_right = status.is_some_and(|status| status.token() == grant.token());
        ensure!(trial, 1, is_right, "{resource:?} has another tenure than the granted one");
    }
    let owned: BTreeSet<_> = client.owned_by(&ann).await?.iter().map(|grant| grant.resource().clone()).collect();
    ensure!(trial, 7, owned == resources, "{} of {} are listed", owned.len(), resources.len());
    let released = client.release_all(&ann).await?;
    ensure!(trial, 7, released == resources.len(), "{released} of {} were released", resources.len());
    Ok(())
}

pub(super) async fn acquiring_again_resumes_the_tenure<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann] = owners();
    let first = here.try_acquire("form", &ann, trial.long()).await?;
    let before = there.status("form").await?.and_then(|status| status.remaining());
    for client in [&here, &there] {
        let again = trial.soon("asking again", client.acquire("form", &ann, trial.long())).await??;
        ensure!(trial, 4, again.is_resumed(), "a second acquire of the holder is not reported as resumed");
        ensure!(
            trial,
            4,
            again.token() == first.token(),
            "the token changed from {} to {}",
            first.token(),
            again.token()
        );
    }
    let shorter = if trial.caps.is_ttl_fixed { trial.ttl() } else { trial.long() / 4 };
    let again = there.try_acquire("form", &ann, shorter).await?;
    ensure!(trial, 4, again.token() == first.token(), "acquiring for less time changed the token");
    let after = there.status("form").await?.and_then(|status| status.remaining());
    // Some time has passed in between, but more than half of the earlier remaining time must still be left.
    let is_right = before.zip(after).is_some_and(|(before, after)| after > before / 2);
    ensure!(trial, 4, is_right, "acquiring again left {after:?} of {before:?}");
    Ok(())
}

pub(super) async fn a_fresh_token_makes_the_old_grant_stale<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    let old = here.try_acquire("form", &ann, trial.long()).await?;
    let new = there.try_acquire("form", &ann, trial.long()).fresh_token().await?;
    ensure!(trial, 3, new.token() > old.token(), "a fresh token {} is not greater than {}", new.token(), old.token());
    ensure!(trial, 4, !new.is_resumed(), "a fresh tenure is reported as resumed");
    let renewed = here.renew(&old).await;
    let is_right = matches!(renewed, Err(RenewError::Lost(Lost::TakenOver)));
    ensure!(trial, 5, is_right, "renewing the old tenure gave {renewed:?}");
    let released = here.release(&old).await;
    let is_right = matches!(&released, Err(ReleaseError::NotOwner { owner, .. }) if *owner == ann);
    ensure!(trial, 5, is_right, "releasing the old tenure gave {released:?}");
    let refused = there.try_acquire("form", &bob, trial.long()).fresh_token().await;
    let is_right = matches!(&refused, Err(AcquireError::Busy { owner, .. }) if *owner == ann);
    ensure!(trial, 1, is_right, "an owner without the lease requested a fresh token and got {refused:?}");
    there.renew(&new).await?;
    there.release(&new).await?;
    Ok(())
}

pub(super) async fn tokens_grow_from_tenure_to_tenure<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let clients = [trial.client().await?, trial.client().await?];
    let owners: [Owner; 3] = owners();
    let mut last: Option<Token> = None;
    for round in 0..100 {
        let (client, owner) = (&clients[round % 2], &owners[round % 3]);
        let grant = match round % 5 {
            0 => client.try_acquire("form", owner, trial.long()).fresh_token().await?,
            1 => trial.soon("a free resource", client.acquire("form", owner, trial.long())).await??,
            _ => client.try_acquire("form", owner, trial.long()).await?,
        };
        let token = grant.token();
        ensure!(trial, 3, last < Some(token), "in round {round} token {token} was granted after {last:?}");
        last = Some(token);
        match round % 4 {
            0 => client.release_as("form", owner).await?,
            1 => {
                let released = client.release_all(owner).await?;
                ensure!(trial, 7, released == 1, "{released} leases of 1 were released");
            }
            _ => client.release(&grant).await?,
        }
    }
    Ok(())
}

pub(super) async fn another_owner_cannot_release_or_renew<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    let other = there.try_acquire("other", &bob, trial.long()).await?;
    let grant = here.try_acquire("form", &ann, trial.long()).await?;
    let by_name = there.release_as("form", &bob).await;
    let is_right = matches!(&by_name, Err(ReleaseError::NotOwner { owner, .. }) if *owner == ann);
    ensure!(trial, 5, is_right, "{bob} released the lease of {ann}: {by_name:?}");
    // The engine is called directly, because the front end makes no such request.
    let (engine, form) = (there.engine(), Resource::from("form"));
    let gone = asked(engine.release(&form, &bob, Some(grant.token()), engine.now()).await)?;
    ensure!(trial, 5, gone == Gone::NotOwner(ann.clone()), "with a stolen token {bob} got {gone:?}");
    let mut batch = [
        renewal(&form, &bob, grant.token(), trial.long() * 2),
        renewal(other.resource(), &bob, other.token(), trial.long()),
    ];
    if trial.caps.is_ttl_fixed {
        batch[0].term = batch[1].term;
    }
    asked(engine.renew(&mut batch, engine.now()).await)?;
    ensure!(trial, 5, batch[0].left == Left::Nothing, "{bob} renewed the lease of {ann}: {:?}", batch[0].left);
    ensure!(
        trial,
        5,
        batch[1].left != Left::Nothing,
        "a lease was not renewed because another one of the batch could not be"
    );
    let status = here.status("form").await?;
    let is_right = status.as_ref().is_some_and(|status| {
        (status.owner(), status.token()) == (&ann, grant.token())
            && status.remaining().is_some_and(|left| left <= trial.long())
    });
    ensure!(trial, 5, is_right, "the attempts changed the tenure: {status:?}");
    here.renew(&grant).await?;
    here.release(&grant).await?;
    Ok(())
}

fn asked<T, X: std::error::Error>(answer: Result<T, Fail<X>>) -> Result<T, Failure> {
    Ok(answer.map_err(Fail::into_cause)?)
}

fn renewal<'a>(resource: &'a Resource, owner: &'a Owner, token: Token, ttl: std::time::Duration) -> Renewal<'a> {
    let term = Some(Term { idle: Some(ttl), total: None });
    Renewal { resource, owner, token, term, left: Left::Nothing }
}

pub(super) async fn a_second_release_releases_nothing<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    let grant = here.try_acquire("form", &ann, trial.long()).await?;
    here.release(&grant).await?;
    for client in [&here, &there] {
        let again = client.release(&grant).await;
        let is_right = matches!(again, Err(ReleaseError::NotHeld { .. }));
        ensure!(trial, 5, is_right, "a second release gave {again:?}");
        let again = client.release_as("form", &ann).await;
        let is_right = matches!(again, Err(ReleaseError::NotHeld { .. }));
        ensure!(trial, 5, is_right, "a release of a free resource gave {again:?}");
    }
    let next = there.try_acquire("form", &bob, trial.long()).await?;
    let again = here.release(&grant).await;
    let is_right = matches!(&again, Err(ReleaseError::NotOwner { owner, .. }) if *owner == bob);
    ensure!(trial, 5, is_right, "a release under a successor gave {again:?}");
    let status = here.status("form").await?;
    let is_right = status.is_some_and(|status| status.token() == next.token());
    ensure!(trial, 5, is_right, "a second release ended the successor's tenure");
    Ok(())
}

pub(super) async fn a_grant_of_an_earlier_tenure_releases_nothing<F: Fixture>(
    trial: &Trial<'_, F>,
) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann] = owners();
    let old = here.try_acquire("form", &ann, trial.long()).await?;
    here.release(&old).await?;
    let new = there.try_acquire("form", &ann, trial.long()).await?;
    ensure!(trial, 3, new.token() > old.token(), "token {} was granted after {}", new.token(), old.token());
    let released = here.release(&old).await;
    let is_right = matches!(&released, Err(ReleaseError::NotOwner { owner, .. }) if *owner == ann);
    ensure!(trial, 5, is_right, "releasing an earlier tenure of the same owner gave {released:?}");
    let renewed = here.renew(&old).await;
    let is_right = matches!(renewed, Err(RenewError::Lost(_)));
    ensure!(trial, 5, is_right, "renewing an earlier tenure of the same owner gave {renewed:?}");
    let status = here.status("form").await?;
    let is_right = status.is_some_and(|status| status.token() == new.token());
    ensure!(trial, 5, is_right, "a grant of an earlier tenure ended the present one");
    there.release(&new).await?;
    Ok(())
}

/// The number of resources, and of their owners.
const RESOURCES: usize = 1000;
const OWNERS: usize = 10;
const LANES: usize = 8;

pub(super) async fn release_all_releases_exactly_the_owners_leases<F: Fixture>(
    trial: &Trial<'_, F>,
) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let owners: Vec<_> = (0..OWNERS).map(|at| Owner::named(format!("owner {at}"))).collect();
    let executor = LocalExecutor::new();
    let fill = (0..LANES).map(|lane| {
        let (here, owners) = (&here, &owners);
        executor.spawn(async move {
            for at in (lane..RESOURCES).step_by(LANES) {
                here.try_acquire(("row", at.to_string()), &owners[at % OWNERS], trial.long()).await?;
            }
            Ok::<_, Failure>(())
        })
    });
    let fill: Vec<_> = fill.collect();
    executor.run(join(fill)).await?;

    // Other owners acquire and release at the same time.
    let others = (0..2).map(|lane| {
        let there: &Client<F> = &there;
        executor.spawn(async move {
            let owner = Owner::named(format!("other {lane}"));
            for at in 0..100 {
                let grant = there.try_acquire(("other", (at * 2 + lane).to_string()), &owner, trial.long()).await?;
                if at % 2 == 0 {
                    there.release(&grant).await?;
                }
            }
            Ok::<_, Failure>(())
        })
    });
    let others: Vec<_> = others.collect();
    let mine = &owners[3];
    let released = executor
        .run(async {
            let released = here.release_all(mine).await?;
            join(others).await?;
            Ok::<_, Failure>(released)
        })
        .await?;
    ensure!(trial, 7, released == RESOURCES / OWNERS, "{released} of {} were released", RESOURCES / OWNERS);
    ensure!(trial, 7, there.owned_by(mine).await?.is_empty(), "an owner has leases after a release of all of them");
    for (at, owner) in owners.iter().enumerate().filter(|(_, owner)| *owner != mine) {
        let owned: BTreeSet<_> =
            there.owned_by(owner).await?.iter().map(|grant| grant.resource().key().to_owned()).collect();
        let should: BTreeSet<_> = (at..RESOURCES).step_by(OWNERS).map(|at| at.to_string()).collect();
        ensure!(trial, 7, owned == should, "{} of {} leases of {owner} are left", owned.len(), should.len());
    }
    let owned = there.owned_by(&Owner::named("other 0")).await?.len();
    ensure!(trial, 7, owned == 50, "{owned} of 50 leases acquired during the release are left");
    ensure!(trial, 7, here.release_all(mine).await? == 0, "leases were released a second time");
    Ok(())
}

/// While a release of all leases is under way, their owner keeps replacing each with a fresh tenure.
pub(super) async fn release_all_includes_tenures_that_are_replaced_meanwhile<F: Fixture>(
    trial: &Trial<'_, F>,
) -> Result<(), Failure> {
    const ROUNDS: usize = 40;

    let (here, there) = (trial.client().await?, trial.client().await?);
    let (here, there) = (&here, &there);
    let [ann] = &owners();
    // The number of tenures of each resource that have been acquired.
    let counts = [const { Cell::new(0_usize) }; 3];
    let executor = LocalExecutor::new();
    let replacing: Vec<_> = counts
        .iter()
        .enumerate()
        .map(|(at, count)| {
            executor.spawn(async move {
                loop {
                    let began = Instant::now();
                    here.try_acquire(("row", at.to_string()), ann, trial.long()).fresh_token().await?;
                    count.set(count.get() + 1);
                    // This is so long that even an engine that has to try again succeeds between two replacements,
                    // however slow the machine is.
                    Timer::after(Duration::from_millis(8).max(5 * began.elapsed())).await;
                }
            })
        })
        .collect();
    let releasing = async {
        for round in 0..ROUNDS {
            // An acquire that was under way during the last release may have been undone by it. The acquire after that
            // one cannot have been.
            let enough = counts.each_ref().map(|count| count.get() + 2);
            while counts.iter().zip(enough).any(|(count, enough)| count.get() < enough) {
                yield_now().await;
            }
            let released = there.release_all(ann).await?;
            let expected = counts.len();
            ensure!(trial, 7, released == expected, "round {round}: {released} of {expected} leases were released");
        }
        Ok(())
    };
    executor.run(or(releasing, join(replacing))).await
}

async fn join(tasks: Vec<async_executor::Task<Result<(), Failure>>>) -> Result<(), Failure> {
    for task in tasks {
        task.await?;
    }
    Ok(())
}

/// Sends requests to the engine itself, bypassing the front end, and checks its answers.
pub(super) async fn each_want_gets_the_right_answer<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let client = trial.client().await?;
    let engine = client.engine();
    let [ann, bob] = owners();
    let resource = &Resource::new("form", "1");
    let expiry = &trial.long().into();
    let term = Some(Term { idle: Some(trial.long()), total: None });
    let ask = async |owner: &Owner, want, term| {
        let ask = Ask { resource, owner, want, term, expiry, waiting: false, at: engine.now() };
        asked(engine.acquire(ask).await)
    };
    let resumes =
        |answer: &Answer, of: Token| matches!(*answer, Answer::Granted { token, resumed: true, .. } if token == of);
    let begins = |answer: &Answer, after: Token| matches!(*answer, Answer::Granted { token, resumed: false, .. } if token > after);
    let is_busy = |answer: &Answer| matches!(answer, Answer::Busy { owner, .. } if *owner == ann);

    for term in [None, term] {
        let answer = ask(&ann, Want::Mine, term).await?;
        ensure!(trial, 4, answer == Answer::Free, "Mine, of a free resource, with {term:?}: {answer:?}");
    }
    let answer = ask(&ann, Want::New, term).await?;
    let Answer::Granted { token: first, resumed: false, held_for, remaining } = answer else {
        return trial.wrong(1, format!("New, of a free resource: {answer:?}"));
    };
    ensure!(trial, 2, held_for < trial.long() / 2, "a new tenure has lasted for {held_for:?}");
    let is_right = remaining.is_some_and(|left| left <= trial.long() && left > trial.long() / 2);
    ensure!(trial, 2, is_right, "{remaining:?} are left: the lease lasts for {:?}", trial.long());
    for (want, term) in [(Want::Any, term), (Want::Mine, term), (Want::Mine, None)] {
        let answer = ask(&ann, want, term).await?;
        ensure!(trial, 4, resumes(&answer, first), "{want:?}, of the owner's own lease, with {term:?}: {answer:?}");
        let answer = ask(&bob, want, term).await?;
        ensure!(trial, 1, is_busy(&answer), "{want:?}, of another owner's lease, with {term:?}: {answer:?}");
    }
    for (owner, want) in [(&ann, Want::New), (&bob, Want::New), (&bob, Want::Fresh)] {
        let answer = ask(owner, want, term).await?;
        ensure!(trial, 1, is_busy(&answer), "{want:?} for {owner}, while {ann} holds the resource: {answer:?}");
    }
    let record = asked(engine.look(resource, engine.now()).await)?;
    let is_right = record.as_ref().is_some_and(|record| (&record.owner, record.token) == (&ann, first));
    ensure!(trial, 1, is_right, "after that the tenure is {record:?}");
    let answer = ask(&ann, Want::Fresh, term).await?;
    ensure!(trial, 3, begins(&answer, first), "Fresh, of the owner's own lease: {answer:?}");
    let Answer::Granted { token: second, .. } = answer else { return Ok(()) };
    let mut batch = [renewal(resource, &ann, second, trial.long())];
    batch[0].term = None;
    asked(engine.renew(&mut batch, engine.now()).await)?;
    ensure!(trial, 6, matches!(batch[0].left, Left::For(_)), "a renewal without a term: {:?}", batch[0].left);
    let gone = asked(engine.release(resource, &ann, Some(first), engine.now()).await)?;
    ensure!(trial, 5, gone == Gone::NotOwner(ann.clone()), "a release of the earlier tenure: {gone:?}");
    let gone = asked(engine.release_all(&ann, engine.now()).await)?;
    ensure!(trial, 7, gone == [resource.clone()], "releasing all released {gone:?}");
    let gone = asked(engine.release(resource, &ann, None, engine.now()).await)?;
    ensure!(trial, 5, gone == Gone::NotHeld, "a release of a free resource: {gone:?}");
    let answer = ask(&bob, Want::Any, term).await?;
    ensure!(trial, 3, begins(&answer, second), "Any, of a free resource: {answer:?}");
    let again = client.try_hold_new(resource, &bob, trial.long()).await.map(|held| held.token());
    let is_right = matches!(&again, Err(AcquireError::Busy { owner, .. }) if *owner == bob);
    ensure!(trial, 1, is_right, "New, of the owner's own lease: {again:?}");
    Arc::clone(&client).release_all(&bob).await?;
    Ok(())
}

/// A dropped `Held` is released in the background, some time later. The release must not end a lease that its owner was
/// granted in the meantime.
pub(super) async fn a_dropped_lease_releases_no_later_tenure<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, _] = owners();
    for round in 0..50 {
        let form = &Resource::new("form", round.to_string());
        drop(here.hold(form, &ann, trial.long()).await?);
        let grant = here.acquire(form, &ann, trial.long()).await?;
        async_io::Timer::after(Duration::from_millis(10)).await; // the first lease has been released by now
        let token = there.status(form).await?.map(|status| status.token());
        ensure!(
            trial,
            2,
            token == Some(grant.token()),
            "{grant:?} was confirmed, but the resource has the token {token:?}"
        );
        here.release(&grant).await?;
    }
    // Many leases are dropped at once, so that the last release takes a while. The last lease is then acquired again,
    // with a custom policy.
    for round in 0..10 {
        let forms: Vec<Resource> = (0..20).map(|form| Resource::new("forms", format!("{round}/{form}"))).collect();
        let mut held = Vec::new();
        for form in &forms {
            held.push(here.hold(form, &ann, trial.long()).await?);
        }
        let (last, long) = (&forms[forms.len() - 1], trial.long());
        drop(held);
        let grant = here.acquire(last, &ann, Expiry::custom(move |_| Some(long))).await?;
        async_io::Timer::after(Duration::from_millis(50)).await;
        let token = there.status(last).await?.map(|status| status.token());
        ensure!(
            trial,
            2,
            token == Some(grant.token()),
            "{grant:?} was confirmed, but the resource has the token {token:?}"
        );
        here.release_all(&ann).await?;
    }
    Ok(())
}
