-- The table of keylatch-lease-postgres, with its index, functions and triggers. These statements can be run again; they
-- change no lease.
--
-- A function that updates the row of a lease locks it first, and only then reads the clock. So one instant decides the
-- whole update, and no token is older than one that was granted while the function waited for the lock.
--
-- Tenures begin and end under FOR UPDATE, so that the old version of the row conflicts with FOR KEY SHARE although no
-- key column changes. Renewals take FOR NO KEY UPDATE; a transaction that is guarded by a lease has FOR KEY SHARE. So a
-- guarded transaction keeps other owners from taking the lease over, and does not prevent renewals. No function waits
-- for a guarded transaction: those that would end a single lease, or all of an owner's, report that one is open.

CREATE TABLE IF NOT EXISTS keylatch_lease (
    ns text NOT NULL,
    entity bytea NOT NULL,
    key bytea NOT NULL,
    owner bytea NOT NULL,
    token bigint NOT NULL CHECK (token > 0),
    since timestamptz NOT NULL, -- when the tenure began; after a release, the time of the release
    until timestamptz NOT NULL, -- 'infinity': the lease never expires; '-infinity': it was released
    wanted boolean NOT NULL, -- whether there is a waiter: then a release, or an earlier end, sends a notification
    policy "char" NOT NULL, -- f(ixed), s(liding), u(p to), n(ever), or - for any other
    idle bigint, -- these two are the times of the policy, in nanoseconds
    total bigint,
    PRIMARY KEY (ns, entity, key)
) WITH (fillfactor = 70);
-- One row of each namespace is not a lease: its entity is the byte ff, which no text contains, and its token is the
-- greatest that was swept.
--
-- One row of the table is its mark: its entity is the byte fe, and its namespace is empty. Its owner identifies the
-- table: the byte ff, the database system, and the table's OID. Its `idle` is the timeline. Nothing is granted before
-- the time in its `until`. Tokens up to the mark's own are in doubt: the database may have forgotten their release, and
-- greater tokens granted after it.

-- There is no index on `until`, so that a renewal writes to no index. `CREATE INDEX IF NOT EXISTS` alone would lock the
-- table before it checks.
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
            WHERE i.indrelid = 'keylatch_lease'::regclass AND c.relname = 'keylatch_lease_owner'
    ) THEN
        CREATE INDEX IF NOT EXISTS keylatch_lease_owner ON keylatch_lease (ns, owner);
    END IF;
END
$$;

-- Returns the time, in microseconds, for which nothing is granted, and the token up to which tokens are in doubt. If
-- the mark is missing, or identifies another table or (without a_trusts) another timeline, leases may have been
-- forgotten: then this writes a new mark.
CREATE OR REPLACE FUNCTION keylatch_lease_barred_v1(
    a_system text, a_quarantine bigint, a_trusts boolean, OUT barred bigint, OUT doubt bigint
) LANGUAGE plpgsql AS $$
DECLARE
    m keylatch_lease;
    now timestamptz;
    place bytea := decode('ff', 'hex') || convert_to(a_system || '/' || 'keylatch_lease'::regclass::oid, 'UTF8');
    timeline bigint := ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
    tail timestamptz;
BEGIN
    LOOP
        SELECT * INTO m FROM keylatch_lease WHERE ns = '' AND entity = decode('fe', 'hex') AND key = '';
        now := clock_timestamp();
        tail := now + a_quarantine * interval '1 microsecond';
        IF m.owner = place AND (a_trusts OR m.idle = timeline) AND m.until <= tail THEN
            barred := CASE WHEN m.until > now THEN greatest(extract(epoch FROM m.until - now) * 1000000, 1) ELSE 0 END;
            doubt := m.token;
            RETURN;
        END IF;
        IF m.owner = place AND (a_trusts OR m.idle = timeline) THEN
            -- The clock was set back after the mark was written.
            UPDATE keylatch_lease SET until = tail
                WHERE ns = '' AND entity = decode('fe', 'hex') AND key = '' AND until > tail;
            CONTINUE;
        END IF;
        INSERT INTO keylatch_lease VALUES
            ('', decode('fe', 'hex'), '', place, greatest(floor(extract(epoch FROM now) * 1000000), m.token + 1), now, tail,
            false, '-', timeline, NULL)
            ON CONFLICT (ns, entity, key) DO UPDATE
                SET owner = excluded.owner, token = greatest(excluded.token, keylatch_lease.token + 1),
                    since = excluded.since, until = excluded.until, idle = excluded.idle
                WHERE keylatch_lease.owner <> excluded.owner OR keylatch_lease.idle <> excluded.idle;
    END LOOP;
