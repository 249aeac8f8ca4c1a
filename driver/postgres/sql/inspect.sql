-- inspect.sql: who holds a lock and who waits, a row for each in the order of their grants and
-- places. If there is nobody, but the lock is known, it is one row of NULLs and the size.
-- It changes nothing and waits for nobody.
CREATE OR REPLACE FUNCTION holdfast.inspect(_kind text, _name bytea)
RETURNS TABLE (held boolean, shared boolean, weight bigint, owner bytea, holder text, since timestamptz,
    fence bigint, last bigint, remaining interval, size bigint, resized boolean)
LANGUAGE sql AS $$
    SELECT c.held, c.shared, c.weight, c.owner, c.holder, c.since, c.fence, c.last, c.until - t.now, l.size, l.resized
      FROM (SELECT clock_timestamp() AS now) t, holdfast.lock l
      LEFT JOIN holdfast.claim c ON c.lock = l.id AND c.until > clock_timestamp()
     WHERE l.kind = _kind AND l.name = _name
     ORDER BY c.held DESC, CASE WHEN NOT c.held THEN c.place END, c.since, c.fence
$$;
