"""Running one job and settling its attempt.  Used by workers, the HTTP API and the test kit; starts no process."""
