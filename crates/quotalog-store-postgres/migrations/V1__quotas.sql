-- Ids are compared and ordered by their bytes, whatever the database's own collation is.

-- A row for every pair that has a policy or was counted: it is the pair's mutex. Where no policy of its own
-- serves the pair, all but the key is NULL, and the row goes with the pair's last row of usage.
CREATE TABLE quota_policies (
    user_id text COLLATE "C" NOT NULL, resource text COLLATE "C" NOT NULL,
    "window" text COLLATE "C", limit_count bigint,
    created_at timestamptz, updated_at timestamptz,
    PRIMARY KEY (user_id, resource));

-- The pairs of one resource, in the order of their users.
CREATE INDEX quotalog_policies_by_resource ON quota_policies (resource, user_id);

-- Room on each page for the next version of its rows, so that counting touches no index.
CREATE TABLE quota_usage (
    user_id text COLLATE "C" NOT NULL, resource text COLLATE "C" NOT NULL,
    window_start timestamptz NOT NULL, usage bigint NOT NULL,
    created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL,
    PRIMARY KEY (user_id, resource, window_start)) WITH (fillfactor = 70);

-- The oldest rows, for pruning alone: an index on an expression, as all that are by age, so that the planner never
-- takes it for a lookup by key, to which it may look as good while the table is small.
CREATE INDEX quotalog_usage_by_age ON quota_usage ((window_start AT TIME ZONE 'UTC'));

CREATE TABLE quotalog_defaults (
    resource text COLLATE "C" PRIMARY KEY,
    "window" text COLLATE "C" NOT NULL, limit_count bigint NOT NULL,
    created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL);

CREATE TABLE quotalog_tokens (
    id text COLLATE "C" PRIMARY KEY, place bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    hash bytea NOT NULL UNIQUE, role text COLLATE "C" NOT NULL,
    user_id text COLLATE "C", name text COLLATE "C",
    created_at timestamptz NOT NULL, expires_at timestamptz);

-- The tokens of one user, for its erasure.
CREATE INDEX quotalog_tokens_by_user ON quotalog_tokens (user_id) WHERE user_id IS NOT NULL;
-- The tokens that expired first, for pruning.
CREATE INDEX quotalog_tokens_by_age ON quotalog_tokens ((expires_at AT TIME ZONE 'UTC'))
    WHERE expires_at IS NOT NULL;

-- One row; every change of a token locks it, and makes it another number.
CREATE TABLE quotalog_token_generation (
    id integer PRIMARY KEY CHECK (id = 1), generation bigint NOT NULL);
INSERT INTO quotalog_token_generation (id, generation) VALUES (1, 1);

-- Where a scope has no user, resource or caller, the column is empty: no id is. The place tells what was kept
-- before an erasure from what was kept after it.
CREATE TABLE quotalog_idempotency_keys (
    user_id text COLLATE "C" NOT NULL, resource text COLLATE "C" NOT NULL,
    operation text COLLATE "C" NOT NULL, caller text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL,
    kept_at timestamptz NOT NULL, kept bytea NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (user_id, resource, operation, caller, key));
CREATE INDEX quotalog_idempotency_keys_by_age ON quotalog_idempotency_keys ((kept_at AT TIME ZONE 'UTC'));

-- Erasures that are not finished. Still to go are the user's usage from before that day, and of the answers
-- that are kept for callers and have a place before that one those that name the user. The last three columns
-- tell where the search through these goes on.
CREATE TABLE quotalog_erasures (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, user_id text COLLATE "C" NOT NULL,
    day_start timestamptz NOT NULL, kept_before bigint NOT NULL,
    after_operation text COLLATE "C" NOT NULL, after_caller text COLLATE "C" NOT NULL,
    after_key text COLLATE "C" NOT NULL);

-- Who changed what. Every index also holds the id, which is the order of all lists, and of pruning.
CREATE TABLE quotalog_audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL,
    actor_kind text COLLATE "C" NOT NULL, actor_id text NOT NULL, actor_name text,
    action text COLLATE "C" NOT NULL, user_id text COLLATE "C", resource text COLLATE "C",
    before text, after text);
CREATE INDEX quotalog_audit_by_user ON quotalog_audit (user_id, id);
CREATE INDEX quotalog_audit_by_resource ON quotalog_audit (resource, id);
CREATE INDEX quotalog_audit_by_pair ON quotalog_audit (user_id, resource, id);

-- One row: how far the clock was believed when it was last looked at, and since when it claims to be far
-- ahead of that. Pruning goes by it.
CREATE TABLE quotalog_clock (
    id integer PRIMARY KEY CHECK (id = 1), seen_at timestamptz NOT NULL, leapt_at timestamptz);
