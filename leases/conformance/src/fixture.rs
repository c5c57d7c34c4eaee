use std::{future::Future, net::SocketAddr, process::Command, time::Duration};

use keylatch_lease::engine::Engine;

use crate::{Caps, Failure, Proxy};

/// A system under test: an engine, and what can be done to it.
///
/// A namespace is a set of leases of its own. The suite makes up a new one for each case, so that cases can run side by side, and
/// several times over; its name has ASCII letters, digits and `_` only. Engines without namespaces have a prefix of the entity, a table or a
/// database for each.
///
/// [`conformance!`](crate::conformance) makes one fixture for all cases, and never drops it. What it starts should end with the process: a server that is
/// told by its closed standard input, for example.
///
/// # Examples
/// See the [crate's page](crate#a-fixture).
pub trait Fixture: Send + Sync + 'static {
    /// What is tested.
    type Engine: Engine + 'static;

    /// Returns its name in reports.
    fn name(&self) -> String;

    /// The outcome to expect of it.
    fn caps(&self) -> Caps;

    /// One more client of this namespace, as another process would have it; it sees the leases of all others. Where there is a proxy, it reaches
    /// the engine through that: at [`Proxy::address`].
    ///
    /// For an engine that is [`LOCAL`](Engine::LOCAL) this is called once for each namespace, and all cases have one client.
    fn connect(
        &self,
        namespace: &str,
        through: Option<&Proxy>,
    ) -> impl Future<Output = Result<Self::Engine, Failure>> + Send;

    /// Runs a future, on the runtime that the engine needs. By default on none, with the timers and sockets of `async-io`.
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        async_io::block_on(future)
    }

    /// Lets time pass in a namespace: really, which is the default, or by moving its clock.
    fn pass(&self, namespace: &str, time: Duration) -> impl Future<Output = ()> + Send {
        let _ = namespace;
        async move {
            async_io::Timer::after(time).await;
        }
    }

    /// Where the engine's server listens: there proxies forward to.
    fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// The faults that can be inflicted on the server.
    fn server(&self) -> Option<&dyn Server> {
        None
    }

    /// In which ways somebody can take away the leases of a namespace by hand, past the engine. They are tried in this order, in one
    /// namespace: only the last may leave it in quarantine.
    fn by_hand(&self) -> Vec<ByHand> {
        Vec::new()
    }

    /// Takes away all leases of a namespace in the way of this name, one of [`by_hand`](Self::by_hand).
    ///
    /// # Errors
    /// It could not.
    fn take_away(&self, namespace: &str, what: &str) -> impl Future<Output = Result<(), Failure>> + Send {
        let failure = Failure::does_not_apply(format!("{what} of {namespace} cannot be taken away"));
        async { Err(failure) }
    }

    /// Returns the number of the server's connections from clients of this namespace, if it can tell.
    fn connections(&self, namespace: &str) -> Option<u64> {
        let _ = namespace;
        None
    }

    /// A program that connects to this namespace, at this address, and then [serves](crate::worker::serve) the suite: another process that can be
    /// stopped and killed.
    fn worker(&self, namespace: &str, address: Option<SocketAddr>) -> Option<Command> {
        let _ = (namespace, address);
        None
    }
}

/// A way to take leases away by hand: see [`Fixture::by_hand`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylatch_lease_conformance::{ByHand, Heard};
///
/// let way = ByHand { what: "rows", heard: Heard::AtOnce, notice: Duration::from_millis(500) };
/// assert_ne!(way.heard, Heard::WhenAsked);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByHand {
    /// What is taken away.
    pub what: &'static str,
    /// From when on a holder is to know.
    pub heard: Heard,
    /// How late it may, in the engine's own account of itself.
    pub notice: Duration,
}

/// When holders hear of what was done by hand.
///
/// # Examples
/// See [`ByHand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The store tells.
    AtOnce,
    /// The store does not tell; but somebody else who asks for the resource makes the engine notice. Until then nobody else has it.
    WhenAsked,
}

/// The faults that can be inflicted on a server. Cases that do so run alone.
///
/// Each may say that it [does not apply](Failure::does_not_apply), which is the default.
///
/// # Examples
/// ```
/// use keylatch_lease_conformance::Server;
///
/// struct Rock; // cannot be harmed
///
/// impl Server for Rock {}
/// assert!(Rock.kill().is_err());
/// ```
pub trait Server: Send + Sync {
    /// Ends it at once, as `kill -9` does.
    ///
    /// # Errors
    /// It could not, or it does not apply.
    fn kill(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("the server cannot be killed"))
    }

    /// Starts it again after [`kill`](Self::kill), with what it has kept, and returns when it can be reached.
    ///
    /// # Errors
    /// It could not, or it does not apply.
    fn restart(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("the server cannot be restarted"))
    }

    /// Ends it at once and starts it again without anything that it knew.
    ///
    /// # Errors
    /// It could not, or it does not apply.
    fn forget(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("the server cannot be made to forget"))
    }

    /// Takes away all leases that it has while it goes on, as an operator can who empties it.
    ///
    /// # Errors
    /// It could not, or it does not apply.
    fn empty(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("the server cannot be emptied"))
    }

    /// Makes a copy of all that it has.
    ///
    /// # Errors
    /// It could not, or it does not apply.
    fn back_up(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("there is no copy of what the server has"))
    }

    /// Ends it at once, and starts it again with the copy that was made before.
    ///
    /// # Errors
    /// It could not, or it does not apply.
    fn put_back(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("there is no copy of what the server has"))
    }

    /// Stops it, as `SIGSTOP` does: connections stay, and nobody answers.
    ///
    /// # Errors
    /// It could not, or it does not apply.
    fn pause(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("the server cannot be paused"))
    }

    /// Lets it go on after [`pause`](Self::pause).
    ///
    /// # Errors
    /// It could not, or it does not apply.
    fn resume(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("the server cannot be resumed"))
    }
}
