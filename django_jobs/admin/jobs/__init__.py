"""Pages about jobs: lists, one job, actions on one and on many."""
