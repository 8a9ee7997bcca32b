"""Every Redis key name.  The table of types and members is in docs/contributing/internals.md."""

from __future__ import annotations

from zlib import crc32

#: The keys of one queue: key name → Redis type.  All share the hash tag, so one queue is one Cluster slot.
QUEUE_KEYS = {
    "jobs": "hash",
    "queued": "zset",
    "alone": "zset",
    "scheduled": "zset",
    "retry": "zset",
    "since": "zset",
    "claims": "hash",
    "leases": "zset",
    "blocked": "zset",
    "waits": "hash",
    "slots": "zset",
    "succeeded": "zset",
    "kept": "zset",
    "dead": "zset",
    "failures": "zset",
    "grouped": "hash",
    "error_groups": "hash",
    "tag_groups": "hash",
    "errors": "hash",
    "cancelled": "zset",
    "expired": "zset",
    "expiries": "zset",
    "tries": "hash",
    "attempts": "hash",
    "results": "hash",
    "checkins": "hash",
    "stops": "hash",
    "unique": "hash",
    "fired": "hash",
    "result_at": "string",
    "trimmed_to": "string",
    "returned": "string",
    "returned_before": "string",
    "remembered": "hash",
    "remembered_at": "zset",
    "paused": "hash",
    "answers": "hash",
    "recent": "hash",
    "recent_before": "hash",
    "totals": "hash",
    "minutes": "hash",
    "times": "string",
    "timed": "hash",
    "samples": "hash",
    "seq": "string",
    "wake": "list",
    "wake_alone": "list",
    "unknown": "hash",
    "offer": "list",
    "offer_alone": "list",
    "archive": "list",
    "archiver": "string",
    "checker": "string",
    "holdings": "hash",
    "waiters": "hash",
    "ends": "stream",
    "notes": "list",
    "reading": "string",
    "end_calls": "hash",
}

#: The keys that belong to no queue (`Keys.fleet`).  Those of documents, `document:<key>`, are hashes.
FLEET_KEYS = {
    "queues": "set",
    "workers": "hash",
    "seen": "zset",
    "workflows": "zset",
    "workflow_checks": "zset",
    "answers": "hash",
    "checker": "string",
}

#: The keys of one place of identities (`Keys.identity`), in a slot of its own.
IDENTITY_KEYS = {"homes": "hash", "homes_at": "zset", "answers": "hash"}
#: Number of places that share the identities.  It must never change, because the id alone determines the place.
PLACES = 16

#: The index of failed jobs of earlier versions.  We do not read it.  It stays until no supported release uses it: a
#: worker of an earlier version that runs beside ours, or after us, goes on with it.
EARLIER_KEYS = frozenset({"groups", "chunks", "members", "tags"})


#: The place of calls that belong to no queue.  No queue has a name with a slash.
FLEET = "/"


class Keys:
    """The key names of one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._queues: dict[str, dict[str, str]] = {}

    def of(self, queue: str) -> dict[str, str]:
        """Return key name → full key, for one queue, one place of identities, or FLEET."""
        try:
            return self._queues[queue]
        except KeyError:
            prefix = self.fleet("") if queue == FLEET else f"{{{self.namespace}:{queue}}}:"
            names = self._queues[queue] = {name: prefix + name for name in _kinds(queue)}
            return names

    @staticmethod
    def identity(id: str) -> str:
        """Return the place of the identity with this id.  No queue has a name with "/"."""
        return f"/{crc32(id.encode(errors='replace')) % PLACES}"

    def workflow(self, id: str) -> str:
        """Return the key of one workflow or batch: a slot of its own, which a queue "~<id>" would share."""
        return f"{{{self.namespace}:~{id}}}:workflow"

    def answers(self, place: str) -> str:
        """Return the key of the answers to the calls of a place: a queue, "~" and the id of a workflow, or FLEET."""
        return self.fleet("answers") if place == FLEET else f"{{{self.namespace}:{place}}}:answers"

    def fleet(self, name: str) -> str:
        """Return a key that belongs to no queue: one of FLEET_KEYS, `commands:<worker>` or `document:<key>`."""
        return f"{{{self.namespace}}}:{name}"


def _kinds(place: str) -> dict[str, str]:
    return FLEET_KEYS if place == FLEET else IDENTITY_KEYS if place.startswith("/") else QUEUE_KEYS
