//! Tests of the checker, with histories that leases allow and histories that they do not.

use std::time::Duration;

use keylatch_lease::{
    Owner, Resource, Term, Token,
    engine::{Answer, Gone, Left, Record, Want},
};

use super::{Asked, Clocks, Event, Said, State, Sure, check, no_overlap};
use crate::trial::Random;

const EXACT: Clocks = Clocks { percent: 0, delta: Duration::ZERO };
const ABOUT: Clocks = Clocks { percent: 1, delta: Duration::from_secs(5) };

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn token(number: u64) -> Token {
    Token::new(number).expect("not zero")
}

fn at(start: u64, end: u64, asked: Asked, said: Said) -> Event {
    Event { asked, said, start: secs(start), end: Some(secs(end)) }
}

/// Returns the same event, but with its answer lost.
fn lost(event: Event) -> Event {
    Event { said: Said::Nothing, end: None, ..event }
}

fn ask(owner: &str, want: Want, ttl: u64) -> Asked {
    let term = (ttl > 0).then(|| Term { idle: Some(secs(ttl)), total: None });
    Asked::Acquire { resource: Resource::from("a"), owner: Owner::named(owner), want, term }
}

fn granted(number: u64, resumed: bool) -> Said {
    let (held_for, remaining) = (Duration::ZERO, Some(secs(10)));
    Said::Acquired(Answer::Granted { token: token(number), resumed, held_for, remaining })
}

/// Returns the event that begins a tenure of ten seconds.
fn begins(start: u64, end: u64, owner: &str, number: u64) -> Event {
    at(start, end, ask(owner, Want::Any, 10), granted(number, false))
}

fn resumes(start: u64, end: u64, owner: &str, number: u64) -> Event {
    at(start, end, ask(owner, Want::Any, 10), granted(number, true))
}

fn busy(start: u64, end: u64, owner: &str, holder: &str) -> Event {
    let said = Answer::Busy { owner: Owner::named(holder), remaining: Some(secs(1)) };
    at(start, end, ask(owner, Want::Any, 10), Said::Acquired(said))
}

fn renews(start: u64, end: u64, owner: &str, number: u64, left: Left) -> Event {
    let term = Some(Term { idle: Some(secs(10)), total: None });
    let (resource, owner) = (Resource::from("a"), Owner::named(owner));
    at(start, end, Asked::Renew { resource, owner, token: token(number), term }, Said::Renewed(left))
}

fn releases(start: u64, end: u64, owner: &str, number: Option<u64>, gone: Gone) -> Event {
    let (resource, owner) = (Resource::from("a"), Owner::named(owner));
    at(start, end, Asked::Release { resource, owner, token: number.map(token) }, Said::Released(gone))
}

fn looks(start: u64, end: u64, holder: Option<(&str, u64)>) -> Event {
    let record = holder.map(|(owner, number)| Record {
        owner: Owner::named(owner),
        token: token(number),
        held_for: Duration::ZERO,
        remaining: None,
    });
    at(start, end, Asked::Look { resource: Resource::from("a") }, Said::Looked(record))
}

fn releases_all(start: u64, end: u64, owner: &str, gone: &[&str]) -> Event {
    let gone = gone.iter().map(|name| Resource::from(*name)).collect();
    at(start, end, Asked::ReleaseAll { owner: Owner::named(owner) }, Said::ReleasedAll(gone))
}

fn owns(start: u64, end: u64, owner: &str, owned: &[u64]) -> Event {
    let owned = owned.iter().map(|number| (Resource::from("a"), token(*number))).collect();
    at(start, end, Asked::OwnedBy { owner: Owner::named(owner) }, Said::Owned(owned))
}

#[track_caller]
fn accepts(events: &[Event]) {
    assert_eq!(check(events, EXACT), Ok(()));
}

#[track_caller]
fn rejects(events: &[Event]) {
    assert!(check(events, EXACT).is_err());
}

