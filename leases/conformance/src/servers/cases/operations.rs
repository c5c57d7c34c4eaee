//! Tests of the results of operations, and of their effects.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use keylatch_lease::{
    AcquireError, Expiry, Lost, Owner, ReleaseError, RenewError, Resource, Term, Token,
    engine::{Answer, Engine, Left, Renewal, Want},
};

use super::super::{
    Desk, LATE, MINUTE, SECOND, Settings, TestServer, ask, insist, is_about, is_quarantined, lock, policies, sliding,
};

/// Grants, refusals, status, lists, renewals and releases agree with each other.
pub async fn all_operations_agree_with_each_other<S: TestServer>(desk: Arc<Desk<S>>) {
    let Desk { here, there, jane, joe, .. } = &*desk;
    let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
    assert!(!grant.is_resumed());
    let again = there.try_acquire("report", jane, MINUTE).await.unwrap();
    assert!(again.is_resumed());
    assert_eq!(again.token(), grant.token());
    let busy = there.try_acquire("report", joe, MINUTE).await;
    assert!(
        matches!(&busy, Err(AcquireError::Busy { owner, remaining, .. }) if owner == jane && is_about(*remaining, MINUTE)),
        "{busy:?}"
    );
    let status = there.status("report").await.unwrap().unwrap();
    assert_eq!((status.owner(), status.token()), (jane, grant.token()));
    let owned = there.owned_by(jane).await.unwrap();
    assert_eq!(owned.len(), 1);
    assert_eq!((owned[0].resource(), owned[0].token()), (grant.resource(), grant.token()));
    let grant = here.renew(&grant).await.unwrap();

    there.release(&grant).await.unwrap();
    for leases in [there, here] {
        assert!(matches!(leases.release(&grant).await, Err(ReleaseError::NotHeld { .. })));
    }
    assert!(matches!(here.renew(&grant).await, Err(RenewError::Lost(Lost::Released))));
    assert_eq!(here.status("report").await.unwrap(), None);
    assert_eq!(here.release_all(jane).await.unwrap(), 0);

    let next = there.try_acquire("report", joe, MINUTE).await.unwrap();
    assert!(next.token() > grant.token());
    assert!(matches!(here.renew(&grant).await, Err(RenewError::Lost(Lost::TakenOver))));
    assert!(matches!(here.release_as("report", jane).await, Err(ReleaseError::NotOwner { .. })));
    assert_eq!(here.release_all(joe).await.unwrap(), 1);
}

/// A term counts from the call, and from the start of the tenure. No end is brought forward.
pub async fn a_term_counts_from_the_call_and_from_the_start_of_the_tenure<S: TestServer>(desk: Arc<Desk<S>>) {
    let report = Resource::from("report");
    let capped = Term { idle: Some(MINUTE), total: Some(2 * MINUTE) };
    let up_to = Expiry::SlidingUpTo { idle: MINUTE, total: 2 * MINUTE };
    assert_eq!(acquired(&desk, &up_to, capped).await, (Some(MINUTE), Duration::ZERO));
    desk.pass(50 * SECOND).await;
    let (left, held) = acquired(&desk, &up_to, capped).await;
    assert_eq!(left, Some(MINUTE));
    assert!(is_about(Some(held), 59 * SECOND), "{held:?}");
    desk.pass(50 * SECOND).await;
    assert!(is_about(acquired(&desk, &up_to, capped).await.0, 20 * SECOND));
    // A shorter term does not bring the end forward.
    let (short, short_term) = sliding(SECOND);
    assert!(is_about(acquired(&desk, &short, short_term.unwrap()).await.0, 20 * SECOND));

    let engine = desk.here.engine();
    let token = engine.look(&report, Duration::ZERO).await.unwrap().unwrap().token;
    for term in [None, short_term] {
        let left = renewed(&desk, token, term).await;
        assert!(matches!(left, Left::For(left) if is_about(Some(left), 20 * SECOND)), "{left:?}");
    }
    assert_eq!(renewed(&desk, token, sliding(MINUTE).1).await, Left::For(MINUTE));
    // A term longer than the server can store lasts for ever.
    let longest = Term { idle: Some(Duration::MAX), total: None };
    for term in [longest, sliding(MINUTE).1.unwrap()] {
        assert_eq!(renewed(&desk, token, Some(term)).await, Left::Forever);
    }
    assert_eq!(acquired(&desk, &Expiry::Never, Term::FOREVER).await.0, None);
    assert_eq!(engine.look(&report, Duration::ZERO).await.unwrap().unwrap().remaining, None);
    assert_eq!(engine.owned_by(&desk.jane, Duration::ZERO).await.unwrap()[0].expiry, Some(Expiry::Never));
}

