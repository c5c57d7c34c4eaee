//! The state word of an entry: every move, compared with a struct that has a field for each part of the word.
//!
//! The moves are not public, so their file is included here. It has no dependencies.

#[allow(dead_code, unreachable_pub)]
#[path = "../../src/core/wait/word.rs"]
mod word;

use word::{Access, CountKind, Holds, MAX_UNITS, Refusal, Unit, Want, Word};

use crate::common::Bytes;

/// The meaning of a word.
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
            Unit::Hold(Access::Exclusive) => self.writer = true,
            Unit::Hold(Access::Upgradable) => self.upgradable = true,
            Unit::Hold(Access::Shared) => self.count += 1,
            Unit::Hold(Access::Permits(amount)) => self.count += amount as usize,
        }
    }

    fn take(&mut self, unit: Unit) {
        match unit {
            Unit::Claim => self.claims -= 1,
            Unit::Hold(Access::Exclusive) => self.writer = false,
            Unit::Hold(Access::Upgradable) => self.upgradable = false,
            Unit::Hold(Access::Shared) => self.count -= 1,
            Unit::Hold(Access::Permits(amount)) => self.count -= amount as usize,
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

    /// Returns whether the holds admit `want`, regardless of waiters.
    fn admits(self, want: Want, permits: usize) -> bool {
        match want {
            Want::Hold(Access::Exclusive) => !self.held(),
            Want::Hold(Access::Shared) => !self.writer,
            Want::Hold(Access::Upgradable) => !self.writer && !self.upgradable,
            // A request for more than the limit gets in when it is alone.
            Want::Hold(Access::Permits(amount)) => {
                self.count + amount as usize <= permits || self.count == 0 && permits > 0
            }
            Want::Upgrade => self.count == 0,
        }
    }

    fn grant(&mut self, want: Want) {
        match want {
            Want::Hold(access) => self.add(Unit::Hold(access)),
            Want::Upgrade => (self.upgradable, self.writer) = (false, true),
        }
    }

    /// Models an attempt to enter at once, either with a claim that becomes the hold, or without one.
    fn enter(self, want: Want, claims: usize, permits: usize) -> Result<Plain, Refusal> {
        let is_permits = matches!(want, Want::Hold(Access::Permits(_)));
        if !self.admits(want, permits) {
            // If there is a queue, it has the limit of permits.
            return Err(if is_permits && self.queued { Refusal::Queued } else { Refusal::Held });
        }
        if self.queued {
            return Err(Refusal::Queued);
        }
        // A request that already has a unit can always be counted. Permits have their own limit.
        if claims == 0 && want != Want::Upgrade && !is_permits && self.units() >= MAX_UNITS {
            return Err(Refusal::Full);
        }
        let mut after = self;
        after.grant(want);
        after.claims -= claims;
        Ok(after)
    }

    fn downgrade(self, from: Access, to: Access) -> Result<Plain, Refusal> {
        let mut after = self;
        after.take(Unit::Hold(from));
        if self.queued {
            return Err(Refusal::Queued);
        }
        after.add(Unit::Hold(to));
        Ok(after)
    }

    /// Returns the same word, composed of the weights of its parts.
    fn word(self) -> Word {
        let weight = |unit| Word::born(unit).bits();
        let mut bits = self.count * weight(Unit::Hold(Access::Shared)) + self.claims * weight(Unit::Claim);
        bits += usize::from(self.writer) * weight(Unit::Hold(Access::Exclusive));
        bits += usize::from(self.upgradable) * weight(Unit::Hold(Access::Upgradable));
        let word = Word::from_bits(bits);
        if self.queued { word.admit(word.holds(), 0, true) } else { word }
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
            assert_eq!(word.is_only(unit), self.has(unit) && self.units() == units(unit) && !self.queued);
        }
        assert_eq!(holds == Holds::NONE, !self.held());
        for want in WANTS.into_iter().filter(|&want| want != Want::Upgrade || self.upgradable) {
            assert_eq!(holds.allow(want, 3), self.admits(want, 3), "{want:?}, {self:?}");
        }
    }
}

const ACCESSES: [Access; 3] = [Access::Exclusive, Access::Shared, Access::Upgradable];
/// Returns the number of units of a claim or a hold.
fn units(unit: Unit) -> usize {
    if let Unit::Hold(Access::Permits(amount)) = unit { amount as usize } else { 1 }
}

const UNITS: [Unit; 6] = [
    Unit::Claim,
    Unit::Hold(Access::Exclusive),
    Unit::Hold(Access::Shared),
    Unit::Hold(Access::Upgradable),
    Unit::Hold(Access::Permits(1)),
    Unit::Hold(Access::Permits(3)),
];
const WANTS: [Want; 6] = [
    Want::Hold(Access::Exclusive),
    Want::Hold(Access::Shared),
    Want::Hold(Access::Upgradable),
    Want::Hold(Access::Permits(1)),
    Want::Hold(Access::Permits(3)),
    Want::Upgrade,
];

