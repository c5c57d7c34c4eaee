//! Waits until the system reports a change of the file, or polls where it does not.

use std::time::{Duration, Instant};

use keylatch_lease_remote::sleep;

use crate::place::Place;

/// The interval at which the file is polled if the system does not report changes: on systems other than Linux, or when
/// the user has too many watches.
const POLL: Duration = Duration::from_millis(10);

/// The time for which the file is always polled at first. Linux takes some ten milliseconds to stop its reports, and a
/// process that runs only for a moment would have to wait for that.
const YOUNG: Duration = Duration::from_millis(100);
const YOUNG_POLL: Duration = Duration::from_millis(2);

/// The changes of one file.
pub(crate) struct Changes {
    opened: Instant,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    reports: Reports,
}

impl Changes {
    pub(crate) fn new() -> Self {
        Changes {
            opened: Instant::now(),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            reports: Reports::NotYet,
        }
    }

    fn is_young(&self) -> bool {
        self.opened.elapsed() < YOUNG
    }
}

/// The reports of the system.
#[cfg(any(target_os = "linux", target_os = "android"))]
enum Reports {
    NotYet,
    From(async_io::Async<std::os::fd::OwnedFd>),
    Unavailable,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Changes {
    /// Returns whether the system reports changes. Then each return of `next` means that the file may have changed.
    pub(crate) fn is_reported(&self) -> bool {
        matches!(self.reports, Reports::From(_))
    }

    /// Waits until the file may have changed since the last call.
    pub(crate) async fn next(&mut self, place: &Place) {
        match &self.reports {
            Reports::NotYet if self.is_young() => sleep(YOUNG_POLL).await,
            // Returns at once, because the file may have changed before the reports began.
            Reports::NotYet => self.reports = watch(place).map_or(Reports::Unavailable, Reports::From),
            Reports::From(reports) => {
                if reports.readable().await.is_err() {
                    return sleep(POLL).await;
                }
                // The content of the reports does not matter.
                let mut buffer = [0; 4096];
                while rustix::io::read(reports, &mut buffer).is_ok_and(|length| length == buffer.len()) {}
            }
            Reports::Unavailable => sleep(POLL).await,
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn watch(place: &Place) -> std::io::Result<async_io::Async<std::os::fd::OwnedFd>> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};

    let reports = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    // Removing a file's name changes its attributes, too.
    let flags = WatchFlags::ATTRIB | WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
    add_watch(&reports, &place.path, flags)?;
    for path in place.log() {
        add_watch(&reports, &path, flags)?;
    }
    async_io::Async::new_nonblocking(reports)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl Changes {
    pub(crate) fn is_reported(&self) -> bool {
        false
    }

    pub(crate) async fn next(&mut self, _: &Place) {
        sleep(if self.is_young() { YOUNG_POLL } else { POLL }).await;
    }
}
