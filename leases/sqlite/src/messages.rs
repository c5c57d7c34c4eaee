//! Messages about tenures that have ended, for waiters and holders in all processes.
//!
//! A message is a row, written in the transaction that ends the tenure. After the commit the process sets the times of
//! the file's last access and modification, which the system reports to all processes that watch the file. No process
//! needs to know of another.

use std::path::Path;

use keylatch_lease::{Resource, Token};
use keylatch_lease_remote::{Told, Watchers};
use rusqlite::{Connection, params};

/// The number of the latest messages that are always kept, for processes that have not read them yet. A process that
/// finds a gap looks at everything again.
const KEPT: i64 = 1000;

/// Messages are deleted this many at a time.
const AT_A_TIME: i64 = 100;

/// Leaves a message in the current transaction.
pub(crate) fn leave(
    connection: &Connection,
    namespace: &str,
    resource: &Resource,
    token: i64,
    how: char,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO keylatch_lease_message (ns, entity, key, token, how) VALUES (?1, ?2, ?3, ?4, ?5)";
    let row = params![namespace, resource.entity(), resource.key(), token, how.to_string()];
    let id = connection.prepare_cached(sql)?.insert(row)?;
    if id % AT_A_TIME == 0 {
        connection.prepare_cached("DELETE FROM keylatch_lease_message WHERE id <= ?1")?.execute([id - KEPT])?;
    }
    Ok(())
}

/// Makes the system report a change of the file. It is a hint: waiters ask again now and then without one.
#[cfg(unix)]
pub(crate) fn announce(path: &Path) {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};

    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let _ = utimensat(CWD, path, &Timestamps { last_access: now, last_modification: now }, AtFlags::empty());
}

#[cfg(not(unix))]
pub(crate) fn announce(_: &Path) {}

/// A reader of the messages that are left from now on.
pub(crate) struct Reader {
    connection: Connection,
    last: i64,
    /// A number that changes with each commit of another connection.
    version: i64,
}

impl Reader {
    pub(crate) fn new(connection: Connection) -> rusqlite::Result<Self> {
        let sql = "SELECT coalesce(max(id), 0) FROM keylatch_lease_message";
        let last = connection.query_row(sql, [], |row| row.get(0))?;
        Ok(Reader { connection, last, version: -1 })
    }

    /// Returns whether another connection may have written since the last call.
    pub(crate) fn has_changed(&mut self) -> rusqlite::Result<bool> {
        let version = self.connection.query_row("PRAGMA data_version", [], |row| row.get(0))?;
        Ok(std::mem::replace(&mut self.version, version) != version)
    }

    /// Passes the new messages on to the watchers of a namespace.
    pub(crate) fn read(&mut self, namespace: &str, watchers: &Watchers) -> rusqlite::Result<()> {
        let sql = "SELECT id, ns, entity, key, token, how FROM keylatch_lease_message WHERE id > ?1 ORDER BY id";
        let mut news = Vec::new();
        {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query([self.last])?;
            while let Some(row) = rows.next()? {
                let id: i64 = row.get(0)?;
                if id != self.last + 1 {
                    news.push(None); // messages were deleted before they were read
                }
                self.last = id;
                if row.get_ref(1)?.as_str() == Ok(namespace) {
                    let (entity, key, how): (String, String, String) = (row.get(2)?, row.get(3)?, row.get(5)?);
                    let token = u64::try_from(row.get::<_, i64>(4)?).ok().and_then(Token::new);
                    let how = how.chars().next();
                    let resource = Resource::new(entity, key);
                    news.push(token.zip(how).and_then(|(token, how)| Told::new(resource, token, how)));
                }
            }
        }
        news.into_iter().for_each(|told| watchers.hear(told));
        Ok(())
    }
}
