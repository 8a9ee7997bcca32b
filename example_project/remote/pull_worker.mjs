// A pull worker for Node, without any package: fetches jobs, runs them, and reports how they ended.
//
//     JOBS_URL=http://localhost:8000/jobs JOBS_TOKEN=djt_… node pull_worker.mjs QUEUE
//
// Its job computes a checksum: {"text": "abc"} → {"sha256": "ba78…"}.  It prints a line for each job that it runs.  After
// SIGTERM it ends when the jobs that it has are reported; if it has none, at once, whether its claim is answered or not.
import { createHash, randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const url = process.env.JOBS_URL.replace(/\/$/, "");
const token = process.env.JOBS_TOKEN;
const queue = process.argv[2];
// Jobs of one claim, seconds that a claim waits for jobs, and seconds that a confirmed job is ours.
const LIMIT = 5, WAIT = 10, LEASE = 60;
// What this worker calls itself: users see who runs a job.
const NAME = `${hostname()}.${process.pid}`.slice(-64);
// Seconds after which a call is given up.
const PATIENCE = 60;

const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());

// Send the call until it is answered: each call may arrive twice.  Returns status and document, 0 if nobody answers
// or `stopped` is aborted.
async function call(path, body, stopped = new AbortController().signal) {
  const deadline = Date.now() + PATIENCE * 1000;
  for (let pause = 100; ; pause = Math.min(pause * 2, 1000)) {
    try {
      const answer = await fetch(`${url}/v1/${path}`, {
        method: "POST",
        headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
        body: JSON.stringify(body),
        signal: AbortSignal.any([AbortSignal.timeout((WAIT + 10) * 1000), stopped]),
      });
      const text = await answer.text();
      if (answer.status < 500) return [answer.status, JSON.parse(text)];
    } catch {
      // no answer, or half of one
    }
    if (stopped.aborted || Date.now() + pause > deadline) return [0, null];
    await sleep(pause, null, { signal: stopped }).catch(() => {});
  }
}

// Return jobs that are ours.  A new id for each claim: if its answer is lost, the same id gets the same jobs.
async function claim() {
  // After SIGTERM it is given up: what it gets is never confirmed, so it goes back to the queue and is not counted.
  const body = { limit: LIMIT, wait: WAIT, request_id: randomUUID(), worker: NAME };
  const [status, answer] = await call(`queues/${queue}/claim`, body, stop.signal);
  if (stop.signal.aborted) return [];
  if (status !== 200) {
    console.error(`claim: ${status} ${JSON.stringify(answer)}`);
    await sleep(1000);
    return [];
  }
  // A claim is valid for ten seconds until it is confirmed.  Begin only what is: 200 says that it is ours, however late.
  const confirmed = await Promise.all(answer.jobs.map(extend));
  return answer.jobs.filter((_, place) => confirmed[place]);
}

// Confirm or keep a job for LEASE seconds.  A job that runs longer calls this again before the time is over.
async function extend(job) {
  const [status] = await call(`jobs/${job.name}/${job.id}/extend`, { token: job.token, lease: LEASE });
  return status === 200;
}

// Run a job.  Returns its report.
function run(job) {
  const report = { name: job.name, id: job.id, token: job.token };
  console.log(job.id);
  try {
    const sha256 = createHash("sha256").update(job.data.text, "utf8").digest("hex");
    return { ...report, status: "succeeded", result: { sha256 } };
  } catch (error) {
    // The data is wrong, so another attempt would fail, too.
    return { ...report, status: "failed", retryable: false, error: String(error) };
  }
}

while (!stop.signal.aborted) {
  const reports = (await claim()).map(run);
  if (!reports.length) continue;
  const [status, answer] = await call("reports", { reports });
  for (const each of status === 200 ? answer.reports : []) {
    // 409: the attempt is over, and somebody else has the job
    if (each.status !== 200) console.error(`${each.id}: ${each.problem.detail}`);
  }
}
