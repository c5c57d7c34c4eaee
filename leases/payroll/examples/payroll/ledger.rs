//! The ledger, the list of accounts and the bank. They are in the process that starts the workers, which talk to them
//! over TCP.
//!
//! | question | answer |
//! |---|---|
//! | `hello NAME` | `all` as soon as all workers are connected |
//! | `next` | `first ACCOUNT`, `again ACCOUNT` if it was offered before, or `done` |
//! | `read ACCOUNT TOKEN` | `open`, `paid` or `stale` |
//! | `bank ACCOUNT` | `known` |
//! | `pay ACCOUNT TOKEN` | `paid` or `stale` |
//! | `lost ACCOUNT WHY` | `noted`: the worker's own check of its lease has failed for this reason |
//!
//! A token of 0 means that there is none: the run then has no leases and no fence.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use keylatch_lease::{Fence, Token};

use crate::lock::payment;

/// The time that the bank takes to answer.
pub(crate) const BANK: Duration = Duration::from_millis(20);

pub(crate) struct Ledger {
    fence: Fence,
    is_fenced: bool,
    workers: usize,
    book: Mutex<Book>,
    changed: Condvar,
}

/// The events of the run, each with the worker that caused it.
pub(crate) struct Book {
    /// The ledger proper: entries are never changed or removed.
    pub(crate) payments: Vec<Payment>,
    /// The number of payments to each account.
    pub(crate) paid: Vec<usize>,
    pub(crate) reads: Vec<Read>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) lost: Vec<Lost>,
    /// The number of workers that have connected, including those that have ended since.
    greeted: usize,
    /// The number of times that each worker has asked for another account.
    pub(crate) asked: HashMap<String, usize>,
    /// Each worker's position in the list.
    at: HashMap<String, usize>,
    /// The accounts that are offered again, before any others.
    redo: Vec<usize>,
    /// The workers to be killed or stopped, each with the account at which that happens. Until that worker has asked
    /// the bank, no other worker is offered the account, except from `redo`.
    pub(crate) scenes: Vec<Scene>,
}

pub(crate) struct Payment {
    pub(crate) account: usize,
    pub(crate) worker: String,
}

pub(crate) struct Read {
    pub(crate) account: usize,
    pub(crate) worker: String,
    pub(crate) at: Instant,
}

pub(crate) struct Refused {
    pub(crate) account: usize,
    pub(crate) worker: String,
    pub(crate) token: Token,
    pub(crate) newest: Token,
}

pub(crate) struct Lost {
    pub(crate) account: usize,
    pub(crate) worker: String,
    pub(crate) why: String,
}

pub(crate) struct Scene {
    pub(crate) worker: &'static str,
    pub(crate) account: usize,
    /// Whether the worker has asked the bank.
    pub(crate) has_begun: bool,
    /// Whether the bank may answer.
    pub(crate) is_over: bool,
}

impl Ledger {
    pub(crate) fn new(accounts: usize, workers: usize, is_fenced: bool, scenes: Vec<Scene>) -> Arc<Self> {
        let book = Book {
            payments: Vec::new(),
            paid: vec![0; accounts],
            reads: Vec::new(),
            refused: Vec::new(),
            lost: Vec::new(),
            greeted: 0,
            asked: HashMap::new(),
            at: HashMap::new(),
            redo: Vec::new(),
            scenes,
        };
        Arc::new(Ledger { fence: Fence::new(), is_fenced, workers, book: Mutex::new(book), changed: Condvar::new() })
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something changes, for at most this time.
    pub(crate) fn wait<'a>(&self, book: MutexGuard<'a, Book>, most: Duration) -> MutexGuard<'a, Book> {
        self.changed.wait_timeout(book, most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Offers an account to the next worker that asks, as if the ledger had been notified that a worker is in trouble.
    pub(crate) fn redo(&self, account: usize) {
        self.book().redo.push(account);
    }

    /// Lets the bank answer the worker that waits for it in the scene at this account.
    pub(crate) fn end_scene(&self, account: usize) {
        let mut book = self.book();
        book.scenes.iter_mut().filter(|scene| scene.account == account).for_each(|scene| scene.is_over = true);
        self.changed.notify_all();
    }

    // --- What workers ask for ----------------------------------------------------------------------------------------

    fn hello(&self) -> String {
        let mut book = self.book();
        book.greeted += 1;
        self.changed.notify_all();
        while book.greeted < self.workers {
            book = self.changed.wait(book).unwrap_or_else(PoisonError::into_inner);
        }
        "all".to_owned()
    }

    /// Offers an account. The list knows which accounts are paid. It does not know which worker is paying which: that
    /// is the purpose of the leases.
    fn next(&self, worker: &str) -> String {
        let mut book = self.book();
        *book.asked.entry(worker.to_owned()).or_default() += 1;
        self.changed.notify_all();
        loop {
            if let Some(offer) = book.offer(worker) {
                return offer;
            }
            book = self.changed.wait(book).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn read(&self, worker: &str, account: usize, token: Option<Token>) -> &'static str {
        let mut book = self.book();
        let stale = token.and_then(|token| self.fence.admit(&payment(account), token).err());
        if stale.is_some() && self.is_fenced {
            return "stale";
        }
        book.reads.push(Read { account, worker: worker.to_owned(), at: Instant::now() });
        self.changed.notify_all();
        if book.paid[account] > 0 { "paid" } else { "open" }
    }

    fn bank(&self, worker: &str, account: usize) -> &'static str {
        thread::sleep(BANK);
        let mut book = self.book();
        let place = book.scenes.iter().position(|scene| scene.worker == worker && scene.account == account);
        if let Some(place) = place {
            book.scenes[place].has_begun = true;
            self.changed.notify_all();
            while !book.scenes[place].is_over {
                book = self.changed.wait(book).unwrap_or_else(PoisonError::into_inner);
            }
        }
        "known"
    }

    fn pay(&self, worker: &str, account: usize, token: Option<Token>) -> &'static str {
        // The check of the fence and the write must be one step, as in `UPDATE ... WHERE token <= ?`.
        let mut book = self.book();
        let stale = token.and_then(|token| self.fence.admit(&payment(account), token).err());
        let answer = match stale {
            Some(stale) if self.is_fenced => {
                let (token, newest) = (stale.token(), stale.newest());
                book.refused.push(Refused { account, worker: worker.to_owned(), token, newest });
                "stale"
            }
            _ => {
                book.payments.push(Payment { account, worker: worker.to_owned() });
                book.paid[account] += 1;
                "paid"
            }
        };
        self.changed.notify_all();
        answer
    }

