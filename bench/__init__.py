"""Measures django_jobs side by side with its peers: `make bench`."""
