//! Tests of engines without a session, behind PgBouncer in transaction mode. PgBouncer 1.18, which Debian has, does not
//! support prepared statements.

mod common;

use std::{fs, future::Future, pin::Pin, process::Command, sync::Arc, time::Duration};

use common::{Pooled, Server};
use futures_lite::future::poll_once;
use keylatch_lease::{AcquireError, Grant, Leases, Owner, ReleaseError, Resource, engine::Engine};
use keylatch_lease_conformance::{
    engine_tests,
    servers::{
        self, LATE, MINUTE, SECOND, Settings, Shared, TestServer, cases, insist, is_quarantined, millis, namespace,
        on_tokio,
    },
    turns,
};
use keylatch_lease_postgres::{Error, GuardError, NoTls, Options, Postgres, SCHEMA};
use tokio::{task::JoinSet, time::sleep};
use tokio_postgres::{
    Client, SimpleQueryMessage,
    types::{ToSql, Type},
};

type Desk = servers::Desk<Pooled>;
type Acquired = Result<Grant, AcquireError<Error>>;
type Acquire<'a> = Pin<Box<dyn Future<Output = Acquired> + Send + 'a>>;

fn settings(namespace: &str) -> Settings {
    Settings::new(namespace, None).timeout(20 * SECOND)
}

fn options(namespace: &str) -> Options {
    common::options(settings(namespace))
}

/// Runs a test on the shared server, whose pooler has two sessions.
fn at_desk<F: Future<Output = ()>>(test: impl FnOnce(Arc<Desk>) -> F) {
    static SHARED: Shared<Pooled> = Shared::new();

    servers::at_desk(&SHARED.get(Pooled::set_up), settings(&namespace()), test);
}

// The tests that need neither messages nor connections with a name.
engine_tests! { at_desk;
    all_operations_agree_with_each_other
    a_term_counts_from_the_call_and_from_the_start_of_the_tenure
    each_renewal_of_a_batch_has_its_own_term
    any_text_can_name_a_resource_or_an_owner
    owned_by_lists_the_policies
    competing_owners_hold_the_resource_one_at_a_time
    a_dropped_held_lease_is_released
}

/// Returns the values of the first row.
async fn row(client: &Client, sql: &str) -> Vec<String> {
    let told = client.simple_query(sql).await.unwrap();
    let row = told.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|i| row.get(i).unwrap_or_default().to_owned()).collect())
        }
        _ => None,
    });
    row.unwrap_or_default()
}

/// Takes a session of the pool, which no other client gets until this one gives it back.
async fn taken(pooled: &Pooled) -> (Client, String) {
    let client = pooled.pooler.client().await;
    client.batch_execute("BEGIN").await.unwrap();
    let process = row(&client, "SELECT pg_backend_pid()").await.remove(0);
    (client, process)
}

async fn has_open_transaction(client: &Client) -> bool {
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
    row(client, open).await != ["0"]
}

#[test]
fn each_request_may_run_in_another_session() {
    let pooled = Pooled::set_up();
    on_tokio(async {
        let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
        let leases = pooled.pooler.leases(options("shop").without_session());
        leases.try_acquire("before", &jane, LATE).await.unwrap();
        let (one, first) = taken(&pooled).await;
        let grant = leases.try_acquire("report", &jane, LATE).await.unwrap();
        leases.try_acquire("page", &jane, LATE).await.unwrap();
        let (other, second) = taken(&pooled).await;
        assert_ne!(first, second);
        one.batch_execute("COMMIT").await.unwrap();
        // Nothing that these requests need is known to this session.
        leases.renew(&grant).await.unwrap();
        assert!(leases.try_acquire("report", &jane, LATE).await.unwrap().is_resumed());
        assert!(matches!(leases.try_acquire("report", &joe, LATE).await, Err(AcquireError::Busy { .. })));
        assert_eq!(leases.status("report").await.unwrap().unwrap().token(), grant.token());
        assert_eq!(leases.owned_by(&jane).await.unwrap().len(), 3);
        leases.release(&grant).await.unwrap();
        assert_eq!(leases.release_all(&jane).await.unwrap(), 2);
        assert_eq!(leases.release_expired().await.unwrap(), 0);
        leases.engine().init().await.unwrap();
        other.batch_execute("COMMIT").await.unwrap();
    });
}

