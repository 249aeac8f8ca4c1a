-- tell.sql: news for a token, on the channel of its client. It is sent when the transaction
-- commits, so nobody hears of what did not happen.
CREATE FUNCTION holdfast.tell(_client text, _news text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF _client IS NOT NULL THEN
        PERFORM pg_notify('holdfast_' || _client, _news);
    END IF;
END
$$;

-- deaf tells whether nobody hears what a client is told, since the backend that its channel was
-- served by has gone. Where no backend is known it does not know, and says no.
CREATE FUNCTION holdfast.deaf(_listener integer) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN _listener IS NOT NULL AND NOT EXISTS (SELECT FROM pg_stat_get_activity(_listener));
END
$$;

-- lazily has a transaction not wait for the disk. A crash of the server may undo it. That is for
-- what costs no more than some time then.
CREATE FUNCTION holdfast.lazily() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
END
$$;
