"""The SQLite file: connections, transactions, and the transitions inside one transaction."""
