-- Messages received from chats, stored before they are acknowledged to the platform. The content is
-- removed when a message is answered; the row stays for a while, so that nothing is answered twice.
CREATE TABLE inbox (
    n INTEGER PRIMARY KEY,
    platform TEXT NOT NULL,
    chat TEXT NOT NULL,
    message TEXT NOT NULL,
    key TEXT NOT NULL,
    person TEXT NOT NULL,
    at INTEGER NOT NULL,
    event TEXT NOT NULL,
    -- The turn that answers the message.
    turn INTEGER,
    done INTEGER,
    UNIQUE (platform, chat, message)
) STRICT;
CREATE INDEX waiting_letters ON inbox (key, n) WHERE done IS NULL;
CREATE INDEX letters_by_turn ON inbox (turn) WHERE turn IS NOT NULL AND done IS NULL;
CREATE INDEX answered_letters ON inbox (done) WHERE done IS NOT NULL;

-- Outbound chat messages, sent one by one. The content is removed after delivery.
CREATE TABLE outbox (
    n INTEGER PRIMARY KEY,
    platform TEXT NOT NULL,
    chat TEXT NOT NULL,
    key TEXT NOT NULL,
    -- Of several rows with the same mark only the first is sent.
    mark TEXT UNIQUE,
    body TEXT NOT NULL,
    created INTEGER NOT NULL,
    -- waiting, trying (the result is unknown), sent, failed
    state TEXT NOT NULL DEFAULT 'waiting',
    tries INTEGER NOT NULL DEFAULT 0,
    -- The time of the last attempt or of the end.
    at INTEGER,
    -- The platform's message id.
    message TEXT,
    error TEXT
) STRICT;
CREATE INDEX undelivered_parts ON outbox (platform, n) WHERE state IN ('waiting', 'trying');
CREATE INDEX delivered_parts ON outbox (at) WHERE state IN ('sent', 'failed');

-- Threads that the bot joined, where it need not be mentioned.
CREATE TABLE threads (
    platform TEXT NOT NULL,
    thread TEXT NOT NULL,
    seen INTEGER NOT NULL,
    PRIMARY KEY (platform, thread)
) STRICT, WITHOUT ROWID;

-- Paired users, and users waiting for approval. Only the hash of a code is stored.
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

-- The chat of each platform that receives messages which belong to no other chat.
CREATE TABLE homes (
    platform TEXT PRIMARY KEY,
    chat TEXT NOT NULL,
    set_by TEXT NOT NULL,
    set_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How far the events of each platform were processed, in the platform's own terms.
CREATE TABLE bookmarks (
    platform TEXT PRIMARY KEY,
    place TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
