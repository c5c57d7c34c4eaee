//! The decisions: what to write, or to answer, after an object was seen.
//!
//! Nothing here sends a request. A decision to write is carried out only if the object has not changed since it was
//! seen, so each decision is one atomic action, whoever else decides at the same time.
//!
//! There is no clock that two processes share. So the end of a lease differs between them:
//!
//! - The process that wrote the object last counts from before it sent the write.
//! - Any other process counts from the moment at which it had received the object in this version, and adds one percent
//!   for the rates of the two clocks. The write was carried out before that moment, so this end comes later than the
//!   holder's. Only then may another owner take the resource over, unless a store's clock that is trusted shows sooner
//!   that the lease has ended.
//! - For its answers to others, and for the leases of the owner that asks, a process believes the writer's time of day,
//!   if that says that less time is left. Even if that time is wrong, no second owner gets the resource.

use std::time::Duration;

use keylatch_lease::{
    Expiry, Owner, Resource, Term, Token,
    engine::{Answer, Gone, Left, Owned, Record as Found, Want},
};
use keylatch_lease_remote::{Policy, micros};
use object_store::UpdateVersion;

use crate::record::{Lease, Nonce, Record, number};

/// The precision of the times that stores report.
const SECOND: Duration = Duration::from_secs(1);

/// The time, by both clocks of this process, and by that of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The time by the clock that goes on while the machine is suspended, and that nobody sets.
    pub(crate) clock: Duration,
    /// The time of day, in microseconds since 1970.
    pub(crate) day: i64,
    /// The time by the store's clock, if that is trusted, in microseconds since 1970. It may be too early, but is never
    /// too late.
    pub(crate) store: Option<i64>,
}

/// An object in one of its versions, as this process has seen it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) version: UpdateVersion,
    pub(crate) record: Record,
    /// The time at which this version was first known to exist, by this process's clock.
    pub(crate) at: Duration,
    /// The time at which this process sent the write, if it was the writer.
    pub(crate) sent: Option<Duration>,
    /// The time of the write by the store's clock, in microseconds since 1970, if it is known. Most stores report it in
    /// whole seconds, rounded down.
    pub(crate) modified: Option<i64>,
}

/// The next step of a request.
#[derive(Clone, Debug)]
pub(crate) enum Step<T> {
    /// Write this, and give the answer if that succeeds.
    Write(Record, T),
    /// Give this answer.
    Say(T),
    /// Say that an earlier write of the request was carried out, but that its effect has ended since.
    Undone,
}

/// A part of [`Ask`](keylatch_lease::engine::Ask).
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) want: Want,
    pub(crate) term: Option<Term>,
    pub(crate) expiry: Expiry,
    pub(crate) is_waiting: bool,
    pub(crate) at: Duration,
}

/// A [`Renewal`](keylatch_lease::engine::Renewal).
#[derive(Clone, Debug)]
pub(crate) struct Extension {
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    pub(crate) term: Option<Term>,
}

/// Converts a token that was stored, or made here. Such a token is never zero.
pub(crate) fn token(number: u64) -> Token {
    Token::new(number).unwrap_or(Token::new(1).expect("1 is not 0"))
}

/// Adds the possible difference of two clocks' rates.
fn longer(time: Duration) -> Duration {
    time + time / 100
}

impl Seen {
    /// Returns the time since the write: exact for the writer, and not too short if the times of day agree.
    fn age(&self, lease: &Lease, now: Now) -> Duration {
        match self.sent {
            Some(sent) => now.clock.saturating_sub(sent),
            None => {
                let by_day = u64::try_from(now.day.saturating_sub(lease.written)).unwrap_or(0);
                now.clock.saturating_sub(self.at).max(Duration::from_micros(by_day))
            }
        }
    }

    fn held_for(&self, lease: &Lease, now: Now) -> Duration {
        lease.held().saturating_add(self.age(lease, now))
    }

    /// Returns the time that the lease has left, as far as its writer's time of day is right.
    pub(crate) fn left(&self, lease: &Lease, now: Now) -> Left {
        match lease.lasts() {
            None => Left::Forever,
            Some(lasts) => match lasts.saturating_sub(self.age(lease, now)) {
                Duration::ZERO => Left::Nothing,
                left => Left::For(left),
            },
        }
    }

