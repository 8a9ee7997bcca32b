"""The stores "embedded" and "memory": a private Valkey or Redis that the processes of one machine start, share and end."""
