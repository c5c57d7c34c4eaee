//! The checks, and the end of the program.

use semihosting::{println, process};

/// The results of the checks so far.
#[derive(Default)]
pub struct Verdict {
    passed: usize,
    failed: usize,
}

impl Verdict {
    /// Prints the result of a check and records it.
    pub fn check(&mut self, what: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.failed += 1;
            println!("  FAILED: {what}");
        }
    }

    /// Ends the program.
    pub fn exit(self) -> ! {
        let Verdict { passed, failed } = self;
        println!("{}: {passed} checks passed, {failed} failed", if failed == 0 { "success" } else { "failure" });
        process::exit(i32::from(failed > 0))
    }
}
