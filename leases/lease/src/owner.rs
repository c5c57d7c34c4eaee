use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::hash::{Hash, Hasher};

use crate::invalid::Invalid;

/// The greatest length of a name, in bytes. Every engine can store a name of this length with the tag in front.
const MAX_LEN: usize = 1024;

/// The tag of a named owner's id; the name follows it.
const NAME: &str = "name:";
/// The tag of an incarnation's id; the digits, a colon and the name follow it.
const RUN: &str = "run:";
/// The number of hexadecimal digits in the id of an incarnation.
const DIGITS: usize = 16;

/// The holder of a lease: a name, not a task or a thread.
///
/// Callers with equal owners are the same holder, in every task, thread and process that shares the leases. If the
/// owner already has a lease, each of these callers gets it at once, and can renew and release it. So **two tasks that
/// must exclude each other need two owners**: one for each worker of a pool, not one for the pool.
///
/// Knowing the name is enough to release a lease, and errors and [`status`](crate::Leases::status) reveal the name to
/// other callers. So choose a name that may be known, such as the number that the server gave a session, never the
/// secret in a cookie.
///
/// There are two kinds of owners. [`named`](Owner::named) is for an owner that outlives a restart of the process, such
/// as a user's session. `incarnation` (with `std`) is for an owner that must not be confused with the one before a
/// restart: for example a worker, which would otherwise resume a job that it knows nothing about.
///
/// A name may be 1 to 1,024 bytes long. An owner with a name of another length can be created, but the calls refuse it
/// with their error `Invalid`.
///
/// Cloning an owner copies no text and allocates nothing. [`Display`](fmt::Display) writes the name. With the feature
/// `serde`, an owner is serialised as its [`id`](Owner::id).
///
/// # Examples
///
/// ```
/// use keylatch_lease::Owner;
///
/// let session = Owner::named("session-42");
/// assert_eq!(session, Owner::from("session-42"));
/// assert_eq!(session.to_string(), "session-42");
/// ```
#[derive(Clone, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// `name:NAME`, or `run:`, 16 lower-case hexadecimal digits and `:NAME`.
    id: Arc<str>,
}

impl Owner {
    /// Returns the owner of this name. Equal names always denote the same owner.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::Owner;
    ///
    /// let session = 42;
    /// let before = Owner::named(format!("session-{session}"));
    /// let after_a_restart = Owner::named("session-42");
    /// assert_eq!(before, after_a_restart);
    /// ```
    #[must_use]
    pub fn named(name: impl AsRef<str>) -> Self {
        Self::tagged(name.as_ref())
    }

    fn tagged(name: &str) -> Self {
        Self { id: Arc::from([NAME, name].concat()) }
    }

    /// Returns a new owner with this name, distinguished from all others by 64 random bits.
    ///
    /// Call it once for each worker when the process starts, and clone the result for the tasks of that worker. The
    /// leases of the previous process stay until they expire, or until a caller that has kept the previous
    /// [`id`](Owner::id) releases them.
    ///
    /// The bits come from [`RandomState`](std::hash::RandomState), whose randomness depends on the system. They
    /// distinguish owners that share a name by accident or by design. They are not secret.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::Owner;
    ///
    /// let before = Owner::incarnation("worker-3");
    /// let after_a_restart = Owner::incarnation("worker-3");
    /// assert_ne!(before, after_a_restart);
    /// assert_eq!(before.name(), after_a_restart.name());
    /// ```
    #[cfg(feature = "std")]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    #[must_use]
    pub fn incarnation(name: impl AsRef<str>) -> Self {
        use core::hash::BuildHasher;

        // After a fork, `RandomState` has the same keys in both processes, so the process id is hashed, too.
        let process = if cfg!(unix) { std::process::id() } else { 0 };
        let bits = std::hash::RandomState::new().hash_one(process);
        Self::run(bits, name.as_ref())
    }

    #[cfg(any(feature = "std", test))]
    fn run(bits: u64, name: &str) -> Self {
        Self { id: Arc::from(alloc::format!("{RUN}{bits:0DIGITS$x}:{name}")) }
    }

