"""Reaching Redis: addresses, scripts, calls that may be sent again, errors."""
