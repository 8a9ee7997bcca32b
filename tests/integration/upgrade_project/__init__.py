"""A project that runs on two versions of django_jobs, each in processes of its own."""