    /// Returns the time that a holder may count on, if it counts from now. A holder takes one percent off what it is
    /// told, for the clocks' rates. The one percent must be of the lease's whole time, not only of the time left.
    fn rest(&self, lease: &Lease, now: Now) -> Left {
        let margin = lease.lasts().unwrap_or_default() / 100;
        match self.left(lease, now) {
            Left::For(left) if left <= margin => Left::Nothing,
            Left::For(left) => Left::For(left - margin),
            other => other,
        }
    }

    /// Returns the time that the lease lasts, with the allowance for the clocks' rates if another process wrote it, and
    /// the instant from which it counts. `None` if it never ends.
    fn span(&self, lease: &Lease) -> Option<(Duration, Duration)> {
        let lasts = lease.lasts()?;
        Some(self.sent.map_or((longer(lasts), self.at), |sent| (lasts, sent)))
    }

    /// Returns the longest time for which a holder may still believe that it has the lease; `None` if the lease never
    /// ends.
    fn at_most(&self, lease: &Lease, now: Now) -> Option<Duration> {
        let (lasts, since) = self.span(lease)?;
        Some(lasts.saturating_sub(now.clock.saturating_sub(since)))
    }

    /// Returns the instant, by this process's clock and without the store's, from which another owner may have the
    /// resource; `None` if there is none.
    pub(crate) fn free_at(&self, lease: &Lease) -> Option<Duration> {
        let (lasts, since) = self.span(lease)?;
        Some(since.saturating_add(lasts))
    }

    /// Returns the time left until another owner may have the resource; `None` if it never may.
    pub(crate) fn until_free(&self, lease: &Lease, now: Now) -> Option<Duration> {
        let (lasts, _) = self.span(lease)?;
        let by_clock = self.at_most(lease, now)?;
        let age = now.store.zip(self.modified).map(|(store, modified)| store.saturating_sub(modified));
        let age = age.and_then(|age| u64::try_from(age).ok());
        let by_store = age.map(|age| (lasts + SECOND).saturating_sub(Duration::from_micros(age)));
        Some(by_store.map_or(by_clock, |by_store| by_store.min(by_clock)))
    }

    /// Returns the lease, if there is one that has not expired.
    pub(crate) fn found(&self, now: Now) -> Option<(Resource, Found, Option<Expiry>)> {
        let lease = self.record.lease.as_ref()?;
        let remaining = match self.left(lease, now) {
            Left::Nothing => return None,
            Left::For(left) => Some(left),
            Left::Forever => None,
        };
        let found = Found {
            owner: Owner::from_id(&lease.owner),
            token: token(self.record.token),
            held_for: self.held_for(lease, now),
            remaining,
        };
        Some((lease.resource.clone(), found, lease.policy.expiry()))
    }

    /// Returns the lease as its owner may use it, if it has not expired.
    pub(crate) fn owned(&self, now: Now) -> Option<Owned> {
        let (resource, mut record, expiry) = self.found(now)?;
        record.remaining = match self.rest(self.record.lease.as_ref()?, now) {
            Left::Nothing => return None,
            Left::For(rest) => Some(rest),
            Left::Forever => None,
        };
        Some(Owned { resource, record, expiry })
    }
}

/// Returns the shorter of two times; `None` is an infinite one.
fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// Returns the time that a lease with this term lasts from now on, if its tenure began this long ago.
fn lasts(term: Term, held_for: Duration) -> Option<Duration> {
    shorter(term.idle, term.total.map(|total| total.saturating_sub(held_for)))
}

/// Returns a free object, which keeps the token.
fn free(token: u64) -> Record {
    Record { token, nonce: Nonce::new(), after: Vec::new(), lease: None }
}

fn granted(token: u64, resumed: bool, held_for: Duration, lasts: Option<Duration>) -> Answer {
    // Times are stored in microseconds, and none of more than 285 years.
    let remaining = lasts.filter(|time| micros(*time).is_some());
    Answer::Granted { token: self::token(token), resumed, held_for, remaining }
}

