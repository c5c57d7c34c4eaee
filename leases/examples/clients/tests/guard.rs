//! Each client writes under a lease, on a real Postgres.

mod common;

use std::{process::Command, sync::Arc, time::Duration};

use diesel_async::{AsyncConnection, AsyncPgConnection};
use keylatch_lease::{AcquireError, Grant, Leases, Owner};
use keylatch_lease_clients::{diesel, pooled, sqlx};
use keylatch_lease_conformance::servers::{MINUTE, PrivateServer, Shared, apart, millis, namespace, on_tokio};
use keylatch_lease_postgres::{NoTls, Postgres};
use tokio::time::sleep;
use tokio_postgres::Config;

/// A way to pay under a lease.
trait Payer {
    async fn connect(config: &Config) -> Self;
    async fn pay(&mut self, leases: &Leases<Postgres>, grant: &Grant, account: i64) -> bool;
}

/// Returns the address in the form of a URL.
fn url(config: &Config) -> String {
    format!("postgres://postgres@127.0.0.1:{}/postgres", config.get_ports()[0])
}

impl Payer for ::sqlx::PgPool {
    async fn connect(config: &Config) -> Self {
        ::sqlx::PgPool::connect(&url(config)).await.unwrap()
    }

    async fn pay(&mut self, leases: &Leases<Postgres>, grant: &Grant, account: i64) -> bool {
        sqlx::pay(self, leases, grant, account).await.unwrap()
    }
}

impl Payer for AsyncPgConnection {
    async fn connect(config: &Config) -> Self {
        AsyncPgConnection::establish(&url(config)).await.unwrap()
    }

    async fn pay(&mut self, leases: &Leases<Postgres>, grant: &Grant, account: i64) -> bool {
        diesel::pay(self, leases, grant, account).await.unwrap()
    }
}

impl Payer for deadpool_postgres::Pool {
    async fn connect(config: &Config) -> Self {
        let manager = deadpool_postgres::Manager::new(config.clone(), NoTls);
        deadpool_postgres::Pool::builder(manager).build().unwrap()
    }

    async fn pay(&mut self, leases: &Leases<Postgres>, grant: &Grant, account: i64) -> bool {
        pooled::pay(&mut self.get().await.unwrap(), leases, grant, account).await.unwrap()
    }
}

type Bb8 = bb8::Pool<bb8_postgres::PostgresConnectionManager<NoTls>>;

impl Payer for Bb8 {
    async fn connect(config: &Config) -> Self {
        let manager = bb8_postgres::PostgresConnectionManager::new(config.clone(), NoTls);
        bb8::Pool::builder().build(manager).await.unwrap()
    }

    async fn pay(&mut self, leases: &Leases<Postgres>, grant: &Grant, account: i64) -> bool {
        pooled::pay(&mut self.get().await.unwrap(), leases, grant, account).await.unwrap()
    }
}

/// `psql`, which runs one of the page's blocks of SQL. Each of these blocks pays the account.
struct Psql<const BLOCK: usize> {
    config: Config,
}

impl<const BLOCK: usize> Payer for Psql<BLOCK> {
    async fn connect(config: &Config) -> Self {
        Psql { config: config.clone() }
    }

    async fn pay(&mut self, leases: &Leases<Postgres>, grant: &Grant, account: i64) -> bool {
        let sql = common::page_blocks("sql")[BLOCK].clone();
        let variables = [
            ("ON_ERROR_STOP", "1".into()),
            ("ns", leases.engine().namespace().to_owned()),
            ("entity", grant.resource().entity().to_owned()),
            ("key", grant.resource().key().to_owned()),
            ("token", grant.token().to_string()),
            ("account", account.to_string()),
        ];
        let mut psql = Command::new("psql");
        psql.arg(url(&self.config)).args(["--no-psqlrc", "-f", "-"]);
        psql.args(variables.iter().flat_map(|(name, value)| ["-v".to_owned(), format!("{name}={value}")]));
        let output = tokio::task::spawn_blocking(move || common::output(psql, &sql)).await.unwrap();
        output.status.success() && String::from_utf8(output.stdout).unwrap().contains("UPDATE 1")
    }
}

struct Server {
    private: PrivateServer,
}

impl Server {
    fn start() -> Self {
        let server = Server { private: PrivateServer::new(common::SCRIPT, "postgres").start() };
        apart(async || {
            let client = server.client().await;
            Postgres::create_table(&client).await.unwrap();
            client.batch_execute("CREATE TABLE account (id bigint, paid boolean)").await.unwrap();
            server.leases("").engine().init().await.unwrap();
        });
        server
    }

    fn config(&self) -> Config {
        let port = self.private.address().port();
        format!("host=127.0.0.1 port={port} user=postgres dbname=postgres").parse().unwrap()
    }

    fn leases(&self, namespace: &str) -> Leases<Postgres> {
        let options = Postgres::in_namespace(namespace).timeout(Duration::from_secs(20));
        Leases::with_engine(options.connect(self.config(), NoTls))
    }

