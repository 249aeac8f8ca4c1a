-- schema.sql: the tables. A lock is a row of lock; a token that holds it or waits for it is a
-- row of claim. Every function locks the row of its lock first, so what happens to one lock
-- happens one after the other. The names of locks and owners may be any bytes.

CREATE SCHEMA holdfast;

CREATE TABLE holdfast.version (version integer NOT NULL);

CREATE TABLE holdfast.lock (
    id      bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    kind    text        NOT NULL,           -- mutex, rwmutex or semaphore
    name    bytea       NOT NULL,
    fence   bigint      NOT NULL DEFAULT 0, -- the last number that was given
    size    bigint      NOT NULL,           -- what the weights of all holders may come to
    resized boolean     NOT NULL DEFAULT false, -- the size is not for requests to say
    look    timestamptz NOT NULL,           -- when sweep will look at this row
    idle    bigint,                         -- the fence at its last look, if nobody was here
    PRIMARY KEY (kind, name)
) WITH (fillfactor = 50);                   -- room for new versions of a row beside the old one

CREATE INDEX lock_look ON holdfast.lock (look);

CREATE TABLE holdfast.claim (
    lock     bigint      NOT NULL, -- lock.id
    token    text        NOT NULL,
    held     boolean     NOT NULL, -- else it waits
    shared   boolean     NOT NULL,
    weight   bigint      NOT NULL,
    owner    bytea,                -- of an exclusive claim that has one
    ttl      interval    NOT NULL, -- the longest that it has named
    until    timestamptz NOT NULL, -- the end of the lease; of a waiter, of the patience with its silence
    ask      bigint      NOT NULL, -- the highest that was handled
    wants    bigint      NOT NULL, -- so many numbers at most
    notice   boolean     NOT NULL, -- the holder is told when somebody waits
    holder   text        NOT NULL, -- for people
    client   text,                 -- whose channel hears of it, NULL for none
    listener integer,              -- the backend that serves that channel; NULL if that is not sure
    tag      text,                 -- what the holder says of itself
    place    bigint,               -- in the queue
    asks     timestamptz,          -- when a waiter will ask again at the latest
    since    timestamptz,          -- of a holder, as is all that follows
    fence    bigint,               -- the first number of the grant
    fences   bigint,               -- how many the grant had
    last     bigint,               -- the last that the holder may use: extensions give others
    PRIMARY KEY (lock, token)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE INDEX claim_holders ON holdfast.claim (lock) WHERE held;
CREATE INDEX claim_queue ON holdfast.claim (lock, place) WHERE NOT held;

-- Places are never used again, so a waiter can return to the one it had.
CREATE SEQUENCE holdfast.place;

-- Tokens that were given up. An ask of theirs that comes later acquires nothing.
CREATE TABLE holdfast.tombstone (
    lock  bigint      NOT NULL,
    token text        NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (lock, token)
);

-- time.sql: what follows from the server's clock, which is read once the row of the lock is ours.

-- until is the end of a lease that is granted or renewed now: a little later than its holder
-- trusts it.
CREATE FUNCTION holdfast.until(_now timestamptz, _ttl interval) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT _now + _ttl + least(greatest(_ttl / 20, interval '5 ms'), interval '500 ms')
$$;

-- patience is how long a waiter may be silent that has just asked.
CREATE FUNCTION holdfast.patience(_now timestamptz, _ttl interval) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT _now + _ttl * 2 / 3
$$;

-- fences returns the first and the last of at most _n new numbers: microseconds that the clock
-- has shown since the number _given was given. If the clock was set back it is the next number.
CREATE FUNCTION holdfast.fences(_given bigint, _now timestamptz, _n bigint, OUT first bigint, OUT last bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    us bigint := extract(epoch FROM _now) * 1000000;
BEGIN
    first := greatest(_given + 1, us - _n + 1);
    last := greatest(first, us);
END
$$;

-- open.sql: the row of a lock, for this transaction alone. If there is none it is made, should
-- _size say with what size; else all of the answer is NULL.
--
-- It relies on READ COMMITTED: what a statement sees is what others had committed when the
-- row became ours, not when they were still at it.
CREATE FUNCTION holdfast.open(_kind text, _name bytea, _size bigint) RETURNS holdfast.lock
LANGUAGE plpgsql AS $$
DECLARE
    l holdfast.lock;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'holdfast needs the isolation level READ COMMITTED, not %',
            upper(current_setting('transaction_isolation'))
            USING HINT = 'Set default_transaction_isolation for the connections of its pool.';
    END IF;
    LOOP
        SELECT * INTO l FROM holdfast.lock k WHERE k.kind = _kind AND k.name = _name FOR UPDATE;
        IF FOUND OR _size IS NULL THEN
            RETURN l;
        END IF;
        INSERT INTO holdfast.lock (kind, name, size, look)
        VALUES (_kind, _name, _size, clock_timestamp() + interval '1 minute')
        ON CONFLICT DO NOTHING; -- somebody else may be faster
    END LOOP;
END
$$;

-- tell.sql: news for a token, on the channel of its client. It is sent when the transaction
-- commits, so nobody hears of what did not happen.
CREATE FUNCTION holdfast.tell(_client text, _news text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF _client IS NOT NULL THEN
        PERFORM pg_notify('holdfast_' || _client, _news);
    END IF;
END
$$;

-- deaf tells whether nobody hears what a client is told, since the backend that its channel was
-- served by has gone. Where no backend is known it does not know, and says no.
CREATE FUNCTION holdfast.deaf(_listener integer) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN _listener IS NOT NULL AND NOT EXISTS (SELECT FROM pg_stat_get_activity(_listener));
END
$$;

-- lazily has a transaction not wait for the disk. A crash of the server may undo it. That is for
-- what costs no more than some time then.
CREATE FUNCTION holdfast.lazily() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
END
$$;

-- serve.sql: grants a lock to all whose turn it is. Every function that frees something, or
-- wants something, calls it.

CREATE TYPE holdfast.state AS (
    used    bigint,      -- the weight of all holders
    ends    timestamptz, -- when the next of their leases ends; NULL if there is no holder
    tag     text,        -- of a holder that has one
    owner   bytea,       -- of those who hold the lock together
    fence   bigint,      -- their number, or that of the grant that was made last
    fences  bigint,      -- how many that one had
    last    bigint,
    stale   boolean,     -- some of the leases are over
    given   bigint,      -- the last number that was given
    granted boolean,     -- this transaction has made somebody a holder
    queue   boolean,     -- somebody waits,
    next    text         -- for this one to be served: its token
);

-- holders is what is known of those who hold a lock.
CREATE FUNCTION holdfast.holders(_lock holdfast.lock, _now timestamptz) RETURNS holdfast.state
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
CREATE FUNCTION holdfast.expire(_lock holdfast.lock, _now timestamptz) RETURNS void
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
CREATE FUNCTION holdfast.give(s holdfast.state, c holdfast.claim, _now timestamptz) RETURNS holdfast.state
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
CREATE FUNCTION holdfast.serve(_lock holdfast.lock, _now timestamptz, _asking text, _tag text) RETURNS holdfast.state
LANGUAGE plpgsql AS $$
DECLARE
    s holdfast.state := holdfast.holders(_lock, _now);
    c holdfast.claim;
BEGIN
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

-- served gives the lock to a waiter, and tells it.
CREATE FUNCTION holdfast.served(s holdfast.state, c holdfast.claim, _now timestamptz, _asking text, _tag text) RETURNS holdfast.state
LANGUAGE plpgsql AS $$
BEGIN
    s := holdfast.give(s, c, _now);
    IF c.token IS DISTINCT FROM _asking THEN
        PERFORM holdfast.tell(c.client, concat_ws(' ', 'granted', c.token, c.ask, s.fence, s.fences, _tag));
    END IF;
    RETURN s;
END
$$;

-- leave takes a claim away. A lease that a transaction counts on ends now, but its row stays
-- until that has ended, and so nobody else gets the lock. It tells whether there was a claim.
CREATE FUNCTION holdfast.leave(_lock holdfast.lock, _now timestamptz, _token text) RETURNS boolean
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
CREATE FUNCTION holdfast.bury(_lock holdfast.lock, _now timestamptz, _token text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.tombstone VALUES (_lock.id, _token, _now + interval '1 minute')
    ON CONFLICT (lock, token) DO UPDATE SET until = excluded.until;
END
$$;

CREATE FUNCTION holdfast.buried(_lock holdfast.lock, _now timestamptz, _token text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.tombstone t WHERE t.lock = _lock.id AND t.token = _token AND t.until > _now);
END
$$;

-- acquire.sql: one ask of a token for a lock. It is idempotent: a token that holds the lock is
-- told its grant again, and one that waits keeps its place.
--
-- status is granted (fence and fences are its numbers), queued (place is where it waits),
-- busy, released (the token was given up before), conflict or exceeded (the size in force is
-- another, or less than the weight). retry is when to ask again, NULL for a heartbeat.
CREATE FUNCTION holdfast.acquire(
    _kind text, _name bytea, _token text, _ask bigint, _ttl interval, _fences bigint,
    _shared boolean, _weight bigint, _size bigint, _owner bytea, _wait boolean, _notice boolean,
    _holder text, _client text, _listener integer, _place bigint,
    OUT status text, OUT fence bigint, OUT fences bigint, OUT place bigint, OUT retry interval,
    OUT tag text, OUT size bigint)
LANGUAGE plpgsql AS $$
DECLARE
    l     holdfast.lock := holdfast.open(_kind, _name, _size);
    _now  timestamptz := clock_timestamp();
    c     holdfast.claim;
    s     holdfast.state;
    known boolean;
BEGIN
    IF holdfast.buried(l, _now, _token) THEN
        status := 'released';
        RETURN;
    END IF;
    -- Nothing revives a lease that is over. A waiter that was silent for long is welcome.
    UPDATE holdfast.claim k SET
        ttl = greatest(k.ttl, _ttl), ask = greatest(k.ask, _ask), client = _client, listener = _listener,
        until = CASE WHEN k.held THEN greatest(k.until, holdfast.until(_now, _ttl)) ELSE holdfast.patience(_now, _ttl) END,
        asks = _now + _ttl / 3
    WHERE k.lock = l.id AND k.token = _token AND (NOT k.held OR k.until > _now);
    known := FOUND;
    s := holdfast.serve(l, _now, _token, NULL);
    IF known THEN
        SELECT * INTO c FROM holdfast.claim k WHERE k.lock = l.id AND k.token = _token;
    ELSE
        IF s.used = 0 AND NOT s.queue AND NOT l.resized THEN
            l.size := _size; -- The first to come says it.
        END IF;
        size := l.size;
        IF l.size <> _size AND NOT l.resized THEN
            status := 'conflict';
            RETURN;
        ELSIF _weight > l.size THEN
            status := 'exceeded';
            RETURN;
        END IF;
        c.lock := l.id;
        c.token := _token;
        c.held := false;
        c.shared := _shared;
        c.weight := _weight;
        c.owner := _owner;
        c.ttl := _ttl;
        c.until := holdfast.patience(_now, _ttl);
        c.ask := _ask;
        c.wants := _fences;
        c.notice := _notice;
        c.holder := _holder;
        c.client := _client;
        c.listener := _listener;
        IF s.next IS NULL AND _weight <= l.size - s.used OR _owner = s.owner THEN
            s := holdfast.give(s, c, _now);
            UPDATE holdfast.lock k SET fence = s.given, size = l.size WHERE k.kind = _kind AND k.name = _name;
            c.held := true;
            c.fence := s.fence;
            c.fences := s.fences;
        ELSIF _wait THEN
            IF s.next IS NULL THEN
                s.next := _token;
            END IF;
            c.place := coalesce(_place, nextval('holdfast.place'));
            c.asks := least(_now + _ttl / 3, CASE WHEN s.next = _token THEN s.ends END);
            INSERT INTO holdfast.claim VALUES (c.*) ON CONFLICT DO NOTHING; -- Its last lease may have to stay, see leave.
            PERFORM holdfast.tell(h.client, 'wanted ' || h.token)
               FROM holdfast.claim h WHERE h.lock = l.id AND h.held AND h.notice AND h.until > _now;
        END IF;
    END IF;
    tag := s.tag;
    IF c.held THEN
        status := 'granted';
        fence := c.fence;
        fences := c.fences;
        RETURN;
    ELSIF _wait THEN
        status := 'queued';
        place := c.place;
        retry := CASE WHEN s.next = _token THEN s.ends - _now END;
    ELSE
        status := 'busy';
        retry := s.ends - _now;
    END IF;
    IF NOT s.granted THEN
        PERFORM holdfast.lazily(); -- A waiter asks again, and so comes back.
    END IF;
END
$$;

-- release.sql: gives up what a token holds, or its place in the queue. _unsettled says that some
-- ask of it may still come. It tells whether the token had anything.
CREATE FUNCTION holdfast.release(_kind text, _name bytea, _token text, _tag text, _unsettled boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    l    holdfast.lock := holdfast.open(_kind, _name, CASE WHEN _unsettled THEN 1 END);
    _now timestamptz := clock_timestamp();
    c    holdfast.claim;
    s    holdfast.state;
    had  boolean;
BEGIN
    IF l.id IS NULL THEN
        RETURN false;
    END IF;
    IF _unsettled THEN
        PERFORM holdfast.bury(l, _now, _token);
    END IF;
    SELECT * INTO c FROM holdfast.claim k WHERE k.lock = l.id AND k.token = _token;
    had := FOUND AND holdfast.leave(l, _now, _token);
    s := holdfast.serve(l, _now, NULL, coalesce(_tag, c.tag));
    IF NOT s.granted AND NOT _unsettled AND (NOT c.held OR c.until < _now + interval '1 minute') THEN
        PERFORM holdfast.lazily(); -- If this is undone, the lease ends by itself.
    END IF;
    RETURN had;
END
$$;

-- renew.sql: lets leases last their TTL from now on, and tells of each whether somebody waits
-- for its lock, or NULL if the token does not hold it. Renewals that come together lock their
-- rows in one order, so that they do not wait for each other in a circle.
CREATE FUNCTION holdfast.renew(_kinds text[], _names bytea[], _tokens text[], _ttls interval[], _tags text[])
RETURNS TABLE (i integer, wanted boolean)
LANGUAGE plpgsql AS $$
DECLARE
    r    record;
    l    holdfast.lock;
    _now timestamptz;
BEGIN
    FOR r IN SELECT * FROM unnest(_kinds, _names, _tokens, _ttls, _tags) WITH ORDINALITY AS u (kind, name, token, ttl, tag, at)
        ORDER BY u.kind, u.name
    LOOP
        l := holdfast.open(r.kind, r.name, NULL);
        _now := clock_timestamp();
        UPDATE holdfast.claim c SET ttl = greatest(c.ttl, r.ttl),
            until = greatest(c.until, holdfast.until(_now, r.ttl)), tag = coalesce(r.tag, c.tag)
        WHERE c.lock = l.id AND c.token = r.token AND c.held AND c.until > _now;
        i := r.at;
        wanted := NULL;
        IF FOUND THEN
            wanted := EXISTS (SELECT FROM holdfast.claim w WHERE w.lock = l.id AND NOT w.held AND w.until > _now);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- extend.sql: renews one lease and gives it more numbers, beyond all that were given. wanted
-- tells whether somebody waits, and is NULL if the token does not hold the lock.
CREATE FUNCTION holdfast.extend(_kind text, _name bytea, _token text, _ttl interval, _fences bigint,
    OUT wanted boolean, OUT fence bigint, OUT fences bigint)
LANGUAGE plpgsql AS $$
DECLARE
    l     holdfast.lock := holdfast.open(_kind, _name, NULL);
    _now  timestamptz := clock_timestamp();
    s     holdfast.state := holdfast.serve(l, _now, NULL, NULL);
    _last bigint;
BEGIN
    SELECT f.first, f.last INTO fence, _last FROM holdfast.fences(s.given, _now, _fences) f;
    UPDATE holdfast.claim c SET
        ttl = greatest(c.ttl, _ttl), until = greatest(c.until, holdfast.until(_now, _ttl)), last = _last
    WHERE c.lock = l.id AND c.token = _token AND c.held AND c.until > _now;
    IF FOUND THEN
        UPDATE holdfast.lock k SET fence = _last WHERE k.kind = _kind AND k.name = _name;
        fences := _last - fence + 1;
        wanted := s.queue;
    END IF;
END
$$;

-- attach.sql: puts a token in the place of another that holds the lock, with a new grant.
-- fence is NULL if the other does not hold it. A repeat is answered as the first time.
CREATE FUNCTION holdfast.attach(
    _kind text, _name bytea, _old text, _token text, _ask bigint, _ttl interval, _fences bigint,
    _notice boolean, _holder text, _client text, _listener integer,
    OUT fence bigint, OUT fences bigint, OUT shared boolean, OUT weight bigint, OUT owner bytea)
LANGUAGE plpgsql AS $$
DECLARE
    l    holdfast.lock := holdfast.open(_kind, _name, NULL);
    _now timestamptz := clock_timestamp();
    s    holdfast.state;
    c    holdfast.claim;
BEGIN
    s := holdfast.serve(l, _now, _old, NULL);
    l.fence := s.given;
    UPDATE holdfast.claim k SET
        ttl = greatest(k.ttl, _ttl), until = greatest(k.until, holdfast.until(_now, _ttl)), ask = greatest(k.ask, _ask)
    WHERE k.lock = l.id AND k.token = _token AND k.held AND k.until > _now RETURNING * INTO c;
    IF NOT FOUND THEN
        SELECT * INTO c FROM holdfast.claim k
        WHERE k.lock = l.id AND k.token = _old AND k.held AND k.until > _now;
        IF NOT FOUND OR holdfast.buried(l, _now, _token) THEN
            RETURN;
        END IF;
        PERFORM holdfast.leave(l, _now, _old);
        PERFORM holdfast.bury(l, _now, _old);
        c.token := _token;
        c.ttl := _ttl;
        c.ask := _ask;
        c.wants := _fences;
        c.notice := _notice;
        c.holder := _holder;
        c.client := _client;
        c.listener := _listener;
        c.tag := NULL;
        -- What it had is free, unless others of its owner are there.
        s := holdfast.holders(l, _now);
        s := holdfast.give(s, c, _now);
        c.fence := s.fence;
        c.fences := s.fences;
        UPDATE holdfast.lock k SET fence = s.given WHERE k.kind = _kind AND k.name = _name;
        l.fence := s.given;
        PERFORM holdfast.serve(l, _now, NULL, NULL); -- The lease may end earlier now.
    END IF;
    fence := c.fence;
    fences := c.fences;
    shared := c.shared;
    weight := c.weight;
    owner := c.owner;
END
$$;

-- downgrade.sql: lets a holder keep no more than a weight, and others have the rest. status is
-- done, unheld, or owned: others of its owner may count on all of it.
CREATE FUNCTION holdfast.downgrade(_kind text, _name bytea, _token text, _shared boolean, _weight bigint, OUT status text)
LANGUAGE plpgsql AS $$
DECLARE
    l    holdfast.lock := holdfast.open(_kind, _name, NULL);
    _now timestamptz := clock_timestamp();
    c    holdfast.claim;
BEGIN
    SELECT * INTO c FROM holdfast.claim k WHERE k.lock = l.id AND k.token = _token AND k.held AND k.until > _now;
    IF NOT FOUND THEN
        status := 'unheld';
    ELSIF c.owner IS NOT NULL THEN
        status := 'owned';
    ELSE
        status := 'done';
        UPDATE holdfast.claim k SET shared = _shared, weight = least(k.weight, _weight)
        WHERE k.lock = l.id AND k.token = _token;
        PERFORM holdfast.serve(l, _now, NULL, c.tag);
    END IF;
END
$$;

-- resize.sql: sets the size of a semaphore, which is not for requests to say from then on.
-- Waiters that need more are to ask, and are refused then. _change is the token of this change.
CREATE FUNCTION holdfast.resize(_name bytea, _change text, _size bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    l    holdfast.lock := holdfast.open('semaphore', _name, _size);
    _now timestamptz := clock_timestamp();
    c    holdfast.claim;
BEGIN
    IF holdfast.buried(l, _now, _change) THEN
        RETURN; -- a repeat
    END IF;
    PERFORM holdfast.bury(l, _now, _change);
    UPDATE holdfast.lock k SET size = _size, resized = true WHERE k.kind = l.kind AND k.name = l.name;
    l.size := _size;
    FOR c IN DELETE FROM holdfast.claim k WHERE k.lock = l.id AND NOT k.held AND k.weight > _size RETURNING * LOOP
        PERFORM holdfast.tell(c.client, 'ask ' || c.token);
    END LOOP;
    PERFORM holdfast.serve(l, _now, NULL, NULL);
END
$$;

-- force.sql: takes a lock from all who hold it, and tells them. It tells whether anybody did.
CREATE FUNCTION holdfast.force(_kind text, _name bytea) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    l    holdfast.lock := holdfast.open(_kind, _name, NULL);
    _now timestamptz := clock_timestamp();
    c    holdfast.claim;
    _tag text;
    held boolean := false;
BEGIN
    FOR c IN SELECT * FROM holdfast.claim k WHERE k.lock = l.id AND k.held AND k.until > _now LOOP
        PERFORM holdfast.bury(l, _now, c.token);
        PERFORM holdfast.leave(l, _now, c.token);
        PERFORM holdfast.tell(c.client, 'lost ' || c.token);
        _tag := coalesce(_tag, c.tag);
        held := true;
    END LOOP;
    PERFORM holdfast.serve(l, _now, NULL, _tag);
    RETURN held;
END
$$;

-- raise.sql: makes the number of a lease at least _fence, with as many from it on as _fences
-- says, and returns its number; NULL if the token does not hold the lock.
CREATE FUNCTION holdfast.raise(_kind text, _name bytea, _token text, _fence bigint, _fences bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    l     holdfast.lock := holdfast.open(_kind, _name, NULL);
    _now  timestamptz := clock_timestamp();
    c     holdfast.claim;
    _last bigint;
BEGIN
    SELECT * INTO c FROM holdfast.claim k WHERE k.lock = l.id AND k.token = _token AND k.held AND k.until > _now;
    IF c.fence < _fence THEN
        -- What only this lease was given it may be given once more.
        c.fence := CASE WHEN l.fence = c.last THEN _fence ELSE greatest(l.fence + 1, _fence) END;
        _last := c.fence + _fences - 1;
        UPDATE holdfast.claim k SET fence = c.fence, fences = _fences, last = _last
        WHERE k.lock = l.id AND k.token = _token;
        UPDATE holdfast.lock k SET fence = greatest(k.fence, _last) WHERE k.kind = _kind AND k.name = _name;
    END IF;
    RETURN c.fence;
END
$$;

-- inspect.sql: who holds a lock and who waits, a row for each in the order of their grants and
-- places. If there is nobody, but the lock is known, it is one row of NULLs and the size.
-- It changes nothing and waits for nobody.
CREATE FUNCTION holdfast.inspect(_kind text, _name bytea)
RETURNS TABLE (held boolean, shared boolean, weight bigint, owner bytea, holder text, since timestamptz,
    fence bigint, last bigint, remaining interval, size bigint, resized boolean)
LANGUAGE sql AS $$
    SELECT c.held, c.shared, c.weight, c.owner, c.holder, c.since, c.fence, c.last, c.until - t.now, l.size, l.resized
      FROM (SELECT clock_timestamp() AS now) t, holdfast.lock l
      LEFT JOIN holdfast.claim c ON c.lock = l.id AND c.until > clock_timestamp()
     WHERE l.kind = _kind AND l.name = _name
     ORDER BY c.held DESC, CASE WHEN NOT c.held THEN c.place END, c.since, c.fence
$$;

-- sweep.sql: deletes what nobody needs any more, of up to 100 locks, and returns how many it
-- has looked at. It looks at each once a minute and forgets a lock that nobody has used from
-- one look to the next. A row that is in use it leaves alone.
--
-- A lock must stay for as long as its last number is not a minute old: then the clock may be
-- set back by a minute, and the number is not given again.
CREATE FUNCTION holdfast.sweep() RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    l      holdfast.lock;
    s      holdfast.state;
    _now   timestamptz := clock_timestamp();
    unused boolean;
    n      integer := 0;
BEGIN
    FOR l IN SELECT * FROM holdfast.lock k WHERE k.look <= _now ORDER BY k.look LIMIT 100 FOR UPDATE SKIP LOCKED LOOP
        n := n + 1;
        _now := clock_timestamp(); -- The row is ours only now.
        s := holdfast.serve(l, _now, NULL, NULL);
        DELETE FROM holdfast.claim c WHERE c.lock = l.id AND NOT c.held AND c.until <= _now;
        DELETE FROM holdfast.tombstone t WHERE t.lock = l.id AND t.until <= _now;
        unused := NOT EXISTS (SELECT FROM holdfast.claim c WHERE c.lock = l.id)
              AND NOT EXISTS (SELECT FROM holdfast.tombstone t WHERE t.lock = l.id);
        IF unused AND l.idle = l.fence AND l.fence < extract(epoch FROM _now - interval '1 minute') * 1000000 THEN
            DELETE FROM holdfast.lock k WHERE k.kind = l.kind AND k.name = l.name;
        ELSE
            UPDATE holdfast.lock k SET look = _now + interval '1 minute', idle = CASE WHEN unused THEN s.given END
            WHERE k.kind = l.kind AND k.name = l.name;
        END IF;
    END LOOP;
    RETURN n;
END
$$;

-- fenced.sql: for transactions of the program itself, in this database. It fails unless the lock
-- is held with that fence, and sees to it that nobody else gets the lock before the transaction
-- has ended, whatever becomes of the lease:
--
--     BEGIN;
--     SELECT holdfast.fenced('orders:42', 1789000000000000);
--     UPDATE orders SET ... WHERE id = 42;
--     COMMIT;
--
-- The lock on the row of the holder is one that renewals need not wait for. Only its deletion
-- does, see expire and leave, and without that nobody else is granted the lock.
CREATE FUNCTION holdfast.fenced(_name text, _fence bigint, _kind text DEFAULT 'mutex') RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM holdfast.lock l JOIN holdfast.claim c ON c.lock = l.id
      WHERE l.kind = _kind AND l.name = convert_to(_name, 'UTF8') AND c.held
        AND _fence BETWEEN c.fence AND c.last AND c.until > clock_timestamp()
        FOR KEY SHARE OF c;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'holdfast: % "%" is not held with fence %', _kind, _name, _fence
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
$$;