/// Begins a tenure after the one with the token `last`. The new tenure lasts for at least the time `least`.
fn begin(ask: &Request, term: Term, last: u64, least: Duration, now: Now) -> Step<Answer> {
    let token = u64::try_from(now.day).unwrap_or(0).max(last.saturating_add(1)).max(1);
    let lasts = lasts(term, Duration::ZERO).map(|lasts| lasts.max(least));
    let lease = Lease {
        resource: ask.resource.clone(),
        owner: ask.owner.id().into(),
        lasts: lasts.and_then(micros),
        held: 0,
        written: now.day,
        policy: Policy::of(&ask.expiry),
    };
    let record = Record { token, nonce: Nonce::new(), after: Vec::new(), lease: Some(lease) };
    Step::Write(record, granted(token, false, Duration::ZERO, lasts))
}

/// Returns the record that continues the lease, with an end that is not earlier, and the time that it lasts.
fn go_on(seen: &Seen, lease: &Lease, term: Option<Term>, policy: Policy, now: Now) -> (Record, Option<Duration>) {
    let held_for = seen.held_for(lease, now);
    // The new end is not earlier than the one that another process of this owner may know.
    let lasts = match (seen.at_most(lease, now), term) {
        (None, _) => None,
        (Some(least), None) => Some(least),
        (Some(least), Some(term)) => lasts(term, held_for).map(|lasts| lasts.max(least)),
    };
    let lease =
        Lease { lasts: lasts.and_then(micros), held: number(held_for), written: now.day, policy, ..lease.clone() };
    (Record { token: seen.record.token, nonce: Nonce::new(), after: Vec::new(), lease: Some(lease) }, lasts)
}

pub(crate) fn acquire(ask: &Request, seen: Option<&Seen>, now: Now) -> Step<Answer> {
    let last = seen.map_or(0, |seen| seen.record.token);
    let begin_if_wanted = |least: Duration| match ask.term {
        Some(term) if ask.want != Want::Mine => begin(ask, term, last, least, now),
        _ => Step::Say(Answer::Free),
    };
    let Some((seen, lease)) = seen.and_then(|seen| Some((seen, seen.record.lease.as_ref()?))) else {
        return begin_if_wanted(Duration::ZERO);
    };
    let (until_free, left) = (seen.until_free(lease, now), seen.left(lease, now));
    if lease.owner == ask.owner.id() {
        match (ask.want, ask.term) {
            _ if until_free == Some(Duration::ZERO) => return begin_if_wanted(Duration::ZERO),
            (Want::Fresh, Some(term)) => return begin(ask, term, last, Duration::ZERO, now),
            // If a time of day is wrong, another process of the owner may still have the lease. So the new tenure must
            // keep other owners out until that process has stopped.
            _ if left == Left::Nothing => return begin_if_wanted(seen.at_most(lease, now).unwrap_or_default()),
            (Want::Any | Want::Mine, term) => {
                let held_for = seen.held_for(lease, now);
                if let (None, Left::For(rest), Some(_)) = (term, seen.rest(lease, now), seen.sent) {
                    return Step::Say(granted(last, true, held_for, Some(rest)));
                }
                // The lease is extended, or its time left is certain only after a new write, perhaps because another
                // process of the owner wrote it.
                let (record, lasts) = go_on(seen, lease, term, Policy::of(&ask.expiry), now);
                return Step::Write(record, granted(last, true, held_for, lasts));
            }
            (Want::Fresh | Want::New, _) => {}
        }
    } else if until_free == Some(Duration::ZERO) {
        return begin_if_wanted(Duration::ZERO);
    }
    // A waiter must know when it can have the resource; others want to know how long the lease lasts.
    let remaining = match left {
        Left::For(left) if !ask.is_waiting => Some(left),
        _ => until_free.map(|time| time + now.clock.saturating_sub(ask.at)),
    };
    Step::Say(Answer::Busy { owner: Owner::from_id(&lease.owner), remaining })
}

