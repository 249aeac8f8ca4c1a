-- release.sql: gives up what a token holds, or its place in the queue. _unsettled says that some
-- ask of it may still come. It tells whether the token had anything.
CREATE OR REPLACE FUNCTION holdfast.release(_kind text, _name bytea, _token text, _tag text, _unsettled boolean) RETURNS boolean
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
    l    holdfast.lock := holdfast.open(_kind, _name, CASE WHEN _unsettled THEN 1 END);
    _now timestamptz := clock_timestamp();
    c    holdfast.claim;
    s    holdfast.state;
    had  boolean;
BEGIN
    IF l.id IS NULL THEN
        RETURN false;
    END IF;
    IF _unsettled THEN
        PERFORM holdfast.bury(l, _now, _token);
    END IF;
    SELECT * INTO c FROM holdfast.claim k WHERE k.lock = l.id AND k.token = _token;
    had := FOUND AND holdfast.leave(l, _now, _token);
    s := holdfast.serve(l, _now, NULL, coalesce(_tag, c.tag));
    IF (NOT s.granted OR holdfast.replicated()) AND NOT _unsettled AND (NOT c.held OR c.until < _now + interval '1 minute') THEN
        -- If this is undone, the lease ends by itself. A waiter that was only told to ask has the
        -- lock once its own commit is safe, and then so is this.
        PERFORM holdfast.lazily();
    END IF;
    RETURN had;
END
$$;
