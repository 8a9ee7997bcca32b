"""The store on Redis: for production, from one server to a cluster."""

from django_jobs.stores.redis.store import Store

__all__ = ["Store"]
