"""Pages about jobs: lists, a single job, actions on one or many jobs."""
