"""How attempts end, by their worker or because the worker was lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any

from django_jobs.core.times import RUNNING_SUM, WAITING_SUM, as_text, slots_of
from django_jobs.core.values import PLAIN, Attempt, Claim, Completed, Controls, Ended, Recovered, State
from django_jobs.serialization.checked import read_number
from django_jobs.serialization.holders import job_of
from django_jobs.serialization.record import has_controls, is_plain_step, type_of, waited_for
from django_jobs.stores.redis.connection.clock_steps import RENEWED_WITHIN, ClockSteps
from django_jobs.stores.redis.connection.entries import claim_from, read_claim, text_of, texts, unsigned_text
from django_jobs.stores.redis.connection.part import LOOKED_INTO_AT_ONCE, OneCall, Part
from django_jobs.stores.redis.connection.scripts import Argument
from django_jobs.stores.values.sizes import MAX_BATCH, MAX_BYTES

#: The letters of lua/ending/settle.lua.
_LETTERS = {"retry": "r", "snooze": "s", "park": "b", "refile": "q", "bury": "d", "discard": "c"}
_STATES: dict[str, State | None] = {
    "r": State.RETRY, "m": State.RETRY, "s": State.SCHEDULED, "b": State.BLOCKED, "q": State.QUEUED, "d": State.DEAD,
    "c": State.CANCELLED, "-": None,
}  # fmt: skip
_LOST = unsigned_text("worker_lost", "The worker died or lost its lease while it held the job.")


class Settling(Part):
    """How attempts end, and how their jobs come back."""

    def complete(self, queue: str, done: Sequence[Completed]) -> list[str]:
        """running → succeeded.  Returns the ids whose claim was stale.  ValueError for more than MAX_BATCH jobs."""
        if not done:
            return []
        (script, queue, args, name), usual = call_of_complete(queue, done, self.options.history, self._archiving)
        return texts((self._run_shortly if usual else self._run)(script, queue, *args, call=name))

    def settle(self, queue: str, ended: Sequence[Ended]) -> list[State | None]:
        """End attempts of one queue that did not succeed, each as the method named by its `verb` says.  "refile" means:
        running → queued, before all jobs of its priority, with another record, not counted as an attempt.  "retry" with
        a record gives it to the job, which takes the unique key in it if that is free; with a queue, see `deliver`.

        Returns for each of them the job's new state, or None if the claim is stale.  Either all jobs whose claims are
        held are moved, or the call fails and moves none.  ValueError for more than MAX_BATCH attempts."""
        if not ended:
            return []
        if len(ended) > MAX_BATCH:
            raise ValueError(f"settle takes at most {MAX_BATCH} jobs a call, not {len(ended)}.")
        args: list[Argument] = []
        claims: list[Argument] = []
        times: list[tuple[str, int, int]] = []
        for one in ended:
            claim, verb = one.claim, one.verb
            number = one.failures if verb == "bury" else one.delay
            changed = "m" if one.queue else "e" if verb == "retry" and one.record else "" if one.begun else "p"
            args += (claim.id, f"{changed or _LETTERS[verb]}\n{number}\n{_presented(claim)}", text_of(one))
            claims += (claim.id, claim.token)
            if one.run_ms >= 0:
                times.append((type_of(claim.record), waited_for(claim), one.run_ms))
        answer = self._end("settle", queue, tuple(claims), self._archiving, as_text(slots_of(times)), *args)
        return [_STATES[letter] for letter in answer.decode()]

    def _end(self, name: str, queue: str, claims: tuple[Argument, ...], *args: Argument) -> Any:
        """Do _run; a call for the same claims counts as the same call."""
        return self._run(name, queue, *args, call=lambda: (name, queue, claims))

    def retry(self, claim: Claim, attempt: Attempt, delay: int) -> State | None:
        """running → retry, due in `delay` ms; failures + 1; the attempt is logged.

        Returns RETRY, or CANCELLED if the job was asked to stop, or None if the claim is stale.  A unique lock of mode
        "queued" is taken again if it is free."""
        return self.settle(claim.queue, [Ended(claim, "retry", attempt, delay)])[0]

    def park(self, claim: Claim, knows: str) -> State | None:
        """running → blocked, not counted as an attempt, at the front of its priority (several jobs of one call: in
        their order): workers of the digest `knows` do not know the job's name, or the format of its record.  It becomes
        queued again when a worker with another digest claims, however long that takes; JobInfo.parked_at says since
        when it waits.

        Returns BLOCKED, or CANCELLED if the job was asked to stop, or None if the claim is stale."""
        return self.settle(claim.queue, [Ended(claim, "park", knows=knows)])[0]

    def snooze(self, claim: Claim, delay: int, *, begun: bool = True) -> State | None:
        """running → scheduled, due in `delay` ms, not counted as a failure.  A job that has `begun` cannot expire.

        Returns SCHEDULED, or CANCELLED if the job was asked to stop, or None if the claim is stale."""
        return self.settle(claim.queue, [Ended(claim, "snooze", delay=delay, begun=begun)])[0]

    def bury(self, claim: Claim, attempt: Attempt) -> bool:
        """running → dead; failures + 1 unless the outcome is "worker_lost".  False if the claim is stale."""
        return self.settle(claim.queue, [Ended(claim, "bury", attempt)])[0] is not None

    def discard(self, claim: Claim, attempt: Attempt) -> bool:
        """running → cancelled, with the attempt as the reason.  False if the claim is stale."""
        return self.settle(claim.queue, [Ended(claim, "discard", attempt)])[0] is not None

    def release(self, queue: str, claims: Sequence[Claim]) -> list[str]:
        """running → queued, at the front of their priority in this order, not counted as attempts: for claims that a
        stopping worker has not finished.  Returns the ids of stale claims; what killed attempts held is free then."""
        args: list[Argument] = []
        for claim in claims:
            args += (claim.id, _presented(claim))
        return texts(self._run("release", queue, self._archiving, *args)) if args else []

    def begin(self, claim: Claim) -> bool:
        """Note that a job whose claim `has_to_wait` begins: from now on, a crash of its worker counts as its last.

        Until then, `recover` gives the job back without counting a crash.  A worker therefore calls this when nothing
        else runs in any of its processes: if it then dies as a whole, this job was the reason.  False if the claim is
        stale.  For other claims it changes nothing."""
        return bool(self._run("begin", claim.queue, claim.id, _presented(claim)))

    def checkin(self, claim: Claim, checkin: bytes) -> bool:
        """Store the JSON text of the last check-in while the job runs.  False if the claim is stale.  True even if the
        job was asked to stop: `extend` reports that."""
        return bool(self._run("checkin", claim.queue, claim.id, _token(claim), checkin))

    def transfer(self, claim: Claim, worker: str, lease: int) -> bool:
        """Give the claim (same token) to another holder with its own lease of `lease` ms, or a longer one that it has.
        It is told if the job was asked to stop.  False: the claim is stale; a killed attempt ends at the holder."""
        return bool(self._run("transfer", claim.queue, claim.id, _token(claim), worker, lease))

    # -- lost and stopped workers ---------------------------------------------

    def lapsed(self, queues: Sequence[str]) -> list[str]:
        """Return the queues in which `recover` or `expire` may find something.  As few round trips as the store can.
        Queues of servers that do not answer are left out; raises StoreUnavailable if none answers."""
        asked_at = monotonic()
        found = self._read_over("lapsed", queues, at_once=LOOKED_INTO_AT_ONCE, width=2)
        for queue, (_, now) in found.items():
            self._clock_steps().look(self.server_of(queue), now, asked_at)
        return [queue for queue, (ended, _) in found.items() if ended]

    def recover(self, queue: str, *, worker: str | None = None, limit: int = 100, spare: float = 0) -> list[Recovered]:
        """Take the claims of lost workers: those of `worker` at once (its parent process saw it die), otherwise those
        of every worker whose lease has expired.  A lease that was over at this store object's first look counts once
        nobody has renewed it for a fifth of `spare` ms; one that was over when the object found that the server's clock
        was set forward (it looks in `lapsed` and here), for `spare` ms.

        Each job gets crashes + 1 and an attempt "worker_lost" in its log.  Then it goes to the lane `alone`; to dead if
        that was crash number `max_crashes` or it is at-most-once; to cancelled if it was asked to stop.  Holders named
        "remote:…" are not touched (see overdue).  Returns at most `limit` jobs; call again until fewer come back.

        A job of a worker whose lease has expired is a suspect until it ends: all processes of that worker are gone,
        and any job that it held may have been the cause.  The job's claims say that it is a suspect.

        Two kinds of jobs go back without a crash and without an entry in the log: those whose claim `has_to_wait` and
        was not begun; and those that were no suspects, and for which this death would be the last crash."""
        holders = {worker} if worker is not None else set(self._expired_holders(queue, "", spare))
        return self._take("recover", queue, holders, worker, limit) if holders else []

    def release_worker(self, queue: str, worker: str, *, limit: int = 100) -> list[Recovered]:
        """running → queued, not counted as attempts: all jobs that `worker` holds, after its parent process ended it
        at the end of a drain.

        Like `release`, for a caller that has no list of the claims (the process that knew them is dead).  An at-most-
        once job may have started: it goes to dead with an attempt "worker_lost"; one that was asked to stop is
        cancelled.  Returns at most `limit` jobs: call again until fewer come back; then the lease is removed, too."""
        return self._take("release", queue, {worker}, worker, limit)

    def _expired_holders(self, queue: str, kind: str, spare: float) -> list[str]:
        asked_at, server, steps = monotonic(), self.server_of(queue), self._clock_steps()
        now, *flat = self._run("lost", queue, kind)
        steps.look(server, now, asked_at)
        leases = dict(zip(texts(flat[::2]), map(read_number, flat[1::2]), strict=True))
        # Remote workers extend their leases when they like.
        return steps.ended(server, f"{queue}/{kind}", leases, spare, 0 if kind else spare * RENEWED_WITHIN)

    def _clock_steps(self) -> ClockSteps:
        return self.__dict__.setdefault("_steps_of_clocks", ClockSteps())  # type: ignore[no-any-return]

    def watches_for(self, queue: str) -> float:
        """Return the seconds until `recover` should look again in this queue; inf if it watches no lease there."""
        return self._clock_steps().watches_for(f"{queue}/")

    def server_of(self, queue: str) -> str:
        """Return which server has the queue, if there are several: it answers for all of its queues or for none."""
        return ""

    def _take(self, mode: str, queue: str, holders: set[str], worker: str | None, limit: int) -> list[Recovered]:
        taken: list[Recovered] = []
        while True:
            ids, complete = self._held_by(queue, holders, limit - len(taken))
            moved = self._take_these(mode, queue, ids, worker, complete)
            taken += moved
            # The script stops when its answer is long enough.
            complete = complete and sum(len(job.record) for job in moved) < MAX_BYTES
            # People may have moved some of the jobs meanwhile: fewer than `limit` must mean that no more are held.
            if complete or not moved or len(taken) >= limit:
                break
        if complete and worker is None:
            self._remove_leases(queue, holders)
        return taken

    def _remove_leases(self, queue: str, holders: Iterable[str]) -> None:
        """Remove the leases of these holders, which are over, unless they hold a claim; their killed attempts end."""
        self._run("repair", queue, "leases", 0, "", "", "", "", *holders)

    def _take_these(
        self, mode: str, queue: str, ids: Sequence[str], worker: str | None, complete: bool
    ) -> list[Recovered]:
        head = (mode, worker or "", self.options.max_crashes, _LOST, self._archiving, "last" if complete else "")
        flat = self._run("recover", queue, *head, *ids)
        out = []
        for i in range(0, len(flat), 9):
            id, state, holder = texts((flat[i], flat[i + 2], flat[i + 8]))
            crashes, attempt, claimed_at, at, since = map(int, flat[i + 3 : i + 8])
            out.append(Recovered(id, flat[i + 1], State(state), crashes, holder, attempt, claimed_at, at, since))
        return out

    def _held_by(self, queue: str, holders: set[str], limit: int) -> tuple[list[str], bool]:
        """Return the ids of these holders' claims, at most `limit`, and whether that is all.  `claims` has an entry
        for each running job, so it is only walked when a worker is lost."""
        cursor, ids = 0, []
        while True:
            cursor, flat = self.transport.command("HSCAN", self.keys.of(queue)["claims"], cursor, "COUNT", 1000)
            cursor = int(cursor)
            for i in range(0, len(flat), 2):
                holder = read_claim(flat[i + 1])[2]
                if holder in holders or not holder:
                    ids.append(flat[i].decode(errors="replace"))
            if cursor == 0 or len(ids) > limit:
                return ids[:limit], len(ids) <= limit

    def overdue(self, queue: str, limit: int = 100, *, spare: float = 0) -> list[Claim]:
        """Return the claims of holders "remote:…" whose lease has expired (`spare` as in `recover`).  Their attempts
        failed; settle them normally.  The claims have `overdue` set: one that is extended before it is settled has not
        failed.  Leases of such holders without a claim are removed."""
        holders = self._expired_holders(queue, "remote", spare)[:limit]
        ids = list(map(job_of, holders))
        if not ids:
            return []
        self._remove_leases(queue, holders)
        names = self.keys.of(queue)
        found = self.transport.pipeline(
            [*(("HMGET", names[key], *ids) for key in ("claims", "jobs", "tries")), ("ZMSCORE", names["since"], *ids)]
        )
        out = []
        for id, holder, claim, record, tries, began in zip(ids, holders, *found, strict=True):
            token, claimed_at, held_by = read_claim(claim)
            if claim and held_by == holder:
                known = claimed_at, holder, False, abs(read_number(began or 0)), "", True
                out.append(claim_from(id, queue, token, record, tries, *known))
        return out


def call_of_complete(queue: str, done: Sequence[Completed], history: int, archiving: str) -> tuple[OneCall, bool]:
    """Return the call of lua/ending/complete.lua for these attempts, and whether its short form may do."""
    if len(done) > MAX_BATCH:
        raise ValueError(f"complete takes at most {MAX_BATCH} jobs a call, not {len(done)}.")
    args: list[Argument] = []
    times: list[tuple[str, int, int]] = []
    last: Claim | None = None
    token, usual = "", not archiving
    for claim, result, run_ms, name, controls, wait_ms in done:
        if last is None or claim.token != last.token or claim.claimed_at != last.claimed_at:
            token, last = _token(claim), claim  # claims of one call have the same
        flag, name = _to_free(claim, controls), name or type_of(claim.record)
        what = f"{token}\n{flag}\n{name}"
        if controls.workflow is not None:
            workflow = "" if claim.id.partition(".")[0] == controls.workflow else controls.workflow
            what += f"\n{claim.report}\n{'r' if controls.noted_result else '-'}{workflow}"
        elif claim.report:
            what += f"\n{claim.report}"
        args += (claim.id, what, b"%d:%b" % (run_ms, result))
        usual = usual and flag == "-" and controls.workflow is None
        if flag == "c":
            digest = "" if controls.unique_mode == "period" else controls.unique
            args += (digest or "", (controls.limit_key or "").replace("\0", ""))
        times.append((name, wait_ms, run_ms))
    slots = slots_of(times)
    run, wait = (sum([own.get(slot, 0) for own in slots.values()]) for slot in (RUNNING_SUM, WAITING_SUM))
    args[:0] = (history, archiving, run, wait, as_text(slots))
    return ("complete", queue, args, lambda: ("complete", queue, tuple((c.id, c.token) for c, *_ in done))), usual


def _token(claim: Claim) -> str:
    """Return the token in the form in which scripts compare it with the claim (lua/lib/ends/claim_end.lua)."""
    return f"{claim.token}:{claim.claimed_at}" if claim.claimed_at else str(claim.token)


def _presented(claim: Claim) -> str:
    """Return what a call presents that ends the attempt (owns_at_end in lua/lib/ends/claim_end.lua)."""
    more = ("", claim.report, "overdue") if claim.overdue else ("", claim.report) if claim.report else ()
    return _token(claim) + "\n".join(more)


def _to_free(claim: Claim, controls: Controls) -> str:
    """Return the flag for lua/ending/complete.lua: what to free with the claim, so that it need not read the record."""
    if claim.worker.endswith(claim.id):
        return "+"  # a holder of this job only, with a lease of its own
    # The record tells it, too, and is much faster to check than a dozen fields.
    if not (record := claim.record):
        plain = controls == PLAIN
    else:
        plain = not has_controls(record) or (controls.workflow is not None and is_plain_step(record))
    if plain:
        return "-"
    return "+" if controls is PLAIN or controls.keep_result is not None or controls.on_end is not None else "c"
