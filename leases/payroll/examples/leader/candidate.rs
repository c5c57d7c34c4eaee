//! One of the three processes. It reports on its standard output, and resigns when it reads a line.

use std::{
    io::{BufRead, Write},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::Duration,
};

use async_io::Timer;
use keylatch_lease::{Leader, Leases, Owner, engine::Engine};
use keylatch_lease_sqlite::Sqlite;

use crate::{Error, stage::TTL};

static RESIGNS: AtomicBool = AtomicBool::new(false);

pub(crate) fn run(name: &str, address: &str) -> Result<(), Error> {
    thread::spawn(|| {
        for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
            RESIGNS.store(true, SeqCst);
        }
        std::process::exit(0); // the stage is over
    });
    match address.split_once(':') {
        Some(("sqlite", path)) => campaign(name, &Leases::with_engine(Sqlite::open(path)?)),
        #[cfg(feature = "redis")]
        Some(("redis", _)) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            let _context = runtime.enter();
            let options = keylatch_lease_redis::Redis::in_namespace("leader").timeout(TTL / 3);
            campaign(name, &Leases::with_engine(options.connect(redis::Client::open(address)?)))
        }
        _ => Err("the address is unknown".into()),
    }
}

fn campaign<E: Engine>(name: &str, leases: &Leases<E>) -> Result<(), Error> {
    let leader = Leader::new(leases);
    let me = Owner::incarnation(name);
    loop {
        let Ok(mut leadership) = leader.campaign("scheduler", &me, TTL).wait() else {
            thread::sleep(TTL / 10); // the server cannot be reached
            continue;
        };
        let token = leadership.token();
        report(&format!("leads {token}"));
        let led = leadership.run(async {
            while !RESIGNS.swap(false, SeqCst) {
                report(&format!("writes {token}"));
                Timer::after(Duration::from_millis(10)).await;
            }
        });
        match led.wait() {
            Ok(()) => {
                leadership.resign().wait()?;
                thread::sleep(TTL / 2); // somebody else's turn
            }
            Err(lost) => report(&format!("lost {token} {lost:?}")),
        }
    }
}

fn report(line: &str) {
    // If nobody reads the line, the stage has ended.
    let mut output = std::io::stdout().lock();
    if writeln!(output, "{line}").and_then(|()| output.flush()).is_err() {
        std::process::exit(0);
    }
}
