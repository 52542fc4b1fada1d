-- What people said in chats, kept before the platform is told that it arrived. What was said is taken out when it is answered;
-- the row stays for a while, so that nothing is answered twice.
CREATE TABLE inbox (
    n INTEGER PRIMARY KEY,
    platform TEXT NOT NULL,
    chat TEXT NOT NULL,
    message TEXT NOT NULL,
    key TEXT NOT NULL,
    person TEXT NOT NULL,
    at INTEGER NOT NULL,
    event TEXT NOT NULL,
    -- The turn that answers it.
    turn INTEGER,
    done INTEGER,
    UNIQUE (platform, chat, message)
) STRICT;
CREATE INDEX waiting_letters ON inbox (key, n) WHERE done IS NULL;
CREATE INDEX letters_by_turn ON inbox (turn) WHERE turn IS NOT NULL AND done IS NULL;
CREATE INDEX answered_letters ON inbox (done) WHERE done IS NOT NULL;

-- What is to be said in chats, in parts that are sent one by one. What is said is taken out when it was sent.
CREATE TABLE outbox (
    n INTEGER PRIMARY KEY,
    platform TEXT NOT NULL,
    chat TEXT NOT NULL,
    key TEXT NOT NULL,
    -- What it says is said once, where it has a mark.
    mark TEXT UNIQUE,
    body TEXT NOT NULL,
    created INTEGER NOT NULL,
    -- waiting, trying (nobody knows whether it arrived), sent, failed
    state TEXT NOT NULL DEFAULT 'waiting',
    tries INTEGER NOT NULL DEFAULT 0,
    -- When it was tried last, or ended.
    at INTEGER,
    -- What the platform calls it.
    message TEXT,
    error TEXT
) STRICT;
CREATE INDEX undelivered_parts ON outbox (platform, n) WHERE state IN ('waiting', 'trying');
CREATE INDEX delivered_parts ON outbox (at) WHERE state IN ('sent', 'failed');

-- Threads the bot takes part in, on platforms where it need not be called by its name there.
CREATE TABLE threads (
    platform TEXT NOT NULL,
    thread TEXT NOT NULL,
    seen INTEGER NOT NULL,
    PRIMARY KEY (platform, thread)
) STRICT, WITHOUT ROWID;

-- Strangers who were let in, and those who wait for it. Of a code only its hash is kept.
CREATE TABLE pairings (
    platform TEXT NOT NULL,
    person TEXT NOT NULL,
    name TEXT NOT NULL,
    approved INTEGER NOT NULL,
    PRIMARY KEY (platform, person)
) STRICT, WITHOUT ROWID;
CREATE TABLE pairing_codes (
    platform TEXT NOT NULL,
    person TEXT NOT NULL,
    name TEXT NOT NULL,
    salt BLOB NOT NULL,
    hash BLOB NOT NULL,
    asked INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    PRIMARY KEY (platform, person)
) STRICT, WITHOUT ROWID;
CREATE TABLE pairing_faults (
    platform TEXT PRIMARY KEY,
    wrong INTEGER NOT NULL,
    locked_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Where each platform delivers what belongs to no chat.
CREATE TABLE homes (
    platform TEXT PRIMARY KEY,
    chat TEXT NOT NULL,
    set_by TEXT NOT NULL,
    set_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How far each platform was heard, in words of its own.
CREATE TABLE bookmarks (
    platform TEXT PRIMARY KEY,
    place TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
