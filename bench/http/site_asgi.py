"""A site under ASGI with its HTTP API in threads, as docs/howto/http-api.md advises: for `python -m bench.http`."""

from a2wsgi import WSGIMiddleware
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application

site = get_asgi_application()
api = WSGIMiddleware(get_wsgi_application(), workers=4)


async def application(scope, receive, send):  # type: ignore[no-untyped-def]  # as in a project's asgi.py
    is_api = scope["type"] == "http" and scope["path"].startswith("/jobs/")
    await (api if is_api else site)(scope, receive, send)
