//! The pulse of a connection: a request for the last sequence of the stream. It is sent if for a while no other request
//! has shown that sequence, and with it that the server answers.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use keylatch_lease::Clock;
use keylatch_lease_remote::{Limit, Link, sleep};

use super::{Session, Shown};

/// The number of pulses in the time limit of an operation.
const PULSES: u32 = 5;

/// The shortest time between two pulses.
const SHORTEST: Duration = Duration::from_millis(10);

/// Sends pulses, and ends subscriptions that are not needed any more, until the connection ends.
pub(crate) async fn beat(link: Arc<Link<Session>>) -> ! {
    let every = (link.timeout() / PULSES).max(SHORTEST);
    loop {
        let mut pause = every;
        if let Ok(session) = link.session(&mut Limit::after(link.timeout())).await {
            session.topics.tidy();
            pause = session.until_pulse(every);
            if pause.is_zero() {
                // A server that stays silent is noticed as in any other request.
                link.answer(&session, &mut Limit::after(link.timeout()), session.pulse()).await;
                pause = session.until_pulse(every);
            }
        }
        sleep(pause).await;
    }
}

impl Session {
    fn until_pulse(&self, every: Duration) -> Duration {
        let last = Duration::from_nanos(self.known_at.load(SeqCst));
        every.saturating_sub(self.clock.now().saturating_sub(last))
    }

    /// Notes that a request which was sent at this time has shown the last sequence of the stream.
    pub(super) fn knows_since(&self, sent: Duration) {
        self.known_at.fetch_max(u64::try_from(sent.as_nanos()).unwrap_or(u64::MAX), SeqCst);
    }

    /// Asks for the last sequence of the stream. Ends the connection if the stream is a different one, or an older
    /// copy: the next connection finds out what was forgotten.
    async fn pulse(&self) {
        let before = self.seen.get();
        self.knows_since(self.clock.now()); // even if this fails, the next pulse is not due any sooner
        let shown = self.api("INFO", &serde_json::json!({})).await;
        let Ok(Shown { created, state }) = shown else { return };
        if created != self.origin.0 || state.last_seq < before {
            self.end.bring();
        } else {
            self.seen.sees(state.last_seq);
        }
    }
}
