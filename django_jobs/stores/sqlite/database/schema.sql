-- All tables of the embedded store.  Times are integer milliseconds.
--
-- `jobs` is narrow, because each transition rewrites its row; long values are in tables of their own.  A job is in
-- exactly one of the partial indexes `queued`, `blocked` and `timed`: they are the places.

CREATE TABLE queues (queue TEXT PRIMARY KEY, seq INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;

CREATE TABLE jobs (
    job          INTEGER PRIMARY KEY,
    queue        TEXT    NOT NULL,
    id           TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    state        TEXT    NOT NULL,
    lane         INTEGER NOT NULL DEFAULT 0,   -- 1 = alone, 2 = alone as a suspect
    rank         INTEGER NOT NULL DEFAULT 0,   -- 100 - priority: lower runs first
    seq          INTEGER NOT NULL DEFAULT 0,   -- arrival; negative = handed back, to the front
    since        INTEGER NOT NULL DEFAULT 0,   -- queued: since when it can run
    at           INTEGER,                      -- due, claimed or ended; NULL if the state has no time
    token        INTEGER NOT NULL DEFAULT 0,
    holder       TEXT,
    stop         INTEGER NOT NULL DEFAULT 0,   -- running: asked to stop
    blocked_by   TEXT,                         -- "limit:<key>", "pause:<job name>", "unknown:<job name>" or "ending:<id>"; running: "begin"
    failures     INTEGER NOT NULL DEFAULT 0,
    crashes      INTEGER NOT NULL DEFAULT 0,
    parked_at    INTEGER NOT NULL DEFAULT 0,
    run_ms       INTEGER NOT NULL DEFAULT -1,
    kept_until   INTEGER,
    checkin      BLOB,
    priority     INTEGER NOT NULL,
    alone        INTEGER NOT NULL,
    at_most_once INTEGER NOT NULL,
    expires_at   INTEGER,
    lock         TEXT,
    lock_mode    TEXT,
    lock_for     INTEGER NOT NULL,
    limit_key    TEXT,
    slots        INTEGER NOT NULL,
    keep_for     INTEGER
);
CREATE UNIQUE INDEX ids ON jobs (id, queue);
CREATE INDEX states ON jobs (queue, state);
CREATE INDEX queued ON jobs (queue, lane, rank, seq) WHERE state = 'queued';
CREATE INDEX oldest ON jobs (queue, since) WHERE state = 'queued';
CREATE INDEX blocked ON jobs (queue, blocked_by, rank, seq) WHERE state = 'blocked';
CREATE INDEX timed ON jobs (queue, state, at) WHERE at IS NOT NULL;
CREATE INDEX held ON jobs (queue, holder) WHERE state = 'running';
CREATE INDEX slots ON jobs (queue, limit_key) WHERE state = 'running' AND limit_key IS NOT NULL;
CREATE INDEX trim ON jobs (queue, at) WHERE state = 'succeeded' AND kept_until IS NULL;
CREATE INDEX kept ON jobs (queue, kept_until) WHERE kept_until IS NOT NULL;

CREATE TABLE records (job INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE results (job INTEGER PRIMARY KEY, result BLOB NOT NULL);
CREATE TABLE logs (job INTEGER PRIMARY KEY, lines TEXT NOT NULL);

CREATE TABLE locks (
    queue TEXT NOT NULL, digest TEXT NOT NULL, id TEXT NOT NULL,
    until INTEGER NOT NULL,                    -- 0 = as long as the job is covered
    PRIMARY KEY (queue, digest)
) WITHOUT ROWID;
CREATE INDEX lockers ON locks (queue, id);

CREATE TABLE leases (
    queue TEXT NOT NULL, holder TEXT NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (queue, holder)
) WITHOUT ROWID;
CREATE INDEX lapsing ON leases (queue, until);

-- attempts that were killed and whose process may still be running them: they keep their slot
CREATE TABLE IF NOT EXISTS endings (
    queue TEXT NOT NULL, id TEXT NOT NULL, holder TEXT NOT NULL, token INTEGER NOT NULL, limit_key TEXT,
    PRIMARY KEY (queue, id)
) WITHOUT ROWID;

-- name '' = the queue itself
CREATE TABLE pauses (
    queue TEXT NOT NULL, name TEXT NOT NULL, until INTEGER NOT NULL, since INTEGER NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (queue, name)
) WITHOUT ROWID;

CREATE TABLE fired (
    queue TEXT NOT NULL, schedule TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (queue, schedule)
) WITHOUT ROWID;

-- ids that must not be used again, although their job has left the store
CREATE TABLE IF NOT EXISTS remembered (
    queue TEXT NOT NULL, id TEXT NOT NULL, digest TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT '',            -- how the job ended, once it has left
    at INTEGER NOT NULL,                       -- when it was enqueued, later when it ended
    PRIMARY KEY (queue, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS remembered_at ON remembered (queue, at);

-- jobs that succeeded, returned None and left the history recently, so that callers who ask for one get this answer
CREATE TABLE IF NOT EXISTS returned (
    queue TEXT NOT NULL, id TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (queue, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS returned_at ON returned (queue, at);

-- dead jobs and jobs that wait for a retry, with the signature of their last error (core/signature.py), for lists
CREATE TABLE IF NOT EXISTS failures (
    job INTEGER PRIMARY KEY, queue TEXT NOT NULL, state TEXT NOT NULL, name TEXT NOT NULL, signature TEXT NOT NULL,
    at INTEGER NOT NULL,                       -- as in `jobs`
    failed_at INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS failure_groups ON failures (queue, state, name, signature, at, failed_at);
CREATE TRIGGER IF NOT EXISTS failure_left AFTER UPDATE OF state ON jobs WHEN old.state IN ('dead', 'retry') BEGIN
    DELETE FROM failures WHERE job = old.job;
END;
CREATE TRIGGER IF NOT EXISTS failure_deleted AFTER DELETE ON jobs WHEN old.state IN ('dead', 'retry') BEGIN
    DELETE FROM failures WHERE job = old.job;
END;

-- the same jobs by their tags: a job with several tags has several rows
CREATE TABLE IF NOT EXISTS failure_tags (
    queue TEXT NOT NULL, state TEXT NOT NULL, tag TEXT NOT NULL, at INTEGER NOT NULL, job INTEGER NOT NULL,
    failed_at INTEGER NOT NULL, PRIMARY KEY (queue, state, tag, at, job)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tags_of_failure ON failure_tags (job);
CREATE TRIGGER IF NOT EXISTS failure_tags_left AFTER DELETE ON failures BEGIN
    DELETE FROM failure_tags WHERE job = old.job;
END;

-- jobs whose end is waited for: they stay for a minute after it
CREATE TABLE IF NOT EXISTS waiters (job INTEGER PRIMARY KEY, until INTEGER NOT NULL);

CREATE TABLE totals (
    queue TEXT NOT NULL, event TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (queue, event)
) WITHOUT ROWID;

CREATE TABLE minutes (
    queue TEXT NOT NULL, minute INTEGER NOT NULL, event TEXT NOT NULL, n INTEGER NOT NULL,
    PRIMARY KEY (queue, minute, event)
) WITHOUT ROWID;

-- waiting and running times of the attempts of a job type: numbers with spaces between (core/times.py)
CREATE TABLE IF NOT EXISTS times (
    queue TEXT NOT NULL, name TEXT NOT NULL, slots TEXT NOT NULL, PRIMARY KEY (queue, name)
) WITHOUT ROWID;

-- samples of the totals, for charts (samples/log.py)
CREATE TABLE IF NOT EXISTS samples (
    queue TEXT NOT NULL, field TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (queue, field)
) WITHOUT ROWID;

CREATE TABLE archive (
    key INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, id TEXT NOT NULL, record BLOB NOT NULL,
    state TEXT NOT NULL, failures INTEGER NOT NULL, crashes INTEGER NOT NULL, at INTEGER NOT NULL,
    result BLOB, run_ms INTEGER NOT NULL, lines TEXT NOT NULL
);
CREATE INDEX outbox ON archive (queue);
-- Which archiver empties the outbox of a queue, and until when (ms).
CREATE TABLE IF NOT EXISTS archivers (
    queue TEXT PRIMARY KEY, archiver TEXT NOT NULL, until INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE workers (
    name TEXT PRIMARY KEY, info TEXT NOT NULL, seen_at INTEGER NOT NULL, until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE commands (command_id INTEGER PRIMARY KEY, worker TEXT NOT NULL, command TEXT NOT NULL);
CREATE TABLE documents (
    key TEXT NOT NULL, entry TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (key, entry)
) WITHOUT ROWID;

-- Workflows and batches: one set of fields each (see "A workflow" in docs/contributing/internals.md), and when to check it next.
CREATE TABLE IF NOT EXISTS workflows (
    id TEXT PRIMARY KEY, created INTEGER NOT NULL, due INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS workflows_created ON workflows (created);
CREATE INDEX IF NOT EXISTS workflows_due ON workflows (due);
CREATE TABLE IF NOT EXISTS workflow_fields (
    workflow TEXT NOT NULL, field TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (workflow, field)
) WITHOUT ROWID;

-- jobs that belong to a workflow.  noted: a later step needs the result
CREATE TABLE IF NOT EXISTS steps (job INTEGER PRIMARY KEY, workflow TEXT NOT NULL, noted INTEGER NOT NULL);

-- Jobs of workflows that ended, or wait again after their end, and what has not been made of that yet.  A trigger makes
-- them, so that no method can forget it.
CREATE TABLE IF NOT EXISTS notes (
    note INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, workflow TEXT NOT NULL, id TEXT NOT NULL,
    state TEXT NOT NULL, result BLOB
);
CREATE INDEX IF NOT EXISTS notes_of ON notes (queue);

CREATE TRIGGER IF NOT EXISTS step_moved AFTER UPDATE OF state ON jobs
WHEN old.state IS NOT new.state
    AND (new.state IN ('succeeded', 'dead', 'cancelled', 'expired')
         OR old.state IN ('succeeded', 'dead', 'cancelled', 'expired'))
    AND EXISTS (SELECT 1 FROM steps WHERE job = new.job) BEGIN
    INSERT INTO notes (queue, workflow, id, state, result)
    SELECT new.queue, workflow, new.id,
        CASE WHEN new.state IN ('succeeded', 'dead', 'cancelled', 'expired') THEN new.state ELSE 'live' END,
        CASE WHEN noted AND new.state = 'succeeded'
             THEN ifnull((SELECT result FROM results WHERE results.job = new.job), x'') END
    FROM steps WHERE job = new.job;
END;

CREATE TRIGGER IF NOT EXISTS step_gone AFTER DELETE ON jobs BEGIN
    DELETE FROM steps WHERE job = old.job;
END;

-- How many jobs are in each state, kept by triggers, so that no method can forget it and no page has to count.
-- part: the lane of queued jobs, 1 for succeeded jobs with kept_until, otherwise 0.
-- changes: grows with every change, as the signal to wake up.
CREATE TABLE counts (
    queue TEXT NOT NULL, state TEXT NOT NULL, part INTEGER NOT NULL, n INTEGER NOT NULL,
    changes INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (queue, state, part)
) WITHOUT ROWID;

CREATE TRIGGER job_added AFTER INSERT ON jobs BEGIN
    INSERT INTO counts (queue, state, part, n, changes) VALUES (new.queue, new.state, CASE new.state
        WHEN 'queued' THEN new.lane WHEN 'succeeded' THEN new.kept_until IS NOT NULL ELSE 0 END, 1, 1)
    ON CONFLICT DO UPDATE SET n = n + 1, changes = changes + 1;
END;

CREATE TRIGGER job_moved AFTER UPDATE OF state, lane, kept_until ON jobs
WHEN old.state IS NOT new.state OR old.lane IS NOT new.lane OR old.kept_until IS NOT new.kept_until BEGIN
    UPDATE counts SET n = n - 1, changes = changes + 1
    WHERE queue = old.queue AND state = old.state AND part = CASE old.state
        WHEN 'queued' THEN old.lane WHEN 'succeeded' THEN old.kept_until IS NOT NULL ELSE 0 END;
    INSERT INTO counts (queue, state, part, n, changes) VALUES (new.queue, new.state, CASE new.state
        WHEN 'queued' THEN new.lane WHEN 'succeeded' THEN new.kept_until IS NOT NULL ELSE 0 END, 1, 1)
    ON CONFLICT DO UPDATE SET n = n + 1, changes = changes + 1;
END;

CREATE TRIGGER job_deleted AFTER DELETE ON jobs BEGIN
    UPDATE counts SET n = n - 1, changes = changes + 1
    WHERE queue = old.queue AND state = old.state AND part = CASE old.state
        WHEN 'queued' THEN old.lane WHEN 'succeeded' THEN old.kept_until IS NOT NULL ELSE 0 END;
    DELETE FROM records WHERE job = old.job;
    DELETE FROM results WHERE job = old.job;
    DELETE FROM logs WHERE job = old.job;
END;