#[test]
fn answers_in_sequence_must_fit() {
    accepts(&[]);
    accepts(&[
        looks(0, 1, None),
        begins(1, 2, "ann", 1),
        busy(2, 3, "bob", "ann"),
        resumes(3, 4, "ann", 1),
        renews(4, 5, "ann", 1, Left::For(secs(10))),
        looks(5, 6, Some(("ann", 1))),
        owns(5, 6, "ann", &[1]),
        releases(6, 7, "bob", None, Gone::NotOwner(Owner::named("ann"))),
        releases(6, 7, "ann", Some(1), Gone::Released),
        releases(7, 8, "ann", Some(1), Gone::NotHeld),
        owns(8, 9, "ann", &[]),
        begins(8, 9, "bob", 2),
        releases_all(9, 10, "bob", &["a"]),
        releases_all(10, 11, "bob", &[]),
    ]);
}

#[test]
fn two_tenures_at_once_are_rejected() {
    rejects(&[begins(0, 1, "ann", 1), begins(2, 3, "bob", 2)]);
}

#[test]
fn concurrent_requests_may_happen_in_any_order_that_explains_the_answers() {
    // The release happens first, then the grant, although the release was answered last.
    accepts(&[begins(0, 1, "ann", 1), releases(2, 6, "ann", Some(1), Gone::Released), begins(3, 4, "bob", 2)]);
    // The release cannot happen before the grant if it was requested after the grant.
    rejects(&[begins(0, 1, "ann", 1), begins(2, 3, "bob", 2), releases(4, 6, "ann", Some(1), Gone::Released)]);
    // Two tenures begin within the same interval. That is possible only with a release between the two.
    rejects(&[begins(0, 9, "ann", 1), begins(0, 9, "bob", 2)]);
    accepts(&[begins(0, 9, "ann", 1), begins(0, 9, "bob", 2), releases(0, 9, "ann", None, Gone::Released)]);
}

#[test]
fn a_lease_ends_by_itself_and_not_before() {
    accepts(&[begins(0, 1, "ann", 1), begins(11, 12, "bob", 2)]);
    accepts(&[begins(0, 1, "ann", 1), begins(9, 10, "bob", 2)]); // at 10 s exactly
    rejects(&[begins(0, 1, "ann", 1), begins(8, 9, "bob", 2)]);
    rejects(&[begins(0, 1, "ann", 1), looks(8, 9, None)]);
    // The lease must end in time.
    accepts(&[begins(0, 1, "ann", 1), busy(10, 11, "bob", "ann")]);
    rejects(&[begins(0, 1, "ann", 1), busy(12, 13, "bob", "ann")]);
    // With inexact clocks the lease may end a little later.
    let late = [begins(0, 1, "ann", 1), busy(12, 13, "bob", "ann")];
    assert_eq!(check(&late, ABOUT), Ok(()));
    let later = [begins(0, 1, "ann", 1), busy(17, 18, "bob", "ann")];
    assert!(check(&later, ABOUT).is_err());
}

#[test]
fn an_end_that_was_seen_is_past() {
    // The resource is found free between 9 and 20 s, so the lease has ended at some time from 10 s on. A request
    // answered at 9 s came before.
    accepts(&[begins(0, 1, "ann", 1), looks(9, 20, None), busy(5, 9, "bob", "ann")]);
    // A later request cannot find the same tenure.
    rejects(&[begins(0, 1, "ann", 1), looks(9, 10, None), looks(11, 12, Some(("ann", 1)))]);
}

#[test]
fn a_renewal_extends_and_an_expired_lease_is_not_revived() {
    let left = Left::For(secs(10));
    accepts(&[begins(0, 1, "ann", 1), renews(5, 6, "ann", 1, left), busy(13, 14, "bob", "ann")]);
    rejects(&[begins(0, 1, "ann", 1), renews(5, 6, "ann", 1, left), begins(13, 14, "bob", 2)]);
    rejects(&[begins(0, 1, "ann", 1), renews(12, 13, "ann", 1, left)]);
    rejects(&[begins(0, 1, "ann", 1), resumes(12, 13, "ann", 1)]);
    // A renewal by another owner, or of an earlier tenure, fails.
    accepts(&[begins(0, 1, "ann", 1), renews(2, 3, "bob", 1, Left::Nothing)]);
    rejects(&[begins(0, 1, "ann", 1), renews(2, 3, "bob", 1, left)]);
    rejects(&[begins(0, 1, "ann", 2), renews(2, 3, "ann", 1, left)]);
    rejects(&[begins(0, 1, "ann", 1), renews(2, 3, "ann", 1, Left::Nothing)]);
}

