//! A worker: a process of its own, which takes an account, reads, asks the bank, and writes.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};

use keylatch_lease::Token;
use keylatch_lease_conformance::served::Remote;

use crate::{
    args::{Args, Engine, Locking, Worker},
    lock::{Error, Leased, Lock, Taken, Unlocked},
};

pub(crate) fn run(args: &Args, worker: &Worker) -> Result<(), Error> {
    // Whoever has started it is the only one to stop it, and to let it go on.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;

    let mut ledger = Ledger::connect(&worker.ledger)?;
    let lock: Box<dyn Lock> = match (args.lock, args.engine) {
        (Locking::None, _) => Box::new(Unlocked),
        #[cfg(feature = "etcd")]
        (Locking::Lease, Engine::Etcd) => {
            Box::new(Leased::new(crate::etcd::engine(&worker.server)?, &worker.name, args.ttl))
        }
        (Locking::Lease, Engine::Memory) => {
            let remote = Remote::connect("payroll", worker.server.parse()?)?;
            Box::new(Leased::new(remote, &worker.name, args.ttl))
        }
        #[cfg(feature = "nats")]
        (Locking::Lease, Engine::Nats) => {
            Box::new(Leased::new(crate::nats::engine(&worker.server)?, &worker.name, args.ttl))
        }
        #[cfg(feature = "postgres")]
        (Locking::Lease, Engine::Postgres) => {
            Box::new(Leased::new(crate::postgres::engine(&worker.server)?, &worker.name, args.ttl))
        }
        #[cfg(feature = "postgres")]
        (Locking::Advisory, Engine::Postgres) => Box::new(crate::postgres::Advisory::connect(&worker.server)?),
        #[cfg(feature = "redis")]
        (Locking::Lease, Engine::Redis) => {
            Box::new(Leased::new(crate::redis::engine(&worker.server)?, &worker.name, args.ttl))
        }
        #[allow(unreachable_patterns, reason = "without the feature")]
        _ => return Err("there is no such lock".into()),
    };
    ledger.ask(format!("hello {}", worker.name))?;
    loop {
        let offer = ledger.ask("next".to_owned())?;
        match offer.split_once(' ') {
            // If somebody else is at it, there are others to be paid.
            Some(("first", account)) => {
                let account = account.parse()?;
                if let Some(taken) = lock.take(account, false)? {
                    pay(&mut ledger, account, taken)?;
                }
            }
            // Somebody has been at it, and it is not paid yet. Perhaps that will never happen: it has to be waited for.
            Some(("again", account)) => {
                let account = account.parse()?;
                if let Some(taken) = lock.take(account, true)? {
                    pay(&mut ledger, account, taken)?;
                }
            }
            _ if offer == "done" => return Ok(()),
            _ => return Err(format!("the ledger makes no sense: {offer}").into()),
        }
    }
}

pub(crate) fn pay(ledger: &mut Ledger, account: usize, taken: Box<dyn Taken>) -> Result<(), Error> {
    let token = taken.token().map_or(0, Token::get);
    // The token is shown already here. If only payments did, a stale one could come between this look and ours.
    let is_open = ledger.ask(format!("read {account} {token}"))? == "open";
    // Looking at the lease costs nothing; do it before whatever cannot be taken back.
    if is_open && taken.check().is_ok() {
        ledger.ask(format!("bank {account}"))?; // takes its time
        // A worker that looks once more here makes late writes rare. It cannot rule them out, because it may be stopped
        // between the look and the write; this one does not look, so that it can be seen what happens then.
        ledger.ask(format!("pay {account} {token}"))?;
        if let Err(lost) = taken.check() {
            ledger.ask(format!("lost {account} {lost}"))?;
        }
    }
    taken.release()
}

/// The worker's connection to it: a line for each question, and one for its answer.
pub(crate) struct Ledger {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Ledger {
    fn connect(address: &str) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).map_err(|error| format!("no ledger at {address}: {error}"))?;
        stream.set_nodelay(true)?;
        Ok(Ledger { answers: BufReader::new(stream.try_clone()?), stream })
    }

    fn ask(&mut self, question: String) -> Result<String, Error> {
        let mut answer = String::new();
        self.stream.write_all((question + "\n").as_bytes())?;
        if self.answers.read_line(&mut answer)? == 0 {
            return Err("the ledger is gone".into());
        }
        Ok(answer.trim_end().to_owned())
    }
}
