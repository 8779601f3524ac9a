-- Who changed what. AUTOINCREMENT, so that a place is never given twice. Every index also holds the id, which
-- is the order of all lists.
CREATE TABLE quotalog_audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL,
    actor_kind TEXT NOT NULL, actor_id TEXT NOT NULL, actor_name TEXT,
    action TEXT NOT NULL, user_id TEXT, resource TEXT, before TEXT, after TEXT);
CREATE INDEX quotalog_audit_by_at ON quotalog_audit(at);
CREATE INDEX quotalog_audit_by_user ON quotalog_audit(user_id);
CREATE INDEX quotalog_audit_by_resource ON quotalog_audit(resource);
CREATE INDEX quotalog_audit_by_pair ON quotalog_audit(user_id, resource);

-- The policies of one resource, in the order of their users.
CREATE INDEX quotalog_policies_by_resource ON quota_policies(resource, user_id);

-- The tokens of one user, for its erasure.
CREATE INDEX quotalog_tokens_by_user ON quotalog_tokens(user_id) WHERE user_id IS NOT NULL;
