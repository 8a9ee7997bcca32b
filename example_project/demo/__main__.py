"""Read the options, set SHOP_… variables for the places of everything, and run the demo."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from secrets import token_hex

from demo.services import MailSink, Partner

HERE = Path(__file__).resolve().parent.parent


def main() -> int:
    """Return the exit status: 0 if every job ended as it should."""
    parser = argparse.ArgumentParser(prog="make demo", description="The example shop and its workers.")
    parser.add_argument("--once", action="store_true", help="do the work, check it, print a summary and end")
    parser.add_argument("--orders", type=int, default=40, help="how many orders customers place (default 40)")
    parser.add_argument("--processes", type=int, default=2, help="of the workers (default 2)")
    parser.add_argument("--threads", type=int, default=4, help="of each process (default 4)")
    parser.add_argument(
        "--lease", type=float, default=30, help="seconds after which a lost worker's jobs are run by others"
    )
    options = parser.parse_args()

    state = Path(os.environ.setdefault("SHOP_STATE", str(HERE / ".state")))
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    with MailSink() as mail, Partner() as partner:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "config.settings",
            # On a shared Redis, each demo has its own keys and removes them at the end.
            "SHOP_NAMESPACE": f"shop-demo-{token_hex(4)}",
            "SHOP_SMTP_PORT": str(mail.port),
            "SHOP_PARTNER_URL": partner.url,
            "SHOP_PROCESSES": str(options.processes),
            "SHOP_THREADS": str(options.threads),
            "SHOP_LEASE": str(options.lease),
        }
        import django

        django.setup()
        from demo.play import play

        return play(mail, partner, once=options.once, orders=options.orders)


if __name__ == "__main__":
    sys.exit(main())
