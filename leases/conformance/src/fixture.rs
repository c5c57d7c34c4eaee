use std::{future::Future, net::SocketAddr, process::Command, time::Duration};

use keylatch_lease::engine::Engine;

use crate::{Caps, Failure, Proxy};

/// A system under test: an engine, and the faults that can be inflicted on it.
///
/// A namespace is a separate set of leases. The suite makes up a new one for each case, so that cases can run side by
/// side, and several times. Its name consists of ASCII letters, digits and `_`. An engine without namespaces can use a
/// prefix of the entity, a table or a database for each.
///
/// [`conformance!`](crate::conformance) makes one fixture for all cases, and never drops it. Servers and processes that
/// the fixture starts should end with this process. For example, a server can watch for the end of its standard input.
///
/// # Examples
/// See the [crate's page](crate#a-fixture).
pub trait Fixture: Send + Sync + 'static {
    /// The engine that is tested.
    type Engine: Engine + 'static;

    /// Returns the engine's name in reports.
    fn name(&self) -> String;

    /// Returns what the suite expects of the engine.
    fn caps(&self) -> Caps;

    /// Connects one more client to this namespace, as another process would. The client must see the leases of all
    /// others. If there is a proxy, the client must reach the engine through it, at [`Proxy::address`].
    ///
    /// For an engine that is [`LOCAL`](Engine::LOCAL) this is called once for each namespace, and all parts of a case
    /// share the client.
    fn connect(
        &self,
        namespace: &str,
        through: Option<&Proxy>,
    ) -> impl Future<Output = Result<Self::Engine, Failure>> + Send;

    /// Runs a future on the runtime that the engine needs. By default there is no runtime, only the timers and sockets
    /// of `async-io`.
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        async_io::block_on(future)
    }

    /// Lets time pass in a namespace: by waiting, which is the default, or by moving its clock.
    fn pass(&self, namespace: &str, time: Duration) -> impl Future<Output = ()> + Send {
        let _ = namespace;
        async move {
            async_io::Timer::after(time).await;
        }
    }

    /// Returns the address at which the engine's server listens. Proxies forward to it.
    fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// Returns the faults that can be inflicted on the server.
    fn server(&self) -> Option<&dyn Server> {
        None
    }

    /// Returns the ways in which leases of a namespace can be taken away by hand, bypassing the engine. The suite tries
    /// them in this order, all in one namespace, so only the last may leave the namespace in quarantine.
    fn by_hand(&self) -> Vec<ByHand> {
        Vec::new()
    }

    /// Takes away all leases of a namespace. `what` is the name of one of the ways that [`by_hand`](Self::by_hand)
    /// returns.
    ///
    /// # Errors
    /// Fails if the leases could not be taken away.
    fn take_away(&self, namespace: &str, what: &str) -> impl Future<Output = Result<(), Failure>> + Send {
        let failure = Failure::does_not_apply(format!("{what} of {namespace} cannot be taken away"));
        async { Err(failure) }
    }

    /// Returns the number of the server's connections from clients of this namespace, if it is known.
    fn connections(&self, namespace: &str) -> Option<u64> {
        let _ = namespace;
        None
    }

    /// Returns a command for another process, which can be stopped and killed. Its program connects to this namespace,
    /// at this address, and then [serves](crate::worker::serve) the suite.
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
    /// A name for the things that are taken away, such as "rows".
    pub what: &'static str,
    /// The event that must make a holder learn of the loss.
    pub heard: Heard,
    /// The longest delay after that event, as the engine documents it.
    pub notice: Duration,
}

/// The event that makes holders learn of a deletion by hand.
///
/// # Examples
/// See [`ByHand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The deletion itself: the store sends a message.
    AtOnce,
    /// The next request for the resource by another owner: the store sends no message, but the request makes the engine
    /// notice. Until then no other owner has the resource.
    WhenAsked,
}

/// The faults that can be inflicted on a server. Cases that do so run alone.
///
/// Each method may return that it [does not apply](Failure::does_not_apply), which is the default.
///
/// # Examples
/// ```
/// use keylatch_lease_conformance::Server;
///
/// struct Rock; // a server that cannot be harmed
///
/// impl Server for Rock {}
/// assert!(Rock.kill().is_err());
/// ```
pub trait Server: Send + Sync {
    /// Ends the server at once, as `kill -9` does.
    ///
    /// # Errors
    /// Fails if the fault could not be inflicted, or does not apply.
    fn kill(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("the server cannot be killed"))
    }

    /// Starts the server after [`kill`](Self::kill), with the data that it has kept, and returns when it can be
    /// reached.
    ///
    /// # Errors
    /// Fails if the server could not be started, or if this does not apply.
    fn restart(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("the server cannot be restarted"))
    }

    /// Ends the server at once and starts it without any of its data.
    ///
    /// # Errors
    /// Fails if the fault could not be inflicted, or does not apply.
    fn forget(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("the server cannot be made to forget"))
    }

    /// Deletes all leases while the server runs, as an operator can.
    ///
    /// # Errors
    /// Fails if the fault could not be inflicted, or does not apply.
    fn empty(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("the server cannot be emptied"))
    }

    /// Makes a copy of all the server's data.
    ///
    /// # Errors
    /// Fails if the copy could not be made, or if this does not apply.
    fn back_up(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("the server's data cannot be copied"))
    }

    /// Ends the server at once, and starts it with the copy that was made before.
    ///
    /// # Errors
    /// Fails if the fault could not be inflicted, or does not apply.
    fn put_back(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("the server's data cannot be put back"))
    }

    /// Stops the server, as `SIGSTOP` does: connections stay open, but get no answer.
    ///
    /// # Errors
    /// Fails if the fault could not be inflicted, or does not apply.
    fn pause(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("the server cannot be paused"))
    }

    /// Lets the server continue after [`pause`](Self::pause).
    ///
    /// # Errors
    /// Fails if the server could not be resumed, or if this does not apply.
    fn resume(&self) -> Result<(), Failure> {
        Err(Failure::does_not_apply("the server cannot be resumed"))
    }
}
