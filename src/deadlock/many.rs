//! Tracked requests for several keys: each key in turn is a tracked request, and the keys held so far count as the
//! party's holds.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use core::fmt;
use core::task::Poll;

use super::acquire::{FINISHED, HoldRequest, Trackable, Waits, sealed};
use super::holder::Origin;
use super::record::{HoldGuard, Member, Record, Records};
use super::report::Deadlock;
use super::step::{self, Step};
use super::tracked::TrackedMany;
use crate::acquire::many::{AcquireMany, Requests};
use crate::acquire::request::Request;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::core::Contention;
use crate::core::Waiter;
use crate::guard::Guard;
use crate::guards::Guards;
use crate::latch::{LatchAcquireMany, LatchGuard, LatchGuards, LatchRequest, LatchRequests};
use crate::list::List;
use crate::mode::{Exclusive, Permit, ReadOrWrite, Shared};
use crate::plumbing::TablePtr;

/// Requests for several keys, which are acquired in an order that is the same for all calls.
///
/// `pub` because a sealed trait names it; other crates cannot.
#[allow(unreachable_pub)]
pub trait SeveralRequests: Sized + Unpin {
    type One: HoldRequest;
    type Tracked;

    /// Returns the current request; `None` if all keys are held.
    fn current(&mut self) -> Option<&mut Self::One>;

    /// Keeps the guard that the current request has acquired. Returns its index among the guards.
    fn accept(&mut self, guard: GotOf<Self>) -> usize;

    /// Returns the guards, some of which may be placeholders.
    fn held(&self) -> &[GotOf<Self>];

    fn is_held(guard: &GotOf<Self>) -> bool;

    /// Returns the tracked guards of all keys.
    fn gather(self, records: Records) -> Self::Tracked;
}

type GotOf<R> = <<R as SeveralRequests>::One as step::Request>::Got;

/// A request of a party for several holds.
///
/// `pub` because a sealed trait names it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)]
pub struct Several<R: SeveralRequests> {
    // Dropped first, because dropping the requests releases holds, and may leave a queue.
    record: Record,
    records: Records,
    requests: R,
    origin: Origin,
}

impl<R: SeveralRequests> Several<R> {
    fn new(member: Arc<Member>, requests: R, origin: Origin) -> Self {
        let (record, records) = (Record::none(Arc::clone(&member)), Records::none(member));
        let mut several = Several { record, records, requests, origin };
        // A future that was polled before it was tracked may hold some keys.
        several.note();
        several
    }

    /// Records the holds that have no record yet.
    fn note(&mut self) {
        self.records.note(self.requests.held(), R::is_held, &self.origin);
    }

    /// Acquires keys with `step`, in order, without beginning to wait.
    fn proceed(
        several: &mut Option<Self>,
        mut step: impl FnMut(&mut R::One) -> Option<GotOf<R>>,
    ) -> Option<R::Tracked> {
        let this = several.as_mut().expect(FINISHED);
        if this.record.is_some() {
            return None;
        }
        let all = loop {
            let Some(request) = this.requests.current() else { break true };
            let Some(guard) = step(request) else { break false };
            this.requests.accept(guard);
        };
        this.note();
        if all { several.take().map(Several::gather) } else { None }
    }

    fn gather(self) -> R::Tracked {
        let Several { records, requests, .. } = self;
        requests.gather(records)
    }
}

#[allow(private_interfaces)]
impl<R: SeveralRequests> Waits for Several<R> {
    type Tracked = R::Tracked;

    fn enter(several: &mut Option<Self>) -> Option<R::Tracked> {
        Several::proceed(several, R::One::enter_unless_queued)
    }

    fn try_once(several: &mut Option<Self>) -> Option<R::Tracked> {
        Several::proceed(several, R::One::try_once)
    }

    #[inline(never)]
    fn poll(several: &mut Option<Self>, waiter: Waiter<'_>) -> Poll<Result<R::Tracked, Deadlock>> {
        // If user code panics, everything is given up while unwinding.
        let mut this = several.take().expect(FINISHED);
        loop {
            let Some(request) = this.requests.current() else { return Poll::Ready(Ok(this.gather())) };
            match this.record.step(request, waiter, Some(&this.origin)) {
                Step::Waits => {
                    *several = Some(this);
                    return Poll::Pending;
                }
                Step::Got(guard) => {
                    let place = this.requests.accept(guard);
                    this.records.put(place, &mut this.record);
                }
                Step::Failed(deadlock, granted) => {
                    drop(this);
                    granted.into_iter().for_each(GotOf::<R>::pass_on);
                    return Poll::Ready(Err(deadlock));
                }
            }
        }
    }

    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    fn contention(&mut self) -> Contention {
        self.requests.current().map_or(Contention::Free, |request| request.contention_if_queued())
    }

    fn is_waiting(&self) -> bool {
        self.record.is_some()
    }

    fn party(&self) -> &Member {
        &self.record.member
    }

    fn label(&mut self, label: Cow<'static, str>) {
        self.records.set_labels(label.clone());
        self.record.set_label(label.clone());
        self.origin.label = Some(label);
    }
}

