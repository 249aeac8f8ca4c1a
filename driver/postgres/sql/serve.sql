-- serve.sql: grants a lock to all whose turn it is. Every function that frees something, or
-- wants something, calls it.

-- holders is what is known of those who hold a lock.
CREATE OR REPLACE FUNCTION holdfast.holders(_lock holdfast.lock, _now timestamptz) RETURNS holdfast.state
LANGUAGE plpgsql AS $$
DECLARE
    s holdfast.state;
BEGIN
    SELECT coalesce(sum(c.weight), 0), min(c.until), max(c.tag),
           (array_agg(c.owner) FILTER (WHERE c.until > _now))[1], max(c.fence), max(c.last),
           bool_or(c.until <= _now OR c.until > holdfast.until(_now, c.ttl))
      INTO s.used, s.ends, s.tag, s.owner, s.fence, s.last, s.stale
      FROM holdfast.claim c WHERE c.lock = _lock.id AND c.held;
    s.given := _lock.fence;
    s.granted := false;
    s.queue := false;
    RETURN s;
END
$$;

-- expire ends the leases that are over, and shortens those that the clock has lengthened by
-- being set back. A lease that a transaction counts on, see fenced.sql, ends with that: its
-- row cannot be deleted before, and is passed over.
CREATE OR REPLACE FUNCTION holdfast.expire(_lock holdfast.lock, _now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM holdfast.claim c WHERE c.lock = _lock.id AND c.token IN (
        SELECT e.token FROM holdfast.claim e
        WHERE e.lock = _lock.id AND e.held AND e.until <= _now FOR UPDATE SKIP LOCKED);
    UPDATE holdfast.claim c SET until = holdfast.until(_now, c.ttl)
    WHERE c.lock = _lock.id AND c.held AND c.until > holdfast.until(_now, c.ttl);
END
$$;

-- give makes a claim a holder: with new numbers, or beside others of its owner with theirs.
-- The caller saves the last number that was given.
CREATE OR REPLACE FUNCTION holdfast.give(s holdfast.state, c holdfast.claim, _now timestamptz) RETURNS holdfast.state
LANGUAGE plpgsql AS $$
BEGIN
    IF c.owner = s.owner THEN
        c.fence := s.fence;
        c.last := s.last;
        c.fences := 1;
    ELSE
        SELECT f.first, f.last INTO c.fence, c.last
          FROM holdfast.fences(s.given, _now, CASE WHEN c.owner IS NULL THEN c.wants ELSE 1 END) f;
        c.fences := c.last - c.fence + 1;
        s.given := c.last;
    END IF;
    c.held := true;
    c.since := _now;
    c.until := holdfast.until(_now, c.ttl);
    INSERT INTO holdfast.claim VALUES (c.*) ON CONFLICT (lock, token) DO UPDATE SET
        held = true, since = c.since, until = c.until, fence = c.fence, fences = c.fences, last = c.last;
    s.used := s.used + c.weight;
    s.ends := least(s.ends, c.until);
    s.owner := c.owner;
    s.fence := c.fence;
    s.fences := c.fences;
    s.last := c.last;
    s.granted := true;
    RETURN s;
END
$$;

-- serve grants what can be granted, and tells those who get it; the token _asking sees it by
-- itself. It tells the waiter that is next to ask when the next lease ends, should that be
-- before it would ask anyway: a lease that ends tells nobody. _tag is of the holder before.
CREATE OR REPLACE FUNCTION holdfast.serve(_lock holdfast.lock, _now timestamptz, _asking text, _tag text) RETURNS holdfast.state
LANGUAGE plpgsql AS $$
DECLARE
    s holdfast.state;
    c holdfast.claim;
BEGIN
    IF NOT EXISTS (SELECT FROM holdfast.claim k WHERE k.lock = _lock.id) THEN -- Mostly nobody else is there.
        s.used := 0;
        s.given := _lock.fence;
        s.granted := false;
        s.queue := false;
        RETURN s;
    END IF;
    s := holdfast.holders(_lock, _now);
    IF s.stale THEN
        _tag := coalesce(_tag, s.tag);
        PERFORM holdfast.expire(_lock, _now);
        s := holdfast.holders(_lock, _now);
        s.ends := greatest(s.ends, _now + interval '50 ms'); -- of one that is passed over
    END IF;
    FOR c IN SELECT * FROM holdfast.claim w WHERE w.lock = _lock.id AND NOT w.held ORDER BY w.place LOOP
        IF c.until <= _now THEN
            DELETE FROM holdfast.claim d WHERE d.lock = c.lock AND d.token = c.token;
        ELSIF c.weight > _lock.size - s.used THEN
            s.queue := true;
            s.next := c.token;
            EXIT;
        ELSIF c.token IS DISTINCT FROM _asking AND holdfast.deaf(c.listener) THEN
            s.queue := true; -- It keeps its place, and may ask again.
        ELSE
            s := holdfast.served(s, c, _now, _asking, _tag);
        END IF;
    END LOOP;
    IF s.owner IS NOT NULL AND s.queue THEN
        FOR c IN SELECT * FROM holdfast.claim w WHERE w.lock = _lock.id AND NOT w.held
            AND w.owner = s.owner AND w.until > _now ORDER BY w.place
        LOOP
            s := holdfast.served(s, c, _now, _asking, _tag);
        END LOOP;
        SELECT w.token INTO s.next FROM holdfast.claim w
        WHERE w.lock = _lock.id AND NOT w.held AND w.until > _now ORDER BY w.place LIMIT 1;
        s.queue := s.next IS NOT NULL;
    END IF;
    IF s.next IS NOT NULL THEN
        UPDATE holdfast.claim w SET asks = s.ends, until = least(w.until, holdfast.patience(_now, w.ttl))
        WHERE w.lock = _lock.id AND w.token = s.next
          AND (w.asks > s.ends OR w.until > holdfast.patience(_now, w.ttl)) RETURNING * INTO c;
        IF FOUND AND s.next IS DISTINCT FROM _asking THEN
            PERFORM holdfast.tell(c.client, 'ask ' || c.token);
        END IF;
    END IF;
    IF s.given <> _lock.fence THEN
        UPDATE holdfast.lock l SET fence = s.given WHERE l.kind = _lock.kind AND l.name = _lock.name;
    END IF;
    RETURN s;
END
$$;

-- served gives the lock to a waiter, and tells it. Where commits wait for standbys it has the
-- waiter ask: the news is sent even if the wait of this transaction is cancelled, and then no
-- standby may have the grant. The answer to the waiter comes with a commit of its own.
CREATE OR REPLACE FUNCTION holdfast.served(s holdfast.state, c holdfast.claim, _now timestamptz, _asking text, _tag text) RETURNS holdfast.state
LANGUAGE plpgsql AS $$
BEGIN
    s := holdfast.give(s, c, _now);
    IF c.token IS DISTINCT FROM _asking THEN
        PERFORM holdfast.tell(c.client, CASE WHEN holdfast.replicated() THEN concat_ws(' ', 'ask', c.token, _tag)
            ELSE concat_ws(' ', 'granted', c.token, c.ask, s.fence, s.fences, _tag) END);
    END IF;
    RETURN s;
END
$$;

-- leave takes a claim away. A lease that a transaction counts on ends now, but its row stays
-- until that has ended, and so nobody else gets the lock. It tells whether there was a claim.
CREATE OR REPLACE FUNCTION holdfast.leave(_lock holdfast.lock, _now timestamptz, _token text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM holdfast.claim c WHERE c.lock = _lock.id AND c.token = (
        SELECT e.token FROM holdfast.claim e WHERE e.lock = _lock.id AND e.token = _token FOR UPDATE SKIP LOCKED);
    IF NOT FOUND THEN
        UPDATE holdfast.claim c SET until = _now WHERE c.lock = _lock.id AND c.token = _token AND c.until > _now;
    END IF;
    RETURN FOUND;
END
$$;

-- bury remembers for a minute that a token was given up.
CREATE OR REPLACE FUNCTION holdfast.bury(_lock holdfast.lock, _now timestamptz, _token text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.tombstone VALUES (_lock.id, _token, _now + interval '1 minute')
    ON CONFLICT (lock, token) DO UPDATE SET until = excluded.until;
END
$$;

CREATE OR REPLACE FUNCTION holdfast.buried(_lock holdfast.lock, _now timestamptz, _token text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.tombstone t WHERE t.lock = _lock.id AND t.token = _token AND t.until > _now);
END
$$;
