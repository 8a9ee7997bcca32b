"""The parent process of `runworkers`: its children, their leases and their time limits."""
