use core::error::Error;
use core::fmt;

use hashbrown::HashMap;

use crate::sync::Mutex;
use crate::{Resource, Token};

/// A check at the target of the writes, which refuses writers whose lease has passed to another holder.
///
/// A lease alone cannot stop such a writer. The holder may look at the clock, find the lease valid, and be paused
/// before its write takes effect: by the scheduler, a page fault, a suspended machine, or a slow network. When it goes
/// on, the lease has expired and another holder is at work. The remedy is to check at the place of the write. Every
/// tenure has a greater token than those before it, so a token smaller than one already seen comes from a holder whose
/// tenure has ended. Martin Kleppmann describes this in [How to do distributed
/// locking](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html) (2016).
///
/// So a fence belongs to the target of the writes, not to the writers, and every write must pass it. This one is for a
/// target in this process: a file, a device, a connection that all writers share. Its memory ends with the process.
///
/// **A writer that reads first must present its token at the read.** If only writes pass the fence, a stale write may
/// still come between the new holder's read and its first write. That first write then overwrites data that the new
/// holder has not read.
///
/// `admit` and the write after it are two steps. If a newer holder may write in between, do both under one lock, or in
/// one task that does all the writing.
///
/// # In SQL
///
/// A database keeps the greatest token beside the data, and compares it in the statement that writes:
///
/// ```sql
/// ALTER TABLE invoice ADD COLUMN token bigint NOT NULL DEFAULT 0;
///
/// -- to read a row in order to change it
/// UPDATE invoice SET token = $1 WHERE id = $2 AND token <= $1 RETURNING total;
///
/// -- to write
/// UPDATE invoice SET total = $3, token = $1 WHERE id = $2 AND token <= $1;
/// ```
///
/// If no row is updated, the lease is lost (or there is no such row). The comparison is `<=` and not `<` because the
/// same tenure may write again. The column outlives the process, so tokens must keep growing across restarts: with the
/// feature `std`, those of [`Memory`](crate::Memory) start at the current time.
///
/// # Examples
///
/// ```
/// use keylatch_lease::{Fence, Resource, Token};
///
/// let fence = Fence::new();
/// let drawer = Resource::new("drawer", "3");
/// let [earlier, later] = [41, 42].map(|number| Token::new(number).unwrap());
///
/// assert!(fence.admit(&drawer, earlier).is_ok());
/// assert!(fence.admit(&drawer, later).is_ok()); // the next tenure
/// assert!(fence.admit(&drawer, later).is_ok()); // and again
///
/// let stale = fence.admit(&drawer, earlier).unwrap_err();
/// assert_eq!(stale.newest(), later);
/// ```
pub struct Fence {
    /// The greatest admitted token of each resource.
    newest: Mutex<HashMap<Resource, Token>>,
}

