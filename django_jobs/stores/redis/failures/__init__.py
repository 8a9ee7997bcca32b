"""The groups of failed jobs, and how many of them failed when."""
