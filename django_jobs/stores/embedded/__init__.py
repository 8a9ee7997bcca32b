"""The stores "embedded" and "memory": a private Valkey or Redis that the processes of a machine start and share."""
