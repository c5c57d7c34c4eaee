//! The word of an entry: every move against a struct that has a field for each thing that the word packs.
//!
//! The moves are not public, so their file is included here. It depends on nothing.

#[allow(dead_code, unreachable_pub)]
#[path = "../../src/core/word.rs"]
mod word;

use word::{Holds, MAX_UNITS, Mode, Refusal, Unit, Want, Word};

use crate::common::Bytes;

/// What a word means.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Plain {
    queued: bool,
    writer: bool,
    upgradable: bool,
    count: usize,
    claims: usize,
}

impl Plain {
    fn held(self) -> bool {
        self.writer || self.upgradable || self.count > 0
    }

    fn units(self) -> usize {
        usize::from(self.writer) + usize::from(self.upgradable) + self.count + self.claims
    }

    fn add(&mut self, unit: Unit) {
        match unit {
            Unit::Claim => self.claims += 1,
            Unit::Hold(Mode::Exclusive) => self.writer = true,
            Unit::Hold(Mode::Upgradable) => self.upgradable = true,
            Unit::Hold(Mode::Shared | Mode::Permit) => self.count += 1,
        }
    }

    fn take(&mut self, unit: Unit) {
        match unit {
            Unit::Claim => self.claims -= 1,
            Unit::Hold(Mode::Exclusive) => self.writer = false,
            Unit::Hold(Mode::Upgradable) => self.upgradable = false,
            Unit::Hold(Mode::Shared | Mode::Permit) => self.count -= 1,
        }
    }

    fn has(self, unit: Unit) -> bool {
        match unit {
            Unit::Claim => self.claims > 0,
            Unit::Hold(Mode::Exclusive) => self.writer,
            Unit::Hold(Mode::Upgradable) => self.upgradable,
            Unit::Hold(Mode::Shared | Mode::Permit) => self.count > 0,
        }
    }

    /// Whether what is wanted may be had, whoever waits.
    fn admits(self, want: Want, permits: usize) -> bool {
        match want {
            Want::Hold(Mode::Exclusive) => !self.held(),
            Want::Hold(Mode::Shared) => !self.writer,
            Want::Hold(Mode::Upgradable) => !self.writer && !self.upgradable,
            Want::Hold(Mode::Permit) => self.count < permits,
            Want::Upgrade => self.count == 0,
        }
    }

    fn grant(&mut self, want: Want) {
        match want {
            Want::Hold(mode) => self.add(Unit::Hold(mode)),
            Want::Upgrade => (self.upgradable, self.writer) = (false, true),
        }
    }

    /// A request at once: with a claim to give for the hold, or without.
    fn enter(self, want: Want, claims: usize, permits: usize) -> Result<Plain, Refusal> {
        if !self.admits(want, permits) {
            return Err(Refusal::Held);
        }
        if self.queued {
            return Err(Refusal::Queued);
        }
        // A request that has a unit already can always be counted.
        if claims == 0 && want != Want::Upgrade && self.units() == MAX_UNITS {
            return Err(Refusal::Full);
        }
        let mut after = self;
        after.grant(want);
        after.claims -= claims;
        Ok(after)
    }

    fn weaken(self, from: Mode, to: Mode) -> Result<Plain, Refusal> {
        let mut after = self;
        after.take(Unit::Hold(from));
        if self.queued {
            return Err(Refusal::Queued);
        }
        after.add(Unit::Hold(to));
        Ok(after)
    }

    /// The same word, put together from the weights of its parts.
    fn word(self) -> Word {
        let weight = |unit| Word::born(unit).bits();
        let mut bits = self.count * weight(Unit::Hold(Mode::Shared)) + self.claims * weight(Unit::Claim);
        bits += usize::from(self.writer) * weight(Unit::Hold(Mode::Exclusive));
        bits += usize::from(self.upgradable) * weight(Unit::Hold(Mode::Upgradable));
        let word = Word::from_bits(bits);
        if self.queued { word.enqueue() } else { word }
    }

    fn assert_is(self, word: Word) {
        assert!(word == self.word(), "{word:?} is not {self:?}");
        assert!(word != Word::DEAD && word != Word::DEAD_KEYED, "{word:?} is alive");
        let holds = word.holds();
        assert_eq!(
            (word.is_queued(), holds.writer(), holds.upgradable(), holds.count(), word.units()),
            (self.queued, self.writer, self.upgradable, self.count, self.units()),
        );
        for unit in UNITS {
            assert_eq!(word.is_only(unit), self.has(unit) && self.units() == 1 && !self.queued);
        }
        assert_eq!(holds == Holds::NONE, !self.held());
        for want in WANTS.into_iter().filter(|&want| want != Want::Upgrade || self.upgradable) {
            assert_eq!(holds.grants(want, 3), self.admits(want, 3), "{want:?}, {self:?}");
        }
    }
}

