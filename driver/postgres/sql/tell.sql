-- tell.sql: news for a token, on the channel of its client. It is sent when the transaction
-- commits, so nobody hears of what did not happen. The server may refuse it just then, as when its
-- queue is full, and undoes the transaction. So a client can do without, see quietly in calls.go.
CREATE OR REPLACE FUNCTION holdfast.tell(_client text, _news text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF _client IS NOT NULL AND current_setting('holdfast.quiet', true) IS DISTINCT FROM 'on' THEN
        PERFORM pg_notify('holdfast_' || _client, _news);
    END IF;
END
$$;

-- hear gives the session, which serves the channel of a client, a number below zero. An advisory
-- lock on it shows that the session goes on. A pooler drops that lock with the client, although
-- its backend lives.
CREATE OR REPLACE FUNCTION holdfast.hear() RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    n integer;
BEGIN
    LOOP
        n := -1 - floor(random() * 2147483647)::integer;
        IF pg_try_advisory_lock(hashtext('holdfast'), n) THEN
            RETURN n;
        END IF;
    END LOOP;
END
$$;

-- deaf tells whether nobody hears what a client is told, since the session that served its
-- channel has ended. Where none is known it does not know, and says no. Clients of version 1
-- name their backend, which is above zero.
--
-- A look at pg_locks would be dear where there are many locks. The lock that shows that a
-- session has ended is shared, so that others who look at the same time see that, too.
CREATE OR REPLACE FUNCTION holdfast.deaf(_listener integer) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE
        WHEN _listener > 0 THEN NOT EXISTS (SELECT FROM pg_stat_get_activity(_listener))
        WHEN _listener < 0 THEN pg_try_advisory_xact_lock_shared(hashtext('holdfast'), _listener)
        ELSE false
    END;
END
$$;

-- lazily has a transaction not wait for the disk. A crash of the server may undo it. That is for
-- what costs no more than some time then.
CREATE OR REPLACE FUNCTION holdfast.lazily() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
END
$$;

-- replicated tells whether commits wait for standbys, unless a session would rather not.
CREATE OR REPLACE FUNCTION holdfast.replicated() RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN current_setting('synchronous_standby_names') <> '';
END
$$;