END
$$;

-- Acquires a lease, or reports its owner. a_want: a(ny), f(resh), m(ine), n(ew). a_term: whether the lease gets a new
-- end: a_idle microseconds from now, but no later than a_total microseconds after the tenure began. `held` and
-- `remaining` are microseconds, too; `remaining` is NULL if the lease never expires.
-- what: g(ranted), r(esumed), b(usy), f(ree), q(uarantined), t(ransaction: a guarded one is open).
CREATE OR REPLACE FUNCTION keylatch_lease_acquire_v2(
    a_ns text, a_entity bytea, a_key bytea, a_owner bytea, a_want "char", a_waiting boolean,
    a_term boolean, a_idle bigint, a_total bigint, a_policy "char", a_policy_idle bigint, a_policy_total bigint, a_channel text,
    a_system text, a_quarantine bigint, a_trusts boolean,
    OUT what "char", OUT who bytea, OUT tok bigint, OUT held bigint, OUT remaining bigint
) LANGUAGE plpgsql AS $$
DECLARE
    l keylatch_lease;
    now timestamptz;
    is_locked boolean := false; -- whether the row is locked
    is_strong boolean := false; -- whether it is locked by FOR UPDATE, under which a tenure may end
    begins boolean;
    tail timestamptz;
    barred bigint;
    doubt bigint;
