-- renew.sql: lets leases last their TTL from now on, and tells of each whether somebody waits
-- for its lock, or NULL if the token does not hold it. Renewals that come together lock their
-- rows in one order, so that they do not wait for each other in a circle.
CREATE OR REPLACE FUNCTION holdfast.renew(_kinds text[], _names bytea[], _tokens text[], _ttls interval[], _tags text[])
RETURNS TABLE (i integer, wanted boolean)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
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
