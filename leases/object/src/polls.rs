//! The pauses of a waiter.

use std::time::Duration;

/// The pause between two polls of a waiter grows by this factor.
const GROWTH: f64 = 1.5;

/// The pauses of waiters between two polls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Polls {
    pub(crate) shortest: Duration,
    pub(crate) longest: Duration,
}

impl Polls {
    /// Returns the pause after this many polls in vain.
    pub(crate) fn pause(&self, polls: u32) -> Duration {
        let growth = GROWTH.powi(i32::try_from(polls.min(64)).unwrap_or(64));
        Duration::try_from_secs_f64(self.shortest.as_secs_f64() * growth)
            .map_or(self.longest, |time| time.min(self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::Polls;
    use std::time::Duration;

    #[test]
    fn the_pauses_grow_up_to_the_longest_one() {
        let polls = Polls { shortest: Duration::from_millis(500), longest: Duration::from_secs(5) };
        assert_eq!([0, 1, 5, 6, u32::MAX].map(|count| polls.pause(count).as_millis()), [500, 750, 3796, 5000, 5000]);
        let endless = Polls { shortest: Duration::from_secs(1), longest: Duration::MAX };
        assert!(endless.pause(u32::MAX) > Duration::from_secs(3600));
    }
}
