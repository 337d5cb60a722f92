-- +goose Up
-- Of package caller. Times are nanoseconds since 1970, 0 for never.
CREATE TABLE token (
  digest     BLOB PRIMARY KEY, -- SHA-256 of the token, which is kept nowhere
  id         TEXT NOT NULL UNIQUE,
  tenant     TEXT NOT NULL,
  principal  TEXT NOT NULL,
  rights     TEXT NOT NULL,    -- words, with spaces between them
  created    INTEGER NOT NULL,
  created_by TEXT NOT NULL,
  expires    INTEGER NOT NULL,
  revoked    INTEGER NOT NULL DEFAULT 0,
  used       INTEGER NOT NULL DEFAULT 0 -- to the hour
) WITHOUT ROWID;
CREATE INDEX token_of_tenant ON token (tenant, created);