    async fn client(&self) -> tokio_postgres::Client {
        let (client, connection) = self.config().connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

/// Leases in a namespace of its own, an account, and a client that pays.
struct Desk<P> {
    server: Arc<Server>,
    leases: Leases<Postgres>,
    admin: tokio_postgres::Client,
    account: i64,
    payer: P,
    jane: Owner,
    joe: Owner,
}

impl<P: Payer> Desk<P> {
    async fn new(server: Arc<Server>) -> Self {
        let name = namespace();
        let account = name.trim_start_matches(|symbol: char| !symbol.is_ascii_digit()).parse().unwrap();
        let admin = server.client().await;
        admin.execute("INSERT INTO account VALUES ($1, false)", &[&account]).await.unwrap();
        let leases = server.leases(&name);
        let payer = P::connect(&server.config()).await;
        let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
        Desk { server, leases, admin, account, payer, jane, joe }
    }

    /// Acquires a resource whose name contains characters that must be escaped in SQL.
    async fn acquire(&self, owner: &Owner) -> Result<Grant, AcquireError<keylatch_lease_postgres::Error>> {
        self.leases.try_acquire(("the office's", r"Jane's \ account"), owner, MINUTE).await
    }

    async fn pay(&mut self, grant: &Grant) -> bool {
        self.payer.pay(&self.leases, grant, self.account).await
    }

    async fn is_paid(&self) -> bool {
        self.admin.query_one("SELECT paid FROM account WHERE id = $1", &[&self.account]).await.unwrap().get(0)
    }
}

/// Lets the only lease of the namespace expire.
async fn expire(admin: &tokio_postgres::Client, leases: &Leases<Postgres>) {
    let expire = "UPDATE keylatch_lease SET until = clock_timestamp() WHERE ns = $1";
    assert_eq!(admin.execute(expire, &[&leases.engine().namespace()]).await.unwrap(), 1);
}

fn at_desk<P: Payer>(test: impl AsyncFnOnce(Desk<P>)) {
    static SHARED: Shared<Server> = Shared::new();

    let server = SHARED.get(Server::start);
    on_tokio(async { test(Desk::new(server).await).await });
}

fn a_write_under_the_lease_is_committed<P: Payer>() {
    at_desk::<P>(async |mut desk| {
        let grant = desk.acquire(&desk.jane).await.unwrap();
        assert!(desk.pay(&grant).await);
        assert!(desk.is_paid().await);
    });
}

fn a_write_with_an_old_token_is_refused<P: Payer>() {
    at_desk::<P>(async |mut desk| {
        let old = desk.acquire(&desk.jane).await.unwrap();
        expire(&desk.admin, &desk.leases).await;
        assert!(!desk.pay(&old).await);
        let new = desk.acquire(&desk.joe).await.unwrap();
        assert!(!desk.pay(&old).await);
        assert!(!desk.is_paid().await);
        assert!(desk.pay(&new).await);
        assert!(desk.is_paid().await);
    });
}

/// The write waits for a row that another session has locked, so that the lease ends in the middle of the transaction.
fn a_lease_that_expires_during_the_transaction_passes_on_after_it<P: Payer>() {
    at_desk::<P>(async |mut desk| {
        let grant = desk.acquire(&desk.jane).await.unwrap();
        let (blocker, admin) = (desk.server.client().await, desk.server.client().await);
        let lock = format!("BEGIN; SELECT FROM account WHERE id = {} FOR UPDATE", desk.account);
        let pid: i32 = blocker.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        blocker.batch_execute(&lock).await.unwrap();
        let (leases, joe) = (desk.server.leases(desk.leases.engine().namespace()), desk.joe.clone());
        let interrupt = async {
            let blocked = "SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
            while admin.query(blocked, &[&pid]).await.unwrap().is_empty() {
                sleep(millis(10)).await;
            }
            expire(&admin, &leases).await;
            let resource = grant.resource();
            assert!(matches!(leases.try_acquire(resource, &joe, MINUTE).await, Err(AcquireError::Busy { .. })));
            blocker.batch_execute("COMMIT").await.unwrap();
        };
        let (paid, ()) = tokio::join!(desk.payer.pay(&desk.leases, &grant, desk.account), interrupt);
        assert!(paid);
        assert!(desk.is_paid().await);
        assert!(desk.acquire(&desk.joe).await.unwrap().token() > grant.token());
    });
}

macro_rules! payers {
    ($($name:ident: $Payer:ty,)*) => {
        $(mod $name {
            #[test]
            fn a_write_under_the_lease_is_committed() {
                super::a_write_under_the_lease_is_committed::<$Payer>();
            }

            #[test]
            fn a_write_with_an_old_token_is_refused() {
                super::a_write_with_an_old_token_is_refused::<$Payer>();
            }

            #[test]
            fn a_lease_that_expires_during_the_transaction_passes_on_after_it() {
                super::a_lease_that_expires_during_the_transaction_passes_on_after_it::<$Payer>();
            }
        })*
    };
}

payers! {
    with_sqlx: ::sqlx::PgPool,
    with_diesel: diesel_async::AsyncPgConnection,
    with_deadpool: deadpool_postgres::Pool,
    with_bb8: super::Bb8,
    with_psql_in_a_transaction: super::Psql<0>,
    with_psql_in_one_statement: super::Psql<1>,
}
