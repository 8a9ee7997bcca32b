"""The other pages of the console: overview, queues, workers, schedules, history."""
