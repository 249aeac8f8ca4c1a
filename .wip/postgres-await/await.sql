-- await.sql: lets a waiter of a crowd wait in the server. PostgreSQL rouses each session of the database
-- that listens to anything for each NOTIFY; here one session is roused when the lock passes on.
--
-- The waiters of a lock come to the turnstile one after the other, and the first looks for its grant each
-- millisecond. While it holds the advisory lock on its place, served sends it no news. It must ask
-- again if it leaves without the grant: the ask locks the row of the lock, as a grant does, so either
-- the ask finds the grant, or the grant finds that nobody looks. With that, nothing here has to be
-- right: not the order at the turnstile, nor that a session in it is still of use to anybody.
--
-- news is what hear in token.go understands, NULL if news comes by NOTIFY as ever. Nobody looks behind a
-- holder that keeps the lock for longer than 50 ms: then NOTIFY costs little, and all leave the turnstile.
-- That also frees their connections, should the holder need one to release the lock.
CREATE OR REPLACE FUNCTION holdfast.await(_kind text, _name bytea, _token text, OUT backend integer, OUT news text)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    _lock bigint := (SELECT k.id FROM holdfast.lock k WHERE k.kind = _kind AND k.name = _name);
    c     holdfast.claim;
BEGIN
    backend := pg_backend_pid();
    PERFORM pg_advisory_xact_lock(hashtext('holdfast turnstile'), (_lock & 2147483647)::integer);
    LOOP
        SELECT * INTO c FROM holdfast.claim k WHERE k.lock = _lock AND k.token = _token;
        IF c.held THEN
            news := concat_ws(' ', 'granted', _token, c.ask, c.fence, c.fences);
            RETURN;
        END IF;
        IF c.held IS NULL OR holdfast.deaf(c.listener) OR holdfast.replicated() OR NOT EXISTS (
            SELECT FROM holdfast.claim h WHERE h.lock = _lock AND h.held AND h.since > clock_timestamp() - interval '50 ms')
        THEN
            RETURN;
        END IF;
        IF news IS NULL THEN
            PERFORM pg_advisory_xact_lock(hashtext('holdfast'), (c.place & 2147483647)::integer); -- after a grant that is under way
            news := 'ask ' || _token; -- should it leave
        ELSE
            PERFORM pg_sleep(0.001);
        END IF;
    END LOOP;
END
$$;
