"""Values, arguments, results and records, to and from bytes and JSON."""
