//! How a [`Held`](crate::Held) hears that its tenure has ended before its time.

use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{fmt, task::Waker};

use crate::{Grant, Lost, Token, sync::Mutex};

/// The channel by which an engine tells a [`Held`](crate::Held) about its resource: which tenures have ended, or that it may have missed
/// something. See [`Engine::subscribe`](super::engine::Engine::subscribe).
///
/// The engine calls it from its own task, so [`Held::check`](crate::Held::check) says no from then on, whether anybody polls the Held or not.
///
/// # Examples
/// ```
/// use keylatch_lease::{Lost, Token, engine::Notice};
///
/// let notice = Notice::new();
/// let [seven, eight] = [7, 8].map(|number| Token::new(number).unwrap());
/// notice.ended(seven, Lost::Released);
/// assert_eq!(notice.lost(seven), Some(Lost::Released));
/// assert_eq!(notice.lost(eight), None);
/// ```
pub struct Notice {
    told: Mutex<Told>,
    /// All of its table that are in doubt.
    doubts: Arc<Doubts>,
}

struct Told {
    /// The lease of the `Held`, once it has one.
    held: Option<Subject>,
    /// All tenures up to this one have ended; and how this one did.
    ended: Option<(Token, Lost)>,
    doubt: Doubt,
    /// The futures of the Held that sleep.
    wakers: Vec<(u64, Waker)>,
    last: u64,
}

/// The subject of a notice.
struct Subject {
    notice: Weak<Notice>,
    /// Without an end: it is renewed.
    grant: Grant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt {
    None,
    /// The engine may have missed something: the tenure has to be looked at.
    Open,
    /// Somebody looks at it.
    InHand,
}

impl Notice {
    /// A notice that has not been told anything.
    ///
    /// # Examples
    /// See [`Notice`].
    #[must_use]
    #[allow(clippy::new_without_default)] // engines are given theirs
    pub fn new() -> Self {
        Notice::among(Arc::default())
    }

    pub(crate) fn among(doubts: Arc<Doubts>) -> Self {
        let told = Told { held: None, ended: None, doubt: Doubt::None, wakers: Vec::new(), last: 0 };
        Notice { told: Mutex::new(told), doubts }
    }

