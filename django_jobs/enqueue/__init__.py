"""The way in: from `@job` and its methods to the store."""