#[test]
fn a_waiter_polls_until_the_resource_is_free() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, joe, .. } = &*desk;
        let grant = there.try_acquire("report", jane, LATE).await.unwrap();
        let mut waiting = here.acquire("report", joe, LATE);
        for _ in 0..50 {
            assert!(poll_once(&mut waiting).await.is_none());
            sleep(millis(10)).await;
        }
        // The server is not told of a waiter whom it could not notify.
        assert!(!desk.server.is_wanted(&desk.namespace, &Resource::from("report")).await);
        there.release(&grant).await.unwrap();
        assert!(waiting.await.unwrap().token() > grant.token());
    });
}

#[test]
fn engines_with_and_without_a_session_share_the_table() {
    at_desk(|desk| async move {
        let Desk { here, jane, joe, .. } = &*desk;
        let direct = desk.server.server.leases(options(&desk.namespace).fallback(LATE));
        let grant = here.try_acquire("report", jane, LATE).await.unwrap();
        let mut waiting = direct.acquire("report", joe, LATE);
        assert!(poll_once(&mut waiting).await.is_none());
        while !desk.server.is_wanted(&desk.namespace, &Resource::from("report")).await {
            assert!(poll_once(&mut waiting).await.is_none());
            sleep(millis(5)).await;
        }
        // The waiter is notified: it would ask again after an hour.
        here.release(&grant).await.unwrap();
        let next = waiting.await.unwrap();
        assert!(next.token() > grant.token());
        let mut polling = here.acquire("report", jane, LATE);
        assert!(poll_once(&mut polling).await.is_none());
        direct.release(&next).await.unwrap();
        assert!(polling.await.unwrap().token() > next.token());
    });
}

/// The settings that other clients may leave in a session of the pool.
const LEFT: [(&str, &str); 6] = [
    ("default_transaction_isolation", "serializable"),
    ("default_transaction_read_only", "on"),
    ("search_path", "elsewhere"),
    ("statement_timeout", "77s"),
    ("lock_timeout", "77s"),
    ("synchronous_commit", "off"),
];

