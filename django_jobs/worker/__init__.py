"""Running jobs: `manage.py runworkers` is a parent (parent/) and the processes it forks (child/, maintenance/)."""
