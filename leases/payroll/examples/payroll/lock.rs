//! What keeps two workers from paying one account at the same time, or does not.

use std::{error, thread, time::Duration};

use keylatch_lease::{AcquireError, Held, Leases, Owner, ReleaseError, Resource, Token, engine::Engine};

pub(crate) type Error = Box<dyn error::Error + Send + Sync>;

/// What is leased when an account is paid.
pub(crate) fn payment(account: usize) -> Resource {
    Resource::new("payment", account.to_string())
}

pub(crate) trait Lock {
    /// `None` if somebody else has it, and it is not to be waited for.
    fn take(&self, account: usize, waits: bool) -> Result<Option<Box<dyn Taken>>, Error>;
}

pub(crate) trait Taken {
    /// What the ledger is shown, if there is such a thing.
    fn token(&self) -> Option<Token>;
    fn check(&self) -> Result<(), String>;
    fn release(self: Box<Self>) -> Result<(), Error>;
}

// --- Leases ----------------------------------------------------------------------------------------------------------

pub(crate) struct Leased<E: Engine + 'static> {
    /// For as long as the process lives, so that whoever renews needs not ask whether it is still there.
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
                // It renews beside the work, until the lease is released or lost. A program with tasks would rather say
                // `held.run(work).await`, or spawn this.
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
            // It was lost before: nothing has been changed, and the account is somebody else's.
            Ok(()) | Err(ReleaseError::NotHeld { .. } | ReleaseError::NotOwner { .. }) => Ok(()),
            Err(error) => Err(error.to_string().into()),
        }
    }
}

/// How many accounts are leased.
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
