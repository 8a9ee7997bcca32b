"""A small shop that was written for Celery.

Its modules import the names of the layer.  To run it on Celery, the test changes these imports back, and nothing else.
"""