BEGIN
    LOOP
        IF NOT is_locked THEN
            SELECT * INTO l FROM keylatch_lease WHERE ns = a_ns AND entity = a_entity AND key = a_key;
        END IF;
        IF doubt IS NULL THEN
            -- From here until this transaction ends, no other one can truncate, drop or rewrite the table.
            SELECT b.barred, b.doubt INTO barred, doubt FROM keylatch_lease_barred_v1(a_system, a_quarantine, a_trusts) b;
        END IF;
        IF l.ns IS NULL THEN
            IF NOT a_term OR a_want = 'm' THEN
                what := 'f';
                RETURN;
            END IF;
            IF barred > 0 THEN
                what := 'q';
                remaining := barred;
                RETURN;
            END IF;
            now := clock_timestamp();
            -- The clock may have been set back since a row of this resource was swept or forgotten.
            tok := greatest(
                floor(extract(epoch FROM now) * 1000000), doubt + 1,
                (SELECT token + 1 FROM keylatch_lease WHERE ns = a_ns AND entity = decode('ff', 'hex') AND key = ''));
            tail := least(now + a_idle * interval '1 microsecond', now + a_total * interval '1 microsecond', 'infinity');
            INSERT INTO keylatch_lease VALUES
                (a_ns, a_entity, a_key, a_owner, tok, now, tail, false, a_policy, a_policy_idle, a_policy_total)
                ON CONFLICT DO NOTHING;
            IF FOUND THEN
                -- If a row of this resource was swept in between, its token was smaller, provided that this took less
                -- time than the minute for which a row stays.
                IF clock_timestamp() > now + interval '30 seconds' THEN
                    RAISE EXCEPTION 'keylatch_lease: an acquire took too long' USING ERRCODE = 'serialization_failure';
                END IF;
                what := 'g';
                held := 0;
                remaining := extract(epoch FROM nullif(tail, 'infinity') - now) * 1000000;
                RETURN;
            END IF;
            CONTINUE;
        END IF;

        now := clock_timestamp();
        IF l.until <= now THEN
            begins := true;
            IF NOT a_term OR a_want = 'm' THEN
                IF is_locked OR l.until = '-infinity' THEN
                    what := 'f';
                    RETURN;
                END IF;
                begins := NULL; -- the row was read without a lock, and may have been renewed before the clock was read
            END IF;
        ELSIF l.owner = a_owner AND a_want = 'm' AND l.token <= doubt THEN
            what := 'f';
            RETURN;
        ELSIF l.owner = a_owner AND a_want IN ('a', 'm') THEN
            begins := l.token <= doubt;
        ELSIF l.owner = a_owner AND a_want = 'f' AND a_term THEN
            begins := true;
        ELSIF a_waiting AND NOT l.wanted AND NOT is_locked THEN
            begins := NULL;
        ELSE
            IF a_waiting AND NOT l.wanted THEN
                UPDATE keylatch_lease SET wanted = true WHERE ns = a_ns AND entity = a_entity AND key = a_key;
            END IF;
            what := 'b';
            who := l.owner;
            remaining := extract(epoch FROM nullif(l.until, 'infinity') - now) * 1000000;
            RETURN;
        END IF;

        IF begins AND barred > 0 THEN
            what := 'q';
            remaining := barred;
            RETURN;
        END IF;

        IF NOT is_locked AND (a_term OR begins IS NULL) THEN
            IF begins THEN
                SELECT * INTO l FROM keylatch_lease WHERE ns = a_ns AND entity = a_entity AND key = a_key
                    FOR UPDATE SKIP LOCKED;
                is_strong := FOUND;
            END IF;
            IF NOT is_strong THEN
                SELECT * INTO l FROM keylatch_lease WHERE ns = a_ns AND entity = a_entity AND key = a_key
                    FOR NO KEY UPDATE;
            END IF;
            is_locked := FOUND; -- if not, the row was swept
            CONTINUE;
        END IF;

        IF NOT begins THEN
            IF a_term THEN
                -- A lease that never expires keeps its end.
                l.until := greatest(l.until, least(
                    now + a_idle * interval '1 microsecond', l.since + a_total * interval '1 microsecond', 'infinity'));
                UPDATE keylatch_lease
                    SET until = l.until, policy = a_policy, idle = a_policy_idle, total = a_policy_total
                    WHERE ns = a_ns AND entity = a_entity AND key = a_key;
            END IF;
            what := 'r';
            tok := l.token;
            held := greatest(extract(epoch FROM now - l.since) * 1000000, 0);
            remaining := extract(epoch FROM nullif(l.until, 'infinity') - now) * 1000000;
            RETURN;
        END IF;

        IF NOT is_strong THEN
            PERFORM FROM keylatch_lease WHERE ns = a_ns AND entity = a_entity AND key = a_key FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                what := 't';
                who := l.owner;
                RETURN;
            END IF;
        END IF;
        tok := greatest(l.token + 1, doubt + 1, floor(extract(epoch FROM now) * 1000000));
        tail := least(now + a_idle * interval '1 microsecond', now + a_total * interval '1 microsecond', 'infinity');
        -- Waiters still wait, so `wanted` stays.
        UPDATE keylatch_lease
            SET owner = a_owner, token = tok, since = now, until = tail,
                policy = a_policy, idle = a_policy_idle, total = a_policy_total
            WHERE ns = a_ns AND entity = a_entity AND key = a_key;
        IF l.until > now THEN
            -- The same owner had a tenure. Notify its holder; and the waiters, if the new tenure ends earlier.
            PERFORM pg_notify(a_channel, encode(a_entity, 'hex') || '/' || encode(a_key, 'hex') || '/' || l.token
                || CASE WHEN l.wanted AND tail < l.until THEN '/t' ELSE '/n' END);
        END IF;
        what := 'g';
        held := 0;
        remaining := extract(epoch FROM nullif(tail, 'infinity') - now) * 1000000;
        RETURN;
    END LOOP;
END
$$;

-- Decides about several resources, each of them named once, in one transaction: grants those that are free, reports the
-- owners of others, and releases tenures (those with a token). A row of the answer contains the number in the arrays,
-- from 1. A resource that needs any other answer has no row in the result, and nothing was decided about it: the caller
-- must use the functions for single leases. The same is true if another transaction has locked a row that would have to
-- change: this function does not wait for that lock.
-- what: g(ranted, or gone), b(usy).
CREATE OR REPLACE FUNCTION keylatch_lease_together_v1(
    a_ns text, a_entities bytea[], a_keys bytea[], a_owners bytea[], a_tokens bigint[], a_waiting boolean[],
    a_idles bigint[], a_totals bigint[], a_policies "char"[], a_policy_idles bigint[], a_policy_totals bigint[], a_channel text,
    a_system text, a_quarantine bigint, a_trusts boolean
) RETURNS TABLE (what "char", who bytea, tok bigint, remaining bigint, n bigint) LANGUAGE plpgsql AS $$
DECLARE
    r record;
    l keylatch_lease;
    now timestamptz;
    tail timestamptz;
    barred bigint;
    doubt bigint;
