use keylatch_lease::{Lost, Resource, Token};

use crate::watch::Watchers;

/// A server's message that a tenure has ended.
///
/// # Examples
/// ```
/// use futures_lite::future::block_on;
/// use keylatch_lease::{Resource, Token};
/// use keylatch_lease_remote::{Told, Watchers};
///
/// let (watchers, report) = (Watchers::default(), Resource::from("report"));
/// let watch = watchers.watch(&report);
/// let told = Told::new(report, Token::new(7).unwrap(), 'r');
/// watchers.hear(told);
/// block_on(watch);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The resource.
    pub resource: Resource,
    /// The token of the tenure. All earlier tenures of the resource have ended too.
    pub token: Token,
    /// The way in which the tenure has ended.
    pub how: Lost,
    /// Whether only holders need to know: the resource has not become free, and will not become free earlier than
    /// before.
    pub is_for_holders: bool,
}

impl Told {
    /// Reads the letter that says how the tenure has ended: `r` if it was released; `t` if another tenure of its owner
    /// took over; `n` if one took over that ends no earlier, so that waiters need not know; `d` if it was deleted by
    /// hand. Returns `None` for other letters.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::{Lost, Token};
    /// use keylatch_lease_remote::Told;
    ///
    /// let told = |letter| Told::new("report".into(), Token::new(7).unwrap(), letter);
    /// let all: Vec<_> = "rtnd".chars().filter_map(told).map(|told| (told.how, told.is_for_holders)).collect();
    /// let over = (Lost::TakenOver, false);
    /// assert_eq!(all, [(Lost::Released, false), over, (Lost::TakenOver, true), (Lost::EngineForgot, false)]);
    /// assert_eq!(told('x'), None);
    /// ```
    #[must_use]
    pub fn new(resource: Resource, token: Token, letter: char) -> Option<Self> {
        let how = match letter {
            'r' => Lost::Released,
            't' | 'n' => Lost::TakenOver,
            'd' => Lost::EngineForgot,
            _ => return None,
        };
        Some(Told { resource, token, how, is_for_holders: letter == 'n' })
    }
}

impl Watchers {
    /// Notifies the waiters and holders that a message concerns. `None` stands for a message that cannot be read.
    /// Everything may then have changed, so all waiters and holders look again.
    ///
    /// # Examples
    /// See [`Told`].
    pub fn hear(&self, told: Option<Told>) {
        match told {
            Some(Told { resource, token, how, is_for_holders: true }) => self.tell_holders(&resource, token, how),
            Some(Told { resource, token, how, is_for_holders: false }) => self.tell_end(&resource, token, how),
            None => self.tell_all(),
        }
    }
}
