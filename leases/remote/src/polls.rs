//! The polls of waiters, for servers that send no messages.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use keylatch_lease::Resource;

use crate::limit::jittered;

/// The pause between two polls grows by this factor.
const GROWTH: f64 = 1.5;

/// Old entries are not removed while there are fewer entries than this.
const FEW: usize = 1024;

/// The number of unsuccessful polls is remembered for at least this long after the last one.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The polls of the waiters in this process. Times are those of the engine's clock.
pub(crate) struct Polls {
    shortest: Duration,
    longest: Duration,
    entries: Mutex<Entries>,
}

struct Entries {
    polled: HashMap<Resource, Polled>,
    /// The number of entries at which the next clean-up is due.
    limit: usize,
}

/// The polls of the waiters for a resource.
#[derive(Default)]
struct Polled {
    /// The number of unsuccessful polls.
    count: u32,
    /// The time of the last one.
    last: Duration,
    /// The number of waiters that are between two polls.
    pausing: usize,
}

/// A waiter's pause between two polls.
#[must_use = "the pause ends when it is dropped"]
pub(crate) struct Pause<'a> {
    polls: &'a Polls,
    resource: Resource,
    /// Whether the waiter goes on to its next poll.
    is_over: bool,
}

impl Pause<'_> {
    /// Returns a random length for the pause.
    pub(crate) fn length(&self, now: Duration) -> Duration {
        jittered(self.polls.longest_after(self.polls.count(&self.resource, now)))
    }

    /// Ends the pause, because the waiter goes on to its next poll.
    pub(crate) fn end(mut self) {
        self.is_over = true;
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        let mut entries = self.polls.lock();
        let Some(polled) = entries.polled.get_mut(&self.resource) else { return };
        polled.pausing -= 1;
        // If nobody waits any more, the next waiter begins with short pauses.
        if polled.pausing == 0 && (polled.count == 0 || !self.is_over) {
            entries.polled.remove(&self.resource);
        }
    }
}

impl Polls {
    /// Returns polls whose pauses grow from `shortest` to `longest`.
    pub(crate) fn new(shortest: Duration, longest: Duration) -> Self {
        let entries = Entries { polled: HashMap::new(), limit: FEW };
        Polls { shortest: shortest.min(longest), longest, entries: Mutex::new(entries) }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a pause between two polls for a resource.
    pub(crate) fn pause(&self, resource: &Resource) -> Pause<'_> {
        self.lock().polled.entry(resource.clone()).or_default().pausing += 1;
        Pause { polls: self, resource: resource.clone(), is_over: false }
    }

    /// Notes an unsuccessful poll.
    pub(crate) fn in_vain(&self, resource: &Resource, now: Duration) {
        let remembered = self.remembered();
        let mut entries = self.lock();
        if entries.polled.len() >= entries.limit {
            entries.polled.retain(|_, polled| polled.pausing > 0 || !polled.is_old(now, remembered));
            entries.limit = (2 * entries.polled.len()).max(FEW);
        }
        let polled = entries.polled.entry(resource.clone()).or_default();
        polled.count = polled.count_at(now, remembered).saturating_add(1);
        polled.last = now;
    }

    /// Notes that this process has acquired the resource, so the next waiter begins with short pauses.
    pub(crate) fn got(&self, resource: &Resource) {
        let mut entries = self.lock();
        let Some(polled) = entries.polled.get_mut(resource) else { return };
        polled.count = 0;
        if polled.pausing == 0 {
            entries.polled.remove(resource);
        }
    }

    /// Returns the number of unsuccessful polls for a resource that are still remembered.
    fn count(&self, resource: &Resource, now: Duration) -> u32 {
        self.lock().polled.get(resource).map_or(0, |polled| polled.count_at(now, self.remembered()))
    }

    /// Returns the longest pause after this many unsuccessful polls.
    fn longest_after(&self, polls: u32) -> Duration {
        let growth = GROWTH.powi(i32::try_from(polls.min(64)).unwrap_or(64));
        Duration::try_from_secs_f64(self.shortest.as_secs_f64() * growth)
            .map_or(self.longest, |time| time.min(self.longest))
    }

