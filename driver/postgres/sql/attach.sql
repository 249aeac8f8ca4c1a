-- attach.sql: puts a token in the place of another that holds the lock, with a new grant.
-- fence is NULL if the other does not hold it. A repeat is answered as the first time. It fails
-- for now while a transaction counts on the other, see fenced.sql: that would end too late.
CREATE OR REPLACE FUNCTION holdfast.attach(
    _kind text, _name bytea, _old text, _token text, _ask bigint, _ttl interval, _fences bigint,
    _notice boolean, _holder text, _client text, _listener integer,
    OUT fence bigint, OUT fences bigint, OUT shared boolean, OUT weight bigint, OUT owner bytea)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
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
        WHERE k.lock = l.id AND k.token = _old AND k.held AND k.until > _now FOR UPDATE NOWAIT;
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
