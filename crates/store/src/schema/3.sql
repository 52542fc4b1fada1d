-- Codes that prove that Hermes wrote a row (`approval_key.rs`). Rows from before have none, so their
-- commands are asked about again.
ALTER TABLE questions ADD COLUMN code BLOB;
ALTER TABLE grants ADD COLUMN code BLOB;
UPDATE grants SET revoked_by = 'migration', revoked_at = unixepoch() WHERE revoked_at IS NULL;
UPDATE questions SET state = 'withdrawn', decided = unixepoch() WHERE state = 'open';
UPDATE questions SET used = unixepoch() WHERE state = 'answered' AND used IS NULL;
