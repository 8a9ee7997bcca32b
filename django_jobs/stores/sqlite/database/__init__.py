"""The SQLite file: connections, transactions, and the moves inside one transaction."""
