//! The locks that keep two workers from paying the same account at the same time. One kind of lock does nothing.

use std::{error, thread, time::Duration};

use keylatch_lease::{AcquireError, Held, Leases, Owner, ReleaseError, Resource, Token, engine::Engine};

pub(crate) type Error = Box<dyn error::Error + Send + Sync>;

/// Returns the resource that a worker leases to pay an account.
pub(crate) fn payment(account: usize) -> Resource {
    Resource::new("payment", account.to_string())
}

pub(crate) trait Lock {
    /// Locks an account; `None` if another worker has it and `waits` is false.
    fn take(&self, account: usize, waits: bool) -> Result<Option<Box<dyn Taken>>, Error>;
}

pub(crate) trait Taken {
    /// Returns the token for the ledger, if this lock has one.
    fn token(&self) -> Option<Token>;
    fn check(&self) -> Result<(), String>;
    fn release(self: Box<Self>) -> Result<(), Error>;
}

// --- Leases ----------------------------------------------------------------------------------------------------------

pub(crate) struct Leased<E: Engine + 'static> {
    /// This value is leaked, so that the renewing threads can borrow it for the life of the process.
    leases: &'static Leases<E>,
    owner: Owner,
    ttl: Duration,
}

impl<E: Engine + 'static> Leased<E> {
    pub(crate) fn new(engine: E, name: &str, ttl: Duration) -> Self {
        Leased { leases: Box::leak(Box::new(Leases::with_engine(engine))), owner: Owner::incarnation(name), ttl }
    }
}

impl<E: Engine + 'static> Lock for Leased<E> {
    fn take(&self, account: usize, waits: bool) -> Result<Option<Box<dyn Taken>>, Error> {
        let hold = if waits { Leases::hold } else { Leases::try_hold };
        match hold(self.leases, payment(account), &self.owner, self.ttl).wait() {
            Ok(held) => {
                // This thread renews the lease alongside the work, until the lease is released or lost. An async
                // program would await `held.run(work)` instead, or spawn the renewal as a task.
                let renewal = held.renewal();
                thread::Builder::new().spawn(move || renewal.wait())?;
                Ok(Some(Box::new(held)))
            }
            Err(AcquireError::Busy { .. }) => Ok(None),
            Err(error) => Err(error.to_string().into()),
        }
    }
}

impl<E: Engine + 'static> Taken for Held<'static, E> {
    fn token(&self) -> Option<Token> {
        Some(Held::token(self))
    }

    fn check(&self) -> Result<(), String> {
        Held::check(self).map(|_| ()).map_err(|lost| format!("{lost:?}"))
    }

    fn release(self: Box<Self>) -> Result<(), Error> {
        match Held::release(*self).wait() {
            // Either error: the lease was already lost, nothing has changed, and another worker may have the account.
            Ok(()) | Err(ReleaseError::NotHeld { .. } | ReleaseError::NotOwner { .. }) => Ok(()),
            Err(error) => Err(error.to_string().into()),
        }
    }
}

/// Counts the accounts that are leased.
pub(crate) fn count<E: Engine>(engine: E, accounts: usize) -> Result<usize, Error> {
    let leases = Leases::with_engine(engine);
    let mut count = 0;
    for account in 0..accounts {
        count += usize::from(leases.status(payment(account)).wait().map_err(|error| error.to_string())?.is_some());
    }
    Ok(count)
}

// --- Nothing ---------------------------------------------------------------------------------------------------------

pub(crate) struct Unlocked;

impl Lock for Unlocked {
    fn take(&self, _: usize, _: bool) -> Result<Option<Box<dyn Taken>>, Error> {
        Ok(Some(Box::new(Unlocked)))
    }
}

impl Taken for Unlocked {
    fn token(&self) -> Option<Token> {
        None
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn release(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}