    /// Returns how long the number of polls is remembered after the last one.
    fn remembered(&self) -> Duration {
        self.longest.saturating_mul(2).max(REMEMBERED)
    }
}

impl Polled {
    fn is_old(&self, now: Duration, remembered: Duration) -> bool {
        now.saturating_sub(self.last) >= remembered
    }

    fn count_at(&self, now: Duration, remembered: Duration) -> u32 {
        if self.is_old(now, remembered) { 0 } else { self.count }
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW, Polls};
    use keylatch_lease::Resource;
    use std::time::Duration;

    const START: Duration = Duration::ZERO;

    fn polls(longest: u64) -> Polls {
        Polls::new(Duration::from_millis(500), Duration::from_secs(longest))
    }

    #[test]
    fn the_pauses_grow_up_to_the_longest_one() {
        let longest = [0, 1, 5, 6, u32::MAX].map(|count| polls(5).longest_after(count).as_millis());
        assert_eq!(longest, [500, 750, 3796, 5000, 5000]);
        let endless = Polls::new(Duration::from_secs(1), Duration::MAX);
        assert!(endless.longest_after(u32::MAX) > Duration::from_secs(3600));
        let second = Duration::from_secs(1);
        assert_eq!(Polls::new(Duration::from_secs(9), second).longest_after(0), second);
    }

    #[test]
    fn a_pause_is_between_half_of_its_longest_time_and_all_of_it() {
        let (polls, report) = (polls(5), Resource::from("report"));
        let pause = polls.pause(&report);
        for count in 0..20 {
            let (length, longest) = (pause.length(START), polls.longest_after(count));
            assert!(length >= longest / 2 && length <= longest, "{length:?} after {count} polls");
            polls.in_vain(&report, START);
        }
    }

    #[test]
    fn polls_are_counted_for_as_long_as_two_of_the_longest_pauses() {
        let (at, report) = (Duration::from_secs, Resource::from("report"));
        let long = polls(600);
        long.in_vain(&report, at(0));
        long.in_vain(&report, at(700));
        assert_eq!((long.count(&report, at(1899)), long.count(&report, at(1900))), (2, 0));
        let short = polls(1);
        short.in_vain(&report, at(0));
        assert_eq!((short.count(&report, at(59)), short.count(&report, at(60))), (1, 0));
        short.in_vain(&report, at(60));
        assert_eq!(short.count(&report, at(60)), 1);
    }

    #[test]
    fn the_polls_of_waiters_that_have_given_up_do_not_count() {
        let (polls, report) = (polls(5), Resource::from("report"));
        let count = || polls.count(&report, START);
        polls.pause(&report).end();
        polls.in_vain(&report, START);
        polls.pause(&report).end();
        assert_eq!(count(), 1, "the waiter goes on");
        let (first, second) = (polls.pause(&report), polls.pause(&report));
        drop(first);
        assert_eq!(count(), 1, "another waiter is there");
        drop(second);
        assert_eq!(count(), 0);
        assert!(polls.lock().polled.is_empty());
    }

    #[test]
    fn the_waiter_behind_one_that_was_served_begins_with_short_pauses() {
        let (polls, report) = (polls(5), Resource::from("report"));
        let pause = polls.pause(&report);
        polls.in_vain(&report, START);
        polls.got(&report);
        assert_eq!(polls.count(&report, START), 0);
        pause.end();
        polls.in_vain(&report, START);
        polls.got(&report);
        assert!(polls.lock().polled.is_empty());
    }

    #[test]
    fn only_old_polls_without_a_waiter_are_cleaned_up() {
        let (polls, report) = (polls(5), Resource::from("report"));
        let pause = polls.pause(&report);
        polls.in_vain(&report, START);
        for at in 0..10 {
            for key in 0..FEW as u64 {
                polls.in_vain(&Resource::new("page", format!("{at}-{key}")), Duration::from_secs(at * 60));
            }
        }
        assert!(polls.lock().polled.len() <= 2 * FEW + 1);
        assert!(polls.lock().polled.contains_key(&report), "a waiter was forgotten");
        pause.end();
    }
}
