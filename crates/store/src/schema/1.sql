-- Version 1. People and other crates refer to a session by `id`; rows refer to it by `n`.
CREATE TABLE sessions (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    key TEXT NOT NULL,
    source TEXT NOT NULL,
    person TEXT NOT NULL,
    model TEXT NOT NULL,
    provider TEXT NOT NULL,
    parent INTEGER REFERENCES sessions (n) ON DELETE SET NULL,
    lineage TEXT,
    title TEXT UNIQUE,
    cwd TEXT,
    started INTEGER NOT NULL,
    touched INTEGER NOT NULL,
    ended INTEGER,
    end_reason TEXT,
    last_seq INTEGER NOT NULL DEFAULT 0,
    api_calls INTEGER NOT NULL DEFAULT 0,
    input INTEGER NOT NULL DEFAULT 0,
    cache_read INTEGER NOT NULL DEFAULT 0,
    cache_write INTEGER NOT NULL DEFAULT 0,
    output INTEGER NOT NULL DEFAULT 0,
    reasoning INTEGER NOT NULL DEFAULT 0,
    cost INTEGER NOT NULL DEFAULT 0,
    cost_status TEXT NOT NULL DEFAULT 'none',
    archived INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX sessions_by_use ON sessions (touched, n);
CREATE INDEX sessions_by_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_by_key ON sessions (key, n);

-- Separate from `sessions`, whose rows change with every step: SQLite rewrites a changed row as a
-- whole.
CREATE TABLE prompts (
    session INTEGER PRIMARY KEY REFERENCES sessions (n) ON DELETE CASCADE,
    prompt TEXT NOT NULL,
    tools TEXT NOT NULL,
    sum INTEGER NOT NULL
) STRICT;

CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    role TEXT NOT NULL,
    at INTEGER NOT NULL,
    undone INTEGER,
    sum INTEGER NOT NULL,
    finish TEXT,
    usage TEXT,
    rest TEXT,
    text TEXT NOT NULL,
    UNIQUE (session, seq)
) STRICT;

-- The text is stored once, in `messages`; these contentless tables only index it. `words` covers
-- scripts with spaces between words; `pairs` has the bigrams of scripts without spaces.
CREATE VIRTUAL TABLE words USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE pairs USING fts5 (
    text, content = '', contentless_delete = 1, detail = none, tokenize = 'unicode61 remove_diacritics 0'
);

CREATE TABLE turns (
    n INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
    started INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    steps INTEGER NOT NULL DEFAULT 0,
    holder TEXT NOT NULL,
    ended INTEGER,
    exit TEXT
) STRICT;
CREATE UNIQUE INDEX open_turns ON turns (session) WHERE ended IS NULL;
CREATE INDEX turns_by_session ON turns (session);

CREATE TABLE questions (
    id TEXT PRIMARY KEY,
    session INTEGER REFERENCES sessions (n) ON DELETE CASCADE,
    key TEXT NOT NULL,
    turn INTEGER,
    call TEXT,
    stored TEXT NOT NULL,
    shown TEXT NOT NULL,
    approvers TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'open',
    decided INTEGER,
    decided_by TEXT,
    choice TEXT,
    reason TEXT,
    -- When the answer was acted on.
    used INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX open_questions ON questions (created) WHERE state = 'open';
CREATE INDEX questions_by_session ON questions (session) WHERE session IS NOT NULL;

CREATE TABLE grants (
    id TEXT PRIMARY KEY,
    key TEXT,
    json TEXT NOT NULL,
    given_by TEXT NOT NULL,
    given_at INTEGER NOT NULL,
    revoked_by TEXT,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;

-- One row per day and kind of call, not per call: it stays small for years and outlives the
-- sessions.
CREATE TABLE spending (
    day INTEGER NOT NULL,
    person TEXT NOT NULL,
    source TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    purpose TEXT NOT NULL,
    calls INTEGER NOT NULL,
    input INTEGER NOT NULL,
    cache_read INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    output INTEGER NOT NULL,
    reasoning INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    cost_status TEXT NOT NULL,
    PRIMARY KEY (day, person, source, provider, model, purpose)
) STRICT, WITHOUT ROWID;
