"""The maintenance process of `runworkers`: work that one worker does on behalf of all workers."""
