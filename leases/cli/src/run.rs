//! `run` and `lead`: a command under a lease.

use std::{
    env,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use async_io::Timer;
use keylatch_lease::{AcquireError, Clock, Held, Leases, Lost, Owner, StdClock, engine::Engine};
use rustix::process::{Signal, WaitOptions, getpid, wait};
use signal_hook::{consts, iterator::Signals, low_level::emulate_default_handler};

use crate::{
    args::{self, OnLoss},
    command::{Group, Outcome},
    engine::Task,
    failure::{BUSY, Failure, LOST},
    guard::{Guard, chain, margin},
    output::{plain, tell},
    wait,
};

/// The signals that go on to the command.
const FORWARDED: [i32; 7] = [
    consts::SIGHUP,
    consts::SIGINT,
    consts::SIGQUIT,
    consts::SIGTERM,
    consts::SIGTSTP,
    consts::SIGUSR1,
    consts::SIGUSR2,
];

/// The signals among them that tell a process to end.
const ENDING: [i32; 4] = [consts::SIGHUP, consts::SIGINT, consts::SIGQUIT, consts::SIGTERM];

/// The longest pause between two looks at the lease.
const LONGEST: Duration = Duration::from_secs(1);

/// The command line of `run` or of `lead`.
pub(crate) struct Run {
    pub(crate) options: args::Run,
    pub(crate) leads: bool,
}

/// An event while the command runs.
enum Event {
    Signal(i32),
    Lost(Lost),
}

/// Returns the signals that go on to the command. Those that were ignored when this process was started (`nohup`) stay
/// ignored, by the command, too.
fn forwarded() -> impl Iterator<Item = i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let ignored = ignored.unwrap_or(0);
    FORWARDED.into_iter().filter(move |signal| ignored & (1 << (signal - 1)) == 0)
}

/// The signals of this process. While a command runs they are events; otherwise they do what they do to any process.
struct Events(Arc<Mutex<Option<Sender<Event>>>>);

impl Events {
    fn new() -> Result<Self, Failure> {
        let failed = |error| Failure::system("signals cannot be handled", error);
        let mut signals = Signals::new(forwarded().chain([consts::SIGCHLD])).map_err(failed)?;
        let receiver: Arc<Mutex<Option<Sender<Event>>>> = Arc::default();
        thread::spawn({
            let receiver = Arc::clone(&receiver);
            move || {
                for signal in signals.forever() {
                    let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
                    match &*receiver {
                        Some(receiver) => drop(receiver.send(Event::Signal(signal))),
                        // The system does not let this signal end the first process of a container, so this process
                        // ends itself.
                        None if getpid().is_init() && ENDING.contains(&signal) => std::process::exit(128 + signal),
                        // As the first process of a container, this process becomes the parent of orphaned processes.
                        None if signal == consts::SIGCHLD => {
                            while wait(WaitOptions::NOHANG).is_ok_and(|it| it.is_some()) {}
                        }
                        None => drop(emulate_default_handler(signal)),
                    }
                }
            }
        });
        Ok(Events(receiver))
    }

    fn go_to(&self, receiver: Option<Sender<Event>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = receiver;
    }
}

/// The way in which a run has ended.
enum Ended {
    /// The command has ended by itself, with this code.
    Command(u8),
    /// The lease was lost, and the command was ended. `told` is the signal, if any, that told this process to end
    /// meanwhile.
    Lost { told: Option<i32> },
}

impl Task for Run {
    fn run<E: Engine + 'static>(self, leases: Leases<E>) -> Result<u8, Failure> {
        let Run { options, leads } = self;
        // The lease is renewed after a third of its time.
        if options.grace() > options.ttl / 2 {
            return Err(Failure::new(crate::failure::USAGE, "the grace must be at most half of the ttl"));
        }
        // The threads that renew need the leases for as long as they run.
        let leases: &'static Leases<E> = Box::leak(Box::new(leases));
        let events = Events::new()?;
        let owner = owner(options.owner.as_deref())?;
        loop {
            let held = acquire(leases, &owner, &options)?;
            if leads && !options.quiet {
                let name = plain(&options.name);
                tell(&format!("{} leads {name}, with the token {}", plain(owner.name()), held.token()));
            }
            match under(held, leases, &owner, &options, &events)? {
                Ended::Command(code) => return Ok(code),
                Ended::Lost { told: Some(signal) } if leads => return Ok(u8::try_from(128 + signal).unwrap_or(LOST)),
                Ended::Lost { .. } if leads => {}
                Ended::Lost { .. } => return Ok(LOST),
            }
        }
    }
}

