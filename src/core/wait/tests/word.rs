//! The moves of a [`Word`], compared with those of a state in plain fields.

use std::format;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use crate::core::wait::word::{Access, CountKind, Holds, MAX_UNITS, Refusal, Unit, Want, Word};

const ACCESSES: [Access; 7] = [
    Access::Exclusive,
    Access::Shared,
    Access::Upgradable,
    Access::Permits(1),
    Access::Permits(2),
    Access::Permits(PERMITS as u32),
    Access::Permits(PERMITS as u32 + 1),
];
const PERMITS: usize = 3;

/// The contents of a [`Word`], unpacked into fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    queued: bool,
    writer: bool,
    upgradable: bool,
    count: usize,
    claims: usize,
}

impl State {
    fn of(word: Word) -> State {
        let holds = word.holds();
        State {
            queued: word.is_queued(),
            writer: holds.writer(),
            upgradable: holds.upgradable(),
            count: holds.count(),
            claims: word.units() - holds.count() - usize::from(holds.writer()) - usize::from(holds.upgradable()),
        }
    }

    /// Builds the word by the moves themselves (except a full count): first a claim, then the contents of the state.
    fn word(self) -> Word {
        let mut word = Word::born(Unit::Claim);
        let set = |word: Word, holds| word.admit(holds, 0, false);
        if self.writer {
            word = set(word, word.holds().with(Access::Exclusive));
        }
        if self.upgradable {
            word = set(word, word.holds().with(Access::Upgradable));
        }
        for _ in 0..self.count.min(8) {
            word = set(word, word.holds().with(Access::Shared));
        }
        if self.count > 8 {
            assert_eq!(self.count, MAX_UNITS);
            word = Word::from_bits(word.bits() | (MAX_UNITS << 4));
        }
        for _ in 1..self.claims {
            word = word.claim(CountKind::Readers).unwrap();
        }
        if self.claims == 0 {
            word = word.leave(Unit::Claim);
        }
        if self.queued { word.admit(word.holds(), 0, true) } else { word }
    }

    fn admits(self, access: Access) -> bool {
        match access {
            Access::Exclusive => !self.writer && !self.upgradable && self.count == 0,
            Access::Shared => !self.writer,
            Access::Upgradable => !self.writer && !self.upgradable,
            Access::Permits(amount) => self.count + amount as usize <= PERMITS || self.count == 0,
        }
    }

    fn add(&mut self, access: Access) {
        match access {
            Access::Exclusive => self.writer = true,
            Access::Upgradable => self.upgradable = true,
            Access::Shared => self.count += 1,
            Access::Permits(amount) => self.count += amount as usize,
        }
    }

    fn has(self, unit: Unit) -> bool {
        match unit {
            Unit::Claim => self.claims > 0,
            Unit::Hold(Access::Exclusive) => self.writer,
            Unit::Hold(Access::Upgradable) => self.upgradable,
            Unit::Hold(Access::Shared) => self.count > 0,
            Unit::Hold(Access::Permits(amount)) => self.count >= amount as usize,
        }
    }

    fn remove(&mut self, unit: Unit) {
        match unit {
            Unit::Claim => self.claims -= 1,
            Unit::Hold(Access::Exclusive) => self.writer = false,
            Unit::Hold(Access::Upgradable) => self.upgradable = false,
            Unit::Hold(Access::Shared) => self.count -= 1,
            Unit::Hold(Access::Permits(amount)) => self.count -= amount as usize,
        }
    }
}

/// Returns the number of units of a claim or a hold.
fn units(unit: Unit) -> usize {
    if let Unit::Hold(Access::Permits(amount)) = unit { amount as usize } else { 1 }
}

/// Returns every state with small counts.
fn states() -> Vec<State> {
    let flags = [false, true];
    let mut states = vec![];
    for queued in flags {
        for writer in flags {
            for upgradable in flags {
                for count in 0..4 {
                    for claims in 0..4 {
                        states.push(State { queued, writer, upgradable, count, claims });
                    }
                }
            }
        }
    }
    states
}

#[test]
fn a_word_reports_the_state_that_it_was_made_of() {
    for state in states() {
        assert_eq!(State::of(state.word()), state);
    }
}

