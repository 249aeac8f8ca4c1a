-- force.sql: takes a lock from all who hold it, and tells them. It tells whether anybody did.
CREATE OR REPLACE FUNCTION holdfast.force(_kind text, _name bytea) RETURNS boolean
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
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
