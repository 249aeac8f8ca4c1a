-- downgrade.sql: lets a holder keep no more than a weight, and others have the rest. status is
-- done, unheld, or owned: others of its owner may count on all of it. It fails for now while a
-- transaction counts on all of it, see fenced.sql.
CREATE OR REPLACE FUNCTION holdfast.downgrade(_kind text, _name bytea, _token text, _shared boolean, _weight bigint, OUT status text)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
    l    holdfast.lock := holdfast.open(_kind, _name, NULL);
    _now timestamptz := clock_timestamp();
    c    holdfast.claim;
BEGIN
    SELECT * INTO c FROM holdfast.claim k WHERE k.lock = l.id AND k.token = _token AND k.held AND k.until > _now
    FOR UPDATE NOWAIT;
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
