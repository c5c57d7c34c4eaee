//! Lists of leases, in pages.

use alloc::{string::String, vec::Vec};
use core::{fmt, future::Future, time::Duration};

use crate::{Leases, LookError, Owner, Resource, Token, engine::Engine, front::Entry, held::Waiting};

/// A page of a list, if there is one.
type Page<E> = Result<Option<Vec<ListedLease>>, LookError<<E as Engine>::Error>>;

/// The number of leases on a page, if it is not set.
const PAGE: usize = 100;

/// The smallest number of leases that [`List::all`] requests at a time.
const AT_A_TIME: usize = 1000;

/// A lease in a [list](Leases::list).
///
/// # Examples
/// See [`Leases::list`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedLease {
    resource: Resource,
    owner: Owner,
    token: Token,
    since: Duration,
    held_for: Duration,
    remaining: Option<Duration>,
}

impl ListedLease {
    fn new(Entry { resource, record, at }: Entry) -> Self {
        let since = at.saturating_sub(record.held_for);
        let (owner, token) = (record.owner, record.token);
        ListedLease { resource, owner, token, since, held_for: record.held_for, remaining: record.remaining }
    }

    /// Returns the leased resource.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Returns the owner.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns the number of the tenure. An operator ends exactly this tenure with
    /// [`release_token`](Leases::release_token).
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns the time at which the tenure began, by the clock of the [`Leases`], which is that of
    /// [`Engine::now`](crate::engine::Engine::now).
    #[must_use]
    pub fn since(&self) -> Duration {
        self.since
    }

    /// Returns the time for which the owner has had the lease.
    #[must_use]
    pub fn held_for(&self) -> Duration {
        self.held_for
    }

    /// Returns the time left until the lease expires if it is not renewed; `None` if it never does.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }
}

/// The position of a list after the last page that it returned.
#[derive(Clone, Debug)]
enum Position {
    Start,
    After(String),
    End,
}

/// A list of leases, which is read page by page: see [`Leases::list`].
#[must_use = "nothing is listed until a page is asked for"]
pub struct List<'a, E: Engine> {
    leases: &'a Leases<E>,
    owner: Option<Owner>,
    entity_prefix: String,
    page_size: usize,
    position: Position,
}

impl<E: Engine> fmt::Debug for List<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").field("position", &self.position).finish_non_exhaustive()
    }
}

impl<E: Engine> Leases<E> {
    /// Returns a list of all leases, which is read page by page. It can be narrowed to the leases of an owner, or of
    /// some entities. It is for people who want to see who has what, and for programs that clean up.
    ///
    /// A lease that exists from the first page to the last is listed exactly once, whatever changes meanwhile. One that
    /// begins or ends in that time may or may not be listed. Expired leases are not listed. The order is the engine's
    /// own.
    ///
    /// # Blocking
    /// In memory, other calls wait while a request looks at up to a thousand leases or, if the list is narrowed to an
    /// owner, at all leases of that owner.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// let (jane, hour) = (Owner::named("jane"), Duration::from_secs(3600));
    /// for invoice in ["7", "8", "9"] {
    ///     leases.try_acquire_now(("invoice", invoice), &jane, hour).unwrap();
    /// }
    /// leases.try_acquire_now(("order", "7"), &jane, hour).unwrap();
    ///
    /// let mut list = leases.list().owner(&jane).entity_prefix("invoice").page_size(2);
    /// while let Some(page) = list.next_page().wait().unwrap() {
    ///     for lease in &page {
    ///         println!("{} is leased to {} with the token {}", lease.resource(), lease.owner(), lease.token());
    ///         assert!(lease.remaining() <= Some(hour));
    ///     }
    ///     assert!(page.len() <= 2);
    /// }
    /// assert_eq!(leases.list().all().wait().unwrap().len(), 4);
    /// ```
    pub fn list(&self) -> List<'_, E> {
        List { leases: self, owner: None, entity_prefix: String::new(), page_size: PAGE, position: Position::Start }
    }
}