/// Makes the moves that these bytes encode.
///
/// # Panics
///
/// If the word and the struct disagree.
pub fn run(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let size = bytes.next();
    // A table has either permits or the other modes; a mutex has only the exclusive one.
    let permits = [0, 1, 3, MAX_UNITS][usize::from(size % 4)];
    let counted = if permits > 0 { CountKind::Permits(permits) } else { CountKind::Readers };
    let mut plain = Plain::default();
    plain.add(UNITS[usize::from(bytes.next()) % if permits > 0 { 1 } else { 4 }]);
    let mut word = plain.word();
    assert!(word == Word::born(UNITS.into_iter().find(|&unit| plain.has(unit)).unwrap()));
    while !bytes.is_empty() {
        let (what, which) = (bytes.next(), usize::from(bytes.next()));
        let access = if permits > 0 { Access::Permits([1, 1, 2, 3][which / 32 % 4]) } else { ACCESSES[which % 3] };
        let want = if which / 4 % 4 == 0 && plain.upgradable { Want::Upgrade } else { Want::Hold(access) };
        let (expected, seen) = match what % 8 {
            0 => {
                let mut after = plain;
                after.claims += 1;
                let used = if permits > 0 { plain.claims } else { plain.units() };
                (if used >= MAX_UNITS { Err(Refusal::Full) } else { Ok(after) }, word.claim(counted))
            }
            1 => (plain.enter(Want::Hold(access), 0, permits), word.hold(access, permits)),
            2 if plain.claims >= want.claims() => {
                // The waiters of a latch keep their claims.
                let kept = which >= 128 && plain.units() < MAX_UNITS;
                let claims = if kept { 0 } else { want.claims() };
                (plain.enter(want, claims, permits), word.enter(want, claims, permits))
            }
            3 => {
                let from = if plain.writer { Access::Exclusive } else { Access::Upgradable };
                let to = if which % 2 == 0 { Access::Shared } else { Access::Upgradable };
                if !plain.has(Unit::Hold(from)) || from == to {
                    continue;
                }
                (plain.downgrade(from, to), word.downgrade(from, to))
            }
            // A waiter is a claim.
            4 if plain.claims > 0 && want != Want::Upgrade => {
                let kept_out = !plain.admits(want, permits) && !plain.queued;
                let expected = match plain.enter(want, 1, permits) {
                    Err(_) if kept_out => Ok(Plain { queued: true, ..plain }),
                    Err(_) => Err(Refusal::Queued),
                    entered => entered,
                };
                (expected, word.enqueue(want, 1, permits))
            }
            5 => {
                let unit = if which % 4 == 0 { Unit::Claim } else { Unit::Hold(access) };
                // If there is a queue, only `admit` releases holds, and at least one claim remains, that of a waiter.
                if !plain.has(unit)
                    || plain.units() == units(unit)
                    || plain.queued && (unit != Unit::Claim || plain.claims == 1)
                {
                    continue;
                }
                let mut after = plain;
                after.take(unit);
                (Ok(after), Ok(word.leave(unit)))
            }
            6 if plain.queued => admit(plain, word, access, which, permits),
            // This acts as if many others arrived or left.
            7 => {
                let many = [1, 2, 3, MAX_UNITS / 2, MAX_UNITS - 2, MAX_UNITS - 1, MAX_UNITS][which % 7];
                let rest = if permits > 0 { MAX_UNITS } else { MAX_UNITS.saturating_sub(plain.units()) };
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
            (expected, seen) => assert_eq!(expected.err(), seen.err(), "{plain:?}, {access:?}, {want:?}"),
        }
        // A claim may become several permits; the check is that no field overflows.
        assert!(plain.count <= MAX_UNITS && plain.claims <= MAX_UNITS);
        plain.assert_is(word);
    }
}

/// Models `admit`: a holder may leave, and the queue admits some waiters, whose claims become holds.
fn admit(
    plain: Plain,
    word: Word,
    access: Access,
    which: usize,
    permits: usize,
) -> (Result<Plain, Refusal>, Result<Word, Refusal>) {
    let (mut after, mut holds) = (plain, word.holds());
    if plain.has(Unit::Hold(access)) && which / 8 % 2 == 0 {
        after.take(Unit::Hold(access));
        holds = holds.without(access);
    }
    let mut granted = 0;
    for _ in 0..which / 16 {
        assert_eq!(holds.fits(access, permits), after.admits(Want::Hold(access), permits));
        if !after.admits(Want::Hold(access), permits) || after.claims == granted {
            break;
        }
        after.add(Unit::Hold(access));
        holds = holds.after(Want::Hold(access));
        granted += 1;
    }
    after.claims -= granted;
    after.queued = which % 2 == 0 && after.claims > 0;
    if after.units() == 0 {
        // The last unit is released by another move.
        return (Ok(plain), Ok(word));
    }
    (Ok(after), Ok(word.admit(holds, granted, after.queued)))
}
