//! Runs cases, and reports their outcomes.

use std::{
    any::Any,
    fmt,
    io::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{OnceLock, PoisonError, RwLock},
    time::{Duration, Instant},
};

use crate::{
    Fixture,
    caps::Excused,
    cases::{self, CASES},
    trial::Trial,
};

/// A fixture for all cases. A case that harms the server runs alone; the others may run side by side.
///
/// # Examples
/// See [`run`].
#[derive(Debug)]
pub struct Suite<F> {
    fixture: F,
    server: RwLock<()>,
}

/// The outcome of a case.
///
/// # Examples
/// ```
/// use keylatch_lease_conformance::Outcome;
///
/// assert!(Outcome::Passed.is_ok());
/// assert!(!Outcome::Failed("two owners at once".into()).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every check held.
    Passed,
    /// Something that the engine does not promise did not hold, something could not be checked, or the case is excused.
    /// The text says what. All other checks that were made held.
    Weakened(String),
    /// The case could not be run. The text says what is missing.
    DoesNotApply(String),
    /// The case failed. The text says what was wrong.
    Failed(String),
}

impl Outcome {
    /// Returns whether the case has not failed.
    ///
    /// # Examples
    /// See [`Outcome`].
    #[must_use]
    pub fn is_ok(&self) -> bool {
        !matches!(self, Outcome::Failed(_))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => f.write_str("passed"),
            Outcome::Weakened(reason) => write!(f, "weakened: {reason}"),
            Outcome::DoesNotApply(reason) => write!(f, "does not apply: {reason}"),
            Outcome::Failed(message) => write!(f, "FAILED: {message}"),
        }
    }
}

/// The outcomes of all cases. Its `Display` is a table.
///
/// # Examples
/// See [`run`].
#[derive(Clone, Debug)]
pub struct Report {
    name: String,
    rows: Vec<Row>,
}

/// A case in a [`Report`].
///
/// # Examples
/// See [`run`].
#[derive(Clone, Debug)]
pub struct Row {
    number: u32,
    case: &'static str,
    outcome: Outcome,
    time: Duration,
}

impl Row {
    /// Returns the case's number.
    ///
    /// # Examples
    /// See [`run`].
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the case's name.
    ///
    /// # Examples
    /// See [`run`].
    #[must_use]
    pub fn case(&self) -> &'static str {
        self.case
    }

    /// Returns the outcome.
    ///
    /// # Examples
    /// See [`run`].
    #[must_use]
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Returns the duration of the case, by this machine's clock.
    ///
    /// # Examples
    /// See [`run`].
    #[must_use]
    pub fn time(&self) -> Duration {
        self.time
    }
}

impl Report {
    /// Returns all cases, in order of their numbers.
    ///
    /// # Examples
    /// See [`run`].
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the numbers of the failed cases.
    ///
    /// # Examples
    /// See [`run`].
    #[must_use]
    pub fn failed(&self) -> Vec<u32> {
        self.rows.iter().filter(|row| !row.outcome.is_ok()).map(|row| row.number).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        let width = self.rows.iter().map(|row| row.case.len()).max().unwrap_or(0);
        for Row { number, case, outcome, time } in &self.rows {
            writeln!(f, "{number:>3}  {case:width$}  {:>8.3} s  {outcome}", time.as_secs_f64())?;
        }
        Ok(())
    }
}

/// Runs all cases, one after the other.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// use keylatch_lease::{ManualClock, Memory};
/// # use keylatch_lease_conformance::{Caps, Failure, Fixture, Proxy};
/// use keylatch_lease_conformance::run;
/// # struct InMemory(ManualClock);
/// # impl Fixture for InMemory {
/// #     type Engine = Memory<ManualClock>;
/// #     fn name(&self) -> String {
/// #         "memory".into()
/// #     }
/// #     fn caps(&self) -> Caps {
/// #         Caps::new(Duration::from_secs(10))
/// #     }
/// #     async fn connect(&self, _: &str, _: Option<&Proxy>) -> Result<Self::Engine, Failure> {
/// #         Ok(Memory::new(self.0.clone()))
/// #     }
/// #     async fn pass(&self, _: &str, time: Duration) {
/// #         self.0.advance(time);
/// #     }
/// # }
///
/// // This fixture is that of the crate's page, with a clock that can be moved.
/// let report = run(InMemory(ManualClock::new()));
/// println!("{report}");
/// assert!(report.failed().is_empty());
/// assert_eq!(report.rows()[0].number(), 1);
/// assert_eq!(report.rows()[0].case(), "a_free_resource_is_granted");
/// assert!(report.rows()[0].outcome().is_ok());
/// ```
pub fn run<F: Fixture>(fixture: F) -> Report {
    Suite::new(fixture).run()
}