/// Returns an owner that no other run has, with the name that others see.
fn owner(name: Option<&str>) -> Result<Owner, Failure> {
    if name == Some("") {
        return Err(Failure::new(crate::failure::USAGE, "the owner's name is empty"));
    }
    let usual = || {
        let user = ["LOGNAME", "USER"].iter().find_map(|name| env::var(name).ok());
        let user = user.unwrap_or_else(|| rustix::process::geteuid().as_raw().to_string());
        let system = rustix::system::uname();
        format!("{user}@{}:{}", system.nodename().to_string_lossy(), std::process::id())
    };
    Ok(Owner::incarnation(name.map_or_else(usual, str::to_owned)))
}

fn acquire<E: Engine>(
    leases: &'static Leases<E>,
    owner: &Owner,
    options: &args::Run,
) -> Result<Held<'static, E>, Failure> {
    let args::Run { name, ttl, is_trying, wait: longest, quiet, .. } = options;
    let held = async_io::block_on(async {
        // Even with a very short limit, a lease that is free is acquired.
        if *is_trying || longest.is_some() {
            let held = leases.try_hold(name, owner, *ttl).await;
            if *is_trying || !matches!(held, Err(AcquireError::Busy { .. })) {
                return held;
            }
        }
        let hold = leases.hold(name, owner, *ttl);
        let hold = async {
            match longest {
                Some(longest) => hold.until(Timer::after(*longest)).await,
                None => hold.await,
            }
        };
        wait::telling(leases, name, *quiet, hold).await
    });
    held.map_err(|error| match error {
        AcquireError::Busy { .. } | AcquireError::Limit { .. } => {
            // If the engine does not answer, it is not known whether somebody has the lease.
            let holder = match leases.status(name).wait() {
                Ok(holder) => holder,
                Err(error) => return Failure::engine(error),
            };
            let holder = holder.map_or_else(|| "somebody else".into(), |status| status.owner().to_string());
            match quiet {
                true => Failure::quiet(options.busy_code),
                false => Failure::new(options.busy_code, format_args!("{name} is leased to {holder}")),
            }
        }
        error @ AcquireError::Quarantined { .. } => Failure::new(BUSY, error),
        error @ AcquireError::Invalid { .. } => Failure::new(crate::failure::USAGE, error),
        error => Failure::engine(error),
    })
}

/// Runs the command under the lease.
fn under<E: Engine + 'static>(
    held: Held<'static, E>,
    leases: &Leases<E>,
    owner: &Owner,
    options: &args::Run,
    all: &Events,
) -> Result<Ended, Failure> {
    // This comes before the command starts, so that no signal is missed. From here on none of the forwarded signals
    // ends this process.
    let (sender, events) = channel();
    all.go_to(Some(sender.clone()));
    let renewal = held.renewal();
    thread::spawn(move || sender.send(Event::Lost(renewal.wait())));

    let variables = [
        ("KEYLATCH_RESOURCE", options.name.clone()),
        ("KEYLATCH_OWNER", owner.name().to_owned()),
        ("KEYLATCH_TOKEN", held.token().to_string()),
        chain(held.token()),
    ];
    let left = held.remaining().filter(|_| options.on_loss == OnLoss::Kill);
    let end = left.map(|left| StdClock::new().now() + left);
    let group = Group::prepare(&options.command, &variables, end.map(|end| end.saturating_sub(options.grace())));
    let group = group.map_err(|error| Failure::system("the command cannot be started", error))?;
    let guard = Guard::start(group.id(), held.token(), options.grace(), end).map_err(|error| {
        group.signal(Signal::KILL);
        Failure::system("the guard cannot be started", error)
    })?;
    group.guarded_by(guard.id());
    group.begin();
    let mut run = Running { held: &held, options, group: &group, guard, has_asked: false, lost: None, told: None };
    let outcome = run.until_ended(&events);
    let (was_lost, told) = (run.lost.is_some() && options.on_loss == OnLoss::Kill, run.told);
    let guard = run.guard;
    let left = held.remaining().unwrap_or(Duration::MAX).saturating_sub(margin(options.grace()));
    let has_ended = group.clean_up(left);
    guard.end(!group.is_unguarded());
    all.go_to(None);
    // A signal that came too late for the command is still one for this process.
    let late =
        events.try_iter().filter_map(|event| if let Event::Signal(signal) = event { Some(signal) } else { None });
    let told = late.filter(|signal| ENDING.contains(signal)).last().or(told);

    if was_lost {
        let holder = leases.status(&options.name).wait().ok().flatten().filter(|status| status.token() != held.token());
        let holder = holder.map(|status| format!("; {} has it now", status.owner())).unwrap_or_default();
        tell(&plain(&format!("the lease of {} was lost, and the command was ended{holder}", options.name)));
        return Ok(Ended::Lost { told });
    }
    if !has_ended {
        let name = plain(&options.name);
        tell(&format!("what the command of {name} has left running cannot be ended: the lease is left to expire"));
        let _ = held.into_grant();
    } else if let Err(error) = held.release().wait() {
        tell(&plain(&format!("{} could not be released: {error}", options.name)));
    }
    group.pass_on_interrupt(outcome, told == Some(consts::SIGINT));
    Ok(Ended::Command(outcome.code))
}

