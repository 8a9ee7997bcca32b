"""Signatures of posted jobs, as Standard Webhooks describes them: the receiver knows who sent a job, and when.

https://www.standardwebhooks.com: HMAC-SHA256 over `id.timestamp.body`, in base64, with the prefix `v1,`.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256

PREFIX = "whsec_"


def key_of(secret: str) -> bytes:
    """Return the key in a secret: base64, usually after `whsec_`.  Raises ValueError."""
    text = secret.removeprefix(PREFIX)
    key = b64decode(text + "=" * (-len(text) % 4), validate=True)
    if len(key) < 16:
        raise ValueError("A secret has at least 16 bytes.")
    return key


def delivery_id(*parts: object) -> str:
    """Return an id that is the same each time that the same attempt of a job is posted, and differs otherwise."""
    return "msg_" + sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


def headers_for(body: bytes, id: str, at: int, secrets: Sequence[str]) -> dict[str, str]:
    """Return the three headers; without a secret, no signature.  `at`: seconds since the epoch.

    Every secret signs, so that a receiver accepts the job before and after it changes to the next one."""
    headers = {"webhook-id": id, "webhook-timestamp": str(at)}
    if secrets:
        content = f"{id}.{at}.".encode() + body
        made = [b64encode(hmac.digest(key_of(secret), content, sha256)).decode() for secret in secrets]
        headers["webhook-signature"] = " ".join(f"v1,{signature}" for signature in made)
    return headers
