"""A child process of `runworkers`: claims jobs, runs them, settles them."""
