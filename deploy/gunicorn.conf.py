# /srv/shop/gunicorn.conf.py: gunicorn reads it if it starts in this folder.
from contextlib import suppress
from socket import SHUT_RD

wsgi_app = "shop.wsgi"
bind = "127.0.0.1:8000"
worker_class = "gthread"
workers = 2
# More than the number of claims that wait (`wait`) at a time: each holds a thread.
threads = 16
# A connection ends with its answer. The rest of a body that was refused is then not read.
keepalive = 0
# Seconds that requests have to end after SIGTERM: more than a claim may wait.
graceful_timeout = 30


def post_request(worker, req, environ, resp):
    """Wait for no client that is still sending: gunicorn would do so for two seconds, and accept nobody meanwhile."""
    with suppress(OSError):
        environ["gunicorn.socket"].shutdown(SHUT_RD)