#[test]
fn the_settings_of_other_clients_do_not_matter_and_stay() {
    let pooled = Pooled::of(Server::set_up(), 1);
    on_tokio(async {
        let (jane, direct) = (Owner::named("jane"), pooled.server.client().await);
        let prepare = format!(
            "CREATE TABLE used (settings text);
            CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                INSERT INTO public.used SELECT concat_ws(' ', current_setting('transaction_isolation'),
                    current_setting('statement_timeout'), current_setting('lock_timeout'),
                    current_setting('synchronous_commit'), current_setting('search_path'));
                RETURN NEW;
            END $$;
            CREATE TRIGGER note BEFORE INSERT OR UPDATE ON keylatch_lease FOR EACH ROW EXECUTE FUNCTION note();
            ALTER DATABASE postgres SET synchronous_commit = 'local';
            CREATE SCHEMA elsewhere; SET search_path = elsewhere; {SCHEMA}"
        );
        direct.batch_execute(&prepare).await.unwrap();
        let client = pooled.pooler.client().await;
        for (name, value) in LEFT {
            client.batch_execute(&format!("SET {name} = '{value}'")).await.unwrap();
        }
        let leases = Arc::new(pooled.pooler.leases(options("shop").without_session()));
        let mut tasks = JoinSet::new();
        for i in 0..64 {
            let (leases, jane) = (Arc::clone(&leases), jane.clone());
            tasks.spawn(async move {
                let grant = leases.try_acquire(("page", i.to_string()), &jane, LATE).await.unwrap();
                leases.renew(&grant).await.unwrap();
                assert_eq!(leases.status(("page", i.to_string())).await.unwrap().unwrap().token(), grant.token());
                leases.release(&grant).await.unwrap();
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        let used = async || {
            let used = direct.query("SELECT DISTINCT settings FROM public.used", &[]).await.unwrap();
            used.iter().map(|row| row.get(0)).collect::<Vec<String>>()
        };
        assert_eq!(used().await, ["read committed 10s 0 local \"$user\", public"]);
        assert_eq!(row(&direct, "SELECT count(*) FROM elsewhere.keylatch_lease").await, ["0"]);
        // The engine leaves nothing in the session.
        for (name, value) in LEFT {
            assert_eq!(row(&client, &format!("SHOW {name}")).await, [value]);
        }
        let left =
            "SELECT (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels()),
            (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')";
        assert_eq!(row(&client, left).await, ["0", "0", "0"]);
        // A lease is on disk before it is granted, whatever the database's default is.
        let begin_anew = "TRUNCATE public.used; ALTER DATABASE postgres SET synchronous_commit = off;
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
        direct.batch_execute(begin_anew).await.unwrap();
        insist(&leases, "report", &jane).await;
        assert_eq!(used().await, ["read committed 10s 0 on \"$user\", public"]);
    });
}

#[test]
fn requests_that_wait_for_the_connection_become_one_transaction() {
    at_desk(|desk| async move {
        let Desk { here, jane, .. } = &*desk;
        let started = |resource: Resource| {
            let acquire: Acquire<'_> = Box::pin(here.try_acquire(resource, jane, MINUTE).into_future());
            acquire
        };
        let plug = here.try_acquire("plug", jane, MINUTE).await.unwrap();
        here.release(&plug).await.unwrap();
        desk.client.batch_execute("BEGIN").await.unwrap();
        let lock = "SELECT FROM keylatch_lease WHERE ns = $1 AND key = 'plug' FOR UPDATE";
        assert_eq!(desk.client.execute(lock, &[&desk.namespace]).await.unwrap(), 1);
        let mut acquires = vec![started(Resource::from("plug"))];
        assert!(poll_once(&mut acquires[0]).await.is_none());
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        while row(&desk.client, waits).await == ["0"] {
            sleep(millis(5)).await;
        }
        for i in 0..50 {
            let mut acquire = started(Resource::new("page", i.to_string()));
            assert!(poll_once(&mut acquire).await.is_none());
            acquires.push(acquire);
        }
        desk.client.batch_execute("COMMIT").await.unwrap();
        for acquire in acquires {
            acquire.await.unwrap();
        }
        let count = "SELECT count(*), count(DISTINCT xmin::text) FROM keylatch_lease WHERE ns = $1 AND entity = 'page'";
        let count = desk.client.query_one(count, &[&desk.namespace]).await.unwrap();
        assert_eq!((count.get::<_, i64>(0), count.get::<_, i64>(1)), (50, 1));
    });
}

#[test]
fn dropped_and_refused_requests_leave_no_open_transaction() {
    at_desk(|desk| async move {
        cases::dropped_requests_leave_nothing_behind(Arc::clone(&desk)).await;
        let name = desk.namespace.replace('-', "_");
        let refuse = format!(
            "CREATE FUNCTION refuse_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
            CREATE TRIGGER refuse_{name} BEFORE INSERT OR UPDATE ON keylatch_lease FOR EACH ROW
                WHEN (NEW.ns = '{}' AND NEW.key = 'refused') EXECUTE FUNCTION refuse_{name}()",
            desk.namespace
        );
        desk.client.batch_execute(&refuse).await.unwrap();
        for _ in 0..5 {
            let refused = desk.here.try_acquire("refused", &desk.jane, MINUTE).await;
            assert!(matches!(&refused, Err(AcquireError::Engine(Error::Refused { .. }))), "{refused:?}");
            desk.here.try_acquire("granted", &desk.jane, MINUTE).await.unwrap();
        }
        // Other tests share the pool, so one of their transactions may still be open for a moment.
        while has_open_transaction(&desk.client).await {
            sleep(millis(5)).await;
        }
    });
}

#[test]
fn a_request_that_was_sent_is_carried_out_although_its_caller_gives_up() {
    let pooled = Pooled::of(Server::set_up(), 1);
    on_tokio(async {
        let (jane, direct) = (Owner::named("jane"), pooled.server.client().await);
        let leases = pooled.pooler.leases(options("shop").without_session());
        let mut given_up = 0;
        while given_up < 5 {
            let grant = leases.try_acquire("report", &jane, LATE).await.unwrap();
            let release = leases.engine().release(grant.resource(), &jane, None, Duration::ZERO);
            // Another thread reads the answers, so the answer to this request may already be there.
            if poll_once(release).await.is_none() {
                given_up += 1;
            }
            // The transaction ends although no other request follows.
            let released = "SELECT count(*) FROM keylatch_lease WHERE key = 'report' AND until = '-infinity'";
            while row(&direct, released).await != ["1"] {
                sleep(millis(5)).await;
            }
        }
    });
}

#[test]
fn a_missing_table_is_an_error_at_once_until_it_is_created() {
    let pooled = Pooled::of(Server::start(), 1);
    on_tokio(async {
        let jane = Owner::named("jane");
        let leases = pooled.pooler.leases(options("shop").without_session());
        let error = leases.engine().ready().await.unwrap_err();
        assert!(matches!(error, Error::Missing { .. }), "{error}");
        // The table can be created through the pooler.
        let client = pooled.pooler.client().await;
        Postgres::create_table(&client).await.unwrap();
        while leases.engine().init().await.is_err() {
            sleep(millis(5)).await;
        }
        leases.try_acquire("report", &jane, LATE).await.unwrap();
        client.batch_execute("ALTER FUNCTION keylatch_lease_acquire_v2 RENAME TO elsewhere").await.unwrap();
        let asked = leases.try_acquire("page", &jane, LATE).await;
        assert!(matches!(asked, Err(AcquireError::Engine(Error::Missing { .. }))), "{asked:?}");
        client.batch_execute("ALTER FUNCTION elsewhere RENAME TO keylatch_lease_acquire_v2").await.unwrap();
        leases.try_acquire("page", &jane, LATE).await.unwrap();
    });
}

#[test]
fn a_pool_in_statement_mode_is_an_error_with_the_reason() {
    let server = common::shared();
    let pooler = server.pooler("statement", 1);
    on_tokio(async {
        let leases = pooler.leases(options("shop").timeout(SECOND).without_session());
        let error = leases.engine().ready().await.unwrap_err();
        assert!(matches!(error, Error::Unconnected { .. }), "{error:?}");
        assert!(error.to_string().contains("statement pooling mode"), "{error}");
    });
}

#[test]
fn a_guarded_transaction_works_through_the_pooler() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, joe, .. } = &*desk;
        let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
        let mut client = desk.server.pooler.client().await;
        let transaction = client.transaction().await.unwrap();
        here.engine().guard(&transaction, &grant).await.unwrap();
        let written: [(&(dyn ToSql + Sync), Type); 1] = [(&7_i64, Type::INT8)];
        let written =
            transaction.query_typed("SELECT set_config('shop.paid', $1::text, true)", &written).await.unwrap();
        assert_eq!(written[0].get::<_, &str>(0), "7");

        // The engines use the pool's other session.
        here.renew(&grant).await.unwrap();
        desk.pass(MINUTE).await;
        let busy = there.try_acquire("report", joe, MINUTE).await;
        assert!(matches!(&busy, Err(AcquireError::Busy { owner, .. }) if owner == jane), "{busy:?}");
        let mut waiting = there.acquire("report", joe, MINUTE);
        for _ in 0..30 {
            assert!(poll_once(&mut waiting).await.is_none(), "a guarded lease was taken over");
            sleep(millis(10)).await;
        }
        transaction.commit().await.unwrap();
        let next = waiting.await.unwrap();
        assert!(next.token() > grant.token());

        let transaction = client.transaction().await.unwrap();
        assert!(matches!(here.engine().guard(&transaction, &grant).await, Err(GuardError::Stale)));
        here.engine().guard(&transaction, &next).await.unwrap();
        let mut release = Box::pin(there.release(&next).into_future());
        for _ in 0..10 {
            assert!(poll_once(&mut release).await.is_none(), "a guarded lease was released");
            sleep(millis(10)).await;
        }
        transaction.rollback().await.unwrap();
        release.await.unwrap();
    });
}

