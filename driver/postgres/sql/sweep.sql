-- sweep.sql: deletes what nobody needs any more, of up to 100 locks, and returns how many it
-- has looked at. It looks at each once a minute and forgets a lock that nobody has used from
-- one look to the next. A row that is in use it leaves alone.
--
-- A lock must stay for as long as its last number is not a minute old: then the clock may be
-- set back by a minute, and the number is not given again.
CREATE OR REPLACE FUNCTION holdfast.sweep() RETURNS integer
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
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
