"""What a job is: its values, options, definition and outcome.  Pure: no store, no process."""
