-- resize.sql: sets the size of a semaphore, which is not for requests to say from then on.
-- Waiters that need more are to ask, and are refused then. _change is the token of this change.
CREATE OR REPLACE FUNCTION holdfast.resize(_name bytea, _change text, _size bigint) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
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