#[test]
fn tokens_grow() {
    let release = || releases(2, 3, "ann", None, Gone::Released);
    accepts(&[begins(0, 1, "ann", 5), release(), begins(4, 5, "bob", 6)]);
    rejects(&[begins(0, 1, "ann", 5), release(), begins(4, 5, "bob", 5)]);
    rejects(&[begins(0, 1, "ann", 5), release(), begins(4, 5, "bob", 4)]);
    rejects(&[begins(0, 1, "ann", 5), begins(20, 21, "ann", 4)]);
    // A tenure keeps its token.
    rejects(&[begins(0, 1, "ann", 5), resumes(2, 3, "ann", 6)]);
    rejects(&[begins(0, 1, "ann", 5), looks(2, 3, Some(("ann", 6)))]);
    rejects(&[begins(0, 1, "ann", 5), owns(2, 3, "ann", &[6])]);
    // So does one whose first answer was lost.
    let unknown = || [begins(0, 1, "ann", 5), release(), lost(begins(4, 5, "bob", 6))];
    for (number, is_greater) in [(6, true), (4, false)] {
        let learns = [
            looks(6, 7, Some(("bob", number))),
            owns(6, 7, "bob", &[number]),
            resumes(6, 7, "bob", number),
            renews(6, 7, "bob", number, Left::For(secs(10))),
            releases(6, 7, "bob", Some(number), Gone::Released),
        ];
        for learns in learns {
            let events: Vec<_> = unknown().into_iter().chain([learns]).collect();
            assert_eq!(check(&events, EXACT).is_ok(), is_greater, "{events:?}");
        }
    }
    // Either of two concurrent tenures may be the first.
    let between = releases(0, 9, "ann", None, Gone::Released);
    accepts(&[begins(0, 9, "bob", 2), between.clone(), begins(0, 9, "ann", 1)]);
    rejects(&[begins(0, 9, "bob", 1), between, begins(0, 9, "ann", 2)]);
}

#[test]
fn a_fresh_tenure_ends_the_owners_earlier_one() {
    let fresh = |start, end, owner, number| at(start, end, ask(owner, Want::Fresh, 10), granted(number, false));
    accepts(&[begins(0, 1, "ann", 1), fresh(2, 3, "ann", 2), renews(4, 5, "ann", 1, Left::Nothing)]);
    rejects(&[begins(0, 1, "ann", 1), fresh(2, 3, "bob", 2)]);
    rejects(&[begins(0, 1, "ann", 1), fresh(2, 3, "ann", 2), releases(4, 5, "ann", Some(1), Gone::Released)]);
    accepts(&[
        begins(0, 1, "ann", 1),
        fresh(2, 3, "ann", 2),
        releases(4, 5, "ann", Some(1), Gone::NotOwner(Owner::named("ann"))),
    ]);
}

#[test]
fn conditions_are_kept() {
    let free = |start, end, owner| at(start, end, ask(owner, Want::Mine, 0), Said::Acquired(Answer::Free));
    accepts(&[free(0, 1, "ann"), begins(1, 2, "ann", 1), busy(3, 4, "bob", "ann")]);
    rejects(&[begins(0, 1, "ann", 1), free(2, 3, "ann")]);
    rejects(&[at(0, 1, ask("ann", Want::Mine, 10), granted(1, false))]);
    rejects(&[begins(0, 1, "ann", 1), at(2, 3, ask("ann", Want::New, 10), granted(2, false))]);
    rejects(&[begins(0, 1, "ann", 1), busy(2, 3, "bob", "cid")]);
    rejects(&[busy(0, 1, "bob", "ann")]);
}

