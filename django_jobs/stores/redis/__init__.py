"""The store on Redis: for production, from one server to a cluster."""

from django_jobs.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
