//! The silence of a server.

use std::time::{Duration, Instant};

/// The silence of a server: the time since its last answer, counting only while at least one request was waiting.
///
/// It is not enough to look at the requests that time out. If every caller gives up before its request times out, no
/// request ever does, however long the server is silent.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// The number of requests that wait.
    waiting: usize,
    /// The start of the part of the silence that `before` does not include; `None` while no request waits.
    since: Option<Instant>,
    /// The length of the silence up to `since`, or all of it while no request waits.
    before: Duration,
}

impl Silence {
    /// Notes that a request waits from now on.
    pub(crate) fn begin(&mut self, now: Instant) {
        if self.waiting == 0 {
            self.since = Some(now);
        }
        self.waiting += 1;
    }

    /// Notes that a request no longer waits. Returns the length of the silence, which ends if the request was answered.
    pub(crate) fn end(&mut self, now: Instant, is_answered: bool) -> Duration {
        let length = self.before + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.waiting -= 1;
        self.before = if is_answered { Duration::ZERO } else { length };
        self.since = (self.waiting > 0).then_some(now);
        self.before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_count_in_which_a_request_waits() {
        let (start, mut silence) = (Instant::now(), Silence::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        let seconds = Duration::from_secs;
        silence.begin(at(0));
        assert_eq!(silence.end(at(1), false), seconds(1));
        // Nobody asks anything in the meantime.
        silence.begin(at(100));
        silence.begin(at(101));
        assert_eq!(silence.end(at(102), false), seconds(3));
        assert_eq!(silence.end(at(104), false), seconds(5));
    }

    #[test]
    fn an_answer_ends_the_silence() {
        let (start, mut silence) = (Instant::now(), Silence::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        silence.begin(at(0));
        silence.begin(at(1));
        assert_eq!(silence.end(at(2), true), Duration::ZERO);
        assert_eq!(silence.end(at(5), false), Duration::from_secs(3));
        silence.begin(at(6));
        assert_eq!(silence.end(at(7), true), Duration::ZERO);
    }
}
