-- +goose Up
-- Of package store: what the first run of a workflow instance was given.
CREATE TABLE workflow_instance (
  tenant     TEXT NOT NULL,
  definition TEXT NOT NULL,
  instance   TEXT NOT NULL,
  version    TEXT NOT NULL,    -- of the definition
  execution  TEXT NOT NULL,    -- the first run
  began      INTEGER NOT NULL,
  last       INTEGER NOT NULL, -- when its last run was accepted
  effective  TEXT NOT NULL,    -- JSON, api.EffectivePolicy
  kept       TEXT NOT NULL,    -- JSON, policy.Kept
  PRIMARY KEY (tenant, definition, instance)
) WITHOUT ROWID;
CREATE INDEX workflow_instance_last ON workflow_instance (last);