impl<E: Engine> List<'_, E> {
    /// Lists only the leases of this owner.
    ///
    /// # Examples
    /// See [`Leases::list`].
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Lists only the leases of resources whose entity begins with this text. The entity of a resource that has only a
    /// name is empty.
    ///
    /// # Examples
    /// See [`Leases::list`].
    pub fn entity_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.entity_prefix = prefix.into();
        self
    }

    /// Sets the number of leases on a page: 100 if not set.
    ///
    /// # Panics
    /// If the size is zero.
    ///
    /// # Examples
    /// See [`Leases::list`].
    pub fn page_size(mut self, leases: usize) -> Self {
        assert!(leases > 0, "the page size of a list of leases must not be zero");
        self.page_size = leases;
        self
    }

    /// Begins after the last page that another list returned. `cursor` is that list's [`cursor`](Self::cursor). The
    /// other list should have been narrowed in the same way.
    ///
    /// # Examples
    /// See [`cursor`](Self::cursor).
    pub fn after(mut self, cursor: impl Into<String>) -> Self {
        self.position = Position::After(cursor.into());
        self
    }

    /// Returns a text that says where the next page begins; `None` at the start and at the end. A program that keeps
    /// nothing between requests, such as a web service, can continue with another list [after](Self::after) it.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    ///
    /// let leases = Leases::in_memory();
    /// for name in ["a", "b", "c"] {
    ///     leases.try_acquire_now(name, &Owner::named("jane"), Duration::from_secs(60)).unwrap();
    /// }
    /// let mut list = leases.list().page_size(2);
    /// let first = list.next_page().wait().unwrap().unwrap();
    /// let cursor = list.cursor().unwrap().to_owned();
    ///
    /// let rest = leases.list().after(cursor).all().wait().unwrap();
    /// assert_eq!((first.len(), rest.len()), (2, 1));
    /// ```
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        match &self.position {
            Position::After(cursor) => Some(cursor),
            Position::Start | Position::End => None,
        }
    }

    /// Returns the next page, which is not empty; `None` at the end.
    ///
    /// The future's output is `Result<Option<Vec<ListedLease>>, LookError<E::Error>>`. After an error the same page can
    /// be asked for again.
    ///
    /// # Errors
    /// [`LookError::Unsupported`] if the engine cannot list leases; [`LookError::Invalid`] if the owner's name is empty
    /// or too long, or if the cursor that the list was given is not one of this engine's; [`LookError::Engine`] if the
    /// engine fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the list stays where it was.
    ///
    /// # Examples
    /// See [`Leases::list`].
    pub fn next_page(&mut self) -> Waiting<impl Future<Output = Page<E>> + Send + '_> {
        Waiting::new(async move {
            let after = match &self.position {
                Position::Start => None,
                Position::After(cursor) => Some(&**cursor),
                Position::End => return Ok(None),
            };
            let (entries, next) =
                self.leases.page(self.owner.as_ref(), &self.entity_prefix, after, self.page_size).await?;
            self.position = next.map_or(Position::End, Position::After);
            Ok((!entries.is_empty()).then(|| entries.into_iter().map(ListedLease::new).collect()))
        })
    }
}

impl<'a, E: Engine> List<'a, E> {
    /// Returns all remaining leases. If there may be very many, use [`next_page`](Self::next_page).
    ///
    /// The future's output is `Result<Vec<ListedLease>, LookError<E::Error>>`.
    ///
    /// # Errors
    /// Fails like [`next_page`](Self::next_page).
    ///
    /// # Examples
    /// See [`Leases::list`].
    pub fn all(
        mut self,
    ) -> Waiting<impl Future<Output = Result<Vec<ListedLease>, LookError<E::Error>>> + Send + use<'a, E>> {
        // On some servers, each page requires reading the whole namespace.
        self.page_size = self.page_size.max(AT_A_TIME);
        Waiting::new(async move {
            let mut all = Vec::new();
            while let Some(page) = self.next_page().await? {
                all.extend(page);
            }
            Ok(all)
        })
    }
}
