//! An editing desk: only one editor at a time may change a document, for as long as its page is open in a browser.
//! Editors open (acquire), type (renew), save and close (release). Some go to lunch with a document open, some close
//! the browser and never return, and some return the next morning and save the documents that they left open.
//!
//! ```text
//! cargo run --release --example desk                    # a day, a night and a morning, in simulated time
//! cargo run --release --example desk -- --no-fence      # saves are not checked: work is lost
//! cargo run --release --example desk -- --policy never  # abandoned documents stay locked until an administrator steps in
//! cargo run --release --example desk -- --real          # the same with tasks and threads, in real time
//! ```
//!
//! Where to look: [`Editor::open`] waits for a lease, with a limit; [`Editor::renew`] detects lost leases;
//! [`Desk::save`] shows the fence at work; [`Agenda::run`] drives leases by a simulated clock, on which a day takes no
//! time.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::poll_fn;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use std::{env, thread};

use keylatch_lease::{
    AcquireError, Clock, Expiry, Fence, Grant, Leases, ManualClock, Memory, Owner, RenewError, Resource,
};
use smol::{Executor, Timer};

const HELP: &str = "\
A day, a night and a morning at an editing desk: a document is leased while it is edited, and saved through a fence.

Usage: desk [OPTIONS]

  --policy NAME  the end of a lease (default: sliding)
                   sliding  30 minutes after its last renewal
                   upto     likewise, but at most an hour after the document was opened
                   fixed    an hour after the document was opened
                   never    with its session, which an administrator ends
  --no-fence     do not check saves; work is then lost
  --real         run tasks and threads in real time, in which a minute takes 4 ms
  --seed N       repeat the day of this seed; with --real, only its intentions (default: 1)
  --help         print this text

Exit code: 0; 1 if a number is not as it must be; 2 if an argument is invalid.";

const DOCUMENTS: usize = 300;
/// The number of editors that sign in during the day, and during the next morning.
const SESSIONS: (usize, usize) = (600, 80);

// Four times, in minutes after the desk first opens: when it closes, when an administrator comes by, when it opens
// again, and when it closes again.
const CLOSING: f64 = 600.0;
const NIGHT: f64 = 800.0;
const MORNING: f64 = 1440.0;
const NOON: f64 = 1600.0;

// --- The desk --------------------------------------------------------------------------------------------------------

struct Desk<C: Clock> {
    leases: Leases<Memory<C>>,
    documents: Vec<(Resource, Mutex<Document>)>,
    fence: Fence,
    /// Whether the fence refuses stale saves. If not, they are only counted.
    is_fenced: bool,
    policy: Expiry,
    minute: Duration,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Document {
    /// One paragraph for each save, so that the missing ones can be counted at the end.
    body: String,
    /// The number of saves. Saving a draft of another version loses an update.
    version: u64,
}

/// A document as it is in an editor's browser.
struct Draft {
    index: usize,
    grant: Grant,
    body: String,
    version: u64,
}

impl<C: Clock> Desk<C> {
    /// Returns the document to an editor that has just acquired its lease; `None` if a fenced desk refuses its token.
    fn read(&self, index: usize, grant: Grant) -> Option<Draft> {
        let (resource, document) = &self.documents[index];
        let document = document.lock().unwrap();
        // An editor that reads in order to write already presents the token at the read. If only saves did, a stale
        // save could still come between this read and the first save, and the first save would then overwrite a change
        // that the editor has not read.
        if self.fence.admit(resource, grant.token()).is_err() && self.is_fenced {
            self.tally().noticed += 1; // the lease has ended, and another editor has read the document since
            return None;
        }
        Some(Draft { index, body: document.body.clone(), version: document.version, grant })
    }

    fn save(&self, draft: &Draft, paragraph: &str) {
        let (resource, document) = &self.documents[draft.index];
        // The check of the fence and the write must be one step, as in `UPDATE ... WHERE token <= ?`.
        let mut document = document.lock().unwrap();
        let mut tally = self.tally();
        let is_stale = self.fence.admit(resource, draft.grant.token()).is_err();
        if is_stale && self.is_fenced {
            tally.refused += 1;
            return;
        }
        tally.saves += 1;
        tally.admitted += usize::from(is_stale);
        tally.lost_updates += usize::from(document.version != draft.version);
        document.body = format!("{}{paragraph}\n", draft.body);
        document.version += 1;
    }