/// Acquires the report for Jane, and returns the remaining and the elapsed time.
async fn acquired<S: TestServer>(desk: &Desk<S>, expiry: &Expiry, term: Term) -> (Option<Duration>, Duration) {
    let report = Resource::from("report");
    match desk.here.engine().acquire(ask(&report, &desk.jane, Want::Any, expiry, Some(term))).await {
        Ok(Answer::Granted { remaining, held_for, .. }) => (remaining, held_for),
        other => panic!("{other:?}"),
    }
}

/// Renews the report for Jane, and returns the remaining time.
async fn renewed<S: TestServer>(desk: &Desk<S>, token: Token, term: Option<Term>) -> Left {
    let report = Resource::from("report");
    let mut batch = [Renewal { resource: &report, owner: &desk.jane, token, term, left: Left::Nothing }];
    desk.here.engine().renew(&mut batch, Duration::ZERO).await.unwrap();
    batch[0].left
}

/// Each lease of a batch is renewed by its own term, regardless of the others.
pub async fn each_renewal_of_a_batch_has_its_own_term<S: TestServer>(desk: Arc<Desk<S>>) {
    let Desk { here, there, jane, joe, .. } = &*desk;
    let engine = there.engine();
    let pages: Vec<_> = (0..200).map(|at| Resource::new("page", at.to_string())).collect();
    let mut tokens = Vec::new();
    for page in &pages {
        tokens.push(here.try_acquire(page, jane, MINUTE).await.unwrap().token());
    }
    let endless = &Resource::from("endless");
    let token = here.try_acquire(endless, jane, Expiry::Never).await.unwrap().token();
    here.release_as(&pages[7], jane).await.unwrap();
    there.try_acquire(&pages[7], joe, MINUTE).await.unwrap();

    let terms = [None, sliding(MINUTE).1, sliding(60 * MINUTE).1];
    let renewal =
        |(at, resource)| Renewal { resource, owner: jane, token: tokens[at], term: terms[at % 3], left: Left::Forever };
    let mut batch: Vec<_> = pages.iter().enumerate().map(renewal).collect();
    batch.push(Renewal { resource: endless, owner: jane, token, term: terms[2], left: Left::Nothing });
    batch[3].owner = joe;
    batch[4].token = Token::new(17).unwrap();
    batch[5].resource = endless;
    engine.renew(&mut batch, Duration::ZERO).await.unwrap();
    for (at, renewal) in batch.iter().enumerate() {
        let is_right = match (at, renewal.left) {
            // A wrong owner, a wrong token, a wrong resource, and a tenure that has been followed by another owner's.
            (3 | 4 | 5 | 7, left) => left == Left::Nothing,
            (200, left) => left == Left::Forever,
            (_, Left::For(left)) => match at % 3 {
                0 => left <= MINUTE && left > MINUTE / 3,
                1 => left == MINUTE,
                _ => left == 60 * MINUTE,
            },
            _ => false,
        };
        assert!(is_right, "{at}: {:?}", renewal.left);
    }
    assert_eq!(here.status(&pages[7]).await.unwrap().unwrap().owner(), joe);
    engine.renew(&mut [], Duration::ZERO).await.unwrap();
}

/// A new namespace grants nothing until it is opened, or until its quarantine has ended. Opening a namespace that is in
/// use changes nothing.
pub async fn a_new_namespace_grants_nothing_until_it_is_opened_or_its_quarantine_has_ended<S: TestServer>(
    desk: Arc<Desk<S>>,
) {
    let Desk { jane, joe, .. } = &*desk;
    let new = |name: &str, quarantine| {
        let namespace = format!("{}-{name}", desk.namespace);
        desk.more(Settings { namespace, ..desk.settings.clone() }.quarantine(quarantine))
    };
    let (here, there) = (new("one", LATE), new("one", LATE));
    for (leases, owner) in [(&here, jane), (&there, joe)] {
        let asked = leases.try_acquire("report", owner, MINUTE).await;
        let is_about = |remaining| is_about(Some(remaining), LATE + SECOND); // a server may count whole seconds
        let is_right = matches!(asked, Err(AcquireError::Quarantined { remaining, .. }) if is_about(remaining));
        assert!(is_right, "{asked:?}");
        assert_eq!(leases.status("report").await.unwrap(), None);
        assert_eq!(leases.release_all(owner).await.unwrap(), 0);
    }
    S::open(here.engine()).await.unwrap();
    // The other engine, which was connected before, notices that the namespace is open.
    there.try_acquire("report", joe, MINUTE).await.unwrap();
    S::open(here.engine()).await.unwrap();
    let asked = here.try_acquire("report", jane, MINUTE).await;
    assert!(matches!(asked, Err(AcquireError::Busy { .. })), "{asked:?}");

    let short = new("other", 2 * SECOND);
    assert!(is_quarantined(&short.try_acquire("report", jane, MINUTE).await));
    insist(&short, "report", jane).await;
}

