//! The moves on the word, against a state that is written out.

use std::format;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use crate::core::word::{MAX_UNITS, Mode, Refusal, Unit, Want, Word};

const MODES: [Mode; 4] = [Mode::Exclusive, Mode::Shared, Mode::Upgradable, Mode::Permit];
const PERMITS: usize = 3;

/// A state, one field for each thing that a word packs.
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

    /// Built with the moves themselves: a claim first, then what the state says.
    fn word(self) -> Word {
        let mut word = Word::born(Unit::Claim);
        let set = |word: Word, holds| word.regrant(holds, 0, false);
        if self.writer {
            word = set(word, word.holds().with(Mode::Exclusive));
        }
        if self.upgradable {
            word = set(word, word.holds().with(Mode::Upgradable));
        }
        for _ in 0..self.count.min(8) {
            word = set(word, word.holds().with(Mode::Shared));
        }
        if self.count > 8 {
            assert_eq!(self.count, MAX_UNITS);
            word = Word::from_bits(word.bits() | (MAX_UNITS << 4));
        }
        for _ in 1..self.claims {
            word = word.claim().unwrap();
        }
        if self.claims == 0 {
            word = word.leave(Unit::Claim);
        }
        if self.queued { word.enqueue() } else { word }
    }

    fn admits(self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => !self.writer && !self.upgradable && self.count == 0,
            Mode::Shared => !self.writer,
            Mode::Upgradable => !self.writer && !self.upgradable,
            Mode::Permit => self.count < PERMITS,
        }
    }

    fn add(&mut self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.writer = true,
            Mode::Upgradable => self.upgradable = true,
            Mode::Shared | Mode::Permit => self.count += 1,
        }
    }

    fn has(self, unit: Unit) -> bool {
        match unit {
            Unit::Claim => self.claims > 0,
            Unit::Hold(Mode::Exclusive) => self.writer,
            Unit::Hold(Mode::Upgradable) => self.upgradable,
            Unit::Hold(_) => self.count > 0,
        }
    }

    fn remove(&mut self, unit: Unit) {
        match unit {
            Unit::Claim => self.claims -= 1,
            Unit::Hold(Mode::Exclusive) => self.writer = false,
            Unit::Hold(Mode::Upgradable) => self.upgradable = false,
            Unit::Hold(_) => self.count -= 1,
        }
    }
}

/// Every state with small counts.
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
fn a_word_says_what_it_was_made_of() {
    for state in states() {
        assert_eq!(State::of(state.word()), state);
    }
}

#[test]
fn a_hold_is_admitted_as_the_compatibility_table_says_and_never_past_a_queue() {
    for state in states() {
        for mode in MODES {
            let mut expected = state;
            expected.add(mode);
            let outcome = state.word().hold(mode, PERMITS).map(State::of);
            if !state.admits(mode) {
                assert_eq!(outcome, Err(Refusal::Held), "{mode:?} beside {state:?}");
            } else if state.queued {
                assert_eq!(outcome, Err(Refusal::Queued), "{mode:?} beside {state:?}");
            } else {
                assert_eq!(outcome, Ok(expected), "{mode:?} beside {state:?}");
            }
        }
    }
}

#[test]
fn settling_turns_one_claim_into_a_hold() {
    for state in states().into_iter().filter(|state| state.claims > 0) {
        for mode in MODES {
            let (word, held) = (state.word(), state.word().hold(mode, PERMITS));
            let settled = word.settle(Want::Hold(mode), PERMITS);
            assert_eq!(settled.map(State::of), held.map(|held| State::of(held.leave(Unit::Claim))));
            assert!(settled.is_err() || settled.unwrap().units() == word.units());
        }
    }
}

#[test]
fn only_the_last_unit_is_the_only_one() {
    let units = MODES.map(Unit::Hold).into_iter().chain([Unit::Claim]);
    for unit in units {
        for state in states().into_iter().filter(|state| state.has(unit)) {
            let word = state.word();
            let mut left = state;
            left.remove(unit);
            assert_eq!(State::of(word.leave(unit)), left);
            assert_eq!(word.is_only(unit), word.units() == 1 && !state.queued, "{state:?}");
        }
        assert!(Word::born(unit).is_only(unit));
        assert_eq!(Word::born(unit).units(), 1);
    }
}