/// A command that runs, and its lease.
struct Running<'a, E: Engine + 'static> {
    held: &'a Held<'static, E>,
    options: &'a args::Run,
    group: &'a Group,
    guard: Guard,
    /// Whether the command was asked to end, because the lease is about to end. With [`OnLoss::Warn`]: whether the loss
    /// was reported.
    has_asked: bool,
    lost: Option<Lost>,
    /// The last signal that told this process to end.
    told: Option<i32>,
}

impl<E: Engine> Running<'_, E> {
    /// Returns how the command has ended.
    fn until_ended(&mut self, events: &Receiver<Event>) -> Outcome {
        loop {
            if let Some(outcome) = self.group.ended() {
                // The guard may have been first to ask the command to end; or it has ended the command while this
                // process was stopped.
                if let Some(left) = self.held.remaining().filter(|left| *left <= self.options.grace()) {
                    self.ask_once(left);
                }
                return outcome;
            }
            let pause = self.look();
            match events.recv_timeout(pause) {
                Ok(Event::Signal(consts::SIGCHLD)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Signal(signal)) => {
                    if ENDING.contains(&signal) {
                        self.told = Some(signal);
                    }
                    if let Some(signal) = Signal::from_named_raw(signal) {
                        self.group.signal(signal);
                    }
                }
                Ok(Event::Lost(lost)) => self.lost = Some(lost),
                // Both threads that send events have ended, which does not happen while the command runs.
                Err(RecvTimeoutError::Disconnected) => thread::sleep(pause),
            }
        }
    }

    /// Asks the command to end when the lease has only the grace left, and kills it shortly before the lease ends; with
    /// `--on-loss warn` only says that the lease is lost. Tells the guard the end of the lease, and replaces a guard
    /// that has died. Returns the time after which to look again.
    fn look(&mut self) -> Duration {
        let grace = self.options.grace();
        let remaining = self.held.remaining();
        if self.group.is_unguarded() {
            let end = remaining.filter(|_| self.options.on_loss == OnLoss::Kill);
            let end = end.map(|left| StdClock::new().now() + left);
            // If the guard cannot be started, the next look tries again.
            if let Ok(guard) = Guard::start(self.group.id(), self.held.token(), grace, end) {
                self.group.guarded_by(guard.id());
                self.guard = guard;
            }
        }
        if self.options.on_loss == OnLoss::Warn {
            self.guard.tell(None);
            if remaining == Some(Duration::ZERO) && !std::mem::replace(&mut self.has_asked, true) {
                let name = plain(&self.options.name).into_owned();
                thread::spawn(move || {
                    tell(&format!("the lease of {name} is lost, and the command runs on without it"))
                });
            }
            return LONGEST.min(self.options.ttl / 10);
        }
        self.guard.tell(remaining.map(|left| StdClock::new().now() + left));
        let Some(left) = remaining else { return LONGEST };
        if left <= margin(grace) {
            self.lost.get_or_insert(Lost::Expired);
            self.group.signal(Signal::KILL);
            return Duration::from_millis(10);
        }
        if left <= grace {
            self.ask_once(left);
            return (left - margin(grace)).min(LONGEST);
        }
        (left - grace).min(LONGEST).min(self.options.ttl / 10)
    }

    /// Asks the command to end, once, because the lease could not be renewed and ends soon. With [`OnLoss::Warn`], only
    /// notes the loss.
    fn ask_once(&mut self, left: Duration) {
        self.lost.get_or_insert(Lost::Expired);
        if self.options.on_loss == OnLoss::Warn || std::mem::replace(&mut self.has_asked, true) {
            return;
        }
        self.group.signal(Signal::TERM);
        self.guard.tell_asked();
        if !left.is_zero() {
            let name = &self.options.name;
            let name = plain(name);
            tell(&format!(
                "the lease of {name} cannot be renewed, and ends in {left:.1?}: the command is asked to end"
            ));
        }
    }
}
