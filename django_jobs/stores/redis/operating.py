"""The methods by which people change jobs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from django_jobs.core import registry
from django_jobs.core.queue_stats import signed
from django_jobs.core.values import SILENT, Edited, State, WorkerInfo
from django_jobs.serialization.checked import loaded, read_count
from django_jobs.stores.redis.adding import Adding
from django_jobs.stores.redis.connection.entries import texts, unsigned_text
from django_jobs.stores.redis.connection.scripts import Argument
from django_jobs.stores.redis.standing import Positions
from django_jobs.stores.redis.stats import places_of
from django_jobs.stores.values.documents import read_worker


class Operating(Adding, Positions):
    """The methods by which users change jobs and queues, the reports of `runworkers` parents, and documents.

    An id that does not exist, or is in a state not allowed, is ignored.  A method that takes several ids handles all of
    them in one atomic step."""

    def cancel(self, queue: str, ids: Sequence[str]) -> dict[str, State]:
        """waiting → cancelled.  A running job is asked to stop (`ctx.should_stop`), and becomes cancelled unless it
        succeeds or is dead.  Returns id → state after the call (CANCELLED, RUNNING, or unchanged) for the ids that
        exist, also for those that a retry has moved from this queue to another one."""
        answers: dict[str, State] = {}

        def cancel(where: str, some: Sequence[str]) -> Collection[str]:
            flat = texts(self._run("cancel", where, self._archiving, *some))
            found = {flat[i]: State(flat[i + 1]) for i in range(0, len(flat), 2)}
            answers.update(found)
            return found

        self._follow(queue, ids, cancel)
        return answers

    def revive(
        self,
        queue: str,
        ids: Sequence[str],
        *,
        record: bytes | None = None,
        was: bytes = b"",
        at: int | None = None,
        start_again: bool = True,
    ) -> list[str]:
        """scheduled, retry, blocked, dead, cancelled, expired → queued, to run now.

        For a finished job, failures and crashes start again at 0 (the log stays, and the numbers of attempts go on).
        A finished job whose unique key another job holds stays as it is, and so does a job whose new record has such a
        key (see key_holders).  With `record` (one id only), the
        record is replaced in the same step (a person edited the arguments); a unique key that the new record lacks is
        freed.  The lock is taken if it is free, except a lock for a period.  A job that was killed while it ran is
        blocked until that attempt has ended.  With `at` (ms, one id only), the job moves only if `JobInfo.at` still
        has that value, so that a repeated call does not revive the job after a later end.  With `was` (one id only), it
        moves only if that is still its record: somebody else may have edited it.  With
        `start_again` False, a dead or cancelled job that is delivered at most once stays: it may have been started.
        Returns the ids that moved, also of jobs that `kill` would find elsewhere.  Raises ValueError for `record`,
        `was` or `at` with more or fewer ids than one."""
        if (record is not None or was or at is not None) and len(ids) != 1:
            raise ValueError(f"A new record or a time goes with one job, not {len(ids)}.")
        seen, again = "" if at is None else at, "again" if start_again else ""
        return self._wherever("revive", queue, ids, record or b"", seen, again, was)

    def edit(self, queue: str, id: str, record: bytes, *, was: bytes) -> Edited:
        """scheduled, queued, retry, blocked: replace the record `was` where the job waits; its turn and its time stay.

        The lock moves to a new unique key, with the rest of its period.  A job that waits for a limit, and now has
        another limit key, is queued again in its turn.  If the job's record is already `record`, the answer is EDITED,
        whatever the job's state.  Follows a job that a retry has moved, as `kill` does."""
        answer = Edited.GONE

        def edit(where: str, _: Sequence[str]) -> Collection[str]:
            nonlocal answer
            answer = Edited(self._run("edit", where, id, was, record).decode())
            return () if answer is Edited.GONE else [id]

        self._follow(queue, [id], edit)
        return answer

    def delete(self, queue: str, ids: Sequence[str]) -> list[str]:
        """any state but running → deleted, with locks, log and result.  A job that was killed while it ran stays until
        that attempt has ended.  Returns the deleted ids, as `kill` does."""
        return self._wherever("delete", queue, ids)

    def kill(self, queue: str, ids: Sequence[str], reason: str, state: State = State.DEAD) -> list[str]:
        """waiting or running → dead or cancelled, with a line "killed" in the log, numbered 0 if no attempt ended
        with it.

        A running job loses its claim at once.  If the claim's holder has a lease, `extend` tells it to end the attempt.
        Until the attempt has ended (see `renew`), it keeps its slot, its lock and its place in the queue's limit, and
        the workflow of the job is not told.  Returns the ids that moved, also of those that a retry has moved from this
        queue to another one."""
        return self._wherever("kill", queue, ids, state.value, unsigned_text("killed", reason), self._archiving)

    def _wherever(self, name: str, queue: str, ids: Sequence[str], *args: Argument) -> list[str]:
        """Run a script that returns the ids it has changed in this queue, and in those to which retries have moved
        the others.  Returns all ids that were changed."""
        changed: list[str] = []

        def change(where: str, some: Sequence[str]) -> Collection[str]:
            found = texts(self._run(name, where, *args, *some))
            changed.extend(found)
            return found

        self._follow(queue, ids, change)
        return changed

    def _follow(self, queue: str, ids: Sequence[str], act: Callable[[str, Sequence[str]], Collection[str]]) -> None:
        """Call `act` with these jobs of the queue, and with those that it does not return in the queues to which
        retries have moved them, when they have arrived.

        The numbers of a job's moves grow.  A server that has lost its last writes may know an earlier one only, which
        leads back to where the job has left."""
        wanted = {queue: dict.fromkeys(ids, 0)} if ids else {}  # queue → id → number of the move to it
        while wanted:
            where, some = wanted.popitem()
            found = act(where, list(some))
            moves = self._moves(where, [id for id in some if id not in found])
            over = self.deliver(where, [move.key for move in moves.values()])
            self.drop_end_calls(where, over)  # or the jobs would still look as if they were on their way
            for id, move in moves.items():
                if move.key in over and move.number > some[id]:
                    wanted.setdefault(move.queue, {})[id] = move.number

    def reschedule(self, queue: str, ids: Sequence[str], run_at: int) -> list[str]:
        """scheduled, retry, queued, blocked → scheduled (retry stays retry) at `run_at` ms.  Returns the moved ids, as
        `kill` does."""
        return self._wherever("reschedule", queue, ids, run_at)

    def pause(self, queue: str, *, name: str | None = None, reason: str = "", until: int = 0, by: str = "") -> bool:
        """Pause the queue, or one job type in it, until `until` (ms; 0 = until it is resumed).  Running jobs finish.
        `by`: the user who pauses it, shown with the reason.  A type is paused whatever it is called (registry.py).

        Returns False if it is paused so already: nothing changes."""
        return bool(self._run("pause", queue, registry.identity_of(name or ""), until, signed(reason, by)))

    def resume(self, queue: str, *, name: str | None = None) -> None:
        """End the pause.  Blocked jobs of a type come back in batches, by this call and by later claims."""
        for each in registry.names_of(name or ""):  # an older version pauses a type under the name that it was given
            self._run("resume", queue, each)

    def ids(self, queue: str, state: State, cursor: str = "", limit: int = 1000) -> tuple[list[str], str]:
        """Walk through the ids in one state, in batches.  Jobs that enter or leave the state meanwhile may be missed;
        no other job is.  An id may come twice, in two batches, if the number of jobs in the state changes much
        meanwhile: a caller counts the jobs that it changed, not the ids.  Returns ids and the next cursor ("" = the
        end).  Raises ValueError for a cursor that it cannot read.

        The cursor is `key:redis cursor`.  SCAN returns every id that stays, and some twice if the key is resized
        between two calls.  (A walk in the order of scores would miss a job whose score changes.)"""
        keys = ["waits"] if state is State.BLOCKED else places_of(state)
        name, _, position = (cursor or f"{keys[0]}:0").partition(":")
        if name not in keys or not position.isdigit():
            raise ValueError(f"{cursor!r} is not a cursor that ids() returned for {state}.")
        verb = "HSCAN" if state in (State.RUNNING, State.BLOCKED) else "ZSCAN"
        following, flat = self.transport.command(verb, self.keys.of(queue)[name], position, "COUNT", limit)
        found = list(dict.fromkeys(texts(flat[::2])))
        if int(following):
            return found, f"{name}:{int(following)}"
        rest = keys[keys.index(name) + 1 :]
        return found, f"{rest[0]}:0" if rest else ""

    # -- workers and shared documents ----------------------------------------

    def publish_worker(self, name: str, info: Mapping[str, Any], ttl: int) -> list[str]:
        """Record that this `runworkers` parent process is alive (for `ttl` ms) and what it does.  Returns the commands
        that were sent to this `incarnation` of it since the last call ("stop", "quiet"), each once."""
        args = name, json.dumps(dict(info)), ttl, os.urandom(9).hex()
        told = texts(self._run_in_fleet("publish_worker", ["workers", "seen", f"commands:{name}"], *args))
        me, commands = info.get("incarnation"), [command.partition("@") for command in told]
        return [word for word, _, whom in commands if whom in ("", me)]  # others were for a worker of the same name

    def forget_worker(self, name: str) -> None:
        """Remove the entry of a parent process that has ended."""
        self.transport.command("HDEL", self.keys.fleet("workers"), name)
        self.transport.command("ZREM", self.keys.fleet("seen"), name)
        self.transport.command("DEL", self.keys.fleet(f"commands:{name}"))

    def command_worker(self, name: str, command: str) -> bool:
        """Send "stop" or "quiet" to a parent process, to be read at its next heartbeat.  False if there is no such
        worker."""
        flat = self.transport.command("HGET", self.keys.fleet("workers"), name)
        if flat and (incarnation := read_worker(flat.partition(b":")[2]).get("incarnation")):
            command = f"{command}@{incarnation}"
        return bool(self._run_in_fleet("command_worker", ["seen", f"commands:{name}"], name, command))

    def workers(self, *, silent: bool = False) -> list[WorkerInfo]:
        """Return the `runworkers` parent processes that are alive; with `silent`, also those that have not reported in
        time and did not say that they end, for an hour.  Their state is "silent"."""
        flat = self.transport.command("HGETALL", self.keys.fleet("workers"))
        now, out = self.now(), []
        alive = set(texts(self.transport.command("ZRANGEBYSCORE", self.keys.fleet("seen"), f"({now}", "+inf")))
        for i in range(0, len(flat), 2):
            name = flat[i].decode(errors="replace")
            seen_at, _, info = flat[i + 1].partition(b":")
            if name in alive or silent:
                at = min(read_count(seen_at), now) or now  # it was alive an hour ago, so this is not far from the truth
                about = read_worker(info)
                out.append(WorkerInfo(name, at, about if name in alive else {**about, "state": SILENT}))
        return sorted(out)

    def get_document(self, key: str) -> dict[str, Any]:
        """Return a small JSON object that all workers share (paused schedules, bulk operations, the version of remote
        types …); {} if there is none.  The value of an entry that cannot be read is None."""
        flat = self.transport.command("HGETALL", self.keys.fleet(f"document:{key}"))
        return {flat[i].decode(errors="replace"): loaded(flat[i + 1]) for i in range(0, len(flat), 2)}

    def update_document(
        self, key: str, changes: Mapping[str, Any], *, expected: Mapping[str, Any] | None = None
    ) -> bool:
        """Set some entries of the object, each atomically; the value None removes the entry.

        With `expected`, change nothing unless these entries have these values, as `get_document` returned them (None:
        there is no such entry).  The check and all changes are then one atomic step.  Returns whether it was done."""
        wanted = [(field, "" if value is None else json.dumps(value)) for field, value in (expected or {}).items()]
        changed = [(field, json.dumps(value)) for field, value in changes.items() if value is not None]
        removed = [field for field, value in changes.items() if value is None]
        args: list[Argument] = [len(wanted), *chain.from_iterable(wanted)]
        args += [len(changed), *chain.from_iterable(changed), *removed]
        return bool(self._run_in_fleet("update_document", [f"document:{key}"], *args))
