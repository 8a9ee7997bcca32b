"""The query: one text that chooses jobs, for pages, commands and HTTP, of the store and of the archive."""
