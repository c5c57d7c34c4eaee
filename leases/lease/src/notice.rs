//! How a [`Held`](crate::Held) hears that its tenure has ended before its time.

use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{fmt, task::Waker};

use crate::{Lost, Token, doubt::Doubts, sync::Mutex, tenure::Tenure};

/// What an engine tells a [`Held`](crate::Held) about the resource that it holds: which tenures have ended, or that it may have missed
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
    /// What the Held has, once it has something.
    tenure: Option<(Token, Weak<Tenure>)>,
    /// All tenures up to this one have ended; and how this one did.
    ended: Option<(Token, Lost)>,
    doubt: Doubt,
    /// The futures of the Held that sleep.
    wakers: Vec<(u64, Waker)>,
    last: u64,
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
        let told = Told { tenure: None, ended: None, doubt: Doubt::None, wakers: Vec::new(), last: 0 };
        Notice { told: Mutex::new(told), doubts }
    }

    /// Tells that this tenure of the resource has ended, and all before it; and how.
    ///
    /// # Examples
    /// See [`Notice`].
    pub fn ended(&self, token: Token, how: Lost) {
        let wakers = {
            let told = &mut *self.told.lock();
            let own = told.tenure.as_ref().map_or(token, |(own, _)| *own);
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
            let tenure = {
                let told = &mut *notice.told.lock();
                if core::mem::replace(&mut told.doubt, Doubt::Open) == Doubt::Open {
                    continue;
                }
                wakers.append(&mut told.wakers);
                told.tenure.as_ref().map(|(_, tenure)| Weak::clone(tenure))
            };
            tenure.into_iter().for_each(|tenure| notice.doubts.add(tenure));
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

    /// The Held has this tenure.
    pub(crate) fn is_of(&self, tenure: &Arc<Tenure>) {
        let is_in_doubt = {
            let told = &mut *self.told.lock();
            told.tenure = Some((tenure.token, Arc::downgrade(tenure)));
            told.doubt == Doubt::Open
        };
        if is_in_doubt {
            self.doubts.add(Arc::downgrade(tenure));
        }
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
