-- acquire.sql: one ask of a token for a lock. It is idempotent: a token that holds the lock is
-- told its grant again, and one that waits keeps its place.
--
-- status is granted (fence and fences are its numbers), queued (place is where it waits),
-- busy, full (as many wait as _most allows), released (the token was given up before), conflict
-- or exceeded (the size in force is another, or less than the weight). retry is when to ask
-- again, NULL for a heartbeat. To a token that cannot have the lock, holder is the text of the one
-- that has held it longest, held_for for how long, and holder_fence its first number; or it is only
-- behind others that wait.
--
-- Version 1 had no _most. Its clients call this one, without a bound. Those of versions 2 to 5
-- take the results that they know by name.
--
-- The function of an older version is renamed, since its results are others. The wrong version drops
-- it: a call that is under way looks its results up at the end, and fails with an internal error.
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace AND p.proname = 'acquire_before' LOOP
        EXECUTE format('DROP FUNCTION %s', f);
    END LOOP;
    FOR f IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace AND p.proname = 'acquire' LOOP
        EXECUTE format('ALTER FUNCTION %s RENAME TO acquire_before', f);
    END LOOP;
END
$$;
CREATE OR REPLACE FUNCTION holdfast.acquire(
    _kind text, _name bytea, _token text, _ask bigint, _ttl interval, _fences bigint,
    _shared boolean, _weight bigint, _size bigint, _owner bytea, _wait boolean, _notice boolean,
    _holder text, _client text, _listener integer, _place bigint, _most bigint DEFAULT NULL,
    OUT status text, OUT fence bigint, OUT fences bigint, OUT place bigint, OUT retry interval,
    OUT tag text, OUT size bigint, OUT behind boolean, OUT holder text, OUT held_for interval, OUT holder_fence bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
    l     holdfast.lock := holdfast.open(_kind, _name, _size);
    _now  timestamptz := clock_timestamp();
    c     holdfast.claim;
    s     holdfast.state;
    known boolean;
    crowded boolean := false;
    back  boolean; -- in the place that it had
    pushed boolean;
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
        ELSIF _wait AND _most IS NOT NULL AND EXISTS (
                SELECT FROM holdfast.claim k WHERE k.lock = l.id AND NOT k.held AND k.until > _now
                ORDER BY k.place OFFSET _most - 1 LIMIT 1) THEN
            crowded := true;
        ELSIF _wait THEN
            IF s.next IS NULL THEN
                s.next := _token;
            END IF;
            back := _place IS NOT NULL AND NOT EXISTS (
                SELECT FROM holdfast.claim k WHERE k.lock = l.id AND NOT k.held AND k.place = _place);
            c.place := CASE WHEN back THEN _place ELSE nextval('holdfast.place') END;
            c.asks := least(_now + _ttl / 3, CASE WHEN s.next = _token THEN s.ends END);
            INSERT INTO holdfast.claim VALUES (c.*) ON CONFLICT DO NOTHING; -- Its last lease may have to stay, see leave.
            back := back AND FOUND;
            PERFORM holdfast.tell(h.client, 'wanted ' || h.token)
               FROM holdfast.claim h WHERE h.lock = l.id AND h.held AND h.notice AND h.until > _now;
            IF back THEN -- It may be the first now, and need less than the one that was.
                l.fence := s.given;
                pushed := s.granted;
                s := holdfast.serve(l, _now, _token, NULL);
                s.granted := s.granted OR pushed;
                SELECT * INTO c FROM holdfast.claim k WHERE k.lock = l.id AND k.token = _token;
            END IF;
        END IF;
    END IF;
    tag := s.tag;
    IF c.held THEN
        status := 'granted';
        fence := c.fence;
        fences := c.fences;
        RETURN;
    ELSIF crowded THEN
        status := 'full';
    ELSIF _wait THEN
        status := 'queued';
        place := c.place;
        retry := CASE WHEN s.next = _token THEN s.ends - _now END;
    ELSE
        status := 'busy';
        retry := s.ends - _now;
    END IF;
    behind := c.weight <= l.size - s.used;
    IF NOT behind THEN
        SELECT h.holder, _now - h.since, h.fence INTO holder, held_for, holder_fence
          FROM holdfast.claim h WHERE h.lock = l.id AND h.held ORDER BY h.since, h.fence LIMIT 1;
    END IF;
    IF NOT s.granted THEN
        PERFORM holdfast.lazily(); -- A waiter asks again, and so comes back.
    END IF;
END
$$;
