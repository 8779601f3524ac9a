-- Erasures that are not finished. Still to go are the user's usage from before that day, and of the answers
-- that are kept for callers and have row ids up to that one those that name the user. The last three columns
-- tell where the search through these goes on.
-- AUTOINCREMENT, so that whoever waits for one never takes a later one for it.
CREATE TABLE quotalog_erasures (
    id INTEGER PRIMARY KEY AUTOINCREMENT, user_id TEXT NOT NULL,
    day_start TEXT NOT NULL, kept_to INTEGER NOT NULL,
    after_operation TEXT NOT NULL, after_caller TEXT NOT NULL, after_key TEXT NOT NULL);

-- The audit is pruned in the order of its ids.
DROP INDEX quotalog_audit_by_at;

-- The tokens that expired first, for pruning.
CREATE INDEX quotalog_tokens_by_expires_at ON quotalog_tokens(expires_at) WHERE expires_at IS NOT NULL;
