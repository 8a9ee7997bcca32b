"""Workflows and batches: what is made of the ends of jobs."""