#[test]
fn only_the_owner_releases() {
    rejects(&[begins(0, 1, "ann", 1), releases(2, 3, "bob", None, Gone::Released)]);
    rejects(&[begins(0, 1, "ann", 1), releases(2, 3, "bob", Some(1), Gone::Released)]);
    rejects(&[begins(0, 1, "ann", 1), releases(2, 3, "ann", Some(1), Gone::NotHeld)]);
    rejects(&[begins(0, 1, "ann", 1), releases(2, 3, "ann", None, Gone::NotOwner(Owner::named("ann")))]);
    rejects(&[releases(0, 1, "ann", None, Gone::Released)]);
}

#[test]
fn release_all_releases_exactly_the_owners_leases() {
    rejects(&[begins(0, 1, "ann", 1), releases_all(2, 3, "bob", &["a"])]);
    rejects(&[begins(0, 1, "ann", 1), releases_all(2, 3, "ann", &[])]);
    rejects(&[begins(0, 1, "ann", 1), releases_all(2, 3, "ann", &["a"]), looks(4, 5, Some(("ann", 1)))]);
    rejects(&[begins(0, 1, "ann", 1), owns(2, 3, "ann", &[])]);
    rejects(&[begins(0, 1, "ann", 1), owns(2, 3, "bob", &[1])]);
}

#[test]
fn a_request_without_an_answer_may_have_been_carried_out_or_not() {
    let acquire = || lost(begins(0, 1, "ann", 1));
    accepts(&[acquire(), begins(2, 3, "bob", 1)]);
    accepts(&[acquire(), busy(2, 3, "bob", "ann"), resumes(4, 5, "ann", 1)]);
    // The request may be carried out late.
    accepts(&[acquire(), looks(20, 21, None), busy(22, 23, "bob", "ann")]);
    // But it cannot be carried out before it was sent, nor twice.
    rejects(&[busy(0, 1, "bob", "ann"), lost(begins(2, 3, "ann", 1))]);
    rejects(&[acquire(), busy(2, 3, "bob", "ann"), begins(4, 5, "bob", 2), busy(6, 7, "cid", "ann")]);
    let release = || lost(releases(2, 3, "ann", Some(1), Gone::Released));
    accepts(&[begins(0, 1, "ann", 1), release(), begins(4, 5, "bob", 2)]);
    accepts(&[begins(0, 1, "ann", 1), release(), busy(4, 5, "bob", "ann")]);
    rejects(&[begins(0, 1, "ann", 1), lost(releases(2, 3, "bob", Some(1), Gone::Released)), begins(4, 5, "bob", 2)]);
    let renewal = || lost(renews(5, 6, "ann", 1, Left::Nothing));
    accepts(&[begins(0, 1, "ann", 1), renewal(), begins(11, 12, "bob", 2)]);
    accepts(&[begins(0, 1, "ann", 1), renewal(), busy(13, 14, "bob", "ann")]);
    // A renewal without an answer does not revive an expired lease.
    rejects(&[
        begins(0, 1, "ann", 1),
        looks(11, 12, None),
        lost(renews(13, 14, "ann", 1, Left::Nothing)),
        busy(15, 16, "bob", "ann"),
    ]);
}

#[test]
fn resources_are_independent() {
    let other = |event: Event| match event.asked {
        Asked::Acquire { owner, want, term, .. } => {
            Event { asked: Asked::Acquire { resource: Resource::from("b"), owner, want, term }, ..event }
        }
        asked => Event { asked, ..event },
    };
    accepts(&[begins(0, 1, "ann", 1), other(begins(2, 3, "bob", 1))]);
    rejects(&[begins(0, 1, "ann", 1), other(begins(2, 3, "bob", 1)), other(begins(4, 5, "ann", 2))]);
    accepts(&[begins(0, 1, "ann", 1), other(begins(2, 3, "ann", 2)), releases_all(4, 5, "ann", &["a", "b"])]);
    rejects(&[begins(0, 1, "ann", 1), other(begins(2, 3, "ann", 2)), releases_all(4, 5, "ann", &["b"])]);
}

