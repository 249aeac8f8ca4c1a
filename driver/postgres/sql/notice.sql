-- notice.sql: has a holder told from now on when somebody waits. It tells whether somebody does,
-- or NULL if the token does not hold the lock.
CREATE OR REPLACE FUNCTION holdfast.notice(_kind text, _name bytea, _token text) RETURNS boolean
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
    l    holdfast.lock := holdfast.open(_kind, _name, NULL);
    _now timestamptz := clock_timestamp();
BEGIN
    UPDATE holdfast.claim c SET notice = true
    WHERE c.lock = l.id AND c.token = _token AND c.held AND c.until > _now;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM holdfast.lazily(); -- A renewal tells of a waiter, too.
    RETURN EXISTS (SELECT FROM holdfast.claim w WHERE w.lock = l.id AND NOT w.held AND w.until > _now);
END
$$;