#[test]
fn a_hold_is_admitted_as_the_compatibility_table_says_and_never_past_a_queue() {
    for state in states() {
        for access in ACCESSES {
            let mut expected = state;
            expected.add(access);
            let outcome = state.word().hold(access, PERMITS).map(State::of);
            // The queue of a semaphore's key has the key's limit, so the queue is always asked.
            let asks = state.queued && matches!(access, Access::Permits(_));
            if !state.admits(access) && !asks {
                assert_eq!(outcome, Err(Refusal::Held), "{access:?} beside {state:?}");
            } else if state.queued {
                assert_eq!(outcome, Err(Refusal::Queued), "{access:?} beside {state:?}");
            } else {
                assert_eq!(outcome, Ok(expected), "{access:?} beside {state:?}");
            }
        }
    }
}

#[test]
fn entering_turns_one_claim_into_a_hold() {
    for state in states().into_iter().filter(|state| state.claims > 0) {
        for access in ACCESSES {
            let (word, held) = (state.word(), state.word().hold(access, PERMITS));
            let entered = word.enter(Want::Hold(access), 1, PERMITS);
            assert_eq!(entered.map(State::of), held.map(|held| State::of(held.leave(Unit::Claim))));
            assert!(entered.is_err() || entered.unwrap().units() + 1 == word.units() + units(Unit::Hold(access)));
        }
    }
}

#[test]
fn unlocking_turns_a_hold_into_one_claim_and_never_past_a_queue() {
    for access in ACCESSES {
        for state in states().into_iter().filter(|state| state.has(Unit::Hold(access))) {
            let mut expected = state;
            expected.remove(Unit::Hold(access));
            expected.claims += 1;
            let unlocked = state.word().unlock(access, CountKind::Readers).map(State::of);
            assert_eq!(unlocked, if state.queued { Err(Refusal::Queued) } else { Ok(expected) }, "{access:?}");
        }
    }
}

#[test]
fn only_the_last_unit_is_the_only_one() {
    let all = ACCESSES.map(Unit::Hold).into_iter().chain([Unit::Claim]);
    for unit in all {
        for state in states().into_iter().filter(|state| state.has(unit)) {
            let word = state.word();
            let mut left = state;
            left.remove(unit);
            assert_eq!(State::of(word.leave(unit)), left);
            assert_eq!(word.is_only(unit), word.units() == units(unit) && !state.queued, "{state:?}");
        }
        assert!(Word::born(unit).is_only(unit));
        assert_eq!(Word::born(unit).units(), units(unit));
    }
}

#[test]
fn a_dead_word_has_no_only_unit() {
    for unit in ACCESSES.map(Unit::Hold).into_iter().chain([Unit::Claim]) {
        assert!(!Word::DEAD.is_only(unit) && !Word::DEAD_KEYED.is_only(unit));
    }
    assert_eq!((Word::DEAD.units(), Word::DEAD_KEYED.units()), (0, 0));
    assert_ne!(Word::DEAD, Word::DEAD_KEYED);
}

#[test]
fn a_full_entry_accepts_no_more_units_and_can_still_change_its_units() {
    let base = State { queued: false, writer: false, upgradable: false, count: 0, claims: 1 };
    let mut word = State { count: 8, ..base }.word();
    word = Word::from_bits(word.bits() + (MAX_UNITS - word.units()) * (Word::born(Unit::Hold(Access::Shared)).bits()));
    assert_eq!((word.units(), State::of(word).claims), (MAX_UNITS, 1));
    assert_eq!(word.claim(CountKind::Readers), Err(Refusal::Full));
    assert_eq!(word.hold(Access::Shared, 0), Err(Refusal::Full));
    assert_eq!(word.hold(Access::Upgradable, 0), Err(Refusal::Full));
    assert_eq!(word.hold(Access::Exclusive, 0), Err(Refusal::Held));
    // The last claim can become the last reader, by its own request or by the queue, and nothing spills into another
    // field.
    let entered = word.enter(Want::Hold(Access::Shared), 1, 0).unwrap();
    let full = State { count: MAX_UNITS, claims: 0, ..base };
    assert_eq!(State::of(entered), full);
    assert_eq!(State::of(word.admit(word.holds().with(Access::Shared), 1, false)), full);
    let writer = Word::born(Unit::Hold(Access::Exclusive));
    let claims = Word::from_bits(Word::born(Unit::Claim).bits() * (MAX_UNITS - 1));
    let writer = Word::from_bits(writer.bits() | claims.bits());
    assert_eq!((writer.units(), writer.claim(CountKind::Readers)), (MAX_UNITS, Err(Refusal::Full)));
    assert_eq!(writer.downgrade(Access::Exclusive, Access::Shared).unwrap().units(), MAX_UNITS);
    assert!(writer.leave(Unit::Claim).claim(CountKind::Readers).is_ok());
    // A hold becomes a claim. If the entry is full and has a value, there is no room for that claim.
    assert_eq!(writer.unlock(Access::Exclusive, CountKind::Readers).unwrap().claims(), MAX_UNITS);
    assert_eq!(writer.keep().unlock(Access::Exclusive, CountKind::Readers), Err(Refusal::Full));
}

