"""The options of `@job`."""
