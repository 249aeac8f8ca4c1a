-- time.sql: what follows from the server's clock, which is read once the row of the lock is ours.

-- until is the end of a lease that is granted or renewed now: a little later than its holder
-- trusts it.
CREATE OR REPLACE FUNCTION holdfast.until(_now timestamptz, _ttl interval) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT _now + _ttl + least(greatest(_ttl / 20, interval '5 ms'), interval '500 ms')
$$;

-- patience is how long a waiter may be silent that has just asked.
CREATE OR REPLACE FUNCTION holdfast.patience(_now timestamptz, _ttl interval) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT _now + _ttl * 2 / 3
$$;

-- fences returns the first and the last of at most _n new numbers: microseconds that the clock
-- has shown since the number _given was given. If the clock was set back it is the next number.
CREATE OR REPLACE FUNCTION holdfast.fences(_given bigint, _now timestamptz, _n bigint, OUT first bigint, OUT last bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    us bigint := extract(epoch FROM _now) * 1000000;
BEGIN
    first := greatest(_given + 1, us - _n + 1);
    last := greatest(first, us);
END
$$;
