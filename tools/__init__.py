"""Programs that help to develop django_jobs; none of them is in the wheel."""