/// Decides again about a request that has written already: its write, with the answer `before`, was carried out, and
/// then replaced by another one. A request takes effect once: it continues the tenure of that write, and begins no
/// second one.
pub(crate) fn acquire_again(ask: &Request, before: &Answer, seen: Option<&Seen>, now: Now) -> Step<Answer> {
    let mine = Request { want: Want::Mine, ..ask.clone() };
    let (step, Answer::Granted { token: known, resumed: was_resumed, .. }) = (acquire(&mine, seen, now), before) else {
        return Step::Undone;
    };
    let is_it = |answer: &Answer| matches!(answer, Answer::Granted { token, .. } if token == known);
    let corrected = |mut answer: Answer| {
        if let Answer::Granted { resumed, held_for, .. } = &mut answer {
            *resumed = *was_resumed;
            if !*was_resumed {
                // The tenure is no older than the request, whatever another process's time of day says.
                *held_for = (*held_for).min(now.clock.saturating_sub(ask.at));
            }
        }
        answer
    };
    match step {
        Step::Write(record, answer) if is_it(&answer) => Step::Write(record, corrected(answer)),
        Step::Say(answer) if is_it(&answer) => Step::Say(corrected(answer)),
        _ => Step::Undone,
    }
}

pub(crate) fn renew(renewal: &Extension, seen: Option<&Seen>, now: Now) -> Step<Left> {
    let Some((seen, lease)) = seen.and_then(|seen| Some((seen, seen.record.lease.as_ref()?))) else {
        return Step::Say(Left::Nothing);
    };
    let left = seen.left(lease, now);
    if lease.owner != renewal.owner.id() || token(seen.record.token) != renewal.token || left == Left::Nothing {
        return Step::Say(Left::Nothing);
    }
    let Some(term) = renewal.term else { return Step::Say(seen.rest(lease, now)) };
    if left == Left::Forever {
        return Step::Say(left);
    }
    let (record, lasts) = go_on(seen, lease, Some(term), lease.policy, now);
    let lasts = lasts.filter(|time| micros(*time).is_some());
    Step::Write(record, lasts.map_or(Left::Forever, Left::For))
}

/// Decides again about a renewal whose write was carried out, and then replaced by another one.
pub(crate) fn renew_again(renewal: &Extension, seen: Option<&Seen>, now: Now) -> Step<Left> {
    match renew(renewal, seen, now) {
        Step::Say(Left::Nothing) => Step::Undone,
        step => step,
    }
}

/// Ends the tenure if it has this owner and this token. `None` stands for any.
pub(crate) fn release(owner: Option<&Owner>, which: Option<Token>, seen: Option<&Seen>, now: Now) -> Step<Gone> {
    let Some((seen, lease)) = seen.and_then(|seen| Some((seen, seen.record.lease.as_ref()?))) else {
        return Step::Say(Gone::NotHeld);
    };
    if seen.left(lease, now) == Left::Nothing {
        return Step::Say(Gone::NotHeld);
    }
    let is_other = owner.is_some_and(|owner| owner.id() != lease.owner)
        || which.is_some_and(|which| which != token(seen.record.token));
    if is_other {
        return Step::Say(Gone::NotOwner(Owner::from_id(&lease.owner)));
    }
    Step::Write(free(seen.record.token), Gone::Released)
}

