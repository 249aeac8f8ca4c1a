-- steal.sql: takes a lock from all who hold it, for a token that holds it next, with nobody in
-- between. Those who wait keep their places. fence is NULL if the token had stolen it before and
-- has it no more, or was given up. A repeat is answered as the first time. It fails for now while
-- a transaction counts on a lease, see fenced.sql: that would end too late.
CREATE OR REPLACE FUNCTION holdfast.steal(
    _kind text, _name bytea, _token text, _ask bigint, _ttl interval, _fences bigint, _weight bigint, _owner bytea,
    _holder text, _client text, _listener integer, OUT fence bigint, OUT fences bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
    l    holdfast.lock := holdfast.open(_kind, _name, _weight);
    _now timestamptz := clock_timestamp();
    s    holdfast.state;
    c    holdfast.claim;
BEGIN
    UPDATE holdfast.claim k SET
        ttl = greatest(k.ttl, _ttl), until = greatest(k.until, holdfast.until(_now, _ttl)), ask = greatest(k.ask, _ask)
    WHERE k.lock = l.id AND k.token = _token AND k.held AND k.until > _now RETURNING * INTO c;
    IF NOT FOUND THEN
        IF holdfast.buried(l, _now, _token) THEN
            RETURN;
        END IF;
        FOR c IN SELECT * FROM holdfast.claim k WHERE k.lock = l.id AND k.held FOR UPDATE NOWAIT LOOP
            DELETE FROM holdfast.claim k WHERE k.lock = l.id AND k.token = c.token;
            IF c.until > _now THEN
                PERFORM holdfast.bury(l, _now, c.token);
                PERFORM holdfast.tell(c.client, concat('stolen ', c.token, ' ', regexp_replace(left(_holder, 1000), '[[:cntrl:]]', ' ', 'g')));
            END IF;
        END LOOP;
        -- A token steals once. The wrong version leaves no tombstone of its own: a repeat that comes
        -- when its lease is over steals from the next holder.
        PERFORM holdfast.bury(l, _now, _token);
        c := NULL;
        c.lock := l.id;
        c.token := _token;
        c.shared := false;
        c.weight := _weight;
        c.owner := _owner;
        c.ttl := _ttl;
        c.ask := _ask;
        c.wants := _fences;
        c.notice := false;
        c.holder := _holder;
        c.client := _client;
        c.listener := _listener;
        s := holdfast.give(holdfast.holders(l, _now), c, _now);
        c.fence := s.fence;
        c.fences := s.fences;
        UPDATE holdfast.lock k SET fence = s.given, size = _weight WHERE k.kind = _kind AND k.name = _name;
        l.fence := s.given;
        l.size := _weight;
        PERFORM holdfast.serve(l, _now, NULL, NULL); -- The next lease to end is another now.
    END IF;
    fence := c.fence;
    fences := c.fences;
END
$$;
