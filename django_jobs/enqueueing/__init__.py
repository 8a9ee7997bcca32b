"""How jobs are enqueued: from `@job` and its methods to the store."""
