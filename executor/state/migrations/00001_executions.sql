-- +goose Up
-- Of package store. Times are nanoseconds since 1970. The directories of executions say
-- all of this as well, but for keys, which outlive them.
CREATE TABLE execution (
  id       TEXT PRIMARY KEY,
  tenant   TEXT NOT NULL,
  accepted INTEGER NOT NULL,
  finished INTEGER NOT NULL DEFAULT 0, -- 1 once there is a result
  task_id  TEXT NOT NULL,
  agent    TEXT NOT NULL,
  policy   TEXT NOT NULL,
  meta     TEXT NOT NULL,              -- JSON, store.Meta
  outcome  TEXT NOT NULL DEFAULT '',   -- JSON, api.Outcome, of a finished one
  bytes    INTEGER NOT NULL DEFAULT 0  -- on disk, of a finished one
) WITHOUT ROWID;
CREATE INDEX execution_listed ON execution (tenant, id, bytes);
CREATE INDEX execution_of_task ON execution (tenant, task_id, id);
CREATE INDEX execution_ended ON execution (finished, accepted, id);

-- What an Idempotency-Key of a tenant's stands for, also once the execution is kept no longer.
CREATE TABLE idempotency_key (
  tenant    TEXT NOT NULL,
  key       TEXT NOT NULL,
  execution TEXT NOT NULL,
  body      TEXT NOT NULL, -- the digest of what was asked
  expires   INTEGER NOT NULL,
  PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_key_expires ON idempotency_key (expires);

-- What models have cost, also once the execution is kept no longer.
CREATE TABLE spending (
  execution TEXT PRIMARY KEY,
  tenant    TEXT NOT NULL,
  ended     INTEGER NOT NULL,
  cost_usd  REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX spending_of_tenant ON spending (tenant, ended, cost_usd);
CREATE INDEX spending_ended ON spending (ended);
