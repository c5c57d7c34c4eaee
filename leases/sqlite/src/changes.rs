//! Waits until the system reports a change of the file, or polls where it does not.

use std::time::Duration;

use keylatch_lease_remote::sleep;

use crate::place::Place;

/// The interval at which the file is looked at where the system does not report changes: elsewhere than on Linux, or
/// when the user has too many watches.
const POLL: Duration = Duration::from_millis(10);

/// The reports of the system about one file.
pub(crate) struct Changes {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    reports: Option<async_io::Async<std::os::fd::OwnedFd>>,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Changes {
    pub(crate) fn new(place: &Place) -> Self {
        use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};

        let watch = || {
            let reports = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            // Removing a file's name changes its attributes, too.
            let flags = WatchFlags::ATTRIB | WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
            add_watch(&reports, &place.path, flags)?;
            for path in place.log() {
                add_watch(&reports, &path, flags)?;
            }
            async_io::Async::new_nonblocking(reports)
        };
        Changes { reports: watch().ok() }
    }

    /// Returns whether the system reports changes.
    pub(crate) fn is_reported(&self) -> bool {
        self.reports.is_some()
    }

    /// Waits for a change since the last call.
    pub(crate) async fn next(&self) {
        let Some(reports) = &self.reports else { return sleep(POLL).await };
        if reports.readable().await.is_err() {
            return sleep(POLL).await;
        }
        // The content of the reports does not matter.
        let mut buffer = [0; 4096];
        while rustix::io::read(reports, &mut buffer).is_ok_and(|length| length == buffer.len()) {}
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl Changes {
    pub(crate) fn new(_: &Place) -> Self {
        Changes {}
    }

    pub(crate) fn is_reported(&self) -> bool {
        false
    }

    pub(crate) async fn next(&self) {
        sleep(POLL).await;
    }
}