    /// Ends abandoned sessions, as an administrator must if leases do not expire.
    fn administer(&self) {
        if matches!(self.policy, Expiry::Never) {
            for i in 0..SESSIONS.0 {
                self.tally().administered += self.leases.release_all_now(&session(i)).unwrap();
            }
        }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap()
    }
}

/// Returns the owner of a session: a name, which outlives requests, connections, and the tasks and threads that serve
/// them.
fn session(i: usize) -> Owner {
    Owner::named(format!("session-{i}"))
}

// --- The editors -----------------------------------------------------------------------------------------------------

struct Editor<'a, C: Clock> {
    desk: &'a Desk<C>,
    pace: Pace<'a>,
    random: Random,
    number: usize,
    owner: Owner,
}

impl<C: Clock> Editor<'_, C> {
    /// Comes at some time while the desk is open, and begins no new work after it has closed.
    async fn session(mut self) {
        let (opens, closes) = if self.number < SESSIONS.0 { (0.0, CLOSING) } else { (MORNING, NOON) };
        let comes = self.minutes(opens, closes);
        self.pace.pause(comes.saturating_sub(self.pace.now())).await;
        self.work(self.desk.minute.mul_f64(closes)).await;
        self.desk.tally().sessions += 1;
    }

    async fn work(&mut self, closes: Duration) {
        let mut jobs = self.random.between(1.0, 7.0) as usize;
        while jobs > 0 && self.pace.now() < closes {
            let mut drafts = self.open(closes).await;
            self.write(&mut drafts).await;
            match self.random.between(0.0, 100.0) as u32 {
                0..70 => self.save_and_close(drafts),
                70..85 => {
                    // Goes to lunch, and leaves everything open.
                    let lunch = self.minutes(10.0, 150.0);
                    self.away(&drafts, self.pace.now() + lunch).await;
                    self.save_and_close(drafts);
                }
                85..92 => {
                    // Saves and signs out, without closing anything.
                    drafts.iter().for_each(|draft| self.save(draft));
                    jobs = 1;
                }
                92..96 => {
                    // Goes home, and continues in the morning, after other editors have begun.
                    let morning = self.minutes(MORNING + 30.0, NOON);
                    self.away(&drafts, morning).await;
                    self.save_and_close(drafts);
                    jobs = 1;
                }
                // Closes the browser: does not return, and does not sign out.
                _ => return self.away(&drafts, self.desk.minute.mul_f64(NOON)).await,
            }
            let coffee = self.minutes(1.0, 20.0);
            self.pace.pause(coffee).await;
            jobs -= 1;
        }
        let released = self.desk.leases.release_all_now(&self.owner).unwrap();
        self.desk.tally().signed_out += released;
    }

    /// Opens a document, and waits for it if necessary. Perhaps opens one or two more, if they are free.
    async fn open(&mut self, closes: Duration) -> Vec<Draft> {
        let mut drafts = Vec::<Draft>::new();
        for nth in 0..self.random.between(1.0, 4.0) as usize {
            // Squared, so that editors often want the same documents.
            let index = (self.random.between(0.0, 1.0).powi(2) * DOCUMENTS as f64) as usize;
            if drafts.iter().any(|draft| draft.index == index) {
                continue;
            }
            let Desk { leases, documents, policy, .. } = self.desk;
            let resource = &documents[index].0;
            let asked = self.pace.now();
            let mut acquired = leases.try_acquire_now(resource, &self.owner, policy.clone());
            // A program would show the editor the owner and the time left, which are both in `Busy`.
            let is_busy = matches!(acquired, Err(AcquireError::Busy { .. }));
            if is_busy && nth == 0 {
                let patience = self.minutes(5.0, 60.0).min(closes.saturating_sub(asked));
                let acquire = leases.acquire(resource, &self.owner, policy.clone());
                acquired = match self.pace {
                    Pace::Thread(_) => acquire.wait_for(patience),
                    _ => acquire.until(self.pace.pause(patience)).await,
                };
            }
            let mut tally = self.desk.tally();
            match acquired {
                Ok(grant) => {
                    tally.at_once += usize::from(!is_busy);
                    tally.waited += usize::from(is_busy);
                    tally.longest_wait = tally.longest_wait.max(self.pace.now() - asked);
                    drop(tally);
                    drafts.extend(self.desk.read(index, grant));
                }
                Err(_) => tally.gave_up += usize::from(nth == 0),
            }
        }
        drafts
    }

    /// Types, and renews the leases from time to time.
    async fn write(&mut self, drafts: &mut Vec<Draft>) {
        let mut breaths = self.random.between(2.0, 15.0) as usize;
        while breaths > 0 && !drafts.is_empty() {
            let typing = self.minutes(1.0, 10.0);
            self.pace.pause(typing).await;
            self.renew(drafts);
            breaths -= 1;
        }
    }

    /// Renews the leases, and keeps the drafts whose lease is still valid.
    fn renew(&self, drafts: &mut Vec<Draft>) {
        drafts.retain_mut(|draft| match self.desk.leases.renew_now(&draft.grant) {
            Ok(grant) => {
                draft.grant = grant;
                true
            }
            Err(RenewError::NotRenewable { .. }) => true, // the lease runs on to its end
            Err(_) => {
                self.desk.tally().noticed += 1;
                false
            }
        });
    }

    fn save_and_close(&mut self, mut drafts: Vec<Draft>) {
        // A check before the save makes stale saves rare. It cannot rule them out, because a lease may end between the
        // check and the save. Half of the time there is no check.
        if self.random.between(0.0, 1.0) < 0.5 {
            self.renew(&mut drafts);
        }
        for draft in &drafts {
            self.save(draft);
            // Fails, and changes nothing, if the lease is lost: the document is then free, or another editor has it.
            _ = self.desk.leases.release_now(&draft.grant);
        }
    }

    fn save(&self, draft: &Draft) {
        self.desk.save(draft, self.owner.name());
    }

    /// Stays away until `back`, and measures how long the documents stay locked.
    async fn away(&self, drafts: &[Draft], back: Duration) {
        let silent = self.pace.now();
        let mut locked: Vec<_> = drafts.iter().map(|draft| &draft.grant).collect();
        self.desk.tally().forgotten += locked.len();
        let mut now = silent;
        while now < back {
            let mut next = back;
            locked.retain(|grant| {
                let lease = self.desk.leases.status_now(grant.resource()).unwrap();
                let lease = lease.filter(|lease| lease.token() == grant.token());
                let mut tally = self.desk.tally();
                match &lease {
                    Some(lease) => next = next.min(now + lease.remaining().unwrap_or(self.desk.minute)),
                    None => tally.longest_forgotten = tally.longest_forgotten.max(now - silent),
                }
                lease.is_some()
            });
            self.pace.pause(next - now).await;
            now = self.pace.now();
        }
    }

    fn minutes(&mut self, from: f64, to: f64) -> Duration {
        self.desk.minute.mul_f64(self.random.between(from, to))
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn between(&mut self, from: f64, to: f64) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        from + (to - from) * (((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

// --- Time ------------------------------------------------------------------------------------------------------------

/// The way in which time passes for an editor.
enum Pace<'a> {
    Simulated(&'a Agenda),
    /// A task in real time, which started at this instant.
    Task(Instant),
    /// A thread in real time, which started at this instant. It blocks where the others are pending, so its async
    /// functions act like ordinary ones.
    Thread(Instant),
}

impl Pace<'_> {
    fn now(&self) -> Duration {
        match self {
            Pace::Simulated(agenda) => agenda.clock.now(),
            Pace::Task(start) | Pace::Thread(start) => start.elapsed(),
        }
    }

    async fn pause(&self, time: Duration) {
        match self {
            Pace::Simulated(agenda) => agenda.pause(time).await,
            Pace::Task(_) => _ = Timer::after(time).await,
            Pace::Thread(_) => thread::sleep(time),
        }
    }
}

/// Simulated time. It stands still while any editor has work to do, and then jumps to the next event.
#[derive(Default)]
struct Agenda {
    clock: ManualClock,
    alarms: Mutex<BTreeMap<Duration, Vec<Waker>>>,
}

impl Agenda {
    async fn pause(&self, time: Duration) {
        let due = self.clock.now() + time;
        poll_fn(|cx| {
            if self.clock.now() >= due {
                return Poll::Ready(());
            }
            self.alarms.lock().unwrap().entry(due).or_default().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn run(&self, leases: &Leases<Memory<ManualClock>>, editors: &Executor<'_>, until: Duration) {
        loop {
            while editors.try_tick() {}
            // With a clock that does not advance in real time, leases have no timers. A tick serves the waiters for
            // expired leases, and returns the time until there is more to do.
            let tick = leases.tick().map(|time| self.clock.now() + time);
            if editors.try_tick() {
                continue;
            }
            let alarm = self.alarms.lock().unwrap().keys().next().copied();
            let next = tick.into_iter().chain(alarm).min().filter(|&next| next <= until);
            self.clock.advance(next.unwrap_or(until) - self.clock.now());
            let Some(next) = next else { return };
            let due = self.alarms.lock().unwrap().remove(&next);
            due.into_iter().flatten().for_each(Waker::wake);
        }
    }
}

// --- The run ---------------------------------------------------------------------------------------------------------

struct Args {
    policy: String,
    is_fenced: bool,
    real: bool,
    seed: u64,
}

fn main() -> ExitCode {
    let mut args = Args { policy: "sliding".to_owned(), is_fenced: true, real: false, seed: 1 };
    match args.parse(env::args().skip(1)) {
        Ok(true) => {}
        Ok(false) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(complaint) => {
            eprintln!("desk: {complaint} (see --help)");
            return ExitCode::from(2);
        }
    }
    let begin = Instant::now();
    let is_sound = if args.real { args.run_real() } else { args.run_simulated() };
    println!("{:<40}{:>10}", "wall time", format!("{:.1?}", begin.elapsed()));
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Args {
    /// Parses the command line; returns `false` if it asks for help.
    fn parse(&mut self, mut args: impl Iterator<Item = String>) -> Result<bool, String> {
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
            match &*flag {
                "--policy" => self.policy = value()?,
                "--no-fence" => self.is_fenced = false,
                "--real" => self.real = true,
                "--seed" => {
                    let seed = value()?;
                    self.seed = seed.parse().map_err(|_| format!("--seed {seed}: must be a number below 2^64"))?;
                }
                "--help" => return Ok(false),
                _ => return Err(format!("{flag}: no such option")),
            }
        }
        match &*self.policy {
            "sliding" | "upto" | "fixed" | "never" => Ok(true),
            other => Err(format!("--policy {other}: must be sliding, upto, fixed or never")),
        }
    }

    fn desk<C: Clock>(&self, leases: Leases<Memory<C>>, minute: Duration) -> Desk<C> {
        let policy = match &*self.policy {
            "sliding" => Expiry::Sliding(30 * minute),
            "upto" => Expiry::SlidingUpTo { idle: 30 * minute, total: 60 * minute },
            "fixed" => Expiry::Fixed(60 * minute),
            _ => Expiry::Never,
        };
        let documents = (0..DOCUMENTS).map(|i| (Resource::new("article", i.to_string()), Mutex::default())).collect();
        let (fence, is_fenced, tally) = (Fence::new(), self.is_fenced, Mutex::default());
        Desk { leases, documents, fence, is_fenced, policy, minute, tally }
    }

    fn editors<'a, C: Clock>(&self, desk: &'a Desk<C>, pace: impl Fn(usize) -> Pace<'a>) -> Vec<Editor<'a, C>> {
        let mut seeds = Random(self.seed);
        let mut random = || Random(seeds.between(0.0, 2_f64.powi(53)) as u64);
        let editor = |i| Editor { desk, pace: pace(i), random: random(), number: i, owner: session(i) };
        (0..SESSIONS.0 + SESSIONS.1).map(editor).collect()
    }

    fn run_simulated(&self) -> bool {
        let agenda = Agenda::default();
        let desk = self.desk(Leases::in_memory_with(agenda.clock.clone()), Duration::from_secs(60));
        let executor = Executor::new();
        for editor in self.editors(&desk, |_| Pace::Simulated(&agenda)) {
            executor.spawn(editor.session()).detach();
        }
        let run = |until: f64| agenda.run(&desk.leases, &executor, desk.minute.mul_f64(until));
        run(NIGHT);
        desk.administer();
        run(MORNING);
        let leased = desk.leases.len();
        run(2.0 * NOON);
        self.report(&desk, leased, Duration::ZERO)
    }

    fn run_real(&self) -> bool {
        let start = Instant::now();
        let desk = self.desk(Leases::in_memory(), Duration::from_millis(4));
        let executor = Executor::new();
        let (running, stopped) = smol::channel::bounded::<()>(1);
        let pace = |i| if i % 8 == 0 { Pace::Thread(start) } else { Pace::Task(start) };
        let sleep = |until: f64| thread::sleep(desk.minute.mul_f64(until).saturating_sub(start.elapsed()));
        let leased = thread::scope(|scope| {
            let mut tasks = vec![];
            for editor in self.editors(&desk, pace) {
                match editor.pace {
                    Pace::Thread(_) => _ = scope.spawn(|| smol::block_on(editor.session())),
                    _ => tasks.push(executor.spawn(editor.session())),
                }
            }
            (0..2).for_each(|_| _ = scope.spawn(|| smol::block_on(executor.run(stopped.recv()))));
            sleep(NIGHT);
            desk.administer();
            sleep(MORNING);
            let leased = desk.leases.len();
            tasks.into_iter().for_each(smol::block_on);
            drop(running);
            leased
        });
        // A thread that has slept may read the clock this late on a busy machine.
        self.report(&desk, leased, Duration::from_millis(200))
    }

    /// Prints the table, and returns whether every number is as it must be.
    fn report<C: Clock>(&self, desk: &Desk<C>, leased: usize, slack: Duration) -> bool {
        let mut is_sound = true;
        let mut row = |label: &str, value: &dyn Display, must: &str, is_met: bool| {
            is_sound &= is_met;
            let must = if must.is_empty() { String::new() } else { format!("  must be {must}") };
            println!("{label:<40}{value:>10}{must}{}", if is_met { "" } else { ": FAILED" });
        };
        let minutes = |time: Duration| format!("{:.1} min", time.div_duration_f64(desk.minute));
        let tally = desk.tally();
        let all = SESSIONS.0 + SESSIONS.1;
        row("policy", &self.policy, "", true);
        row("sessions", &tally.sessions, &all.to_string(), tally.sessions == all);
        row("documents opened at once", &tally.at_once, "", true);
        row("documents opened after a wait", &tally.waited, "", true);
        row("gave up waiting", &tally.gave_up, "", true);
        row("longest wait", &minutes(tally.longest_wait), "", true);
        row("leases found lost by a check", &tally.noticed, "", true);
        row("documents left open by silent editors", &tally.forgotten, "", true);
        let (must, is_met) = match desk.policy {
            Expiry::Sliding(most) | Expiry::Fixed(most) | Expiry::SlidingUpTo { idle: most, .. } => {
                let slack_said = if slack.is_zero() { String::new() } else { format!(" + {slack:?}") };
                (format!("at most {}{slack_said}", minutes(most)), tally.longest_forgotten <= most + slack)
            }
            _ => (String::new(), true),
        };
        row("longest time one of them stayed locked", &minutes(tally.longest_forgotten), &must, is_met);
        row("released by signing out", &tally.signed_out, "", true);
        if must.is_empty() {
            let must = "above 0: nothing else ends abandoned leases";
            row("released by an administrator at night", &tally.administered, must, tally.administered > 0);
        }
        row("still leased after the night", &leased, "0", leased == 0);
        row("saves", &tally.saves, "", true);
        // Without the fence there must be damage; otherwise the day was too quiet to show the purpose of the fence.
        let fenced = self.is_fenced;
        let (refused, harm) = if fenced { ("above 0", "0") } else { ("0", "above 0") };
        let kept = |(_, document): &(_, Mutex<Document>)| document.lock().unwrap().body.lines().count();
        let gone = tally.saves - desk.documents.iter().map(kept).sum::<usize>();
        row("stale saves refused", &tally.refused, refused, fenced == (tally.refused > 0));
        row("stale saves admitted", &tally.admitted, harm, fenced == (tally.admitted == 0));
        row("lost updates", &tally.lost_updates, harm, fenced == (tally.lost_updates == 0));
        row("saved paragraphs that are missing", &gone, harm, fenced == (gone == 0));
        is_sound
    }
}

#[derive(Default)]
struct Tally {
    sessions: usize,
    at_once: usize,
    waited: usize,
    gave_up: usize,
    longest_wait: Duration,
    noticed: usize,
    forgotten: usize,
    longest_forgotten: Duration,
    signed_out: usize,
    administered: usize,
    saves: usize,
    refused: usize,
    admitted: usize,
    lost_updates: usize,
}
