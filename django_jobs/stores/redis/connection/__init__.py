"""Connecting to Redis: addresses, scripts, repeatable calls, errors, the form of entries, and what all parts share."""
