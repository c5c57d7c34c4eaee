//! Tracked requests for one hold: of a key, or of a latch.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::task::Poll;

use super::acquire::{FINISHED, HoldRequest, Trackable, Waits, sealed};
use super::holder::Origin;
use super::record::{HoldGuard, LATCH, Member, Record};
use super::report::Deadlock;
use super::step::{self, Step};
use super::tracked::Tracked;
use crate::acquire::future::Acquire;
use crate::acquire::request::Request;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::core::Contention;
use crate::core::{Identity, Place, Waiter, WakeBatch, Want};
use crate::guard::Guard;
use crate::latch::{LatchAcquire, LatchGuard, LatchRequest};
use crate::mode::Mode;
use crate::plumbing::TablePtr;

/// A request of a party for one hold.
///
/// `pub` because a sealed trait names it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)]
pub struct One<R: HoldRequest> {
    // Dropped first, because dropping the request may leave the queue.
    record: Record,
    request: R,
    origin: Origin,
}

impl<R: HoldRequest> One<R> {
    /// Tries once, without beginning to wait.
    #[inline]
    fn attempt(one: &mut Option<Self>, enter: impl FnOnce(&mut R) -> Option<R::Got>) -> Option<Tracked<R::Got>> {
        let One { request, .. } = one.as_mut().expect(FINISHED);
        let guard = enter(request)?;
        let One { mut record, origin, .. } = one.take()?;
        record.holds(&guard, &origin);
        Some(Tracked { record, guard })
    }
}

#[allow(private_interfaces)]
impl<R: HoldRequest> Waits for One<R> {
    type Tracked = Tracked<R::Got>;

    #[inline]
    fn enter(one: &mut Option<Self>) -> Option<Tracked<R::Got>> {
        One::attempt(one, R::enter_unless_queued)
    }

    fn try_once(one: &mut Option<Self>) -> Option<Tracked<R::Got>> {
        if one.as_ref().expect(FINISHED).record.is_some() {
            return None;
        }
        One::attempt(one, R::try_once)
    }

    #[inline(never)]
    fn poll(one: &mut Option<Self>, waiter: Waiter<'_>) -> Poll<Result<Tracked<R::Got>, Deadlock>> {
        let One { record, request, origin } = one.as_mut().expect(FINISHED);
        let step = record.step(request, waiter, Some(origin));
        if let Step::Waits = step {
            return Poll::Pending;
        }
        let One { record, .. } = one.take().expect(FINISHED);
        Poll::Ready(match step {
            Step::Got(guard) => Ok(Tracked { record, guard }),
            Step::Failed(deadlock, granted) => {
                granted.into_iter().for_each(R::Got::pass_on);
                Err(deadlock)
            }
            Step::Waits => return Poll::Pending,
        })
    }

    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    fn contention(&mut self) -> Contention {
        self.request.contention_if_queued()
    }

    fn is_waiting(&self) -> bool {
        self.record.is_some()
    }

    fn party(&self) -> &Member {
        &self.record.member
    }

    fn label(&mut self, label: Cow<'static, str>) {
        self.record.set_label(label.clone());
        self.origin.label = Some(label);
    }
}

// Keys.

impl<P: TablePtr, M: Mode> Trackable for Acquire<P, M>
where
    P::Key: fmt::Debug,
{
    type Tracked = Tracked<Guard<P, M>>;
}

impl<P: TablePtr, M: Mode> sealed::Track for Acquire<P, M>
where
    P::Key: fmt::Debug,
{
    type Output = Tracked<Guard<P, M>>;
    type Waiting = One<Request<P, M>>;

    #[inline]
    fn track(self, member: Arc<Member>, origin: Origin) -> Option<One<Request<P, M>>> {
        let request = self.into_request();
        (!request.is_done()).then(|| One { record: Record::none(member), request, origin })
    }
}

