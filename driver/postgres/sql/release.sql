-- release.sql: gives up what a token holds, or its place in the queue. _unsettled says that some
-- ask of it may still come. It tells whether the token had anything.
CREATE FUNCTION holdfast.release(_kind text, _name bytea, _token text, _tag text, _unsettled boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
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
    IF NOT s.granted AND NOT _unsettled AND (NOT c.held OR c.until < _now + interval '1 minute') THEN
        PERFORM holdfast.lazily(); -- If this is undone, the lease ends by itself.
    END IF;
    RETURN had;
END
$$;
