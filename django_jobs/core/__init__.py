"""What a job is: its values, options, definition and outcome.  Pure: uses no store and no process."""