#[test]
fn one_owner_at_a_time_has_the_lease_whatever_is_done_to_pooler_and_server() {
    const TTL: Duration = Duration::from_secs(1);
    let pooled = Pooled::set_up();
    on_tokio(async {
        let engine = || {
            let options = options("chaos").quarantine(TTL).timeout(2 * SECOND).without_session();
            Leases::with_engine(options.connect(pooled.pooler.config(), NoTls))
        };
        let (here, there, client) = (engine(), engine(), pooled.server.client().await);
        here.engine().init().await.unwrap();
        let run = tokio::runtime::Handle::current();
        let sql = |sql: &str| run.block_on(client.batch_execute(sql)).unwrap();
        let others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
        let (end, cancel) =
            (format!("SELECT pg_terminate_backend(pid) {others}"), format!("SELECT pg_cancel_backend(pid) {others}"));
        let restarted = |how| {
            pooled.pooler.run(how);
            pooled.pooler.run("start");
        };
        let read_only = "ALTER DATABASE postgres SET default_transaction_read_only = on";
        let troubles: [(usize, &dyn Fn()); 7] = [
            (10, &|| sql(&end)),
            (10, &|| sql(&cancel)),
            (2, &|| restarted("stop")),
            (2, &|| restarted("kill")),
            (10, &|| sql("BEGIN; LOCK TABLE keylatch_lease; SELECT pg_sleep(0.1); COMMIT")),
            (10, &|| sql("VACUUM FULL keylatch_lease")),
            // The new sessions are read-only, unless a transaction says otherwise.
            (10, &|| sql(&format!("{read_only}; {end}"))),
        ];
        for (times, trouble) in troubles {
            let trouble = || {
                for _ in 0..times {
                    trouble();
                    std::thread::sleep(millis(50));
                }
            };
            tokio::task::block_in_place(|| turns(&[&here, &there], TTL, trouble));
        }
        assert!(!has_open_transaction(&client).await);
    });
}

