//! Tests of the engine on stores that lack something, fail, or are changed by hand, and of the number of requests.

mod common;

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

use common::{Faults, Planned, Shim, generic, options};
use futures_util::TryStreamExt;
use keylatch_lease::{
    AcquireError, Expiry, Leases, LookError, Lost, Owner, RenewError, Resource, Term,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Listing, Part, Renewal, Want},
};
use keylatch_lease_conformance::servers::on_tokio;
use keylatch_lease_object::{
    Bucket, Error,
    object_store::{self, ObjectStore, ObjectStoreExt, local::LocalFileSystem, memory::InMemory, path::Path},
};

const MINUTE: Duration = Duration::from_secs(60);

fn owners() -> [Owner; 2] {
    ["jane", "joe"].map(Owner::named)
}

fn counted(store: &Arc<InMemory>) -> Arc<Shim> {
    Shim::new(Arc::clone(store) as Arc<dyn ObjectStore>, Faults::default(), 1)
}

async fn leases(store: Arc<dyn ObjectStore>) -> Leases<Bucket> {
    Leases::with_engine(options("desk").tries_out(false).open(store).await.unwrap())
}

/// Returns two processes' leases in one bucket. The shim is between the bucket and the first process.
async fn here_and_there() -> (Arc<Shim>, Leases<Bucket>, Arc<Leases<Bucket>>) {
    let store = Arc::new(InMemory::new());
    let shim = counted(&store);
    (Arc::clone(&shim), leases(shim).await, Arc::new(leases(store).await))
}

async fn objects(store: &InMemory) -> Vec<(Path, String)> {
    let mut all = Vec::new();
    for meta in store.list(None).try_collect::<Vec<_>>().await.unwrap() {
        let bytes = store.get(&meta.location).await.unwrap().bytes().await.unwrap();
        all.push((meta.location, String::from_utf8(bytes.to_vec()).unwrap()));
    }
    all
}

// --- Stores that lack something -------------------------------------------------------------------------------------