BEGIN
    IF array_position(a_tokens, NULL) IS NOT NULL THEN
        -- From here until this transaction ends, no other one can truncate, drop or rewrite the table.
        SELECT b.barred, b.doubt INTO barred, doubt FROM keylatch_lease_barred_v1(a_system, a_quarantine, a_trusts) b;
    END IF;
    -- The order is the same in every function that waits for several rows, so that no two of them deadlock: an insert
    -- waits for a concurrent insert of the same row.
    FOR r IN
        SELECT * FROM unnest(
            a_entities, a_keys, a_owners, a_tokens, a_waiting, a_idles, a_totals, a_policies, a_policy_idles, a_policy_totals
        ) WITH ORDINALITY AS q (
            entity, key, owner, token, waiting, idle, total, policy, policy_idle, policy_total, place
        ) ORDER BY q.entity, q.key
    LOOP
        what := 'g';
        who := NULL;
        n := r.place;
        IF r.token IS NULL THEN
            SELECT * INTO l FROM keylatch_lease WHERE ns = a_ns AND entity = r.entity AND key = r.key;
            IF l.ns IS NOT NULL AND l.until > clock_timestamp() THEN
                CONTINUE WHEN l.owner = r.owner OR r.waiting AND NOT l.wanted;
                what := 'b';
                who := l.owner;
                remaining := extract(epoch FROM nullif(l.until, 'infinity') - clock_timestamp()) * 1000000;
                RETURN NEXT;
                CONTINUE;
            END IF;
            CONTINUE WHEN barred > 0;
            IF l.ns IS NULL THEN
                now := clock_timestamp();
                -- The same rule is in keylatch_lease_acquire_v2, with its reason.
                tok := greatest(
                    floor(extract(epoch FROM now) * 1000000), doubt + 1,
                    (SELECT token + 1 FROM keylatch_lease WHERE ns = a_ns AND entity = decode('ff', 'hex') AND key = ''));
                tail := least(
                    now + r.idle * interval '1 microsecond', now + r.total * interval '1 microsecond', 'infinity');
                INSERT INTO keylatch_lease VALUES
                    (a_ns, r.entity, r.key, r.owner, tok, now, tail, false, r.policy, r.policy_idle, r.policy_total)
                    ON CONFLICT DO NOTHING;
                CONTINUE WHEN NOT FOUND;
                IF clock_timestamp() > now + interval '30 seconds' THEN
                    RAISE EXCEPTION 'keylatch_lease: an acquire took too long' USING ERRCODE = 'serialization_failure';
                END IF;
                remaining := extract(epoch FROM nullif(tail, 'infinity') - now) * 1000000;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;

        SELECT * INTO l FROM keylatch_lease WHERE ns = a_ns AND entity = r.entity AND key = r.key FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        now := clock_timestamp();
        IF r.token IS NULL THEN
            CONTINUE WHEN l.until > now;
            tok := greatest(l.token + 1, doubt + 1, floor(extract(epoch FROM now) * 1000000));
            tail := least(now + r.idle * interval '1 microsecond', now + r.total * interval '1 microsecond', 'infinity');
            remaining := extract(epoch FROM nullif(tail, 'infinity') - now) * 1000000;
            UPDATE keylatch_lease
                SET owner = r.owner, token = tok, since = now, until = tail,
                    policy = r.policy, idle = r.policy_idle, total = r.policy_total
                WHERE ns = a_ns AND entity = r.entity AND key = r.key;
        ELSE
            CONTINUE WHEN l.until <= now OR l.owner <> r.owner OR l.token <> r.token;
            UPDATE keylatch_lease SET since = now, until = '-infinity', wanted = false
                WHERE ns = a_ns AND entity = r.entity AND key = r.key;
            IF l.wanted THEN
                PERFORM pg_notify(
                    a_channel, encode(r.entity, 'hex') || '/' || encode(r.key, 'hex') || '/' || l.token || '/r');
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Renews leases. Returns, for each lease that is still held, its number in the arrays, from 1, and its remaining time
-- in microseconds; NULL if it never expires.
CREATE OR REPLACE FUNCTION keylatch_lease_renew_v1(
    a_ns text, a_entities bytea[], a_keys bytea[], a_owners bytea[], a_tokens bigint[],
    a_terms boolean[], a_idles bigint[], a_totals bigint[]
) RETURNS TABLE (n bigint, remaining bigint) LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz;
BEGIN
    IF true = ANY (a_terms) THEN
        -- Lock all rows first, in the same order as every other function that waits for several rows, so that no two of
        -- them deadlock.
        PERFORM FROM keylatch_lease l
            JOIN (
                SELECT DISTINCT r.entity, r.key FROM unnest(a_entities, a_keys, a_terms) AS r (entity, key, term)
                    WHERE r.term
            ) r ON l.ns = a_ns AND l.entity = r.entity AND l.key = r.key
            ORDER BY l.entity, l.key
            FOR NO KEY UPDATE OF l;
        now := clock_timestamp();
        UPDATE keylatch_lease l SET until = greatest(l.until, e.tail)
            FROM (
                SELECT r.entity, r.key, r.owner, r.token, max(least(
                        now + r.idle * interval '1 microsecond', t.since + r.total * interval '1 microsecond', 'infinity'
                    )) AS tail
                    FROM unnest(a_entities, a_keys, a_owners, a_tokens, a_terms, a_idles, a_totals)
                        AS r (entity, key, owner, token, term, idle, total)
                    JOIN keylatch_lease t ON t.ns = a_ns AND t.entity = r.entity AND t.key = r.key
                    WHERE r.term
                    GROUP BY r.entity, r.key, r.owner, r.token
            ) e
            WHERE l.ns = a_ns AND l.entity = e.entity AND l.key = e.key AND l.owner = e.owner AND l.token = e.token
                AND l.until > now;
    ELSE
        now := clock_timestamp();
    END IF;
    RETURN QUERY
        SELECT r.n, (extract(epoch FROM nullif(l.until, 'infinity') - now) * 1000000)::bigint
            FROM unnest(a_entities, a_keys, a_owners, a_tokens) WITH ORDINALITY AS r (entity, key, owner, token, n)
            JOIN keylatch_lease l ON l.ns = a_ns AND l.entity = r.entity AND l.key = r.key
            WHERE l.owner = r.owner AND l.token = r.token AND l.until > now;