const MODES: [Mode; 4] = [Mode::Exclusive, Mode::Shared, Mode::Upgradable, Mode::Permit];
const UNITS: [Unit; 5] = [
    Unit::Claim,
    Unit::Hold(Mode::Exclusive),
    Unit::Hold(Mode::Shared),
    Unit::Hold(Mode::Upgradable),
    Unit::Hold(Mode::Permit),
];
const WANTS: [Want; 5] = [
    Want::Hold(Mode::Exclusive),
    Want::Hold(Mode::Shared),
    Want::Hold(Mode::Upgradable),
    Want::Hold(Mode::Permit),
    Want::Upgrade,
];

/// Makes the moves that these bytes describe.
///
/// # Panics
/// If the word and the struct part.
pub fn run(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let size = bytes.next();
    // A table has either permits or the other modes; a mutex has the exclusive one only.
    let permits = [0, 1, 3, MAX_UNITS][usize::from(size % 4)];
    let mut plain = Plain::default();
    plain.add(UNITS[usize::from(bytes.next()) % if permits > 0 { 1 } else { 4 }]);
    let mut word = plain.word();
    assert!(word == Word::born(UNITS.into_iter().find(|&unit| plain.has(unit)).unwrap()));
    while !bytes.is_empty() {
        let (what, which) = (bytes.next(), usize::from(bytes.next()));
        let mode = if permits > 0 { Mode::Permit } else { MODES[which % 3] };
        let want = if which / 4 % 4 == 0 && plain.upgradable { Want::Upgrade } else { Want::Hold(mode) };
        let (expected, seen) = match what % 8 {
            0 => {
                let mut after = plain;
                after.claims += 1;
                (if plain.units() == MAX_UNITS { Err(Refusal::Full) } else { Ok(after) }, word.claim())
            }
            1 => (plain.enter(Want::Hold(mode), 0, permits), word.hold(mode, permits)),
            2 if plain.claims >= want.claims() => {
                (plain.enter(want, want.claims(), permits), word.settle(want, permits))
            }
            3 => {
                let from = if plain.writer { Mode::Exclusive } else { Mode::Upgradable };
                let to = if which % 2 == 0 { Mode::Shared } else { Mode::Upgradable };
                if !plain.has(Unit::Hold(from)) || from == to {
                    continue;
                }
                (plain.weaken(from, to), word.weaken(from, to))
            }
            // A waiter is a claim.
            4 if plain.claims > 0 => (Ok(Plain { queued: true, ..plain }), Ok(word.enqueue())),
            5 => {
                let unit = if which % 4 == 0 { Unit::Claim } else { Unit::Hold(mode) };
                // Under a queue, holds are given up by `regrant`, and its waiters' claims stay.
                if !plain.has(unit) || plain.units() == 1 || plain.queued && (unit != Unit::Claim || plain.claims == 1)
                {
                    continue;
                }
                let mut after = plain;
                after.take(unit);
                (Ok(after), Ok(word.leave(unit)))
            }
            6 if plain.queued => settle(plain, word, mode, which, permits),
            // As if many others came or went.
            7 => {
                let many = [1, 2, 3, MAX_UNITS / 2, MAX_UNITS - 2, MAX_UNITS - 1, MAX_UNITS][which % 7];
                let rest = MAX_UNITS - plain.units();
                if which / 8 % 2 == 0 {
                    plain.claims = many.min(rest + plain.claims);
                } else if plain.count > 0 {
                    let most = if permits == 0 { MAX_UNITS } else { permits };
                    plain.count = many.min(rest + plain.count).min(most);
                }
                word = plain.word();
                (Ok(plain), Ok(word))
            }
            _ => continue,
        };
        match (expected, seen) {
            (Ok(after), Ok(moved)) => (plain, word) = (after, moved),
            (expected, seen) => assert_eq!(expected.err(), seen.err(), "{plain:?}, {mode:?}, {want:?}"),
        }
        assert!(plain.units() <= MAX_UNITS);
        plain.assert_is(word);
    }
}

/// A holder leaves, perhaps, and the queue lets some in: their claims become holds.
fn settle(
    plain: Plain,
    word: Word,
    mode: Mode,
    which: usize,
    permits: usize,
) -> (Result<Plain, Refusal>, Result<Word, Refusal>) {
    let (mut after, mut holds) = (plain, word.holds());
    if plain.has(Unit::Hold(mode)) && which / 8 % 2 == 0 {
        after.take(Unit::Hold(mode));
        holds = holds.without(mode);
    }
    let mut granted = 0;
    for _ in 0..which / 16 {
        assert_eq!(holds.admit(mode, permits), after.admits(Want::Hold(mode), permits));
        if !after.admits(Want::Hold(mode), permits) || after.claims == granted {
            break;
        }
        after.add(Unit::Hold(mode));
        holds = holds.after(Want::Hold(mode));
        granted += 1;
    }
    after.claims -= granted;
    after.queued = which % 2 == 0 && after.claims > 0;
    if after.units() == 0 {
        // The last unit goes another way.
        return (Ok(plain), Ok(word));
    }
    (Ok(after), Ok(word.regrant(holds, granted, after.queued)))
}
