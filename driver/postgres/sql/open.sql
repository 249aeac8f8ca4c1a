-- open.sql: the row of a lock, for this transaction alone. If there is none it is made, should
-- _size say with what size; else all of the answer is NULL.
--
-- It relies on READ COMMITTED: what a statement sees is what others had committed when the
-- row became ours, not when they were still at it.
--
-- Every function that calls it has the planner use indexes alone. In a table of many dead rows
-- and few others a sequential scan seems cheap, as soon as the server has counted them, or one
-- index and a sort instead of the index of the queue. But the dead pile up until VACUUM, and
-- a bitmap scan does not mark the entries of an index that are dead, as an index scan does.
-- What is avoided has a price of 10^10. Where it cannot be avoided, as behind a lock that is not
-- there, the server would compile the plan for that price, for 300 ms. Nor does it need a plan for
-- each value: by itself it makes five of every statement before it keeps one, and so a session has
-- its first five calls take ten times as long.
CREATE OR REPLACE FUNCTION holdfast.open(_kind text, _name bytea, _size bigint) RETURNS holdfast.lock
LANGUAGE plpgsql AS $$
DECLARE
    l holdfast.lock;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'holdfast needs the isolation level READ COMMITTED, not %',
            upper(current_setting('transaction_isolation'))
            USING HINT = 'Set default_transaction_isolation for the connections of its pool.';
    END IF;
    IF current_setting('client_min_messages') = 'error' THEN
        PERFORM set_config('client_min_messages', 'warning', true); -- A commit may have to warn, see calls.go.
    END IF;
    LOOP
        SELECT * INTO l FROM holdfast.lock k WHERE k.kind = _kind AND k.name = _name FOR UPDATE;
        IF FOUND OR _size IS NULL THEN
            RETURN l;
        END IF;
        INSERT INTO holdfast.lock (kind, name, size, look)
        VALUES (_kind, _name, _size, clock_timestamp() + interval '1 minute')
        ON CONFLICT DO NOTHING; -- somebody else may be faster
    END LOOP;
END
$$;