    /// Tells that this tenure of the resource has ended, and all before it; and how.
    ///
    /// # Examples
    /// See [`Notice`].
    pub fn ended(&self, token: Token, how: Lost) {
        let wakers = {
            let told = &mut *self.told.lock();
            let own = told.held.as_ref().map_or(token, |held| held.grant.token);
            if told.ended.is_some_and(|(known, _)| known >= own) {
                return;
            }
            told.ended = Some((token, how));
            core::mem::take(&mut told.wakers)
        };
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Tells that the tenure may have ended: a future of the Held looks whether it has.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::{Token, engine::Notice};
    ///
    /// let notice = Notice::new();
    /// notice.doubt(); // nobody is sure
    /// assert_eq!(notice.lost(Token::new(7).unwrap()), None);
    /// ```
    pub fn doubt(&self) {
        Notice::doubt_all([self]);
    }

    /// The same of many, as when a connection was lost. A future that is woken by it looks at all of them.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::engine::Notice;
    ///
    /// let notices = [Notice::new(), Notice::new()];
    /// Notice::doubt_all(&notices);
    /// ```
    pub fn doubt_all<'a>(notices: impl IntoIterator<Item = &'a Notice>) {
        let mut wakers = Vec::new();
        for notice in notices {
            let own = {
                let told = &mut *notice.told.lock();
                if core::mem::replace(&mut told.doubt, Doubt::Open) == Doubt::Open {
                    continue;
                }
                wakers.append(&mut told.wakers);
                told.held.as_ref().map(|held| Weak::clone(&held.notice))
            };
            own.into_iter().for_each(|own| notice.doubts.add(own));
        }
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// How this tenure has ended, if that has been told.
    ///
    /// # Examples
    /// See [`Notice`].
    #[must_use]
    pub fn lost(&self, token: Token) -> Option<Lost> {
        self.told.lock().ended.filter(|(ended, _)| *ended >= token).map(|(_, how)| how)
    }

    /// The Held has this.
    pub(crate) fn is_of(self: &Arc<Self>, grant: Grant) {
        let is_in_doubt = {
            let told = &mut *self.told.lock();
            told.held = Some(Subject { notice: Arc::downgrade(self), grant: Grant { end: None, ..grant } });
            told.doubt == Doubt::Open
        };
        if is_in_doubt {
            self.doubts.add(Arc::downgrade(self));
        }
    }

    /// The lease of the `Held` as it was granted, without an end.
    pub(crate) fn grant(&self) -> Option<Grant> {
        self.told.lock().held.as_ref().map(|held| held.grant.clone())
    }

    /// Whether it is in doubt, and nobody sees to that: the caller does.
    pub(crate) fn take(&self) -> bool {
        let told = &mut *self.told.lock();
        let is_open = told.doubt == Doubt::Open;
        if is_open {
            told.doubt = Doubt::InHand;
        }
        is_open
    }

    /// It has been looked at; unless it is in doubt again, by what was told meanwhile.
    pub(crate) fn is_looked_at(&self) {
        let told = &mut *self.told.lock();
        if told.doubt == Doubt::InHand {
            told.doubt = Doubt::None;
        }
    }

    fn wake_by(&self, serial: &mut Option<u64>, waker: &Waker) {
        let new = waker.clone();
        let old = {
            let told = &mut *self.told.lock();
            let serial = *serial.get_or_insert_with(|| {
                told.last += 1;
                told.last
            });
            match told.wakers.iter_mut().find(|(of, _)| *of == serial) {
                Some((_, known)) => Some(core::mem::replace(known, new)),
                None => {
                    told.wakers.push((serial, new));
                    None
                }
            }
        };
        drop(old);
    }

    fn forget(&self, serial: u64) {
        let waker = {
            let told = &mut *self.told.lock();
            let found = told.wakers.iter().position(|(of, _)| *of == serial);
            found.map(|at| told.wakers.swap_remove(at))
        };
        drop(waker);
    }
}

impl fmt::Debug for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notice").field("ended", &self.told.lock().ended).finish_non_exhaustive()
    }
}

/// The notices of a table that are in doubt. Some may not be any more, and some may be gone.
pub(crate) struct Doubts(Mutex<Vec<Weak<Notice>>>);

impl Default for Doubts {
    fn default() -> Self {
        Doubts(Mutex::new(Vec::new()))
    }
}

impl Doubts {
    fn add(&self, notice: Weak<Notice>) {
        let mut all = self.0.lock();
        if all.len() == all.capacity() {
            all.retain(|notice| notice.strong_count() > 0);
        }
        all.push(notice);
    }

    /// Some of them, so many at most, for a caller that sees to them.
    pub(crate) fn take(&self, most: usize) -> Vec<Arc<Notice>> {
        let some = {
            let mut all = self.0.lock();
            let rest = all.len().saturating_sub(most);
            all.split_off(rest)
        };
        some.iter().filter_map(Weak::upgrade).filter(|notice| notice.take()).collect()
    }
}

/// A future that is woken by a notice, until it is dropped.
pub(crate) struct Ear {
    notice: Arc<Notice>,
    serial: Option<u64>,
}

impl Ear {
    pub(crate) fn new(notice: Arc<Notice>) -> Self {
        Ear { notice, serial: None }
    }

    /// Wakes this task when something is told after this call.
    pub(crate) fn wake_by(&mut self, waker: &Waker) {
        self.notice.wake_by(&mut self.serial, waker);
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        if let Some(serial) = self.serial {
            self.notice.forget(serial);
        }
    }
}