#[test]
fn a_held_lease_survives_a_restart_of_the_pooler_and_is_given_back() {
    let pooled = Pooled::set_up();
    on_tokio(async {
        let leases = || pooled.pooler.leases(options("shop").without_session().fallback(millis(200)));
        let (here, there) = (leases(), leases());
        let mut held = here.hold("report", &Owner::named("jane"), 20 * SECOND).await.unwrap();
        let mut waiting = there.acquire("report", &Owner::named("joe"), MINUTE);
        let work = async {
            for _ in 0..3 {
                assert!(poll_once(&mut waiting).await.is_none());
                pooled.pooler.run("stop");
                pooled.pooler.run("start");
                while here.status("report").await.is_err() {}
            }
        };
        held.run(work).await.unwrap();
        held.check().unwrap();
        held.release().await.unwrap();
        // A failure of the pooler may have reached the waiter.
        let joe = match waiting.await {
            Ok(grant) => grant,
            Err(_) => insist(&there, "report", &Owner::named("joe")).await,
        };
        while let Err(ReleaseError::Engine(_)) = there.release(&joe).await {}
    });
}

/// Makes a pooler send its transactions to another server, without closing the connections of its clients.
fn redirect(pooler: &Server, from: &Server, to: &Server) {
    let folder = pooler.private().folder();
    let (file, port) = (folder.join("pgbouncer.ini"), |server: &Server| format!("port={} ", server.address().port()));
    let settings = fs::read_to_string(&file).unwrap();
    let changed = settings.replace(&port(from), &port(to));
    assert_ne!(changed, settings);
    fs::write(file, changed).unwrap();
    let process = fs::read_to_string(folder.join("pgbouncer.pid")).unwrap();
    assert!(Command::new("kill").args(["-HUP", process.trim()]).status().unwrap().success());
}

/// Returns the number of clients that a pooler has accepted.
fn clients(pooler: &Server) -> usize {
    let log = fs::read_to_string(pooler.private().folder().join("pgbouncer.log")).unwrap();
    log.matches("login attempt").count()
}

#[test]
fn a_server_that_takes_the_place_of_another_behind_the_pooler_is_quarantined() {
    let (first, second) = (Server::set_up(), Server::set_up());
    let pooler = first.pooler("transaction", 1);
    on_tokio(async {
        let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
        let leases = pooler.leases(options("shop").without_session());
        let grant = leases.try_acquire("report", &jane, LATE).await.unwrap();
        // The other server has what a dump of an earlier time contains: the first one's mark, and not the lease.
        let (old, new) = (first.client().await, second.client().await);
        let system = "SELECT system_identifier::text FROM pg_control_system()";
        let (here, there) = (row(&old, system).await.remove(0), row(&new, system).await.remove(0));
        assert_ne!(here, there);
        let mark = format!(
            "UPDATE keylatch_lease SET owner = decode('ff', 'hex')
                || convert_to('{here}/' || 'keylatch_lease'::regclass::oid, 'UTF8') WHERE entity = '\\xfe'"
        );
        new.batch_execute(&mark).await.unwrap();
        let client = pooler.client().await;
        let known = clients(&pooler);
        redirect(&pooler, &first, &second);
        while row(&client, system).await != [&*there] {
            sleep(millis(5)).await;
        }
        let asked = leases.try_acquire("report", &joe, LATE).await;
        assert!(is_quarantined(&asked), "{asked:?}");
        assert!(leases.renew(&grant).await.is_err());
        assert_eq!(clients(&pooler), known, "the engine has connected again");
    });
}
