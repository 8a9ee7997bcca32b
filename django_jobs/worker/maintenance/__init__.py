"""The maintenance process of `runworkers`: work that any worker does on behalf of all workers."""
