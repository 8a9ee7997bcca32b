"""A user's project, as type checkers see it; nothing here runs."""