/// Frees a resource whose lease has expired for all owners. Says whether it did.
pub(crate) fn sweep(seen: Option<&Seen>, now: Now) -> Step<bool> {
    let Some((seen, lease)) = seen.and_then(|seen| Some((seen, seen.record.lease.as_ref()?))) else {
        return Step::Say(false);
    };
    match seen.until_free(lease, now) {
        Some(Duration::ZERO) => Step::Write(free(seen.record.token), true),
        _ => Step::Say(false),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Extension, Now, Request, Seen, Step, acquire, acquire_again, free, release, renew, renew_again, sweep, token,
    };
    use crate::record::Record;
    use keylatch_lease::{
        Expiry, Owner, Term,
        engine::{Answer, Gone, Left, Want},
    };
    use object_store::UpdateVersion;
    use std::time::Duration;

    const TTL: Duration = Duration::from_secs(100);

    /// A day long after 1970.
    const DAY: i64 = 1_000_000_000_000_000;

    /// Returns the time when the clock has this many seconds, and the time of day is right.
    fn at(seconds: u64) -> Now {
        let day = DAY + i64::try_from(seconds).unwrap() * 1_000_000;
        Now { clock: Duration::from_secs(seconds), day, store: None }
    }

    /// Returns a time with a time of day that is off by this many seconds.
    fn off(now: Now, seconds: i64) -> Now {
        Now { day: now.day + seconds * 1_000_000, ..now }
    }

    fn ask(owner: &str, want: Want, now: Now) -> Request {
        Request {
            resource: "report".into(),
            owner: Owner::named(owner),
            want,
            term: Some(Term { idle: Some(TTL), total: None }),
            expiry: Expiry::Sliding(TTL),
            is_waiting: true,
            at: now.clock,
        }
    }

    fn begun(owner: &str, seen: Option<&Seen>, now: Now) -> Record {
        match acquire(&ask(owner, Want::Any, now), seen, now) {
            Step::Write(record, Answer::Granted { resumed: false, .. }) => record,
            other => panic!("{owner} did not begin a tenure: {other:?}"),
        }
    }

    /// Returns an object as another process sees it at this time.
    fn seen(record: Record, now: Now) -> Seen {
        Seen {
            version: UpdateVersion { e_tag: None, version: None },
            record,
            at: now.clock,
            sent: None,
            modified: None,
        }
    }

    /// Returns an object that this process has written, with a request sent and answered at these times.
    fn wrote(record: Record, sent: Now, answered: Now) -> Seen {
        Seen { sent: Some(sent.clock), ..seen(record, answered) }
    }

    fn is_busy(seen: &Seen, now: Now) -> bool {
        match acquire(&ask("joe", Want::Any, now), Some(seen), now) {
            Step::Say(Answer::Busy { owner, .. }) => owner == Owner::named("jane"),
            Step::Write(record, _) => {
                assert!(record.token > seen.record.token, "the token did not grow");
                false
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn another_owner_waits_for_the_whole_time_from_when_it_saw_the_lease() {
        let object = seen(begun("jane", None, at(0)), at(60));
        assert!(is_busy(&object, at(160)), "the clocks may have different rates");
        assert!(!is_busy(&object, at(161)));
    }

    #[test]
    fn no_time_of_day_makes_another_owner_faster() {
        let object = seen(begun("jane", None, at(0)), at(1));
        for wrong in [-1_000_000, 99, 1_000_000] {
            assert!(is_busy(&object, off(at(101), wrong)));
            assert!(!is_busy(&object, off(at(102), wrong)));
        }
    }

    #[test]
    fn a_newcomer_that_trusts_the_stores_clock_does_not_wait_once_more() {
        let store = |now: Now, seconds: i64| Now { store: Some(seconds * 1_000_000), ..now };
        let object = Seen { modified: Some(1_000_000_000), ..seen(begun("jane", None, at(0)), at(60)) };
        assert!(
            is_busy(&object, store(at(61), 1101)),
            "the clocks may have different rates, and fractions are cut off"
        );
        assert!(!is_busy(&object, store(at(61), 1102)));
        assert!(is_busy(&object, store(at(160), 900)), "a clock that is behind changes nothing");
        assert!(!is_busy(&object, store(at(161), 900)));
        let unknown = Seen { modified: None, ..object };
        assert!(is_busy(&unknown, store(at(61), 5000)));
        let never = Now { store: Some(i64::MIN), ..at(61) };
        assert!(is_busy(&Seen { modified: Some(1), ..unknown }, never), "a clock of which nothing is believed");
    }

    #[test]
    fn the_writers_own_process_counts_from_when_it_sent_the_write() {
        let object = wrote(begun("jane", None, at(0)), at(1), at(4));
        assert!(is_busy(&object, at(100)));
        assert!(!is_busy(&object, at(101)));
    }

    #[test]
    fn a_waiter_is_told_when_it_can_have_the_lease_and_others_how_long_it_lasts() {
        let object = seen(begun("jane", None, at(0)), at(60));
        let mut request = ask("joe", Want::Any, at(59));
        let told = |request: &Request| match acquire(request, Some(&object), at(61)) {
            Step::Say(Answer::Busy { remaining, .. }) => remaining.unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(told(&request), Duration::from_secs(100 + 2), "from the time of the request");
        request.is_waiting = false;
        assert_eq!(told(&request), Duration::from_secs(39), "by the time of day");
    }

    #[test]
    fn tokens_grow_whatever_the_time_of_day_says() {
        let first = begun("jane", None, at(0));
        assert_eq!(i64::try_from(first.token).unwrap(), DAY);
        let object = wrote(first, at(0), at(0));
        let Step::Write(free, Gone::Released) = release(Some(&Owner::named("jane")), None, Some(&object), at(1)) else {
            panic!("the lease was not released");
        };
        assert_eq!((free.token, &free.lease), (object.record.token, &None));
        let next = begun("joe", Some(&seen(free, at(1))), off(at(2), -1_000_000_000));
        assert_eq!(next.token, object.record.token + 1);
    }

    #[test]
    fn the_owner_resumes_its_tenure_and_no_process_of_it_is_cut_short() {
        // The lease was written long before this process saw it, but the process cannot know that for certain.
        let object = seen(begun("jane", None, at(0)), at(60));
        let mut request = ask("jane", Want::Any, at(61));
        request.term = Some(Term { idle: Some(Duration::from_secs(5)), total: None });
        let Step::Write(record, answer) = acquire(&request, Some(&object), at(61)) else {
            panic!("it was not resumed")
        };
        assert_eq!(record.token, object.record.token);
        let lease = record.lease.unwrap();
        let until = Duration::from_secs(100); // 100 s, and one percent for the clocks' rates, of which 1 s has passed
        assert_eq!(lease.lasts(), Some(until), "another process may think so until then");
        assert_eq!(lease.held(), Duration::from_secs(61));
        assert!(matches!(answer, Answer::Granted { resumed: true, remaining, .. } if remaining == lease.lasts()));
    }

    #[test]
    fn a_new_tenure_that_begins_by_a_wrong_time_of_day_ends_no_earlier_than_its_owners_old_one() {
        // By this process's time of day the lease has long ended. In truth it was written a second ago.
        let object = seen(begun("jane", None, at(0)), at(1));
        let now = off(at(2), 1_000_000);
        for (want, at_least) in [(Want::Any, 100), (Want::New, 100), (Want::Fresh, 5)] {
            let mut request = ask("jane", want, now);
            request.term = Some(Term { idle: Some(Duration::from_secs(5)), total: None });
            let Step::Write(record, answer) = acquire(&request, Some(&object), now) else { panic!("{want:?}") };
            assert!(record.token > object.record.token);
            let lasts = record.lease.unwrap().lasts();
            assert_eq!(lasts, Some(Duration::from_secs(at_least)), "{want:?}");
            assert!(matches!(answer, Answer::Granted { resumed: false, remaining, .. } if remaining == lasts));
        }
        // No process can believe any more that it has the lease.
        assert_eq!(begun("jane", Some(&object), at(102)).lease.unwrap().lasts(), Some(TTL));
    }

    #[test]
    fn a_holder_is_told_of_one_percent_of_the_whole_time_less_than_is_left() {
        let object = wrote(begun("jane", None, at(0)), at(0), at(1));
        let mut request = ask("jane", Want::Mine, at(60));
        request.term = None;
        let (now, rest) = (at(60), Duration::from_secs(39));
        let again = acquire(&request, Some(&object), now);
        assert!(
            matches!(again, Step::Say(Answer::Granted { resumed: true, remaining, .. }) if remaining == Some(rest))
        );
        let renewal = Extension { owner: Owner::named("jane"), token: token(object.record.token), term: None };
        assert!(matches!(renew(&renewal, Some(&object), now), Step::Say(Left::For(left)) if left == rest));
        assert!(matches!(renew(&renewal, Some(&object), at(99)), Step::Say(Left::Nothing)));
        assert_eq!(object.owned(now).unwrap().record.remaining, Some(rest));
        assert!(object.owned(at(99)).is_none() && object.found(at(99)).is_some());
        // The time left is certain only after a new write, so there is one.
        let Step::Write(record, _) = acquire(&request, Some(&object), at(99)) else { panic!("nothing is written") };
        assert_eq!(record.lease.unwrap().lasts(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn an_expired_lease_is_neither_renewed_nor_released() {
        let object = wrote(begun("jane", None, at(0)), at(1), at(1));
        let jane = Owner::named("jane");
        let term = Some(Term { idle: Some(TTL), total: None });
        let again = Extension { owner: jane.clone(), token: token(object.record.token), term };
        assert!(matches!(renew(&again, Some(&object), at(100)), Step::Write(_, Left::For(TTL))));
        assert!(matches!(renew(&again, Some(&object), at(101)), Step::Say(Left::Nothing)));
        assert!(matches!(release(Some(&jane), None, Some(&object), at(101)), Step::Say(Gone::NotHeld)));
        assert!(object.found(at(101)).is_none());
        // Another process of the owner goes by the time of day.
        let object = seen(object.record, at(90));
        assert!(matches!(renew(&again, Some(&object), at(99)), Step::Write(..)));
        assert!(matches!(renew(&again, Some(&object), at(100)), Step::Say(Left::Nothing)));
    }

    #[test]
    fn a_request_goes_on_with_the_tenure_of_its_first_write_and_begins_no_second_one() {
        let (first, now) = (seen(begun("jane", None, at(0)), at(1)), at(2));
        let before = |resumed| Answer::Granted {
            token: token(first.record.token),
            resumed,
            held_for: Duration::ZERO,
            remaining: Some(TTL),
        };
        let again = |want, resumed, seen: Option<&Seen>, now| {
            acquire_again(&ask("jane", want, now), &before(resumed), seen, now)
        };
        for want in [Want::Any, Want::New, Want::Fresh, Want::Mine] {
            for was_resumed in [false, true] {
                let Step::Write(record, answer) = again(want, was_resumed, Some(&first), now) else { panic!() };
                assert_eq!(record.token, first.record.token, "{want:?}");
                assert!(matches!(answer, Answer::Granted { resumed, .. } if resumed == was_resumed), "{answer:?}");
                let is_undone = |seen: Option<&Seen>| matches!(again(want, was_resumed, seen, at(4)), Step::Undone);
                let free = seen(free(first.record.token), now);
                let [joes, other] = ["joe", "jane"].map(|owner| seen(begun(owner, Some(&free), at(3)), at(3)));
                assert!(is_undone(None) && is_undone(Some(&free)), "it was released");
                assert!(is_undone(Some(&joes)), "somebody else has the resource");
                assert!(is_undone(Some(&other)), "the owner has another tenure");
                let late = again(want, was_resumed, Some(&first), at(200));
                assert!(matches!(late, Step::Undone), "it has expired: {late:?}");
            }
        }
        // The process that resumed the tenure took it for an hour old.
        let mut record = first.record.clone();
        record.lease.as_mut().unwrap().held = 3_600_000_000;
        let hour_old = seen(record, at(1));
        let Step::Write(_, Answer::Granted { held_for, .. }) = again(Want::Any, false, Some(&hour_old), now) else {
            panic!("the tenure goes on")
        };
        assert_eq!(held_for, Duration::ZERO, "it began with this request");
        let renewal = Extension { owner: Owner::named("jane"), token: token(first.record.token), term: None };
        assert!(matches!(renew_again(&renewal, Some(&first), now), Step::Say(Left::For(_))));
        assert!(matches!(renew_again(&renewal, None, now), Step::Undone));
    }

    #[test]
    fn a_sweep_frees_only_what_others_could_take() {
        let object = seen(begun("jane", None, at(0)), at(60));
        assert!(matches!(sweep(Some(&object), off(at(160), 1_000_000)), Step::Say(false)));
        assert!(matches!(sweep(Some(&object), at(161)), Step::Write(Record { lease: None, .. }, true)));
        assert!(matches!(sweep(None, at(161)), Step::Say(false)));
    }
}