END
$$;

-- Releases a lease. With a_token, only that tenure; a_owner may be NULL then. A caller that gives both the token and
-- the owner counts as the holder, which need not be notified.
-- what: g(one), f(ree already), b(usy: another tenure), t(ransaction: a guarded one is open).
CREATE OR REPLACE FUNCTION keylatch_lease_release_v1(
    a_ns text, a_entity bytea, a_key bytea, a_owner bytea, a_token bigint, a_channel text,
    OUT what "char", OUT who bytea
) LANGUAGE plpgsql AS $$
DECLARE
    l keylatch_lease;
    now timestamptz;
    is_locked boolean := false;
    is_strong boolean;
BEGIN
    LOOP
        IF NOT is_locked THEN
            SELECT * INTO l FROM keylatch_lease WHERE ns = a_ns AND entity = a_entity AND key = a_key;
        END IF;
        now := clock_timestamp();
        -- A lease that looks expired, but was read without a lock, may have been renewed before the clock was read.
        IF l.ns IS NULL OR l.until <= now AND (is_locked OR l.until = '-infinity') THEN
            what := 'f';
            RETURN;
        ELSIF l.until > now AND (l.owner <> a_owner OR l.token <> a_token) THEN
            what := 'b';
            who := l.owner;
            RETURN;
        END IF;
        EXIT WHEN is_locked;
        SELECT * INTO l FROM keylatch_lease WHERE ns = a_ns AND entity = a_entity AND key = a_key FOR UPDATE SKIP LOCKED;
        is_strong := FOUND;
        IF NOT is_strong THEN
            SELECT * INTO l FROM keylatch_lease WHERE ns = a_ns AND entity = a_entity AND key = a_key FOR NO KEY UPDATE;
        END IF;
        is_locked := FOUND;
    END LOOP;
    IF NOT is_strong THEN
        PERFORM FROM keylatch_lease WHERE ns = a_ns AND entity = a_entity AND key = a_key FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            what := 't';
            RETURN;
        END IF;
    END IF;
    -- The row stays for a while, because the next token must be greater than this one.
    UPDATE keylatch_lease SET since = now, until = '-infinity', wanted = false
        WHERE ns = a_ns AND entity = a_entity AND key = a_key;
    IF l.wanted OR a_token IS NULL OR a_owner IS NULL THEN
        PERFORM pg_notify(a_channel, encode(a_entity, 'hex') || '/' || encode(a_key, 'hex') || '/' || l.token || '/r');
    END IF;
    what := 'g';
END
$$;