#[test]
fn claims_leave_all_permits_and_permits_leave_all_claims() {
    let permits = Access::Permits(MAX_UNITS as u32);
    let counted = CountKind::Permits(MAX_UNITS);
    let claims = Word::from_bits(Word::born(Unit::Claim).bits() * (MAX_UNITS - 1));
    let held = claims.hold(permits, MAX_UNITS).unwrap();
    assert_eq!((held.claims(), held.holds().count()), (MAX_UNITS - 1, MAX_UNITS));
    let full = held.claim(counted).unwrap();
    assert_eq!((full.claims(), full.claim(counted)), (MAX_UNITS, Err(Refusal::Full)));
    assert_eq!(full.unlock(permits, counted), Err(Refusal::Full));
    assert_eq!(held.unlock(permits, counted).map(Word::claims), Ok(MAX_UNITS));
    assert_eq!(held.claim(CountKind::Readers), Err(Refusal::Full));
}

#[test]
fn a_request_for_more_than_the_limit_gets_in_alone_unless_the_limit_is_0() {
    let three = Access::Permits(3);
    let one = Holds::NONE.with(Access::Permits(1));
    assert!(Holds::NONE.fits(three, 2) && !one.fits(three, 2) && one.fits(three, 4));
    assert!(!Holds::NONE.fits(Access::Permits(1), 0));
}

proptest! {
    /// Any sequence of users that come, enter and leave keeps the word of a reader-writer lock in step with the state
    /// in plain fields.
    #[test]
    fn a_random_walk_keeps_the_word_in_step_with_the_state(
        steps in proptest::collection::vec((0usize..5, 0usize..3), 0..200),
    ) {
        let mut word = Word::born(Unit::Claim);
        let mut state = State::of(word);
        for (kind, access) in steps {
            let access = ACCESSES[access];
            match kind {
                0 => {
                    word = word.claim(CountKind::Readers).unwrap();
                    state.claims += 1;
                }
                1 => if let Ok(new) = word.hold(access, PERMITS) {
                    word = new;
                    state.add(access);
                }
                2 if state.claims > 0 => if let Ok(new) = word.enter(Want::Hold(access), 1, PERMITS) {
                    word = new;
                    state.add(access);
                    state.claims -= 1;
                }
                3 if state.has(Unit::Hold(access)) && word.units() > 1 => {
                    word = word.leave(Unit::Hold(access));
                    state.remove(Unit::Hold(access));
                }
                4 if state.claims > 0 && word.units() > 1 => {
                    word = word.leave(Unit::Claim);
                    state.remove(Unit::Claim);
                }
                _ => {}
            }
            prop_assert_eq!(State::of(word), state);
            prop_assert!(!(state.writer && (state.upgradable || (state.count > 0))));
        }
    }
}

#[test]
fn the_debug_output_of_a_word_shows_its_fields() {
    let word = Word::born(Unit::Hold(Access::Upgradable))
        .claim(CountKind::Readers)
        .and_then(|word| word.hold(Access::Shared, 0))
        .unwrap();
    let shown = format!("{:?}", word.admit(word.holds(), 0, true));
    assert_eq!(shown, "Word { dead: false, queued: true, writer: false, upgradable: true, count: 1, claims: 1 }");
    assert!(format!("{:?}", Word::DEAD).starts_with("Word { dead: true, queued: false"));
}
