//! A worker: a separate process that locks an account, reads it, asks the bank, and writes the payment.

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
    // Only the parent stops and resumes the worker, so the worker must not outlive it.
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
        #[cfg(feature = "object")]
        (Locking::Lease, Engine::Object) => {
            Box::new(Leased::new(crate::object::engine(&worker.server)?, &worker.name, args.ttl))
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
        (Locking::Lease, Engine::Sqlite) => {
            Box::new(Leased::new(crate::sqlite::engine(&worker.server)?, &worker.name, args.ttl))
        }
        #[allow(unreachable_patterns, reason = "without the feature")]
        _ => return Err("this engine has no such lock, or its feature is not enabled".into()),
    };
    ledger.ask(format!("hello {}", worker.name))?;
    loop {
        let offer = ledger.ask("next".to_owned())?;
        match offer.split_once(' ') {
            // If another worker has locked this account, skip it, because there are other accounts to pay.
            Some(("first", account)) => {
                let account = account.parse()?;
                if let Some(taken) = lock.take(account, false)? {
                    pay(&mut ledger, account, taken)?;
                }
            }
            // A worker has locked this account before, but it is not paid yet. That worker may have died, so wait for
            // its lock to end.
            Some(("again", account)) => {
                let account = account.parse()?;
                if let Some(taken) = lock.take(account, true)? {
                    pay(&mut ledger, account, taken)?;
                }
            }
            _ if offer == "done" => return Ok(()),
            _ => return Err(format!("the ledger sent an invalid offer: {offer}").into()),
        }
    }
}

pub(crate) fn pay(ledger: &mut Ledger, account: usize, taken: Box<dyn Taken>) -> Result<(), Error> {
    let token = taken.token().map_or(0, Token::get);
    // Present the token as early as the read. If only payments presented it, a stale payment could come between our
    // read and our payment.
    let is_open = ledger.ask(format!("read {account} {token}"))? == "open";
    // Checking the lease costs nothing, so check it before each action that cannot be undone.
    if is_open && taken.check().is_ok() {
        ledger.ask(format!("bank {account}"))?; // slow
        // A second check here would make late writes rare. It could not rule them out, because the worker may be
        // stopped between the check and the write. This worker does not check again, to show what happens then.
        ledger.ask(format!("pay {account} {token}"))?;
        if let Err(lost) = taken.check() {
            ledger.ask(format!("lost {account} {lost}"))?;
        }
    }
    taken.release()
}

/// The worker's connection to the ledger: one line for each question, and one for its answer.
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
            return Err("the ledger has closed the connection".into());
        }
        Ok(answer.trim_end().to_owned())
    }
}
