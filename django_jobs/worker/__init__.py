"""Running jobs: `manage.py runworkers` is a parent (supervisor.py) and the children it forks (child.py)."""