/// Tracks the calls for several keys of a table in this mode. `gather` makes the output from the guards and the
/// records.
macro_rules! several {
    ($Mode:ident: $Keys:ty, gather = $keys:expr) => {
        impl<P: TablePtr> Trackable for AcquireMany<P, $Mode>
        where
            P::Key: fmt::Debug,
        {
            type Tracked = $Keys;
        }

        impl<P: TablePtr> sealed::Track for AcquireMany<P, $Mode>
        where
            P::Key: fmt::Debug,
        {
            type Output = $Keys;
            type Waiting = Several<Requests<P, $Mode>>;

            fn track(self, member: Arc<Member>, origin: Origin) -> Option<Self::Waiting> {
                self.into_requests().map(|requests| Several::new(member, requests, origin))
            }
        }

        impl<P: TablePtr> SeveralRequests for Requests<P, $Mode>
        where
            P::Key: fmt::Debug,
        {
            type One = Request<P, $Mode>;
            type Tracked = $Keys;

            fn current(&mut self) -> Option<&mut Self::One> {
                Requests::current(self)
            }

            fn accept(&mut self, guard: Guard<P, $Mode>) -> usize {
                Requests::accept(self, guard)
            }

            fn held(&self) -> &[Guard<P, $Mode>] {
                Requests::held(self)
            }

            fn is_held(guard: &Guard<P, $Mode>) -> bool {
                !guard.is_vacant()
            }

            fn gather(mut self, records: Records) -> $Keys {
                $keys(self.take_guards().expect(FINISHED), records)
            }
        }
    };
}

/// Tracks the calls for several stripes in this mode.
macro_rules! several_stripes {
    ($Mode:ident: $Stripes:ty, gather = $stripes:expr) => {
        impl<'a> Trackable for LatchAcquireMany<'a, $Mode> {
            type Tracked = $Stripes;
        }

        impl<'a> sealed::Track for LatchAcquireMany<'a, $Mode> {
            type Output = $Stripes;
            type Waiting = Several<LatchRequests<'a, $Mode>>;

            fn track(self, member: Arc<Member>, origin: Origin) -> Option<Self::Waiting> {
                let requests = self.into_requests();
                (!requests.is_done()).then(|| Several::new(member, requests, origin))
            }
        }

        impl<'a> SeveralRequests for LatchRequests<'a, $Mode> {
            type One = LatchRequest<'a, $Mode>;
            type Tracked = $Stripes;

            fn current(&mut self) -> Option<&mut Self::One> {
                LatchRequests::current(self)
            }

            fn accept(&mut self, guard: LatchGuard<'a, $Mode>) -> usize {
                LatchRequests::accept(self, guard)
            }

            fn held(&self) -> &[LatchGuard<'a, $Mode>] {
                LatchRequests::held(self)
            }

            fn is_held(_: &LatchGuard<'a, $Mode>) -> bool {
                true
            }

            fn gather(mut self, records: Records) -> $Stripes {
                $stripes(self.take_guards().expect(FINISHED), records)
            }
        }
    };
}

several!(Exclusive: TrackedMany<Guards<P, Exclusive>>, gather = |guards, records| TrackedMany { records, guards });
several!(Shared: TrackedMany<Guards<P, Shared>>, gather = |guards, records| TrackedMany { records, guards });
several!(Permit: TrackedMany<Guards<P, Permit>>, gather = |guards, records| TrackedMany { records, guards });
several!(
    ReadOrWrite: (TrackedMany<Guards<P, Shared>>, TrackedMany<Guards<P, Exclusive>>),
    gather = |guards: Guards<P, ReadOrWrite>, mut records: Records| {
        let (mut reads, mut of_reads) = (Guards::new(List::default()), Records::none(Arc::clone(&records.member)));
        let (mut writes, mut of_writes) = (Guards::new(List::default()), Records::none(Arc::clone(&records.member)));
        for guard in guards {
            if guard.mode().writes {
                of_writes.push(records.next());
                writes.push(guard.into_mode());
            } else {
                of_reads.push(records.next());
                reads.push(guard.into_mode());
            }
        }
        (TrackedMany { records: of_reads, guards: reads }, TrackedMany { records: of_writes, guards: writes })
    }
);

several_stripes!(
    Exclusive: TrackedMany<LatchGuards<'a, Exclusive>>,
    gather = |guards, records| TrackedMany { records, guards: LatchGuards::of(guards) }
);
several_stripes!(
    Shared: TrackedMany<LatchGuards<'a, Shared>>,
    gather = |guards, records| TrackedMany { records, guards: LatchGuards::of(guards) }
);
several_stripes!(
    ReadOrWrite: (TrackedMany<LatchGuards<'a, Shared>>, TrackedMany<LatchGuards<'a, Exclusive>>),
    gather = |guards: List<LatchGuard<'a, ReadOrWrite>>, mut records: Records| {
        let (mut reads, mut of_reads) = (List::default(), Records::none(Arc::clone(&records.member)));
        let (mut writes, mut of_writes) = (List::default(), Records::none(Arc::clone(&records.member)));
        for guard in guards {
            match guard.sort() {
                Ok(reader) => {
                    of_reads.push(records.next());
                    reads.push(reader);
                }
                Err(writer) => {
                    of_writes.push(records.next());
                    writes.push(writer);
                }
            }
        }
        let (reads, writes) = (LatchGuards::of(reads), LatchGuards::of(writes));
        (TrackedMany { records: of_reads, guards: reads }, TrackedMany { records: of_writes, guards: writes })
    }
);
