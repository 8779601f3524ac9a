-- The two tables that other programs may have made before us.
CREATE TABLE IF NOT EXISTS quota_policies (
    id INTEGER PRIMARY KEY AUTOINCREMENT, user_id TEXT NOT NULL, resource TEXT NOT NULL,
    window TEXT NOT NULL DEFAULT 'hourly', limit_count INTEGER NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL, UNIQUE(user_id, resource));
CREATE TABLE IF NOT EXISTS quota_usage (
    id INTEGER PRIMARY KEY AUTOINCREMENT, user_id TEXT NOT NULL, resource TEXT NOT NULL,
    window_start TEXT NOT NULL, usage INTEGER NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL, UNIQUE(user_id, resource, window_start));

-- The oldest rows, for pruning. Usage itself is left out, so that counting touches no index.
CREATE INDEX quotalog_usage_by_window_start ON quota_usage(window_start);

CREATE TABLE quotalog_defaults (
    id INTEGER PRIMARY KEY, resource TEXT NOT NULL UNIQUE,
    window TEXT NOT NULL, limit_count INTEGER NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL);

-- AUTOINCREMENT, so that a place in the list is never given twice.
CREATE TABLE quotalog_tokens (
    place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, hash BLOB NOT NULL UNIQUE,
    role TEXT NOT NULL, user_id TEXT, name TEXT,
    created_at TEXT NOT NULL, expires_at TEXT);

-- One row; every change of a token makes it another number.
CREATE TABLE quotalog_token_generation (
    id INTEGER PRIMARY KEY CHECK (id = 1), generation INTEGER NOT NULL);
INSERT INTO quotalog_token_generation (id, generation) VALUES (1, 1);

-- Where a scope has no user, resource or caller, the column is empty: no id is.
CREATE TABLE quotalog_idempotency_keys (
    id INTEGER PRIMARY KEY, user_id TEXT NOT NULL, resource TEXT NOT NULL,
    operation TEXT NOT NULL, caller TEXT NOT NULL, key TEXT NOT NULL,
    kept_at TEXT NOT NULL, kept BLOB NOT NULL,
    UNIQUE(user_id, resource, operation, caller, key));
CREATE INDEX quotalog_idempotency_keys_by_kept_at ON quotalog_idempotency_keys(kept_at);

-- One row: how far the clock was believed when it was last looked at, and since when it claims to be far
-- ahead of that. Pruning goes by it.
CREATE TABLE quotalog_clock (
    id INTEGER PRIMARY KEY CHECK (id = 1), seen_at TEXT NOT NULL, leapt_at TEXT);
