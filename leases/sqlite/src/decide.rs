//! The decisions, each in one transaction.
//!
//! A transaction that writes has the only write lock of the file from its beginning, and reads the clock after that. So
//! one instant decides everything, and a token is greater than all that were granted before.

use keylatch_lease::{
    Owner, Resource, Term, Token,
    engine::{Answer, Gone, Left, Owned, Record, Want},
};
use keylatch_lease_remote::{Policy, from_micros, micros, prefix_end};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{
    clock::{self, Now},
    messages,
};

/// A connection with a transaction, or one that only reads.
pub(crate) struct Table<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) namespace: &'a str,
    pub(crate) now: Now,
    /// Whether a message was left for waiters and holders.
    pub(crate) has_told: bool,
}

/// A lease that has not expired.
struct Lease {
    owner: String,
    token: i64,
    since: i64,
    until: Option<i64>,
    is_wanted: bool,
}

/// The [request](keylatch_lease::engine::Ask) for a lease.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) want: Want,
    pub(crate) term: Option<Term>,
    pub(crate) policy: Policy,
    pub(crate) is_waiting: bool,
}

/// A [renewal](keylatch_lease::engine::Renewal).
#[derive(Clone, Debug)]
pub(crate) struct Extension {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    pub(crate) term: Option<Term>,
}

/// The [leases to list](keylatch_lease::engine::Part).
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) owner: Option<Owner>,
    pub(crate) entity_prefix: String,
    /// The first resource that may be on the page.
    pub(crate) start: Resource,
    pub(crate) limit: usize,
}

/// Returns the end of a lease with this term, in microseconds; `None` if it never ends.
fn end(term: &Term, since: i64, now: i64) -> Option<i64> {
    let idle = term.idle.and_then(micros).map(|time| now.saturating_add(time));
    let total = term.total.and_then(micros).map(|time| since.saturating_add(time));
    match (idle, total) {
        (Some(idle), Some(total)) => Some(idle.min(total)),
        (one, other) => one.or(other),
    }
}

/// Returns the later of two ends. `None`, which stands for never, is later than any other.
fn later(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    Some(one?.max(other?))
}

/// Converts a stored token. Only positive tokens are stored.
fn token(number: i64) -> Token {
    u64::try_from(number).ok().and_then(Token::new).unwrap_or(Token::new(1).expect("1 is not 0"))
}

fn number(token: Token) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