#[test]
fn dead_words_are_not_the_only_unit_of_anybody() {
    for unit in MODES.map(Unit::Hold).into_iter().chain([Unit::Claim]) {
        assert!(!Word::DEAD.is_only(unit) && !Word::DEAD_KEYED.is_only(unit));
    }
    assert_eq!((Word::DEAD.units(), Word::DEAD_KEYED.units()), (0, 0));
    assert_ne!(Word::DEAD, Word::DEAD_KEYED);
}

#[test]
fn a_full_entry_takes_no_more_units_and_may_still_change_those_it_has() {
    let base = State { queued: false, writer: false, upgradable: false, count: 0, claims: 1 };
    let mut word = State { count: 8, ..base }.word();
    word = Word::from_bits(word.bits() + (MAX_UNITS - word.units()) * (Word::born(Unit::Hold(Mode::Shared)).bits()));
    assert_eq!((word.units(), State::of(word).claims), (MAX_UNITS, 1));
    assert_eq!(word.claim(), Err(Refusal::Full));
    assert_eq!(word.hold(Mode::Shared, 0), Err(Refusal::Full));
    assert_eq!(word.hold(Mode::Upgradable, 0), Err(Refusal::Full));
    assert_eq!(word.hold(Mode::Exclusive, 0), Err(Refusal::Held));
    // The last claim can become the last reader, by itself or by the queue, and nothing spills into another field.
    let settled = word.settle(Want::Hold(Mode::Shared), 0).unwrap();
    let full = State { count: MAX_UNITS, claims: 0, ..base };
    assert_eq!(State::of(settled), full);
    assert_eq!(State::of(word.regrant(word.holds().with(Mode::Shared), 1, false)), full);
    let writer = Word::born(Unit::Hold(Mode::Exclusive));
    let claims = Word::from_bits(Word::born(Unit::Claim).bits() * (MAX_UNITS - 1));
    let writer = Word::from_bits(writer.bits() | claims.bits());
    assert_eq!((writer.units(), writer.claim()), (MAX_UNITS, Err(Refusal::Full)));
    assert_eq!(writer.weaken(Mode::Exclusive, Mode::Shared).unwrap().units(), MAX_UNITS);
    assert!(writer.leave(Unit::Claim).claim().is_ok());
}

proptest! {
    /// Any sequence of moves of a reader-writer lock keeps word and written-out state in step.
    #[test]
    fn a_random_walk_keeps_the_word_in_step_with_the_state(
        steps in proptest::collection::vec((0usize..5, 0usize..3), 0..200),
    ) {
        let mut word = Word::born(Unit::Claim);
        let mut state = State::of(word);
        for (kind, mode) in steps {
            let mode = MODES[mode];
            match kind {
                0 => {
                    word = word.claim().unwrap();
                    state.claims += 1;
                }
                1 => if let Ok(new) = word.hold(mode, PERMITS) {
                    word = new;
                    state.add(mode);
                }
                2 if state.claims > 0 => if let Ok(new) = word.settle(Want::Hold(mode), PERMITS) {
                    word = new;
                    state.add(mode);
                    state.claims -= 1;
                }
                3 if state.has(Unit::Hold(mode)) && word.units() > 1 => {
                    word = word.leave(Unit::Hold(mode));
                    state.remove(Unit::Hold(mode));
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
fn a_word_is_shown_by_what_it_says() {
    let word = Word::born(Unit::Hold(Mode::Upgradable)).claim().and_then(|word| word.hold(Mode::Shared, 0)).unwrap();
    let shown = format!("{:?}", word.enqueue());
    assert_eq!(shown, "Word { dead: false, queued: true, writer: false, upgradable: true, count: 1, claims: 1 }");
    assert!(format!("{:?}", Word::DEAD).starts_with("Word { dead: true, queued: false"));
}