#[test]
fn a_history_of_many_concurrent_requests_is_decided() {
    // In each round, eight owners acquire at the same time, and one of them gets the resource.
    let mut events = Vec::new();
    for round in 0..100 {
        let start = 20 * round;
        for other in 0..8 {
            let (start, end) = (start, start + 5);
            if other == round % 8 {
                events.push(begins(start, end, &format!("owner {other}"), round + 1));
            } else {
                events.push(busy(start, end, &format!("owner {other}"), &format!("owner {}", round % 8)));
            }
        }
    }
    accepts(&events);
    events.push(begins(1999, 2000, "ann", 50));
    rejects(&events);
}

#[test]
fn a_history_of_many_lost_answers_is_decided() {
    // Many owners acquire and release, and learn nothing; then each is seen to hold the resource, one after the other.
    let mut events = Vec::new();
    for other in 0..24 {
        let owner = format!("owner {other}");
        events.push(lost(begins(0, 1, &owner, 1)));
        events.push(lost(releases(0, 1, &owner, None, Gone::Released)));
    }
    for other in 0..24 {
        let start = 10 * other + 2;
        events.push(busy(start, start + 5, "ann", &format!("owner {other}")));
        events.push(looks(start, start + 9, None));
    }
    accepts(&events);
    events.push(busy(500, 501, "ann", "bob"));
    let wrong = check(&events, EXACT).expect_err("bob never asked");
    assert!(wrong.contains("no order explains the answers"), "{wrong}");
}

/// Returns whether some order of the events explains the answers, by trying all orders.
fn some_order_explains(left: &[&Event], state: &State) -> bool {
    let due = left.iter().filter_map(|event| event.end).min();
    let Some(due) = due else { return true };
    (0..left.len()).filter(|&at| left[at].start <= due).any(|at| {
        let (event, mut others) = (left[at], left.to_vec());
        others.remove(at);
        let may = state.at(event.start, due.min(event.end.unwrap_or(due)));
        let next = may.into_iter().filter_map(|state| state.apply(&Resource::from("a"), event, EXACT));
        next.into_iter().any(|state| some_order_explains(&others, &state))
    })
}

/// Returns some concurrent requests of two owners, with random answers.
fn random_history(random: &mut Random) -> Vec<Event> {
    const OWNERS: [&str; 2] = ["ann", "bob"];
    let mut below = |end| random.next(end);
    let mut events = Vec::new();
    for at in 0..7 {
        let start = 2 * at + below(8);
        let end = start + 1 + below(6);
        let (owner, other) = (OWNERS[(below(4) / 3) as usize], OWNERS[(below(4) / 3) as usize]);
        let number = 1 + below(2);
        let event = match below(12) {
            0..4 => begins(start, end, owner, number),
            4 => resumes(start, end, owner, number),
            5 | 6 => busy(start, end, owner, other),
            7 => renews(start, end, owner, number, [Left::Nothing, Left::For(secs(1))][below(2) as usize]),
            8 => releases(start, end, owner, None, Gone::Released),
            9 => releases(start, end, owner, Some(number), Gone::Released),
            10 => looks(start, end, None),
            _ => looks(start, end, Some((owner, number))),
        };
        events.push(if below(3) == 0 { lost(event) } else { event });
    }
    events
}

#[test]
fn the_search_finds_an_order_if_there_is_one() {
    let mut random = Random(7);
    let (mut accepted, mut rejected) = (0, 0);
    for _ in 0..20_000 {
        let events = random_history(&mut random);
        let all: Vec<_> = events.iter().filter(|event| event.matters()).collect();
        if super::tokens_grow(&all).is_err() {
            continue;
        }
        let state = State { tenure: None, last: None, now: Duration::ZERO };
        let is_explained = some_order_explains(&all, &state);
        assert_eq!(check(&events, EXACT).is_ok(), is_explained, "{events:#?}");
        *if is_explained { &mut accepted } else { &mut rejected } += 1;
    }
    assert!(accepted > 1000 && rejected > 1000, "{accepted} accepted, {rejected} rejected");
}

