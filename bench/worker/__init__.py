"""What a worker makes of different kinds of jobs, and what it costs before the first."""
