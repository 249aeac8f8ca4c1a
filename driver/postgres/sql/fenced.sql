-- fenced.sql: for transactions of the program itself, in this database. It fails unless the lock
-- is held with that fence, and sees to it that nobody else gets the lock before the transaction
-- has ended, whatever becomes of the lease:
--
--     BEGIN;
--     SELECT holdfast.fenced('orders:42', 1789000000000000);
--     UPDATE orders SET ... WHERE id = 42;
--     COMMIT;
--
-- The lock on the row of the holder is one that renewals need not wait for. Only its deletion
-- does, see expire and leave, and without that nobody else is granted the lock.
CREATE OR REPLACE FUNCTION holdfast.fenced(_name text, _fence bigint, _kind text DEFAULT 'mutex') RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
BEGIN
    PERFORM FROM holdfast.lock l JOIN holdfast.claim c ON c.lock = l.id
      WHERE l.kind = _kind AND l.name = convert_to(_name, 'UTF8') AND c.held
        AND _fence BETWEEN c.fence AND c.last AND c.until > clock_timestamp()
        FOR KEY SHARE OF c;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'holdfast: % "%" is not held with fence %', _kind, _name, _fence
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
$$;