/// Returns a history of this number of requests of a few owners. One answer in `lost_one_in` is lost. In addition, one
/// request in `3 * lost_one_in` is neither carried out nor answered.
fn history_of_leases(random: &mut Random, requests: u32, lost_one_in: u64) -> Vec<Event> {
    const OWNERS: [&str; 3] = ["ann", "bob", "cid"];
    let mut below = |end| random.next(end);
    let mut events = Vec::new();
    let (mut tenure, mut last, mut now) = (None::<(&str, u64, u64)>, 0, 10);
    for _ in 0..requests {
        now += below(3);
        tenure = tenure.filter(|&(_, _, end)| now < end);
        let owner = OWNERS[below(3) as usize];
        let holder = tenure.map(|(holder, ..)| holder);
        let (start, end) = (now - below(7), now + 1 + below(7));
        let ttl = 1 + below(8);
        let is_ignored = below(3 * lost_one_in) == 0; // neither carried out nor answered
        let event = match below(4) {
            0 | 1 => {
                let said = match holder {
                    Some(holder) if holder != owner => {
                        let remaining = Some(secs(1));
                        Said::Acquired(Answer::Busy { owner: Owner::named(holder), remaining })
                    }
                    _ => granted(tenure.map_or(last + 1, |(_, token, _)| token), tenure.is_some()),
                };
                let until = tenure.map_or(0, |(_, _, end)| end).max(now + ttl);
                if !is_ignored && holder.is_none_or(|holder| holder == owner) {
                    last += u64::from(tenure.is_none());
                    tenure = Some((owner, last, until));
                }
                at(start, end, ask(owner, Want::Any, ttl), said)
            }
            2 => {
                let gone = match holder {
                    None => Gone::NotHeld,
                    Some(holder) if holder == owner => Gone::Released,
                    Some(holder) => Gone::NotOwner(Owner::named(holder)),
                };
                tenure = tenure.filter(|_| is_ignored || holder != Some(owner));
                releases(start, end, owner, None, gone)
            }
            _ => looks(start, end, tenure.map(|(owner, token, _)| (owner, token))),
        };
        let is_lost = is_ignored || below(lost_one_in) == 0;
        events.push(if is_lost { lost(event) } else { event });
    }
    events
}

#[test]
fn histories_of_leases_are_accepted() {
    let mut random = Random(11);
    for _ in 0..2_000 {
        let events = history_of_leases(&mut random, 14, 3);
        assert_eq!(check(&events, EXACT), Ok(()), "{events:#?}");
    }
}

#[test]
fn long_histories_with_many_lost_answers_are_decided() {
    let mut random = Random(12);
    for _ in 0..40 {
        let events = history_of_leases(&mut random, 120, 10);
        assert_eq!(check(&events, EXACT), Ok(()));
    }
}

fn sure(from: u64, until: u64, number: u64) -> Sure {
    Sure { resource: Resource::from("a"), token: token(number), from: secs(from), until: secs(until) }
}

#[test]
fn overlapping_holds_are_rejected() {
    assert_eq!(no_overlap(&[sure(5, 9, 2), sure(0, 5, 1), sure(2, 5, 1)]), Ok(()));
    assert!(no_overlap(&[sure(0, 5, 1), sure(4, 9, 2)]).is_err());
    assert!(no_overlap(&[sure(0, 9, 1), sure(1, 2, 1), sure(4, 5, 2)]).is_err());
    assert!(no_overlap(&[sure(0, 5, 2), sure(6, 9, 1)]).is_err());
    let elsewhere = Sure { resource: Resource::from("b"), ..sure(1, 2, 1) };
    assert_eq!(no_overlap(&[sure(0, 5, 1), elsewhere]), Ok(()));
}