#[allow(private_interfaces)]
impl<P: TablePtr, M: Mode> step::Request for Request<P, M>
where
    P::Key: fmt::Debug,
{
    type Got = Guard<P, M>;

    fn want(&self) -> Want {
        Request::want(self)
    }

    fn identity(&self) -> Identity {
        Request::identity(self)
    }

    fn describe(&self) -> (String, &'static str) {
        (format!("{:?}", self.key()), core::any::type_name::<P::Table>())
    }

    fn continues(&self) -> Option<u32> {
        None
    }

    fn poll_into(&mut self, waiter: Waiter<'_>, batch: &mut WakeBatch) -> Option<Guard<P, M>> {
        Request::poll_into(self, waiter, batch)
    }

    fn observe(&mut self, step: &mut Step<Guard<P, M>>) {
        match step {
            Step::Waits => self.news(false).map_or((), |phase| self.tell(None, phase)),
            Step::Got(guard) => self.news(true).map_or((), |phase| self.tell(Some(guard), phase)),
            Step::Failed(_, granted) => self.tell_of_failure(granted),
        }
    }

    fn place(&mut self) -> Place {
        Request::place(self)
    }

    fn leave_queue(&mut self, batch: &mut WakeBatch) -> Option<Guard<P, M>> {
        Request::leave_queue(self, batch)
    }
}

#[allow(private_interfaces)]
impl<P: TablePtr, M: Mode> HoldRequest for Request<P, M>
where
    P::Key: fmt::Debug,
{
    #[inline]
    fn is_queued(&self) -> bool {
        Request::is_queued(self)
    }

    #[inline]
    fn enter(&mut self) -> Option<Guard<P, M>> {
        Request::enter(self)
    }

    fn attempt(&mut self) -> Option<Guard<P, M>> {
        Request::attempt(self)
    }

    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<Guard<P, M>> {
        Request::poll(self, waiter)
    }

    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    fn contention(&self) -> Contention {
        Request::contention(self)
    }
}

// Latches.

impl<'a, M: Mode> Trackable for LatchAcquire<'a, M> {
    type Tracked = Tracked<LatchGuard<'a, M>>;
}

impl<'a, M: Mode> sealed::Track for LatchAcquire<'a, M> {
    type Output = Tracked<LatchGuard<'a, M>>;
    type Waiting = One<LatchRequest<'a, M>>;

    #[inline]
    fn track(self, member: Arc<Member>, origin: Origin) -> Option<One<LatchRequest<'a, M>>> {
        let request = self.into_request();
        (!request.is_done()).then(|| One { record: Record::none(member), request, origin })
    }
}

#[allow(private_interfaces)]
impl<'a, M: Mode> step::Request for LatchRequest<'a, M> {
    type Got = LatchGuard<'a, M>;

    fn want(&self) -> Want {
        LatchRequest::want(self)
    }

    fn identity(&self) -> Identity {
        LatchRequest::identity(self)
    }

    fn describe(&self) -> (String, &'static str) {
        (LatchRequest::describe(self), LATCH)
    }

    fn continues(&self) -> Option<u32> {
        None
    }

    /// Makes the word count a claim, which may panic.
    fn prepare(&mut self) {
        self.claim();
    }

    fn poll_into(&mut self, waiter: Waiter<'_>, batch: &mut WakeBatch) -> Option<LatchGuard<'a, M>> {
        LatchRequest::poll_into(self, waiter, batch)
    }

    fn observe(&mut self, _: &mut Step<LatchGuard<'a, M>>) {}

    fn place(&mut self) -> Place {
        LatchRequest::place(self)
    }

    fn leave_queue(&mut self, batch: &mut WakeBatch) -> Option<LatchGuard<'a, M>> {
        LatchRequest::leave_queue(self, batch)
    }
}

#[allow(private_interfaces)]
impl<'a, M: Mode> HoldRequest for LatchRequest<'a, M> {
    #[inline]
    fn is_queued(&self) -> bool {
        LatchRequest::is_queued(self)
    }

    #[inline]
    fn enter(&mut self) -> Option<LatchGuard<'a, M>> {
        LatchRequest::enter_fresh(self)
    }

    fn attempt(&mut self) -> Option<LatchGuard<'a, M>> {
        LatchRequest::attempt(self)
    }

    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<LatchGuard<'a, M>> {
        LatchRequest::poll(self, waiter)
    }

    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    fn contention(&self) -> Contention {
        LatchRequest::contention(self)
    }
}