/// Resources and owners are read back as they were written, and none is taken for another.
pub async fn any_text_can_name_a_resource_or_an_owner<S: TestServer>(desk: Arc<Desk<S>>) {
    let Desk { here, there, .. } = &*desk;
    let odd = |i: u32| char::from_u32(0x4e00 + i * 7919 % 0x5000).unwrap();
    // One of the two long names cannot be compressed.
    let long: [String; 2] = ["漢".repeat(341), (0..341).map(odd).chain(['x']).collect()];
    let mut names = vec![
        Resource::new("a", "bc"),
        Resource::new("ab", "c"),
        Resource::new("", "abc"),
        Resource::new("abc", ""),
        Resource::new("", ""),
        Resource::new("\0", ""),
        Resource::new("", "\0"),
        Resource::new("a\0b\r\n", "it's; \"DROP\" %d {x} [a-z]* é 漢 \\x00"),
        Resource::from("meta"),
    ];
    names.extend(long.iter().flat_map(|long| [Resource::from(long.as_str()), Resource::new(long, "")]));
    let owner = |i: usize| Owner::named(format!("{i} \0\r\n- 1"));
    let mut tokens = Vec::new();
    for (i, name) in names.iter().enumerate() {
        tokens.push(here.try_acquire(name, &owner(i), MINUTE).await.unwrap().token());
    }
    for (i, name) in names.iter().enumerate() {
        let status = there.status(name).await.unwrap().unwrap();
        assert_eq!((status.owner(), status.token()), (&owner(i), tokens[i]));
        assert_eq!(there.owned_by(status.owner()).await.unwrap()[0].resource(), name);
    }
    // Names that begin alike.
    let alike = ["w", "w1", "w1:", "w1:0", "1:w"].map(Owner::named);
    let owners: Vec<_> = alike.into_iter().chain(long.iter().map(Owner::incarnation)).collect();
    for (i, owner) in owners.iter().enumerate() {
        here.try_acquire(("1", i.to_string()), owner, MINUTE).await.unwrap();
    }
    for owner in &owners {
        assert_eq!(there.release_all(owner).await.unwrap(), 1, "{owner}");
    }
}

/// The list of an owner's leases contains their policies, except for custom ones.
pub async fn owned_by_lists_the_policies<S: TestServer>(desk: Arc<Desk<S>>) {
    let Desk { here, there, jane, .. } = &*desk;
    let policies = policies(MINUTE);
    for (i, policy) in policies.iter().enumerate() {
        here.try_acquire(i.to_string(), jane, policy).await.unwrap();
    }
    here.try_acquire("custom", jane, Expiry::custom(|_| Some(MINUTE))).await.unwrap();
    let mut owned = there.engine().owned_by(jane, Duration::ZERO).await.unwrap();
    owned.sort_by(|a, b| a.resource.cmp(&b.resource));
    let expected = policies.into_iter().map(Some).chain([None]);
    assert!(owned.into_iter().map(|owned| owned.expiry).eq(expected));
}

/// Fifty owners, on two engines, compete for a resource: one holds it at a time, and each has a greater token than
/// the one before. The desk's fallback should be [`LATE`](super::super::LATE), so that no waiter asks again without a
/// message.
pub async fn competing_owners_hold_the_resource_one_at_a_time<S: TestServer>(desk: Arc<Desk<S>>) {
    let inside = Arc::new(AtomicBool::new(false));
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..50)
        .map(|i| {
            let (desk, inside, tokens) = (Arc::clone(&desk), Arc::clone(&inside), Arc::clone(&tokens));
            tokio::spawn(async move {
                let leases = if i % 2 == 0 { &desk.here } else { &desk.there };
                let owner = Owner::named(format!("worker-{i}"));
                for _ in 0..4 {
                    let grant = leases.acquire("report", &owner, MINUTE).await.unwrap();
                    assert!(!inside.swap(true, SeqCst), "two owners hold the resource at the same time");
                    lock(&tokens).push(grant.token());
                    tokio::task::yield_now().await;
                    inside.store(false, SeqCst);
                    leases.release(&grant).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let tokens = lock(&tokens);
    assert_eq!(tokens.len(), 200);
    assert!(tokens.is_sorted_by(|one, next| one < next));
}
