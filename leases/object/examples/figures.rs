//! Counts the requests of each call and of the renewals of many leases, in memory, and measures the time until the
//! lease of a killed process is taken over, on a private S3:
//!
//! ```sh
//! cargo run --release -p keylatch-lease-object --example figures
//! ```

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/moto/mod.rs"]
mod moto;

use std::{
    env,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use common::{Faults, Shim};
use futures_util::{StreamExt, stream::iter};
use keylatch_lease::{Leases, Owner};
use keylatch_lease_conformance::servers::TestServer;
use keylatch_lease_object::{Bucket, object_store::memory::InMemory};

const HOLDER: &str = "KEYLATCH_FIGURES_HOLDER";
const TTL: Duration = Duration::from_secs(10);
const KILLS: u32 = 8;
const LEASES: usize = 1000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Ok(address) = env::var(HOLDER) {
        return hold(&address).await;
    }
    requests().await?;
    renewals().await?;
    let server = tokio::task::spawn_blocking(moto::Server::set_up).await?;
    let address = server.address();
    take_over(&address.to_string()).await?;
    tokio::task::spawn_blocking(move || drop(server)).await?;
    Ok(())
}

async fn leases(shim: Arc<Shim>) -> Result<Leases<Bucket>, Box<dyn std::error::Error>> {
    let options = Bucket::in_namespace("figures").timeout(Duration::from_secs(30));
    Ok(Leases::with_engine(options.tries_out(false).open(shim).await?))
}

fn on(address: &str) -> Result<Arc<Shim>, Box<dyn std::error::Error>> {
    Ok(Shim::new(Arc::new(moto::store(address.parse()?)), Faults::default(), 1))
}

/// Counts the requests of each call, in memory.
async fn requests() -> Result<(), Box<dyn std::error::Error>> {
    let shim = Shim::new(Arc::new(InMemory::new()), Faults::default(), 1);
    let (here, there) = (leases(Arc::clone(&shim)).await?, leases(Arc::clone(&shim)).await?);
    let [jane, joe] = ["jane", "joe"].map(Owner::named);
    println!("| call | GET | PUT | LIST |\n| --- | ---: | ---: | ---: |");
    let tell = |call: &str| {
        let [gets, puts, lists] = shim.counts();
        println!("| {call} | {gets} | {puts} | {lists} |");
    };
    let grant = here.acquire("report", &jane, TTL).await?;
    tell("acquire, the first of this process for the resource");
    let grant = here.renew(&grant).await?;
    tell("renew");
    here.release(&grant).await?;
    tell("release");
    let grant = here.acquire("report", &jane, TTL).await?;
    tell("acquire, if this process had the resource last");
    let _ = there.try_acquire("report", &joe, TTL).await;
    tell("acquire in vain, and each poll of a waiter");
    here.release(&grant).await?;
    shim.counts();
    let grant = there.acquire("report", &joe, TTL).await?;
    tell("acquire, after another process has released");
    let _ = there.status("report").await?;
    tell("status");
    there.release(&grant).await?;
    for i in 0..1500 {
        let grant = here.acquire(("page", i.to_string()), &jane, TTL).await?;
        if i >= 10 {
            here.release(&grant).await?;
        }
    }
    shim.counts();
    here.owned_by(&jane).await?;
    tell("owned_by, of 1,500 resources of which 10 are leased (in memory a list is one request)");
    here.release_all(&jane).await?;
    tell("release_all, of 1,500 resources of which 10 are leased");
    Ok(())
}

/// Holds a lease until the process is killed.
async fn hold(address: &str) -> Result<(), Box<dyn std::error::Error>> {
    let leases = leases(on(address)?).await?;
    let mut held = leases.hold("report", &Owner::incarnation("holder"), TTL).await?;
    println!("held");
    held.run(std::future::pending::<()>()).await?;
    Ok(())
}

/// Kills processes that hold a lease, each at a different time after a renewal, while a waiter waits.
async fn take_over(address: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut times = Vec::new();
    let shim = on(address)?;
    let leases = leases(Arc::clone(&shim)).await?;
    let (mut waited, mut polls) = (Duration::ZERO, 0);
    for kill in 0..KILLS {
        let mut holder = Command::new(env::current_exe()?).env(HOLDER, address).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        shim.counts();
        let start = Instant::now();
        let killed = TTL / 3 + TTL * kill / (3 * KILLS);
        let waiter = Owner::incarnation("waiter");
        let waiting = leases.acquire("report", &waiter, TTL);
        let killing = async {
            tokio::time::sleep(killed).await;
            holder.kill().map(|()| Instant::now())
        };
        let (grant, dead) = tokio::join!(waiting, killing);
        times.push(dead?.elapsed());
        holder.wait()?;
        waited += start.elapsed();
        polls += shim.counts()[0];
        leases.release(&grant?).await?;
    }
    times.sort();
    let seconds = |time: Duration| format!("{:.2}", time.as_secs_f64());
    println!("\n| ttl, s | kills | shortest, s | median, s | longest, s | polls of a waiter in an hour |");
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    println!(
        "| {} | {KILLS} | {} | {} | {} | {:.0} |",
        TTL.as_secs(),
        seconds(times[0]),
        seconds(times[times.len() / 2]),
        seconds(times[times.len() - 1]),
        polls as f64 / waited.as_secs_f64() * 3600.0,
    );
    Ok(())
}

/// Renews many leases for a while, in a store that takes as long for each request as S3 does.
async fn renewals() -> Result<(), Box<dyn std::error::Error>> {
    let slow = Faults { millis: 30, ..Faults::default() };
    let shim = Shim::new(Arc::new(InMemory::new()), slow, 1);
    let leases = Arc::new(leases(Arc::clone(&shim)).await?);
    let (owner, ttl) = (Owner::incarnation("holder"), 3 * TTL);
    let start = Instant::now();
    let hold = |i: usize| {
        let (leases, owner) = (Arc::clone(&leases), owner.clone());
        async move { leases.hold_arc(("page", i.to_string()), &owner, ttl).await }
    };
    let held: Vec<_> = iter((0..LEASES).map(hold)).buffered(16).collect().await;
    let acquired = start.elapsed();
    let mut renewing = Vec::new();
    for held in held {
        let held = held?;
        renewing.push((tokio::spawn(held.renewal()), held));
    }
    shim.counts();
    let start = Instant::now();
    tokio::time::sleep(2 * ttl).await;
    let [_, puts, _] = shim.counts();
    let each = puts as f64 / start.elapsed().as_secs_f64();
    let lost = renewing.iter().filter(|(_, held)| held.check().is_err()).count();
    println!("\n| leases | ttl, s | acquired in, s | PUTs in a second | lost |\n| ---: | ---: | ---: | ---: | ---: |");
    println!("| {LEASES} | {} | {:.1} | {each:.0} | {lost} |", ttl.as_secs(), acquired.as_secs_f64());
    Ok(())
}
