"""What every process that runs jobs needs: database connections, forks, internal errors, crash points for tests."""
