"""Lists of jobs and queues: filters, times, orders."""
