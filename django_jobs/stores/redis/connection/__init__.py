"""Connecting to Redis: addresses, scripts, repeatable calls, errors."""
