"""Samples of the totals of queues, and the charts that are made of them.  Pure."""