    fn lost(&self, worker: &str, account: usize, why: &str) -> &'static str {
        self.book().lost.push(Lost { account, worker: worker.to_owned(), why: why.to_owned() });
        "noted"
    }

    // --- The server --------------------------------------------------------------------------------------------------

    /// Answers every worker that connects, for the life of the process.
    pub(crate) fn listen(self: &Arc<Self>) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let ledger = Arc::clone(self);
        thread::Builder::new().spawn(move || {
            for stream in listener.incoming().flatten() {
                let ledger = Arc::clone(&ledger);
                // Fails if the worker has been killed.
                thread::spawn(move || _ = ledger.serve(stream));
            }
        })?;
        Ok(address)
    }

    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut worker = String::new();
        for line in BufReader::new(stream.try_clone()?).lines() {
            let line = line?;
            let words: Vec<_> = line.split(' ').collect();
            let token = |text: &str| text.parse().ok().and_then(Token::new);
            let account = words.get(1).and_then(|word| word.parse::<usize>().ok()).unwrap_or_default();
            let answer = match *words {
                ["hello", name] => {
                    worker = name.to_owned();
                    self.hello()
                }
                ["next"] => self.next(&worker),
                ["read", _, shown] => self.read(&worker, account, token(shown)).to_owned(),
                ["bank", _] => self.bank(&worker, account).to_owned(),
                ["pay", _, shown] => self.pay(&worker, account, token(shown)).to_owned(),
                ["lost", _, why] => self.lost(&worker, account, why).to_owned(),
                _ => "what?".to_owned(),
            };
            stream.write_all((answer + "\n").as_bytes())?;
        }
        Ok(())
    }
}

impl Book {
    /// Counts the accounts whose number of payments satisfies `is_it`.
    pub(crate) fn count(&self, is_it: impl Fn(usize) -> bool) -> usize {
        self.paid.iter().filter(|&&paid| is_it(paid)).count()
    }

    /// Returns an offer; `None` if there is nothing to offer at the moment.
    fn offer(&mut self, worker: &str) -> Option<String> {
        let Book { paid, at, redo, scenes, .. } = self;
        // The script keeps the account of a scene for its worker.
        let is_kept =
            |account| scenes.iter().any(|scene| scene.account == account && scene.worker != worker && !scene.has_begun);
        while let Some(account) = redo.pop() {
            if paid[account] == 0 {
                return Some(format!("again {account}"));
            }
        }
        let at = at.entry(worker.to_owned()).or_default();
        while *at < paid.len() {
            let account = *at;
            *at += 1;
            if paid[account] == 0 && !is_kept(account) {
                return Some(format!("first {account}"));
            }
        }
        match (0..paid.len()).find(|&account| paid[account] == 0 && !is_kept(account)) {
            Some(account) => Some(format!("again {account}")),
            None if paid.contains(&0) => None,
            None => Some("done".to_owned()),
        }
    }
}
