//! The channel by which a [`Held`](crate::Held) learns that its tenure has ended before its time.

use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{fmt, task::Waker};

use crate::{Grant, Lost, Token, sync::Mutex};

/// The channel by which an engine notifies a [`Held`](crate::Held) about its resource: which tenures have ended, or
/// that the engine may have missed an event. See [`Engine::subscribe`](super::engine::Engine::subscribe).
///
/// The engine calls [`ended`](Self::ended) and [`doubt`](Self::doubt) from its own task. After `ended`,
/// [`Held::check`](crate::Held::check) fails, whether the `Held` is polled or not.
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
    /// The notices of the same [`Leases`](crate::Leases) that are in doubt.
    doubts: Arc<Doubts>,
}

struct Told {
    /// The lease of the `Held`, once it has one.
    held: Option<Subject>,
    /// The latest tenure that has ended, and how it ended. All tenures before it have ended, too.
    ended: Option<(Token, Lost)>,
    doubt: Doubt,
    /// The wakers of the Held's futures, with their serial numbers.
    wakers: Vec<(u64, Waker)>,
    last: u64,
}

/// The subject of a notice.
struct Subject {
    notice: Weak<Notice>,
    /// The grant of the lease, without an end, because the lease is renewed.
    grant: Grant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt {
    None,
    /// The engine may have missed an event: the tenure must be checked.
    Open,
    /// A future is checking the tenure.
    InHand,
}

impl Notice {
    /// Creates a notice without events.
    ///
    /// # Examples
    /// See [`Notice`].
    #[must_use]
    #[allow(clippy::new_without_default)] // `Leases` creates notices and passes them to engines: no `Default` is needed
    pub fn new() -> Self {
        Notice::among(Arc::default())
    }

    pub(crate) fn among(doubts: Arc<Doubts>) -> Self {
        let told = Told { held: None, ended: None, doubt: Doubt::None, wakers: Vec::new(), last: 0 };
        Notice { told: Mutex::new(told), doubts }
    }

    /// Notifies the Held that this tenure of the resource and all before it have ended, and how this tenure ended.
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

    /// Notifies the Held that its tenure may have ended: a future of this Held, or of another Held of the same
    /// [`Leases`](crate::Leases), checks whether it has.
    ///
    /// # Examples
    /// ```
    /// use keylatch_lease::{Token, engine::Notice};
    ///
    /// let notice = Notice::new();
    /// notice.doubt(); // the tenure may have ended
    /// assert_eq!(notice.lost(Token::new(7).unwrap()), None);
    /// ```
    pub fn doubt(&self) {
        Notice::doubt_all([self]);
    }

    /// Does the same as [`doubt`](Self::doubt) for many notices, for example after a lost connection. A future that is
    /// woken checks up to 256 of the tenures in one request.
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

    /// Returns how this tenure has ended, if the engine has notified that it has.
    ///
    /// # Examples
    /// See [`Notice`].
    #[must_use]
    pub fn lost(&self, token: Token) -> Option<Lost> {
        self.told.lock().ended.filter(|(ended, _)| *ended >= token).map(|(_, how)| how)
    }

    /// Records the lease of the Held.
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

    /// Returns the lease of the Held as it was granted, without an end.
    pub(crate) fn grant(&self) -> Option<Grant> {
        self.told.lock().held.as_ref().map(|held| held.grant.clone())
    }

    /// Returns whether the tenure is in doubt and no future is checking it. If so, the caller must check it.
    pub(crate) fn take(&self) -> bool {
        let told = &mut *self.told.lock();
        let is_open = told.doubt == Doubt::Open;
        if is_open {
            told.doubt = Doubt::InHand;
        }
        is_open
    }

    /// Records that the tenure has been checked. A doubt that arose in the meantime remains.
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

/// The notices in doubt of one [`Leases`](crate::Leases). Some may have been checked since, and some may have been
/// dropped.
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

    /// Returns at most `most` notices in doubt, which the caller must check.
    pub(crate) fn take(&self, most: usize) -> Vec<Arc<Notice>> {
        let some = {
            let mut all = self.0.lock();
            let rest = all.len().saturating_sub(most);
            all.split_off(rest)
        };
        some.iter().filter_map(Weak::upgrade).filter(|notice| notice.take()).collect()
    }
}

/// The registration of a future that is woken by a notice, until it is dropped.
pub(crate) struct Ear {
    notice: Arc<Notice>,
    serial: Option<u64>,
}

impl Ear {
    pub(crate) fn new(notice: Arc<Notice>) -> Self {
        Ear { notice, serial: None }
    }

    /// Wakes this task at the first event after this call.
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
