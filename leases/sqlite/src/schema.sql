-- The tables of keylatch-lease-sqlite. Instants are in microseconds, by the clock that counts from the machine's start:
-- see `keylatch_lease_file`.

-- One row: the version of these tables; the start of the machine by whose clock the instants are counted; the time by
-- that clock and the time of day, in microseconds, at the same moment; and the greatest token so far.
CREATE TABLE IF NOT EXISTS keylatch_lease_file (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL,
    boot TEXT NOT NULL,
    clock INTEGER NOT NULL,
    day INTEGER NOT NULL,
    token INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS keylatch_lease (
    ns TEXT NOT NULL,
    entity TEXT NOT NULL,
    key TEXT NOT NULL,
    owner TEXT NOT NULL,
    token INTEGER NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER, -- NULL: the lease never expires
    wanted INTEGER NOT NULL, -- whether there is a waiter: then a release, or an earlier end, leaves a message
    policy TEXT NOT NULL, -- f(ixed), s(liding), u(p to), n(ever), or - for any other
    idle INTEGER, -- these two are the times of the policy, in nanoseconds
    total INTEGER,
    PRIMARY KEY (ns, entity, key)
) WITHOUT ROWID;

-- There is no index on `until`, so that a renewal writes to no index.
CREATE INDEX IF NOT EXISTS keylatch_lease_owner ON keylatch_lease (ns, owner);

-- Messages about tenures that have ended. The latest are kept, so that no id is given out twice.
CREATE TABLE IF NOT EXISTS keylatch_lease_message (
    id INTEGER PRIMARY KEY,
    ns TEXT NOT NULL,
    entity TEXT NOT NULL,
    key TEXT NOT NULL,
    token INTEGER NOT NULL,
    how TEXT NOT NULL -- r(eleased), t(aken over), n(o matter to waiters: taken over)
);
