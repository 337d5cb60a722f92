-- +goose Up
-- Of package approval. Times are nanoseconds since 1970.
CREATE TABLE approval (
  id         TEXT PRIMARY KEY,
  tenant     TEXT NOT NULL,
  kind       TEXT NOT NULL,
  name       TEXT NOT NULL,
  digest     TEXT NOT NULL, -- of all that decides what it may do
  definition TEXT NOT NULL, -- JSON: what was digested, without secrets
  UNIQUE (tenant, kind, name, digest)
) WITHOUT ROWID;

-- What became of each approval; the last row is its state.
CREATE TABLE approval_transition (
  seq              INTEGER PRIMARY KEY AUTOINCREMENT,
  approval         TEXT NOT NULL REFERENCES approval (id),
  tenant           TEXT NOT NULL,
  state            TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'refused', 'withdrawn')),
  principal        TEXT NOT NULL,
  principal_tenant TEXT NOT NULL,
  time             INTEGER NOT NULL,
  comment          TEXT NOT NULL,
  tier             TEXT NOT NULL
);
CREATE INDEX approval_transition_of ON approval_transition (approval, seq);
CREATE INDEX approval_transition_of_tenant ON approval_transition (tenant, seq);
-- +goose StatementBegin
CREATE TRIGGER approval_transition_stays BEFORE UPDATE ON approval_transition
BEGIN SELECT RAISE(ABORT, 'transitions of approvals are never changed'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER approval_transition_remains BEFORE DELETE ON approval_transition
BEGIN SELECT RAISE(ABORT, 'transitions of approvals are never removed'); END;
-- +goose StatementEnd

-- Who asked for what is not approved: they do not approve it.
CREATE TABLE approval_asker (
  approval  TEXT NOT NULL REFERENCES approval (id),
  principal TEXT NOT NULL,
  PRIMARY KEY (approval, principal)
) WITHOUT ROWID;

-- Pending ones that are still to be announced.
CREATE TABLE approval_delivery (
  seq      INTEGER PRIMARY KEY REFERENCES approval_transition (seq),
  attempts INTEGER NOT NULL DEFAULT 0,
  due      INTEGER NOT NULL
);
CREATE INDEX approval_delivery_due ON approval_delivery (due);