    /// Returns the name that the owner was created with.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::Owner;
    ///
    /// assert_eq!(Owner::named("session-42").name(), "session-42");
    /// # #[cfg(feature = "std")]
    /// assert_eq!(Owner::incarnation("worker-3").name(), "worker-3");
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        self.id.strip_prefix(NAME).unwrap_or_else(|| &self.id[RUN.len() + DIGITS + 1..])
    }

    /// Returns the text that engines store: the name, after a tag for the kind of owner.
    ///
    /// The id is `name:` and the name, or for an incarnation `run:`, 16 hexadecimal digits, a colon and the name. Equal
    /// ids are equal owners. [`from_id`](Owner::from_id) converts an id back into the owner. [`named`](Owner::named)
    /// does not: it treats the tag as part of the name.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::Owner;
    ///
    /// let session = Owner::named("session-42");
    /// assert_eq!(session.id(), "name:session-42");
    /// assert_ne!(Owner::named(session.id()), session);
    /// ```
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the owner with this [`id`](Owner::id). An id without a tag is taken to be a name.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::Owner;
    ///
    /// let session = Owner::named("session-42");
    /// assert_eq!(Owner::from_id(session.id()), session);
    /// assert_eq!(Owner::from_id("session-42"), session);
    ///
    /// let worker = Owner::from_id("run:5f0c2ab9e1d47733:worker-3");
    /// assert_eq!(worker.name(), "worker-3");
    /// assert_ne!(worker, Owner::named("worker-3"));
    /// ```
    #[must_use]
    pub fn from_id(id: &str) -> Self {
        if id.starts_with(NAME) || is_run(id) { Self { id: Arc::from(id) } } else { Self::tagged(id) }
    }

    /// Checks the length of the name. Each call makes this check before it sends a request to the engine.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if (1..=MAX_LEN).contains(&self.name().len()) { Ok(()) } else { Err(Invalid("owner")) }
    }
}

/// Returns whether this is the id of an incarnation. Upper-case digits are not accepted, so that each owner has only
/// one id.
fn is_run(id: &str) -> bool {
    let Some(rest) = id.strip_prefix(RUN) else { return false };
    let Some((digits, _name)) = rest.split_once(':') else { return false };
    digits.len() == DIGITS && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

impl PartialEq for Owner {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.id, &other.id) || self.id == other.id
    }
}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&self.id()).finish()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Converts a name as [`Owner::named`] does.
impl From<&str> for Owner {
    fn from(name: &str) -> Self {
        Self::tagged(name)
    }
}

/// Converts a name as [`Owner::named`] does.
impl From<String> for Owner {
    fn from(name: String) -> Self {
        Self::tagged(&name)
    }
}

/// Converts a name as [`Owner::named`] does.
impl From<&String> for Owner {
    fn from(name: &String) -> Self {
        Self::tagged(name)
    }
}

#[cfg(test)]
mod tests {
    use super::Owner;
    use crate::invalid::Invalid;

    #[test]
    fn a_name_is_one_byte_to_one_kibibyte_long() {
        let text = "x".repeat(1025);
        assert_eq!(Owner::named("x").check(), Ok(()));
        assert_eq!(Owner::named(&text[..1024]).check(), Ok(()));
        assert_eq!(Owner::run(7, &text[..1024]).check(), Ok(()));

        assert_eq!(Owner::named("").check(), Err(Invalid("owner")));
        assert_eq!(Owner::run(7, "").check(), Err(Invalid("owner")));
        assert_eq!(Owner::named(&text).check(), Err(Invalid("owner")));
        assert_eq!(Owner::run(7, &text).check(), Err(Invalid("owner")));
    }

    #[test]
    fn an_incarnation_keeps_its_leading_zeros() {
        let owner = Owner::run(0xbeef, "worker:3");
        assert_eq!(owner.id(), "run:000000000000beef:worker:3");
        assert_eq!(owner.name(), "worker:3");
        assert_eq!(Owner::from_id(owner.id()), owner);
    }
}