-- Releases all leases of an owner.
-- what: g(one), and the resources; t(ransaction: a guarded one is open), and nothing was released.
CREATE OR REPLACE FUNCTION keylatch_lease_release_all_v1(
    a_ns text, a_owner bytea, a_channel text,
    OUT what "char", OUT entities bytea[], OUT keys bytea[]
) LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz;
    tokens bigint[];
BEGIN
    -- The order is the same in every function that waits for several rows, so that no two of them deadlock.
    PERFORM FROM keylatch_lease WHERE ns = a_ns AND owner = a_owner AND until > clock_timestamp()
        ORDER BY entity, key FOR NO KEY UPDATE;
    now := clock_timestamp();
    SELECT array_agg(l.entity), array_agg(l.key), array_agg(l.token) INTO entities, keys, tokens
        FROM (
            SELECT entity, key, token FROM keylatch_lease WHERE ns = a_ns AND owner = a_owner AND until > now
                ORDER BY entity, key FOR UPDATE SKIP LOCKED
        ) l;
    what := 'g';
    IF coalesce(cardinality(entities), 0)
        < (SELECT count(*) FROM keylatch_lease WHERE ns = a_ns AND owner = a_owner AND until > now) THEN
        what := 't';
        RETURN;
    END IF;
    UPDATE keylatch_lease l SET since = now, until = '-infinity', wanted = false
        FROM unnest(entities, keys) AS r (entity, key)
        WHERE l.ns = a_ns AND l.entity = r.entity AND l.key = r.key;
    PERFORM pg_notify(a_channel, encode(r.entity, 'hex') || '/' || encode(r.key, 'hex') || '/' || r.token || '/r')
        FROM unnest(entities, keys, tokens) AS r (entity, key, token);
END
$$;

-- Deletes up to a_limit rows of leases that ended more than a minute ago. A row must outlive the slowest acquire, which
-- could otherwise grant a smaller token; and it stays while its token is ahead of the clock. The greatest token that is
-- swept is recorded.
CREATE OR REPLACE FUNCTION keylatch_lease_sweep_v1(a_ns text, a_limit bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    past timestamptz := clock_timestamp() - interval '1 minute';
    swept bigint;
    last bigint;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT entity, key FROM keylatch_lease
            WHERE ns = a_ns AND until < past AND since < past AND token < extract(epoch FROM past) * 1000000
                AND entity NOT IN (decode('ff', 'hex'), decode('fe', 'hex'))
            LIMIT a_limit
            FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM keylatch_lease l USING due WHERE l.ns = a_ns AND l.entity = due.entity AND l.key = due.key
            RETURNING l.token
    )
    SELECT count(*), max(token) INTO swept, last FROM gone;
    IF swept > 0 THEN
        INSERT INTO keylatch_lease VALUES
            (a_ns, decode('ff', 'hex'), '', '', last, '-infinity', '-infinity', false, '-', NULL, NULL)
            ON CONFLICT (ns, entity, key) DO UPDATE SET token = excluded.token
                WHERE keylatch_lease.token < excluded.token;
    END IF;
    RETURN swept;
END
$$;

-- Notifies the holders of leases whose rows are deleted by hand. A sweep deletes only rows of leases that have ended,
-- and does not call this. All namespaces share the channel, because this is rare.
CREATE OR REPLACE FUNCTION keylatch_lease_deleted_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        PERFORM pg_notify('keylatch_lease', '');
    ELSE
        PERFORM pg_notify('keylatch_lease', CASE WHEN octet_length(OLD.ns) > 1024 THEN '' ELSE
            encode(OLD.entity, 'hex') || '/' || encode(OLD.key, 'hex') || '/' || OLD.token || '/d/'
                || encode(convert_to(OLD.ns, 'UTF8'), 'hex') END);
    END IF;
    RETURN NULL;
END
$$;

DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_trigger WHERE tgrelid = 'keylatch_lease'::regclass AND tgname = 'keylatch_lease_deleted'
    ) THEN
        CREATE TRIGGER keylatch_lease_deleted AFTER DELETE ON keylatch_lease
            FOR EACH ROW WHEN (OLD.until > clock_timestamp()) EXECUTE FUNCTION keylatch_lease_deleted_v1();
        CREATE TRIGGER keylatch_lease_truncated AFTER TRUNCATE ON keylatch_lease
            FOR EACH STATEMENT EXECUTE FUNCTION keylatch_lease_deleted_v1();
    END IF;
END
$$;
