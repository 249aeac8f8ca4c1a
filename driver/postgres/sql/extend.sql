-- extend.sql: renews one lease and gives it more numbers, beyond all that were given. wanted
-- tells whether somebody waits, and is NULL if the token does not hold the lock.
CREATE OR REPLACE FUNCTION holdfast.extend(_kind text, _name bytea, _token text, _ttl interval, _fences bigint,
    OUT wanted boolean, OUT fence bigint, OUT fences bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
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