#[test]
fn a_local_folder_is_refused_because_it_has_no_conditional_writes() {
    on_tokio(async {
        let folder = std::env::temp_dir().join(format!("keylatch-object-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let store = Arc::new(LocalFileSystem::new_with_prefix(&folder).unwrap());
        let error = Bucket::open(store).await.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        assert!(error.to_string().contains("in a local folder, the engine for SQLite"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    });
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    on_tokio(async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let careless = Shim::careless(Arc::clone(&store));
        let error = Bucket::open(careless).await.unwrap_err();
        assert!(matches!(error, Error::Unsupported { what } if what.contains("create an object that exists")));
        let left = store.list(None).try_collect::<Vec<_>>().await.unwrap();
        assert!(left.is_empty(), "something is left of the try: {left:?}");
        Bucket::open(store).await.unwrap();
    });
}

#[test]
fn a_bucket_that_does_not_exist_is_not_mistaken_for_one_without_conditional_writes() {
    on_tokio(async {
        let missing = || Planned::Fails(object_store::Error::NotFound { path: "a".into(), source: "404".into() });
        let shim = counted(&Arc::new(InMemory::new()));
        shim.plan(missing());
        let error = Bucket::open(Arc::clone(&shim) as _).await.unwrap_err();
        assert!(matches!(error, Error::Store { .. }), "{error:?}");
        assert!(error.to_string().contains("check its name"), "{error}");
        let (leases, [jane, _]) = (leases(Arc::clone(&shim) as _).await, owners());
        shim.counts();
        shim.plan(missing());
        let error = leases.try_acquire("report", &jane, MINUTE).await.unwrap_err();
        assert!(matches!(error, AcquireError::Engine(Error::Store { .. })), "{error:?}");
        assert_eq!(shim.counts(), [1, 1, 0], "the request was repeated");
    });
}

#[test]
fn a_lost_answer_is_not_mistaken_for_a_store_without_conditional_writes() {
    on_tokio(async {
        let shim = counted(&Arc::new(InMemory::new()));
        let fine = || Planned::IsUnchanged;
        for plan in [[Planned::IsRepeated, fine(), fine()], [fine(), fine(), Planned::IsRepeated]] {
            plan.into_iter().for_each(|planned| shim.plan(planned));
            Bucket::open(Arc::clone(&shim) as _).await.unwrap();
        }
    });
}

#[test]
fn a_silent_store_is_an_error_in_time() {
    on_tokio(async {
        let faults = Faults { millis: 3_600_000, ..Faults::default() };
        let shim = Shim::new(Arc::new(InMemory::new()), faults, 1);
        let error = options("desk").timeout(Duration::from_millis(1)).open(shim).await.unwrap_err();
        assert!(matches!(error, Error::Timeout), "{error:?}");
    });
}

#[test]
fn calls_may_be_made_from_any_thread_as_long_as_the_runtime_runs() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let leases = runtime.block_on(leases(Arc::new(InMemory::new())));
    let [jane, _] = owners();
    let grant = leases.try_acquire("report", &jane, MINUTE).wait().unwrap();
    leases.renew(&grant).wait().unwrap();
    runtime.shutdown_timeout(Duration::from_secs(10));
    let error = leases.renew(&grant).wait().unwrap_err();
    assert!(matches!(error, RenewError::Engine(Error::Stopped)), "{error:?}");
}

// --- Requests -------------------------------------------------------------------------------------------------------

#[test]
fn a_call_makes_as_many_requests_as_the_page_says() {
    on_tokio(async {
        let store = Arc::new(InMemory::new());
        let shim = counted(&store);
        let (here, [jane, joe]) = (leases(Arc::clone(&shim) as _).await, owners());

        let grant = here.try_acquire("report", &jane, MINUTE).await.unwrap();
        assert_eq!(shim.counts(), [1, 1, 0], "the first acquire");
        let grant = here.renew(&grant).await.unwrap();
        assert_eq!(shim.counts(), [0, 1, 0], "a renewal");
        here.release(&grant).await.unwrap();
        assert_eq!(shim.counts(), [0, 1, 0], "a release");
        let grant = here.try_acquire("report", &joe, MINUTE).await.unwrap();
        assert_eq!(shim.counts(), [0, 1, 0], "an acquire by the process that released it");
        assert!(here.try_acquire("report", &jane, MINUTE).await.is_err());
        assert_eq!(shim.counts(), [1, 0, 0], "an acquire in vain");
        here.status("report").await.unwrap();
        assert_eq!(shim.counts(), [1, 0, 0], "a look");

        let there = leases(Arc::clone(&shim) as _).await;
        there.renew(&grant).await.unwrap();
        assert_eq!(shim.counts(), [1, 1, 0], "the first renewal of another process");
        here.release(&grant).await.unwrap();
        assert_eq!(shim.counts(), [1, 2, 0], "a release after another process has renewed");
    });
}

#[test]
fn a_list_reads_only_the_objects_that_have_leases() {
    on_tokio(async {
        let store = Arc::new(InMemory::new());
        let shim = counted(&store);
        let (leases, [jane, joe]) = (leases(Arc::clone(&shim) as _).await, owners());
        for i in 0..20 {
            let owner = if i < 3 { &jane } else { &joe };
            leases.try_acquire(("page", i.to_string()), owner, MINUTE).await.unwrap();
        }
        leases.release_all(&joe).await.unwrap();
        shim.counts();
        assert_eq!(leases.owned_by(&jane).await.unwrap().len(), 3);
        assert_eq!(shim.counts(), [3, 0, 1]);
        assert_eq!(objects(&store).await.len(), 20, "an object of a resource that is free keeps its token");
    });
}

// --- Faults ---------------------------------------------------------------------------------------------------------

#[test]
fn a_write_whose_answer_is_lost_is_not_made_twice() {
    on_tokio(async {
        let store = Arc::new(InMemory::new());
        let shim = counted(&store);
        let (leases, [jane, _]) = (leases(Arc::clone(&shim) as _).await, owners());
        let lose = || shim.plan(Planned::IsUnanswered(Box::pin(async {})));
        lose();
        let grant = leases.try_acquire("report", &jane, MINUTE).await.unwrap();
        assert!(!grant.is_resumed());
        assert_eq!(shim.counts(), [2, 1, 0]);
        lose();
        let grant = leases.renew(&grant).await.unwrap();
        assert_eq!(shim.counts(), [1, 1, 0]);
        lose();
        leases.release(&grant).await.unwrap();
        assert_eq!(shim.counts(), [1, 1, 0]);
    });
}

#[test]
fn a_release_is_known_to_have_happened_even_if_another_owner_has_the_resource_when_its_answer_is_lost() {
    on_tokio(async {
        let ((shim, here, there), [jane, joe]) = (here_and_there().await, owners());
        here.try_acquire("report", &jane, MINUTE).await.unwrap();
        let (other, other_owner) = (Arc::clone(&there), joe.clone());
        shim.plan(Planned::IsUnanswered(Box::pin(async move {
            other.try_acquire("report", &other_owner, MINUTE).await.unwrap();
        })));
        let gone = here.engine().release(&"report".into(), &jane, None, here.engine().now()).await.unwrap();
        assert_eq!(gone, Gone::Released);
        assert_eq!(there.status("report").await.unwrap().unwrap().owner(), &joe);
    });
}

/// Asks the engine for a lease on the report.
async fn ask(leases: &Leases<Bucket>, owner: &Owner, want: Want) -> Result<Answer, Fail<Error>> {
    let (resource, at) = ("report".into(), leases.engine().now());
    let (term, expiry) = (Some(Term { idle: Some(MINUTE), total: None }), Expiry::Sliding(MINUTE));
    leases.engine().acquire(Ask { resource: &resource, owner, want, term, expiry: &expiry, waiting: false, at }).await
}

#[test]
fn a_request_begins_one_tenure_even_if_its_owner_resumes_that_before_the_answer_is_known() {
    on_tokio(async {
        let ((shim, here, there), [jane, _]) = (here_and_there().await, owners());
        for want in [Want::Any, Want::New, Want::Fresh] {
            let (other, owner) = (Arc::clone(&there), jane.clone());
            shim.plan(Planned::IsUnanswered(Box::pin(async move {
                assert!(other.try_acquire("report", &owner, MINUTE).await.unwrap().is_resumed());
            })));
            let answer = ask(&here, &jane, want).await;
            let Ok(Answer::Granted { token, resumed: false, .. }) = answer else { panic!("{want:?}: {answer:?}") };
            let grant = there.owned_by(&jane).await.unwrap().remove(0);
            assert_eq!(grant.token(), token, "{want:?} began a second tenure");
            there.release(&grant).await.unwrap();
        }
    });
}

#[test]
fn a_request_whose_tenure_has_ended_before_its_answer_is_known_is_undone() {
    on_tokio(async {
        let ((shim, here, there), [jane, joe]) = (here_and_there().await, owners());
        let released = || {
            let (there, jane) = (Arc::clone(&there), jane.clone());
            Planned::IsUnanswered(Box::pin(async move {
                there.release_as("report", &jane).await.unwrap();
            }))
        };
        for want in [Want::Any, Want::New, Want::Fresh] {
            shim.plan(released());
            let answer = ask(&here, &jane, want).await;
            assert!(matches!(answer, Err(Fail::Undone(Error::Undone))), "{want:?}: {answer:?}");
            assert!(there.status("report").await.unwrap().is_none(), "{want:?} began a second tenure");
        }
        shim.plan(released());
        let grant = here.try_acquire("report", &jane, MINUTE).await.unwrap();
        assert!(!grant.is_resumed(), "the call asks once more");
        shim.plan(released());
        let (resource, term) = ("report".into(), Some(Term { idle: Some(MINUTE), total: None }));
        let renewal = Renewal { resource: &resource, owner: &jane, token: grant.token(), term, left: Left::Nothing };
        let renewed = here.engine().renew(&mut [renewal], here.engine().now()).await;
        assert!(matches!(renewed, Err(Fail::Undone(Error::Undone))), "{renewed:?}");
        assert!(matches!(here.renew(&grant).await, Err(RenewError::Lost(Lost::Released))));
        here.try_acquire("report", &joe, MINUTE).await.unwrap();
    });
}

#[test]
fn a_call_whose_tenure_has_ended_does_not_take_another_tenure_of_its_owner_for_its_own() {
    on_tokio(async {
        let ((shim, here, there), [jane, _]) = (here_and_there().await, owners());
        let begun = || {
            let (there, jane) = (Arc::clone(&there), jane.clone());
            Planned::IsUnanswered(Box::pin(async move {
                there.try_acquire("report", &jane, MINUTE).fresh_token().await.unwrap();
            }))
        };
        // The call's own tenure ends, and a newer one of the same owner stays.
        shim.plan(begun());
        let error = here.try_hold_new("report", &jane, MINUTE).await.unwrap_err();
        assert!(matches!(error, AcquireError::Busy { .. }), "{error:?}");
        let held = there.owned_by(&jane).await.unwrap().remove(0);
        there.renew(&held).await.unwrap();
        // The tenure that the call has resumed ends, and the call then resumes the newer one.
        here.status("report").await.unwrap(); // so that the next write does not fail
        shim.plan(begun());
        let grant = here.try_acquire("report", &jane, MINUTE).await.unwrap();
        assert!(grant.is_resumed() && grant.token() > held.token(), "{grant:?}");
    });
}

#[test]
fn a_failure_after_a_write_that_was_carried_out_leaves_the_outcome_unknown() {
    on_tokio(async {
        let ((shim, here, there), [jane, _]) = (here_and_there().await, owners());
        let owner = jane.clone();
        shim.plan(Planned::IsUnanswered(Box::pin(async move {
            there.try_acquire("report", &owner, MINUTE).await.unwrap();
        })));
        let denied = object_store::Error::PermissionDenied { path: "a".into(), source: "no".into() };
        shim.plan(Planned::Fails(denied));
        let answer = ask(&here, &jane, Want::Any).await;
        assert!(matches!(answer, Err(Fail::Unknown(Error::Denied { .. }))), "{answer:?}");
    });
}

#[test]
fn a_renewal_that_fails_stops_no_other_one_of_its_batch() {
    on_tokio(async {
        let ((shim, here, _), [jane, _]) = (here_and_there().await, owners());
        let pages: Vec<_> = (0..100).map(|i| Resource::new("page", i.to_string())).collect();
        let mut batch = Vec::new();
        for resource in &pages {
            let token = here.try_acquire(resource, &jane, MINUTE).await.unwrap().token();
            let term = Some(Term { idle: Some(MINUTE), total: None });
            batch.push(Renewal { resource, owner: &jane, token, term, left: Left::Nothing });
        }
        shim.counts();
        shim.plan(Planned::Fails(object_store::Error::PermissionDenied { path: "a".into(), source: "no".into() }));
        let answer = here.engine().renew(&mut batch, here.engine().now()).await;
        assert!(matches!(answer, Err(Fail::Unknown(Error::Denied { .. }))), "the others are renewed: {answer:?}");
        assert_eq!(shim.counts(), [0, 100, 0]);
    });
}

#[test]
fn a_release_that_the_object_no_longer_shows_has_an_unknown_outcome() {
    on_tokio(async {
        let ((shim, here, there), [jane, joe]) = (here_and_there().await, owners());
        let grant = here.try_acquire("report", &jane, MINUTE).await.unwrap();
        shim.plan(Planned::IsLate(Box::pin(async move {
            for _ in 0..5 {
                let grant = there.try_acquire("report", &joe, MINUTE).await.unwrap();
                there.release(&grant).await.unwrap();
            }
            there.try_acquire("report", &joe, MINUTE).await.unwrap();
        })));
        let engine = here.engine();
        let answer = engine.release(&"report".into(), &jane, Some(grant.token()), engine.now()).await;
        assert!(matches!(answer, Err(Fail::Unknown(_))), "{answer:?}");
        assert!(here.release(&grant).await.is_err(), "the next release finds another owner");
    });
}

#[test]
fn a_write_that_was_lost_is_made_again() {
    on_tokio(async {
        let shim = counted(&Arc::new(InMemory::new()));
        let (leases, [jane, _]) = (leases(Arc::clone(&shim) as _).await, owners());
        shim.plan(Planned::Fails(generic("the request is lost")));
        let grant = leases.try_acquire("report", &jane, MINUTE).await.unwrap();
        assert!(!grant.is_resumed());
        assert_eq!(shim.counts(), [2, 2, 0]);
    });
}

#[test]
fn a_store_that_throttles_is_asked_a_few_times_and_the_caller_is_told() {
    on_tokio(async {
        let faults = Faults { throttled: 1000, ..Faults::default() };
        let shim = Shim::new(Arc::new(InMemory::new()), faults, 1);
        let (leases, [jane, _]) = (leases(Arc::clone(&shim) as _).await, owners());
        let start = Instant::now();
        let error = leases.try_acquire("report", &jane, MINUTE).await.unwrap_err();
        assert!(matches!(error, AcquireError::Engine(Error::Throttled { .. })), "{error:?}");
        assert_eq!(shim.counts(), [4, 0, 0]);
        assert!(start.elapsed() >= Duration::from_millis(700), "there were no pauses");
    });
}

#[test]
fn a_store_that_throttles_writes_is_asked_as_often_as_the_page_says() {
    on_tokio(async {
        let shim = counted(&Arc::new(InMemory::new()));
        let (leases, [jane, _]) = (leases(Arc::clone(&shim) as _).await, owners());
        for _ in 0..100 {
            shim.plan(Planned::Fails(generic("503 Service Unavailable")));
        }
        let error = leases.try_acquire("report", &jane, MINUTE).await.unwrap_err();
        assert!(matches!(error, AcquireError::Engine(Error::Throttled { .. })), "{error:?}");
        assert_eq!(shim.counts(), [15, 12, 0]);
    });
}

#[test]
fn a_list_that_fails_is_repeated() {
    on_tokio(async {
        let shim = counted(&Arc::new(InMemory::new()));
        let (leases, [jane, _]) = (leases(Arc::clone(&shim) as _).await, owners());
        leases.try_acquire("report", &jane, MINUTE).await.unwrap();
        shim.failing_lists.store(1, SeqCst);
        assert_eq!(leases.owned_by(&jane).await.unwrap().len(), 1);
        assert_eq!(shim.counts()[2], 2);
        shim.failing_lists.store(10, SeqCst);
        assert!(leases.owned_by(&jane).await.is_err());
        assert_eq!(shim.counts()[2], 4);
    });
}

#[test]
fn a_write_that_is_not_permitted_is_not_repeated() {
    on_tokio(async {
        let shim = counted(&Arc::new(InMemory::new()));
        let (leases, [jane, _]) = (leases(Arc::clone(&shim) as _).await, owners());
        let denied = object_store::Error::PermissionDenied { path: "a".into(), source: "no".into() };
        shim.plan(Planned::Fails(denied));
        let error = leases.try_acquire("report", &jane, MINUTE).await.unwrap_err();
        assert!(matches!(error, AcquireError::Engine(Error::Denied { .. })), "{error:?}");
        assert_eq!(shim.counts(), [1, 1, 0]);
    });
}

// --- Objects that are changed by hand -------------------------------------------------------------------------------

#[test]
fn a_holder_learns_at_its_renewal_that_its_object_was_deleted() {
    on_tokio(async {
        let store = Arc::new(InMemory::new());
        let (leases, [jane, joe]) = (leases(Arc::clone(&store) as _).await, owners());
        let grant = leases.try_acquire("report", &jane, MINUTE).await.unwrap();
        let (path, _) = objects(&store).await.remove(0);
        store.delete(&path).await.unwrap();
        let error = leases.renew(&grant).await.unwrap_err();
        assert!(matches!(error, RenewError::Lost(Lost::Released)), "{error:?}");
        let next = leases.try_acquire("report", &joe, MINUTE).await.unwrap();
        assert!(next.token() > grant.token(), "the time of day is as good as the object for that");
    });
}

#[test]
fn an_object_that_is_put_back_is_not_mistaken_for_what_it_was() {
    on_tokio(async {
        let store = Arc::new(InMemory::new());
        let (leases, [jane, _]) = (leases(Arc::clone(&store) as _).await, owners());
        let grant = leases.try_acquire("report", &jane, MINUTE).await.unwrap();
        let (path, text) = objects(&store).await.remove(0);
        store.delete(&path).await.unwrap();
        store.put(&path, text.into()).await.unwrap(); // the same content, in a new version
        let grant = leases.renew(&grant).await.unwrap();
        leases.release(&grant).await.unwrap();
    });
}

#[test]
fn an_object_of_something_else_is_left_alone() {
    on_tokio(async {
        let store = Arc::new(InMemory::new());
        let (leases, [jane, _]) = (leases(Arc::clone(&store) as _).await, owners());
        let path = Path::from("keylatch/desk.leases/.report.lease");
        store.put(&path, "Dear diary".into()).await.unwrap();
        let error = leases.try_acquire("report", &jane, MINUTE).await.unwrap_err();
        assert!(matches!(&error, AcquireError::Engine(Error::Foreign { path: told }) if *told == path.to_string()));
        assert_eq!(objects(&store).await, [(path, "Dear diary".to_owned())]);
    });
}

#[test]
fn an_object_of_something_else_does_not_keep_leases_from_being_released() {
    on_tokio(async {
        let store = Arc::new(InMemory::new());
        let (leases, [jane, _]) = (leases(Arc::clone(&store) as _).await, owners());
        leases.try_acquire("report", &jane, MINUTE).await.unwrap();
        let path = Path::from("keylatch/desk.leases/old.lease");
        store.put(&path, "Dear diary. ".repeat(30).into()).await.unwrap();
        let error = leases.owned_by(&jane).await.unwrap_err();
        assert!(matches!(&error, LookError::Engine(Error::Foreign { path: told }) if *told == path.to_string()));
        leases.release_expired().await.unwrap();
        assert_eq!(leases.release_all(&jane).await.unwrap(), 1);
        assert!(leases.status("report").await.unwrap().is_none());
    });
}

#[test]
fn objects_in_folders_of_the_namespace_are_left_alone() {
    on_tokio(async {
        let store = Arc::new(InMemory::new());
        let (leases, [jane, _]) = (leases(Arc::clone(&store) as _).await, owners());
        leases.try_acquire("report", &jane, MINUTE).await.unwrap();
        let (_, text) = objects(&store).await.remove(0);
        for name in [".report.lease", "a.lease"] {
            store.put(&Path::from(format!("keylatch/desk.leases/copy/{name}")), text.clone().into()).await.unwrap();
        }
        assert_eq!(leases.owned_by(&jane).await.unwrap().len(), 1);
        let (mut after, mut found) = (None, 0);
        for _ in 0..10 {
            let engine = leases.engine();
            let part = Part { after: after.as_deref(), entity_prefix: "", owner: None, limit: 1, at: engine.now() };
            let Listing::Page { leases, next } = engine.list(part).await.unwrap() else { panic!("no page") };
            found += leases.len();
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((found, after), (1, None));
    });
}

// --- Take-over ------------------------------------------------------------------------------------------------------

#[test]
fn a_newcomer_waits_for_the_whole_time_of_a_lease_and_no_longer() {
    on_tokio(async {
        let store = Arc::new(InMemory::new());
        let ([jane, joe], ttl) = (owners(), Duration::from_millis(600));
        let dead = leases(Arc::clone(&store) as _).await;
        let before = dead.try_acquire("report", &jane, ttl).await.unwrap();
        drop(dead);
        tokio::time::sleep(ttl / 2).await;
        let (next, start) = (leases(store).await, Instant::now());
        let grant = next.acquire("report", &joe, ttl).await.unwrap();
        assert!(start.elapsed() >= ttl, "it cannot have known how long the lease had lasted");
        assert!(grant.token() > before.token());
    });
}

#[test]
fn a_newcomer_that_trusts_the_stores_clock_need_not_wait() {
    on_tokio(async {
        let store = Arc::new(InMemory::new());
        let ([jane, joe], ttl) = (owners(), Duration::from_millis(300));
        let dead = leases(Arc::clone(&store) as _).await;
        dead.try_acquire("report", &jane, ttl).await.unwrap();
        dead.try_acquire("live", &jane, MINUTE).await.unwrap();
        drop(dead);
        tokio::time::sleep(Duration::from_millis(2000)).await;
        let doubtful = leases(Arc::clone(&store) as _).await;
        assert!(doubtful.try_acquire("report", &joe, ttl).await.is_err(), "it cannot know that the lease is over");
        let shim = counted(&store);
        let trusting = options("desk").tries_out(false).trusts_clock(Duration::from_millis(100));
        let trusting = Leases::with_engine(trusting.open(Arc::clone(&shim) as _).await.unwrap());
        trusting.try_acquire("report", &joe, ttl).await.unwrap();
        assert_eq!(shim.counts(), [2, 2, 0], "the lease and the clock are read, and both are written");
        assert!(trusting.try_acquire("live", &joe, ttl).await.is_err());
        assert_eq!(shim.counts(), [1, 0, 0], "the reading of the clock is still good");
        assert!(trusting.owned_by(&jane).await.unwrap().len() == 1, "the object of the clock is no lease");
    });
}

#[test]
fn a_lease_that_never_expires_is_not_taken_over() {
    on_tokio(async {
        let (leases, [jane, joe]) = (leases(Arc::new(InMemory::new())).await, owners());
        leases.try_acquire("report", &jane, Expiry::Never).await.unwrap();
        let busy = leases.try_acquire("report", &joe, MINUTE).await;
        assert!(matches!(busy, Err(AcquireError::Busy { remaining: None, .. })), "{busy:?}");
        assert_eq!(leases.release_expired().await.unwrap(), 0);
    });
}
