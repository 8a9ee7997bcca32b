"""Jobs outside Django: a picture service gets its jobs posted, and a shell script fetches its own."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256

from django.conf import settings
from PIL import Image

from demo.marketplace import Marketplace
from demo.processes import Processes
from demo.services import free_port
from demo.work import PHOTOS
from django_jobs.models import ApiToken, RemoteJobType

WORKERS = settings.BASE_DIR / "remote"
LAYOUT, SEAL = "pictures.layout", "vault.seal"
#: Programs that the shell script needs; if one is missing, this part of the demo is left out.
PROGRAMS = ("curl", "jq", "sha256sum")
LONGEST_SIDE = 320


class RemoteWork:
    """Both workers, and their jobs."""

    def __init__(self, address: str) -> None:
        self.url = f"{address}/jobs"
        self.missing = [program for program in PROGRAMS if shutil.which(program) is None]
        self._port = free_port()

    def prepare(self) -> None:
        """Create the job types, as an administrator does in the admin, and a token for each program."""
        post_to = f"http://127.0.0.1:{self._port}/"
        RemoteJobType.objects.create(name=LAYOUT, queue="media", url=post_to, credentials="pictures", attempts=5)
        RemoteJobType.objects.create(name=SEAL, queue="vault", attempts=5)
        self._tokens = {name: token(f"worker of {name}", "work", jobs=[name]) for name in (LAYOUT, SEAL)}
        self._marketplace = Marketplace(self.url, token("marketplace", "enqueue", "read"))

    def start(self, processes: Processes) -> None:
        """Start the workers; the web server must be running."""
        account = settings.DJANGO_JOBS["API"]["CREDENTIALS"]["pictures"]
        command = [sys.executable, str(WORKERS / "push_worker.py"), str(self._port)]
        credentials = {"PUSH_CREDENTIALS": f"{account['user']}:{account['password']}"}
        processes.run("picture service", command, **self._environment(LAYOUT), **credentials)
        if not self.missing:
            processes.run("shell worker", [str(WORKERS / "pull_worker.sh"), "vault"], **self._environment(SEAL))

    def _environment(self, name: str) -> dict[str, str]:
        return {"JOBS_URL": self.url, "JOBS_TOKEN": self._tokens[name]}

    def trade(self) -> None:
        """Enqueue jobs as the marketplace: the layout of every photo, and a seal for its certificate."""
        for photo in PHOTOS:
            with Image.open(photo) as image:
                self._marketplace.put(LAYOUT, f"layout-{photo.stem}", {"width": image.width, "height": image.height})
            if not self.missing:
                self._marketplace.put(SEAL, f"seal-{photo.stem}", {"text": certificate(photo.stem)})

    def effects(self) -> Iterator[tuple[bool, str]]:
        """Yield the checks, as in check.py."""
        result = self._marketplace.result
        layouts = [result(LAYOUT, f"layout-{photo.stem}") for photo in PHOTOS]
        fitting = [layout for layout in layouts if layout and max(layout.values()) == LONGEST_SIDE]
        yield len(fitting) == len(PHOTOS), f"{len(fitting)} layouts made by the picture service that is no Django"
        if not self.missing:
            expected = [{"sha256": sha256(certificate(photo.stem).encode()).hexdigest()} for photo in PHOTOS]
            seals = [result(SEAL, f"seal-{photo.stem}") for photo in PHOTOS]
            right = sum(seal == wanted for seal, wanted in zip(seals, expected, strict=True))
            yield right == len(PHOTOS), f"{right} certificates sealed by the worker in shell"


def token(name: str, *scopes: str, jobs: Sequence[str] = ()) -> str:
    """Return the secret of a new token."""
    return ApiToken.objects.issue(name, scopes, jobs)[1]


def certificate(product: str) -> str:
    """Return the text to be sealed."""
    return f"This {product.replace('-', ' ')} comes from the shop."