impl Table<'_> {
    pub(crate) fn new<'a>(connection: &'a Connection, namespace: &'a str) -> Table<'a> {
        Table { connection, namespace, now: clock::now(), has_told: false }
    }

    fn left(&self, until: Option<i64>) -> Option<std::time::Duration> {
        until.map(|until| from_micros(until - self.now.clock))
    }

    fn find(&self, resource: &Resource) -> rusqlite::Result<Option<Lease>> {
        let sql = "SELECT owner, token, since, until, wanted FROM keylatch_lease
            WHERE ns = ?1 AND entity = ?2 AND key = ?3 AND (until IS NULL OR until > ?4)";
        let mut statement = self.connection.prepare_cached(sql)?;
        let read = |row: &Row<'_>| {
            let (owner, token, since) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Lease { owner, token, since, until: row.get(3)?, is_wanted: row.get(4)? })
        };
        statement.query_row(params![self.namespace, resource.entity(), resource.key(), self.now.clock], read).optional()
    }

    fn tell(&mut self, resource: &Resource, token: i64, how: char) -> rusqlite::Result<()> {
        self.has_told = true;
        messages::leave(self.connection, self.namespace, resource, token, how)
    }

    /// Returns the next token, and notes the readings of both clocks. After a restart of the machine, the instants are
    /// moved to its new clock by means of these readings.
    fn next_token(&self) -> rusqlite::Result<i64> {
        let sql = "UPDATE keylatch_lease_file SET token = max(token + 1, ?1), day = ?1, clock = ?2 RETURNING token";
        self.connection.prepare_cached(sql)?.query_row([self.now.day, self.now.clock], |row| row.get(0))
    }

    pub(crate) fn acquire(&mut self, ask: &Request) -> rusqlite::Result<Answer> {
        let Some(lease) = self.find(&ask.resource)? else {
            return match &ask.term {
                Some(term) if ask.want != Want::Mine => self.begin(ask, term, None),
                _ => Ok(Answer::Free),
            };
        };
        let is_mine = lease.owner == ask.owner.id();
        match (ask.want, &ask.term) {
            (Want::Any | Want::Mine, _) if is_mine => self.resume(ask, &lease),
            (Want::Fresh, Some(term)) if is_mine => self.begin(ask, term, Some(&lease)),
            _ => {
                if ask.is_waiting && !lease.is_wanted {
                    let sql = "UPDATE keylatch_lease SET wanted = 1 WHERE ns = ?1 AND entity = ?2 AND key = ?3";
                    let (entity, key) = (ask.resource.entity(), ask.resource.key());
                    self.connection.prepare_cached(sql)?.execute(params![self.namespace, entity, key])?;
                }
                Ok(Answer::Busy { owner: Owner::from_id(&lease.owner), remaining: self.left(lease.until) })
            }
        }
    }

    fn resume(&mut self, ask: &Request, lease: &Lease) -> rusqlite::Result<Answer> {
        let mut until = lease.until;
        if let Some(term) = &ask.term {
            until = later(until, end(term, lease.since, self.now.clock));
            let sql = "UPDATE keylatch_lease SET until = ?4, policy = ?5, idle = ?6, total = ?7
                WHERE ns = ?1 AND entity = ?2 AND key = ?3";
            let Policy { kind, idle, total } = ask.policy;
            self.connection.prepare_cached(sql)?.execute(params![
                self.namespace,
                ask.resource.entity(),
                ask.resource.key(),
                until,
                char::from(kind).to_string(),
                idle,
                total
            ])?;
        }
        Ok(Answer::Granted {
            token: token(lease.token),
            resumed: true,
            held_for: from_micros(self.now.clock - lease.since),
            remaining: self.left(until),
        })
    }

    /// Begins a tenure, in place of the owner's earlier one if there is one. The row of an expired lease keeps its flag
    /// `wanted`, because the waiters still wait.
    fn begin(&mut self, ask: &Request, term: &Term, before: Option<&Lease>) -> rusqlite::Result<Answer> {
        let number = self.next_token()?;
        let since = self.now.clock;
        let until = end(term, since, since);
        let sql = "INSERT INTO keylatch_lease VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9, ?10)
            ON CONFLICT DO UPDATE SET owner = excluded.owner, token = excluded.token, since = excluded.since,
                until = excluded.until, policy = excluded.policy, idle = excluded.idle, total = excluded.total";
        let Policy { kind, idle, total } = ask.policy;
        self.connection.prepare_cached(sql)?.execute(params![
            self.namespace,
            ask.resource.entity(),
            ask.resource.key(),
            ask.owner.id(),
            number,
            since,
            until,
            char::from(kind).to_string(),
            idle,
            total
        ])?;
        if let Some(before) = before {
            let is_earlier = until.is_some_and(|until| before.until.is_none_or(|before| until < before));
            let how = if before.is_wanted && is_earlier { 't' } else { 'n' };
            self.tell(&ask.resource, before.token, how)?;
        }
        Ok(Answer::Granted {
            token: token(number),
            resumed: false,
            held_for: std::time::Duration::ZERO,
            remaining: self.left(until),
        })
    }

    pub(crate) fn renew(&mut self, renewal: &Extension) -> rusqlite::Result<Left> {
        let Some(lease) = self.find(&renewal.resource)? else { return Ok(Left::Nothing) };
        if lease.owner != renewal.owner.id() || lease.token != number(renewal.token) {
            return Ok(Left::Nothing);
        }
        let mut until = lease.until;
        if let Some(term) = &renewal.term {
            until = later(until, end(term, lease.since, self.now.clock));
            if until != lease.until {
                let sql = "UPDATE keylatch_lease SET until = ?4 WHERE ns = ?1 AND entity = ?2 AND key = ?3";
                let (entity, key) = (renewal.resource.entity(), renewal.resource.key());
                self.connection.prepare_cached(sql)?.execute(params![self.namespace, entity, key, until])?;
            }
        }
        Ok(self.left(until).map_or(Left::Forever, Left::For))
    }

    /// Ends the tenure if it has this owner and this token. `None` stands for any. Only a release by owner and token is
    /// certainly the holder's own, which needs no message unless somebody waits.
    pub(crate) fn release(
        &mut self,
        resource: &Resource,
        owner: Option<&Owner>,
        token: Option<Token>,
    ) -> rusqlite::Result<Gone> {
        let Some(lease) = self.find(resource)? else { return Ok(Gone::NotHeld) };
        let is_other = owner.is_some_and(|owner| lease.owner != owner.id())
            || token.is_some_and(|token| lease.token != number(token));
        if is_other {
            return Ok(Gone::NotOwner(Owner::from_id(&lease.owner)));
        }
        let sql = "DELETE FROM keylatch_lease WHERE ns = ?1 AND entity = ?2 AND key = ?3";
        self.connection.prepare_cached(sql)?.execute(params![self.namespace, resource.entity(), resource.key()])?;
        let is_own = owner.is_some() && token.is_some();
        if lease.is_wanted || !is_own {
            self.tell(resource, lease.token, 'r')?;
        }
        Ok(Gone::Released)
    }

    pub(crate) fn release_all(&mut self, owner: &Owner) -> rusqlite::Result<Vec<Resource>> {
        let sql = "DELETE FROM keylatch_lease WHERE ns = ?1 AND owner = ?2 RETURNING entity, key, token, until";
        let mut statement = self.connection.prepare_cached(sql)?;
        let read = |row: &Row<'_>| {
            let (entity, key): (String, String) = (row.get(0)?, row.get(1)?);
            Ok((Resource::new(entity, key), row.get::<_, i64>(2)?, row.get::<_, Option<i64>>(3)?))
        };
        let gone: Vec<_> = statement.query_map(params![self.namespace, owner.id()], read)?.collect::<Result<_, _>>()?;
        let mut released = Vec::new();
        for (resource, token, until) in gone {
            if until.is_none_or(|until| until > self.now.clock) {
                self.tell(&resource, token, 'r')?;
                released.push(resource);
            }
        }
        Ok(released)
    }

    pub(crate) fn look(&self, resource: &Resource) -> rusqlite::Result<Option<Record>> {
        Ok(self.find(resource)?.map(|lease| Record {
            owner: Owner::from_id(&lease.owner),
            token: token(lease.token),
            held_for: from_micros(self.now.clock - lease.since),
            remaining: self.left(lease.until),
        }))
    }

    pub(crate) fn owned_by(&self, owner: &Owner) -> rusqlite::Result<Vec<Owned>> {
        let sql = "SELECT entity, key, token, since, until, policy, idle, total FROM keylatch_lease
            WHERE ns = ?1 AND owner = ?2 AND (until IS NULL OR until > ?3)";
        let mut statement = self.connection.prepare_cached(sql)?;
        let read = |row: &Row<'_>| {
            let (entity, key): (String, String) = (row.get(0)?, row.get(1)?);
            let kind: String = row.get(5)?;
            let kind = kind.bytes().next().unwrap_or(b'-');
            Ok(Owned {
                resource: Resource::new(entity, key),
                record: Record {
                    owner: owner.clone(),
                    token: token(row.get(2)?),
                    held_for: from_micros(self.now.clock - row.get::<_, i64>(3)?),
                    remaining: self.left(row.get(4)?),
                },
                expiry: Policy { kind, idle: row.get(6)?, total: row.get(7)? }.expiry(),
            })
        };
        statement.query_map(params![self.namespace, owner.id(), self.now.clock], read)?.collect()
    }

    /// Returns a page of the leases, in the order of their resources.
    pub(crate) fn list(&self, query: &Query) -> rusqlite::Result<Vec<(Resource, Record)>> {
        let sql = "SELECT entity, key, owner, token, since, until FROM keylatch_lease
            WHERE ns = ?1 AND (entity, key) >= (?2, ?3) AND (?4 IS NULL OR entity < ?4)
                AND (?5 IS NULL OR owner = ?5) AND (until IS NULL OR until > ?6)
            ORDER BY entity, key LIMIT ?7";
        let mut statement = self.connection.prepare_cached(sql)?;
        let read = |row: &Row<'_>| {
            let (entity, key, owner): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let record = Record {
                owner: Owner::from_id(&owner),
                token: token(row.get(3)?),
                held_for: from_micros(self.now.clock - row.get::<_, i64>(4)?),
                remaining: self.left(row.get(5)?),
            };
            Ok((Resource::new(entity, key), record))
        };
        let rows = statement.query_map(
            params![
                self.namespace,
                query.start.entity(),
                query.start.key(),
                prefix_end(&query.entity_prefix),
                query.owner.as_ref().map(Owner::id),
                self.now.clock,
                i64::try_from(query.limit).unwrap_or(i64::MAX),
            ],
            read,
        )?;
        rows.collect()
    }

    /// Removes up to `limit` expired leases, and returns their number.
    pub(crate) fn sweep(&mut self, limit: usize) -> rusqlite::Result<usize> {
        let sql = "DELETE FROM keylatch_lease WHERE (ns, entity, key) IN (
            SELECT ns, entity, key FROM keylatch_lease WHERE ns = ?1 AND until <= ?2 LIMIT ?3)";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.connection.prepare_cached(sql)?.execute(params![self.namespace, self.now.clock, limit])
    }

    /// Returns whether there is an expired lease.
    pub(crate) fn has_expired(&self) -> rusqlite::Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM keylatch_lease WHERE ns = ?1 AND until <= ?2)";
        self.connection.prepare_cached(sql)?.query_row(params![self.namespace, self.now.clock], |row| row.get(0))
    }
}