impl<F: Fixture> Suite<F> {
    /// Returns the suite for this fixture.
    ///
    /// # Examples
    /// See [`Suite::case`].
    pub fn new(fixture: F) -> Self {
        Suite { fixture, server: RwLock::new(()) }
    }

    /// Runs all cases, one after the other.
    ///
    /// # Examples
    /// See [`run`].
    pub fn run(&self) -> Report {
        let row = |case: &cases::Case| {
            let start = Instant::now();
            let outcome = self.case(case.number);
            Row { number: case.number, case: case.name, outcome, time: start.elapsed() }
        };
        Report { name: self.fixture.name(), rows: CASES.iter().map(row).collect() }
    }

    /// Runs a case.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// use keylatch_lease::{Memory, StdClock};
    /// use keylatch_lease_conformance::{Caps, Failure, Fixture, Outcome, Proxy, Suite};
    ///
    /// struct InMemory;
    ///
    /// impl Fixture for InMemory {
    ///     type Engine = Memory;
    ///     fn name(&self) -> String {
    ///         "memory".into()
    ///     }
    ///     fn caps(&self) -> Caps {
    ///         Caps::new(Duration::from_secs(1))
    ///     }
    ///     async fn connect(&self, _: &str, _: Option<&Proxy>) -> Result<Memory, Failure> {
    ///         Ok(Memory::new(StdClock::new()))
    ///     }
    /// }
    ///
    /// let suite = Suite::new(InMemory);
    /// assert_eq!(suite.case(1), Outcome::Passed);
    /// assert!(matches!(suite.case(21), Outcome::DoesNotApply(_))); // there is no server to kill
    /// ```
    ///
    /// # Panics
    /// If there is no case with this number.
    pub fn case(&self, number: u32) -> Outcome {
        let case = CASES.iter().find(|case| case.number == number).expect("there is a case of this number");
        let (_alone, _beside);
        if case.is_harmful {
            _alone = self.server.write().unwrap_or_else(PoisonError::into_inner);
        } else {
            _beside = self.server.read().unwrap_or_else(PoisonError::into_inner);
        }
        let trial = Trial::new(&self.fixture, number);
        let result = catch_unwind(AssertUnwindSafe(|| cases::run(number, &trial)));
        let mut weakened = trial.weakened();
        let excuse = trial.caps.excuses.iter().find(|excuse| excuse.of == Excused::Case(number));
        match (result, excuse) {
            (Ok(Err(failure)), _) if !failure.applies => return Outcome::DoesNotApply(failure.to_string()),
            (Ok(Ok(())), None) => {}
            (Ok(Ok(())), Some(excuse)) => weakened.push(format!("{} (but the case passed)", excuse.reason)),
            (Ok(Err(failure)), Some(excuse)) => weakened.push(format!("{} ({failure})", excuse.reason)),
            (Ok(Err(failure)), None) => return Outcome::Failed(failure.to_string()),
            (Err(panic), _) => return Outcome::Failed(format!("the case panicked: {}", message(&*panic))),
        }
        if weakened.is_empty() { Outcome::Passed } else { Outcome::Weakened(weakened.join("; ")) }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("with a payload that is not text")
}

/// The place where [`conformance!`](crate::conformance) keeps its suite.
#[doc(hidden)]
pub type Kept = OnceLock<Box<dyn Any + Send + Sync>>;

/// Runs one test of [`conformance!`](crate::conformance).
#[doc(hidden)]
pub fn test<F: Fixture>(kept: &'static Kept, fixture: fn() -> F, name: &str) {
    let suite = kept.get_or_init(|| Box::new(Suite::new(fixture()))).downcast_ref::<Suite<F>>();
    let suite = suite.expect("the same fixture each time");
    let case = CASES.iter().find(|case| case.name == name).expect("there is a case of this name");
    let outcome = suite.case(case.number);
    match &outcome {
        Outcome::Passed => {}
        // Written directly, because the test harness hides what passing tests print.
        Outcome::Weakened(_) | Outcome::DoesNotApply(_) => {
            let line = format!("{}, {}, {name}: {outcome}\n", suite.fixture.name(), case.number);
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        Outcome::Failed(message) => panic!("{}, case {}: {message}", suite.fixture.name(), case.number),
    }
}
