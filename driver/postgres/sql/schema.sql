-- schema.sql: the tables. A lock is a row of lock; a token that holds it or waits for it is a
-- row of claim. Every function locks the row of its lock first, so what happens to one lock
-- happens one after the other. The names of locks and owners may be any bytes.

-- Only a user that may create schemas may say IF NOT EXISTS.
DO $$
BEGIN
    IF to_regnamespace('holdfast') IS NULL THEN
        CREATE SCHEMA holdfast;
    END IF;
END
$$;

CREATE TABLE holdfast.version (version integer NOT NULL);

CREATE TABLE holdfast.lock (
    id      bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    kind    text        NOT NULL,           -- mutex, rwmutex or semaphore
    name    bytea       NOT NULL,
    fence   bigint      NOT NULL DEFAULT 0, -- the last number that was given
    size    bigint      NOT NULL,           -- what the weights of all holders may come to
    resized boolean     NOT NULL DEFAULT false, -- the size is not for requests to say
    look    timestamptz NOT NULL,           -- when sweep will look at this row
    idle    bigint,                         -- the fence at its last look, if nobody was here
    PRIMARY KEY (kind, name)
) WITH (fillfactor = 50);                   -- room for new versions of a row beside the old one

CREATE INDEX lock_look ON holdfast.lock (look);

CREATE TABLE holdfast.claim (
    lock     bigint      NOT NULL, -- lock.id
    token    text        NOT NULL,
    held     boolean     NOT NULL, -- else it waits
    shared   boolean     NOT NULL,
    weight   bigint      NOT NULL,
    owner    bytea,                -- of an exclusive claim that has one
    ttl      interval    NOT NULL, -- the longest that it has named
    until    timestamptz NOT NULL, -- the end of the lease; of a waiter, of the patience with its silence
    ask      bigint      NOT NULL, -- the highest that was handled
    wants    bigint      NOT NULL, -- so many numbers at most
    notice   boolean     NOT NULL, -- the holder is told when somebody waits
    holder   text        NOT NULL, -- for people
    client   text,                 -- whose channel hears of it, NULL for none
    listener integer,              -- whose session serves that channel, see hear; NULL if that is not sure
    tag      text,                 -- what the holder says of itself
    place    bigint,               -- in the queue
    asks     timestamptz,          -- when a waiter will ask again at the latest
    since    timestamptz,          -- of a holder, as is all that follows
    fence    bigint,               -- the first number of the grant
    fences   bigint,               -- how many the grant had
    last     bigint,               -- the last that the holder may use
    PRIMARY KEY (lock, token)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE INDEX claim_holders ON holdfast.claim (lock) WHERE held;
CREATE INDEX claim_queue ON holdfast.claim (lock, place) WHERE NOT held;

-- Places are never used again, so a waiter can return to the one it had.
CREATE SEQUENCE holdfast.place;

-- Tokens that were given up. An ask of theirs that comes later acquires nothing.
CREATE TABLE holdfast.tombstone (
    lock  bigint      NOT NULL,
    token text        NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (lock, token)
);

-- state is what a function knows of a lock, see serve.sql.
CREATE TYPE holdfast.state AS (
    used    bigint,      -- the weight of all holders
    ends    timestamptz, -- when the next of their leases ends; NULL if there is no holder
    tag     text,        -- of a holder that has one
    owner   bytea,       -- of those who hold the lock together
    fence   bigint,      -- their number, or that of the grant that was made last
    fences  bigint,      -- how many that one had
    last    bigint,
    stale   boolean,     -- some of the leases are over
    given   bigint,      -- the last number that was given
    granted boolean,     -- this transaction has made somebody a holder
    queue   boolean,     -- somebody waits,
    next    text         -- for this one to be served: its token
);
