//! A file that all workers open; there is no server.

use std::{env, fs, path::PathBuf, process};

use keylatch_lease_sqlite::Sqlite;

use crate::lock::Error;

pub(crate) fn engine(file: &str) -> Result<Sqlite, Error> {
    Ok(Sqlite::in_namespace("payroll").open(file)?)
}

/// The folder of the file, which is removed when this is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Result<Self, Error> {
        let folder = env::temp_dir().join(format!("keylatch-payroll-{}", process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Folder(folder))
    }

    pub(crate) fn file(&self) -> String {
        self.0.join("leases.db").display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A failure cannot be reported to anybody.
        let _ = fs::remove_dir_all(&self.0);
    }
}
