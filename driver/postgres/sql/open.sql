-- open.sql: the row of a lock, for this transaction alone. If there is none it is made, should
-- _size say with what size; else all of the answer is NULL.
--
-- It relies on READ COMMITTED: what a statement sees is what others had committed when the
-- row became ours, not when they were still at it.
CREATE FUNCTION holdfast.open(_kind text, _name bytea, _size bigint) RETURNS holdfast.lock
LANGUAGE plpgsql AS $$
DECLARE
    l holdfast.lock;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'holdfast needs the isolation level READ COMMITTED, not %',
            upper(current_setting('transaction_isolation'))
            USING HINT = 'Set default_transaction_isolation for the connections of its pool.';
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
