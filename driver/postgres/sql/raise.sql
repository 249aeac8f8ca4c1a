-- raise.sql: makes the number of a lease at least _fence, with as many from it on as _fences
-- says, and returns its number; NULL if the token does not hold the lock.
CREATE OR REPLACE FUNCTION holdfast.raise(_kind text, _name bytea, _token text, _fence bigint, _fences bigint) RETURNS bigint
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
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