impl Fence {
    /// Creates a fence that has seen no token yet.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::Fence;
    ///
    /// assert!(Fence::new().is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self { newest: Mutex::new(HashMap::new()) }
    }

    /// Lets a write to this resource pass, unless a greater token has passed before.
    ///
    /// An equal token passes: it is the same tenure, writing again. Only the first token of a resource allocates.
    ///
    /// # Errors
    ///
    /// [`Stale`] if a greater token has passed: the writer's tenure has ended, and a newer one has passed the fence
    /// since.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::{Fence, Resource, Stale, Token};
    ///
    /// struct Drawer {
    ///     resource: Resource,
    ///     fence: Fence,
    ///     content: String,
    /// }
    ///
    /// impl Drawer {
    ///     // `&mut self` excludes a write between the two lines.
    ///     fn put(&mut self, token: Token, content: &str) -> Result<(), Stale> {
    ///         self.fence.admit(&self.resource, token)?;
    ///         self.content = content.to_owned();
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let mut drawer = Drawer {
    ///     resource: Resource::new("drawer", "3"),
    ///     fence: Fence::new(),
    ///     content: String::new(),
    /// };
    /// let [earlier, later] = [41, 42].map(|number| Token::new(number).unwrap());
    ///
    /// assert!(drawer.put(later, "scissors").is_ok());
    /// assert!(drawer.put(earlier, "glue").is_err());
    /// assert_eq!(drawer.content, "scissors");
    /// ```
    pub fn admit(&self, resource: &Resource, token: Token) -> Result<(), Stale> {
        let mut newest = self.newest.lock();
        match newest.get_mut(resource) {
            Some(&mut newest) if token < newest => Err(Stale { resource: resource.clone(), token, newest }),
            Some(newest) => {
                *newest = token;
                Ok(())
            }
            None => {
                newest.insert(resource.clone(), token);
                Ok(())
            }
        }
    }

    /// Forgets the greatest token of this resource, and frees its memory.
    ///
    /// From then on any token passes, even the oldest. So forget a resource only when it no longer exists, or when no
    /// writer that once had it can still be running.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::{Fence, Resource, Token};
    ///
    /// let fence = Fence::new();
    /// let drawer = Resource::new("drawer", "3");
    /// fence.admit(&drawer, Token::new(42).unwrap())?;
    ///
    /// // The drawer is taken out, and a new one put in.
    /// fence.forget(&drawer);
    /// assert!(fence.is_empty());
    /// # Ok::<(), keylatch_lease::Stale>(())
    /// ```
    pub fn forget(&self, resource: &Resource) {
        self.newest.lock().remove(resource);
    }

    /// Returns the number of resources whose tokens the fence remembers.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::{Fence, Resource, Token};
    ///
    /// let fence = Fence::new();
    /// fence.admit(&Resource::new("drawer", "3"), Token::new(42).unwrap())?;
    /// fence.admit(&Resource::new("drawer", "4"), Token::new(17).unwrap())?;
    /// assert_eq!(fence.len(), 2);
    /// # Ok::<(), keylatch_lease::Stale>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.newest.lock().len()
    }

    /// Returns whether the fence remembers no token.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::{Fence, Resource, Token};
    ///
    /// let fence = Fence::new();
    /// assert!(fence.is_empty());
    /// fence.admit(&Resource::new("drawer", "3"), Token::new(42).unwrap())?;
    /// assert!(!fence.is_empty());
    /// # Ok::<(), keylatch_lease::Stale>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Fence {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// The error of a write that was refused because a newer tenure has passed the fence.
///
/// # Examples
///
/// ```
/// use keylatch_lease::{Fence, Resource, Token};
///
/// let fence = Fence::new();
/// let drawer = Resource::new("drawer", "3");
/// fence.admit(&drawer, Token::new(42).unwrap())?;
///
/// let stale = fence.admit(&drawer, Token::new(41).unwrap()).unwrap_err();
/// assert_eq!(stale.to_string(), "token 41 of drawer/3 is stale: token 42 has been seen");
/// # Ok::<(), keylatch_lease::Stale>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    resource: Resource,
    token: Token,
    newest: Token,
}

impl Stale {
    /// Returns the target of the write.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::{Fence, Resource, Token};
    ///
    /// let fence = Fence::new();
    /// let drawer = Resource::new("drawer", "3");
    /// fence.admit(&drawer, Token::new(42).unwrap())?;
    /// let stale = fence.admit(&drawer, Token::new(41).unwrap()).unwrap_err();
    /// assert_eq!(stale.resource(), &drawer);
    /// # Ok::<(), keylatch_lease::Stale>(())
    /// ```
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Returns the token that was refused.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::{Fence, Resource, Token};
    ///
    /// let fence = Fence::new();
    /// let drawer = Resource::new("drawer", "3");
    /// fence.admit(&drawer, Token::new(42).unwrap())?;
    /// let stale = fence.admit(&drawer, Token::new(41).unwrap()).unwrap_err();
    /// assert_eq!(stale.token().get(), 41);
    /// # Ok::<(), keylatch_lease::Stale>(())
    /// ```
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns the greatest token that has passed.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylatch_lease::{Fence, Resource, Token};
    ///
    /// let fence = Fence::new();
    /// let drawer = Resource::new("drawer", "3");
    /// fence.admit(&drawer, Token::new(42).unwrap())?;
    /// let stale = fence.admit(&drawer, Token::new(41).unwrap()).unwrap_err();
    /// assert_eq!(stale.newest().get(), 42);
    /// # Ok::<(), keylatch_lease::Stale>(())
    /// ```
    #[must_use]
    pub fn newest(&self) -> Token {
        self.newest
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, token, newest } = self;
        write!(f, "token {token} of {resource} is stale: token {newest} has been seen")
    }
}

impl Error for Stale {}
